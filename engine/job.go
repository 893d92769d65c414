package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// A job's record lives in `calve/jobs/JOB/`, where Paimon's orphan cleaner does not look. `open-N` is written after the
// snapshot that opens epoch N and before the epoch's first rows; `closed-N` when the epoch ended well, with the progress
// of its last snapshot. They matter only when all snapshots of the job have expired (another engine may expire them):
// then `closed-N` of the newest epoch says where the job stood, and without it nobody can know, so the job refuses to
// start.
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

// claim takes the job over: it finds the job's last snapshot and publishes an empty one with the next epoch. Since
// snapshots are totally ordered, a process with an older epoch either published before it, and its progress is the one
// we found, or sees our snapshot under its next commit and is fenced. Of two processes that claim at the same time the
// second finds the first one's snapshot under its own, looks again and takes the epoch after it.
func (t *Table) claim(ctx context.Context) error {
	if t.set.Job == "" {
		t.user = "calve-" + t.env.NewID()
		return nil
	}
	t.user = userOf(t.set.Job)
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	for {
		if err := t.findProgress(ctx); err != nil {
			return err
		}
		err := t.fence(ctx, t.known)
		if err == nil {
			if err := t.record(ctx, "open", jobRecord{Epoch: t.epoch, TimeMillis: t.env.Now().UnixMilli()}); err != nil {
				return err
			}
			t.forgetEpoch(ctx, t.epoch-1)
			t.claimed = true
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
func (t *Table) fence(ctx context.Context, base int64) error {
	props := map[string]string{}
	for k, v := range t.progress.Properties {
		props[k] = v
	}
	props[PropEpoch] = strconv.FormatInt(t.epoch, 10)
	snap, err := t.meta.Commit(ctx, manifest.Commit{
		Kind: manifest.Append, User: t.user, Identifier: t.identifier + 1, Properties: props, Watermark: t.progress.Watermark,
		Check: func(ctx context.Context, latest *manifest.Snapshot) error {
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
		return err
	}
	t.identifier++
	t.last = snap.ID
	t.progress.Properties = props
	return t.catchUp(ctx, snap, nil)
}

// findProgress sets epoch, progress and identifier from the newest snapshot of the job, or from its closing record.
func (t *Table) findProgress(ctx context.Context) error {
	s, err := t.meta.LastOfUser(ctx, t.user)
	if err == nil {
		e, err := epochOf(s)
		t.epoch, t.identifier, t.last, t.hasWritten = e+1, s.CommitIdentifier, s.ID, hasProgress(s.Properties)
		t.progress = Progress{Properties: maps.Clone(s.Properties), Watermark: s.Watermark}
		delete(t.progress.Properties, manifest.PropOrder) // it is of the snapshot's rows
		return err
	}
	if !errors.Is(err, manifest.ErrNoSnapshot) {
		return err
	}
	opened, closed, err := t.newestEpoch(ctx)
	if err != nil {
		return err
	}
	if opened > 0 && closed == nil && !t.set.Restart {
		return fmt.Errorf("%w: job %q of %s: no snapshot of it is left (expired by another engine?) and its epoch %d did not end cleanly; "+
			"find out how far it came, then start it under a new job name with explicit start offsets", ErrProgressLost, t.set.Job, t.store.URL(""), opened)
	}
	t.epoch = opened + 1
	if closed != nil {
		t.identifier, t.hasWritten = closed.Identifier, closed.Written
		t.progress = Progress{Properties: closed.Properties}
	}
	return nil
}

// ProgressOf reads how far a job has come in the table in the store's root, without taking it over: the progress of its
// last snapshot, and whether there is one.
func ProgressOf(ctx context.Context, store storage.Store, job string, env Env) (Progress, bool, error) {
	t := &Table{store: store, meta: manifest.Open(store, env.manifest()), set: Settings{Job: job}, env: env, user: userOf(job)}
	err := t.findProgress(ctx)
	return t.progress, t.hasWritten, err
}

// userOf is the commit user of a job's snapshots.
func userOf(job string) string { return "calve-job-" + job }

func hasProgress(props map[string]string) bool {
	for k := range props {
		if k != PropEpoch && k != manifest.PropOrder {
			return true
		}
	}
	return false
}

// newestEpoch finds the newest epoch on record, 0 for none, and its closing record if it has one.
func (t *Table) newestEpoch(ctx context.Context) (int64, *jobRecord, error) {
	dir := t.jobDir()
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
	if newest == 0 || newestClosed < newest {
		return newest, nil, nil
	}
	name := fmt.Sprintf("%s/closed-%d", dir, newest)
	data, err := storage.ReadAll(ctx, t.store, name, 1<<20)
	if err != nil {
		return 0, nil, err
	}
	rec := &jobRecord{}
	if err := json.Unmarshal(data, rec); err != nil {
		return 0, nil, fmt.Errorf("%s: %w", t.store.URL(name), err)
	}
	return newest, rec, nil
}

func (t *Table) jobDir() string { return jobsDir + url.PathEscape(t.set.Job) }

// record writes a record of this epoch; when it is there already, it stays.
func (t *Table) record(ctx context.Context, what string, rec jobRecord) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if _, err := storage.PutOnce(ctx, t.store, fmt.Sprintf("%s/%s-%d", t.jobDir(), what, rec.Epoch), data); err != nil {
		return fmt.Errorf("recording job %q as %s: %w", t.set.Job, what, err)
	}
	return nil
}

func numbered(name, prefix string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	return n, err == nil && n > 0
}

// forgetEpoch removes the records of an epoch that a newer one has followed, so that restarts do not pile them up.
func (t *Table) forgetEpoch(ctx context.Context, epoch int64) {
	for _, what := range []string{"open", "closed"} {
		name := fmt.Sprintf("%s/%s-%d", t.jobDir(), what, epoch)
		if err := t.store.Delete(ctx, name); err != nil {
			t.env.Log.Debug("old record of a job not deleted", "name", t.store.URL(name), "error", err)
		}
	}
}

// keepProgress looks for snapshots of others, and publishes the job's progress again when so many have followed that an
// expiry may take the newest one of the job.
func (t *Table) keepProgress(ctx context.Context) error {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	if err := t.refresh(ctx); err != nil {
		return err
	}
	if t.epoch == 0 || t.known-t.last < int64(manifest.RetentionOf(t.form.Load().opts).Min) {
		return nil
	}
	_, err := t.publish(ctx, publication{kind: manifest.Append}, t.progress, nil)
	return err
}

// release writes the closing record of the epoch; commitMu is held.
func (t *Table) release(ctx context.Context) error {
	if t.epoch == 0 {
		return nil
	}
	rec := jobRecord{Epoch: t.epoch, TimeMillis: t.env.Now().UnixMilli(), Identifier: t.identifier, Properties: t.progress.Properties, Written: t.hasWritten}
	return t.record(ctx, "closed", rec)
}
