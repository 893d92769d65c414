package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// A job's record lives in `calve/jobs/JOB/`, where Paimon's orphan cleaner does not look: `open-N` is written before
// epoch N publishes anything, `closed-N` when it ended well, with the progress of its last snapshot. They matter only
// when all snapshots of the job have expired (another engine may expire them): then `closed-N` of the newest epoch says
// where the job stood, and without it nobody can know, so the job refuses to start.
const jobsDir = "calve/jobs/"

type jobRecord struct {
	Epoch      int64             `json:"epoch"`
	TimeMillis int64             `json:"timeMillis"`
	Identifier int64             `json:"commitIdentifier,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Written    bool              `json:"written,omitempty"` // the job has published a snapshot
}

// commitUser is the user of the snapshots this handle publishes.
func (t *Table) commitUser() string { return t.user }

// claim takes the job over: it writes `open-N`, finds the job's last snapshot and publishes an empty one with the new
// epoch. Since snapshots are totally ordered, a process with an older epoch either published before it, and its
// progress is the one we found, or sees our snapshot under its next commit and is fenced.
func (t *Table) claim(ctx context.Context) error {
	if t.set.Job == "" {
		t.user = "calve-" + t.env.NewID()
		return nil
	}
	t.user = "calve-job-" + t.set.Job
	epoch, last, err := t.openEpoch(ctx)
	if err != nil {
		return err
	}
	t.epoch = epoch
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	for {
		if err := t.findProgress(ctx, last); err != nil {
			return err
		}
		base := t.known
		_, err := t.fence(ctx, base)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errMoved) {
			return fmt.Errorf("taking over job %q: %w", t.set.Job, err)
		}
		if err := t.refresh(ctx); err != nil {
			return err
		}
	}
}

// errMoved: the job published between our look at it and our fence.
var errMoved = errors.New("the job moved on")

// fence publishes the empty snapshot of the new epoch, unless the job published after the snapshot base.
func (t *Table) fence(ctx context.Context, base int64) (*manifest.Snapshot, error) {
	props := map[string]string{}
	for k, v := range t.progress.Properties {
		props[k] = v
	}
	props[PropEpoch] = strconv.FormatInt(t.epoch, 10)
	snap, err := t.meta.Commit(ctx, manifest.Commit{
		Kind: manifest.Append, User: t.user, Identifier: t.identifier + 1, Properties: props, Watermark: t.progress.Watermark,
		Check: func(ctx context.Context, latest *manifest.Snapshot) error {
			if err := t.checkEpoch(ctx, latest); err != nil {
				return err
			}
			for id := base + 1; latest != nil && id <= latest.ID; id++ {
				s, err := t.meta.Snapshot(ctx, id)
				if err != nil {
					return err
				}
				if s.CommitUser == t.user {
					return errMoved
				}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	t.identifier++
	t.progress.Properties = props
	return snap, t.catchUp(ctx, snap, nil)
}

// findProgress sets progress and identifier from the newest snapshot of the job, or from its closing record.
func (t *Table) findProgress(ctx context.Context, closed *jobRecord) error {
	s, err := t.meta.LastOfUser(ctx, t.user)
	switch {
	case err == nil:
		t.identifier, t.hasWritten = s.CommitIdentifier, hasProgress(s.Properties)
		t.progress = Progress{Properties: s.Properties, Watermark: s.Watermark}
		return nil
	case !errors.Is(err, manifest.ErrNoSnapshot):
		return err
	case closed == nil:
		return nil // the job is new
	case closed.TimeMillis == 0:
		return fmt.Errorf("%w: job %q of %s: no snapshot of it is left (expired by another engine?) and its epoch %d did not end cleanly; "+
			"find out how far it came, then start it under a new job name with explicit start offsets", ErrProgressLost, t.set.Job, t.store.URL(""), closed.Epoch)
	}
	t.identifier, t.hasWritten = closed.Identifier, closed.Written
	t.progress = Progress{Properties: closed.Properties}
	return nil
}

func hasProgress(props map[string]string) bool {
	for k := range props {
		if k != PropEpoch {
			return true
		}
	}
	return false
}

// openEpoch claims the next epoch. The second result is the record of the newest earlier epoch: with TimeMillis 0 when
// that one did not end cleanly after it had been opened, nil when there is none.
func (t *Table) openEpoch(ctx context.Context) (int64, *jobRecord, error) {
	dir := jobsDir + url.PathEscape(t.set.Job)
	for {
		newest, closed, err := t.newestEpoch(ctx, dir)
		if err != nil {
			return 0, nil, err
		}
		rec := jobRecord{Epoch: newest + 1, TimeMillis: t.env.Now().UnixMilli()}
		data, err := json.Marshal(rec)
		if err != nil {
			return 0, nil, err
		}
		won, err := storage.PutOnce(ctx, t.store, fmt.Sprintf("%s/open-%d", dir, rec.Epoch), data)
		if err != nil {
			return 0, nil, fmt.Errorf("claiming job %q: %w", t.set.Job, err)
		}
		if won {
			return rec.Epoch, closed, nil
		}
	}
}

func (t *Table) newestEpoch(ctx context.Context, dir string) (int64, *jobRecord, error) {
	var newest, newestClosed int64
	for info, err := range t.store.List(ctx, dir) {
		if err != nil {
			return 0, nil, err
		}
		name := info.Name[strings.LastIndexByte(info.Name, '/')+1:]
		if n, ok := numbered(name, "open-"); ok {
			newest = max(newest, n)
		}
		if n, ok := numbered(name, "closed-"); ok {
			newestClosed = max(newestClosed, n)
		}
	}
	if newest == 0 {
		return 0, nil, nil
	}
	rec := &jobRecord{Epoch: newest}
	if newestClosed == newest {
		data, err := storage.ReadAll(ctx, t.store, fmt.Sprintf("%s/closed-%d", dir, newest), 1<<20)
		if err != nil {
			return 0, nil, err
		}
		if err := json.Unmarshal(data, rec); err != nil {
			return 0, nil, fmt.Errorf("%s/closed-%d: %w", t.store.URL(dir), newest, err)
		}
	}
	return newest, rec, nil
}

func numbered(name, prefix string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	return n, err == nil && n > 0
}

// release writes the closing record of the epoch.
func (t *Table) release(ctx context.Context) error {
	if t.epoch == 0 {
		return nil
	}
	t.commitMu.Lock()
	rec := jobRecord{Epoch: t.epoch, TimeMillis: t.env.Now().UnixMilli(), Identifier: t.identifier, Properties: t.progress.Properties, Written: t.hasWritten}
	t.commitMu.Unlock()
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s%s/closed-%d", jobsDir, url.PathEscape(t.set.Job), t.epoch)
	if _, err := storage.PutOnce(ctx, t.store, name, data); err != nil {
		return fmt.Errorf("closing job %q: %w", t.set.Job, err)
	}
	return nil
}
