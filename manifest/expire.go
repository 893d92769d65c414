package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Retention says which snapshots stay (paimon-format §16).
type Retention struct {
	Min   int           // at least so many of the newest stay, at least 1
	Max   int           // at most so many stay, whatever their age; 0: no bound
	Age   time.Duration // younger ones stay
	Limit int           // at most so many go in one call; 0: no bound

	Consumers time.Duration // consumers that were not renewed for longer are dropped first; 0: none
	Tags      bool          // tags whose time is over are deleted, after the snapshots
}

// RetentionOf gives the retention that a table's options ask for.
func RetentionOf(o schema.Options) Retention {
	return Retention{Min: o.SnapshotNumRetainedMin, Max: o.SnapshotNumRetainedMax, Age: o.SnapshotTimeRetained, Limit: o.SnapshotExpireLimit,
		Consumers: o.ConsumerExpiration, Tags: o.TagTimeExpire}
}

// Expired says what an expiry did.
type Expired struct {
	Snapshots  int   // snapshot files deleted
	Earliest   int64 // the earliest snapshot now
	DataFiles  int   // data and changelog files, with their index files
	Metadata   int   // manifests, lists, index files and statistics
	Changelogs int   // long-lived changelogs deleted
	Consumers  int   // consumers dropped
	Tags       int   // tags deleted
}

// deleters is how many files are deleted at the same time.
const deleters = 16

// Expire deletes the oldest snapshots and every file that nothing names any more. Tags, branches and consumers are
// honoured: a snapshot that a consumer still wants, or that a read in this process holds (Hold), stays, with all after
// it, and no file that a tag or a branch names is deleted.
//
// The work is proportional to what expires: a data file is deleted when a snapshot up to the new earliest one removed
// it and that snapshot did not add the same file at another level. Index files (hash indexes, deletion vectors) go when
// no index manifest that stays lists them.
//
// Snapshots go before their files, in ascending order, so that no reader sees a snapshot without its files. What is to be
// deleted is written down before (expiryRecord); an expiry that was killed is ended by the next one.
//
// Where the table's options keep changelogs longer than snapshots, what expires leaves its changelog (longlived.go), and the
// oldest of these are deleted as the options say, or all of them before any snapshot when the options say that no more.
// Consumers, reads and tags keep changelogs as they keep snapshots.
//
// As in Paimon (`TableCommitImpl.expire`), dead consumers are dropped first, and tags go last.
func (t *Table) Expire(ctx context.Context, keep Retention, now time.Time) (Expired, error) {
	if err := acquire(ctx, t.expiry); err != nil {
		return Expired{}, fmt.Errorf("expire snapshots of %s: %w", t.store.URL(""), err)
	}
	defer release(t.expiry)
	if err := t.mainOnly(); err != nil {
		return Expired{}, err
	}
	dropped, err := t.expireConsumers(ctx, keep.Consumers, now)
	var done Expired
	sweep, left := !t.swept, false
	if err == nil && sweep {
		done, err = t.finishExpiries(ctx)
	}
	if err == nil {
		left, err = t.sweepChangelogs(ctx, keep.Limit, &done)
	}
	if err == nil && !left {
		err = t.expire(ctx, keep, now, &done)
	}
	if err == nil {
		err = t.expireChangelogs(ctx, keep.Limit, now, sweep, &done)
	}
	done.Consumers = dropped
	if err != nil {
		return done, fmt.Errorf("expire snapshots of %s: %w", t.store.URL(""), err)
	}
	if !keep.Tags {
		return done, nil
	}
	tags, err := t.expireTags(ctx, now)
	done.Tags, done.DataFiles, done.Metadata = tags.Tags, done.DataFiles+tags.DataFiles, done.Metadata+tags.Metadata
	if err != nil {
		return done, fmt.Errorf("expire tags of %s: %w", t.store.URL(""), err)
	}
	return done, nil
}

// expire deletes the oldest snapshots.
func (t *Table) expire(ctx context.Context, keep Retention, now time.Time, done *Expired) error {
	first, last, lost, err := t.span(ctx)
	if err != nil || last == 0 {
		return err
	}
	end, err := t.expireUntil(ctx, first, last, keep, now)
	if err != nil {
		return err
	}
	gone := lost
	for id := first; id < end; id++ {
		gone = append(gone, id)
	}
	done.Earliest = end
	if len(gone) == 0 {
		t.swept = true
		return nil
	}
	tags, err := t.Tags(ctx)
	if err != nil {
		return err
	}
	x, err := t.planExpiry(ctx, gone, end)
	if err != nil {
		return err
	}
	if wanted, err := t.wantedSince(ctx, end, tags); err != nil || wanted {
		done.Earliest = first
		return err
	}
	t.swept = false // until this one has come to its end
	err = t.carryOut(ctx, x, expiryRecord{End: end}, done, func() error {
		if x.longLived {
			if err := t.leaveChangelogs(ctx, first, end); err != nil {
				return err
			}
		}
		for _, id := range gone {
			if err := t.store.Delete(ctx, snapshotName(id)); err != nil {
				return err
			}
			done.Snapshots++
		}
		// A durable write into the folder makes the deletions durable too (package storage): once files go, no power cut
		// brings their snapshots back.
		return t.replace(ctx, earliestHint, strconv.AppendInt(nil, end, 10))
	})
	t.swept = err == nil
	return err
}

// span gives the earliest and the latest id. The first expiry of a Table lists the folder and also finds snapshots
// that a power cut brought back below the earliest; later ones go by the hints.
func (t *Table) span(ctx context.Context) (first, last int64, lost []int64, err error) {
	if t.swept {
		earliest, err := t.Earliest(ctx)
		if err != nil {
			return 0, 0, nil, err
		}
		latest, err := t.Latest(ctx)
		if err != nil {
			return 0, 0, nil, err
		}
		return earliest.ID, latest.ID, nil, nil
	}
	ids, err := t.sortedIDs(ctx)
	if err != nil || len(ids) == 0 {
		return 0, 0, nil, err
	}
	first = contiguous(ids)
	i, _ := slices.BinarySearch(ids, first)
	return first, ids[len(ids)-1], slices.Clone(ids[:i]), nil
}

// expireUntil gives the id that becomes the earliest.
func (t *Table) expireUntil(ctx context.Context, first, last int64, keep Retention, now time.Time) (int64, error) {
	end := last - int64(max(1, keep.Min)) + 1 // those below may go
	wanted, err := t.wanted(ctx)
	if err != nil {
		return 0, err
	}
	end = min(end, wanted)
	if keep.Limit > 0 {
		end = min(end, first+int64(keep.Limit))
	}
	must := first // those below must go, whatever their age
	if keep.Max > 0 {
		must = max(first, last-int64(max(keep.Max, keep.Min))+1)
	}
	young := now.Add(-keep.Age).UnixMilli()
	for id := must; id < end; id++ {
		s, err := t.readSnapshot(ctx, id)
		if err != nil {
			return 0, err
		}
		if s.TimeMillis >= young {
			return id, nil
		}
	}
	return max(first, end), nil
}

// expiry is a plan: names to delete, each unless something that stays names it.
type expiry struct {
	table   *Table
	schema  *schema.Schema
	options schema.Options

	byData     bool // changes are told by the data files that appends added
	longLived  bool // changelogs outlive their snapshots
	toldByData bool // both

	files map[string][]string // data file path → its files: itself and its index files
	dirs  map[string]string   // partition and bucket → folder

	mu        sync.Mutex
	manifests map[string]struct{} // of what expires
	lists     map[string]struct{} // of what expires, and statistics
	stays     map[string]struct{} // metadata and index files of what stays
	indexes   map[string]struct{} // index files of what expires
	listed    map[string]struct{} // index manifests that were read
}

// newExpiry makes an empty plan.
func (t *Table) newExpiry(ctx context.Context) (*expiry, error) {
	s, err := t.LatestSchema(ctx)
	if err != nil {
		return nil, err
	}
	opt, err := s.ParseOptions()
	if err != nil {
		return nil, err
	}
	longLived, byData := opt.ChangelogDecoupled(), opt.ChangelogProducer == schema.ProducerNone
	return &expiry{
		table: t, schema: s, options: opt, byData: byData, longLived: longLived, toldByData: longLived && byData, files: map[string][]string{}, dirs: map[string]string{},
		manifests: map[string]struct{}{}, lists: map[string]struct{}{}, stays: map[string]struct{}{},
		indexes: map[string]struct{}{}, listed: map[string]struct{}{},
	}, nil
}

// planExpiry reads what the expiring snapshots name and takes off what must stay.
func (t *Table) planExpiry(ctx context.Context, gone []int64, end int64) (*expiry, error) {
	x, err := t.newExpiry(ctx)
	if err != nil {
		return nil, err
	}
	earliest, err := t.readSnapshot(ctx, end)
	if err != nil {
		return nil, err
	}
	if err := x.expiring(ctx, gone); err != nil {
		return nil, err
	}
	delta, err := t.Delta(ctx, earliest)
	if err != nil {
		return nil, err
	}
	if err := x.follow(delta, x.tells); err != nil {
		return nil, err
	}
	if err := x.staying(ctx, earliest, false); err != nil {
		return nil, err
	}
	if err := x.protect(ctx, end, ""); err != nil {
		return nil, err
	}
	return x, nil
}

// protect takes off what tags, but for one that goes itself, and branches name. end is the earliest snapshot that stays.
func (x *expiry) protect(ctx context.Context, end int64, but string) error {
	tags, err := x.table.Tags(ctx)
	if err != nil {
		return err
	}
	delete(tags, but)
	for _, s := range tags {
		// A file that was removed by a snapshot up to "end" is not live in a later one of the same branch.
		if err := x.staying(ctx, s, s.ID < end); err != nil {
			return err
		}
	}
	branches, err := x.table.branchSnapshots(ctx)
	if err != nil {
		return err
	}
	for _, s := range branches {
		if err := x.staying(ctx, s, true); err != nil {
			return err
		}
	}
	told, err := x.table.branchChangelogs(ctx)
	if err != nil {
		return err
	}
	for _, c := range told {
		// A branch has options of its own. With a changelog producer, what has no changelog tells nothing; what it added is
		// spared nevertheless.
		if err := x.needs(ctx, c, c.ChangelogManifestList == nil); err != nil {
			return err
		}
	}
	return nil
}

// expiring gathers what the expiring snapshots name, several snapshots at a time. A list that is gone was deleted by
// an expiry that did not come to its end; what it named went before it.
func (x *expiry) expiring(ctx context.Context, gone []int64) error {
	deltas := make([][]Entry, len(gone))
	changes := make([][]Entry, len(gone))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, id := range gone {
		g.Go(func() error {
			s, err := x.table.readSnapshot(gctx, id)
			if errors.Is(err, storage.ErrNotFound) {
				return nil // another process expires the same snapshots
			}
			if err != nil {
				return err
			}
			deltas[i], changes[i], err = x.expiringOne(gctx, s)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range gone {
		if i > 0 { // what the earliest removed went when it became the earliest
			if err := x.follow(deltas[i], x.tells); err != nil {
				return err
			}
		}
		for j := range changes[i] {
			if err := x.condemn(&changes[i][j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// expiringOne notes what an expiring snapshot names and its long-lived changelog, if it leaves one, does not need, and gives
// its delta and, if it does not leave that, its changelog.
func (x *expiry) expiringOne(ctx context.Context, s *Snapshot) (delta, changes []Entry, err error) {
	gone := *s
	if x.longLived {
		gone.ChangelogManifestList = nil
	}
	if x.toldByData {
		x.noteOthers(x.lists, s)
	} else {
		x.note(x.lists, &gone)
		base, err := ifThere(x.table.readList(ctx, s.BaseManifestList, s.BaseManifestListSize))
		if err != nil {
			return nil, nil, err
		}
		x.noteMetas(x.manifests, base)
	}
	if err := x.noteIndex(ctx, x.indexes, s); err != nil {
		return nil, nil, err
	}
	if delta, err = x.list(ctx, s, s.DeltaManifestList, s.DeltaManifestListSize, !x.toldByData); err != nil {
		return nil, nil, err
	}
	if gone.ChangelogManifestList != nil {
		changes, err = x.list(ctx, s, *s.ChangelogManifestList, s.ChangelogManifestListSize, true)
	}
	return delta, changes, err
}

// list reads the entries of one list of an expiring snapshot and maybe notes its manifests.
func (x *expiry) list(ctx context.Context, s *Snapshot, name string, size *int64, note bool) ([]Entry, error) {
	metas, err := ifThere(x.table.readList(ctx, name, size))
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: %w", s.ID, err)
	}
	if note {
		x.noteMetas(x.manifests, metas)
	}
	var all []Entry
	for i := range metas {
		entries, _, err := x.table.readManifest(ctx, &metas[i])
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot %d: %w", s.ID, err)
		}
		all = append(all, entries...)
	}
	return all, nil
}

// ifThere turns "not found" into an empty list.
func ifThere(metas []Meta, err error) ([]Meta, error) {
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return metas, err
}

// note remembers the metadata files that a snapshot names itself.
func (x *expiry) note(set map[string]struct{}, s *Snapshot) {
	x.noteOthers(set, s)
	x.mu.Lock()
	defer x.mu.Unlock()
	set[manifestPath(s.BaseManifestList)] = struct{}{}
	set[manifestPath(s.DeltaManifestList)] = struct{}{}
	if s.ChangelogManifestList != nil {
		set[manifestPath(*s.ChangelogManifestList)] = struct{}{}
	}
}

// noteOthers remembers those that say nothing about data files.
func (x *expiry) noteOthers(set map[string]struct{}, s *Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.Statistics != nil {
		set["statistics/"+*s.Statistics] = struct{}{}
	}
	if s.IndexManifest != nil {
		set[manifestPath(*s.IndexManifest)] = struct{}{}
	}
}

// noteIndex remembers the index files that a snapshot's index manifest lists. The same manifest serves many snapshots and
// is read once; those that stay are noted after those that expire, so a manifest of both is read for both.
func (x *expiry) noteIndex(ctx context.Context, set map[string]struct{}, s *Snapshot) error {
	if s.IndexManifest == nil {
		return nil
	}
	key := fmt.Sprintf("%p %s", set, *s.IndexManifest)
	x.mu.Lock()
	_, done := x.listed[key]
	x.listed[key] = struct{}{}
	x.mu.Unlock()
	if done {
		return nil
	}
	entries, err := x.table.IndexFiles(ctx, s)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // deleted by an expiry that did not come to its end
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if e.ExternalPath != nil {
			continue // not ours to delete
		}
		dir, err := DataDir(x.schema, x.options, e.Partition, e.Bucket)
		if err != nil {
			return err
		}
		name, err := IndexPath(e, x.options.IndexInBucket, dir)
		if err != nil {
			return err
		}
		set[name] = struct{}{}
	}
	return nil
}

// noteMetas remembers manifests.
func (x *expiry) noteMetas(set map[string]struct{}, metas []Meta) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range metas {
		set[manifestPath(metas[i].Name)] = struct{}{}
	}
}

// follow takes the changes of one snapshot: what it removes is condemned, what it adds is not, in either order, because
// a move to another level is a removal and an addition of one file. What leave says is not condemned.
func (x *expiry) follow(delta []Entry, leave func(*Entry) bool) error {
	for i := range delta {
		if delta[i].Kind == Remove && !leave(&delta[i]) {
			if err := x.condemn(&delta[i]); err != nil {
				return err
			}
		}
	}
	for i := range delta {
		if delta[i].Kind == Add {
			if err := x.pardon(&delta[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// tells reports whether a data file stays for a while because it tells changes.
func (x *expiry) tells(e *Entry) bool { return x.toldByData && appended(e) }

// appended reports whether a data file may be one that an append wrote (`SnapshotDeletion.cleanUnusedDataFiles`): then it
// tells changes.
func appended(e *Entry) bool { return e.File.Source == nil || *e.File.Source == FromAppend }

// condemn marks a data file for deletion. Files outside of the table's folder are not ours to delete.
func (x *expiry) condemn(e *Entry) error {
	if e.File.ExternalPath != nil {
		return nil
	}
	dir, err := x.dir(e)
	if err != nil {
		return err
	}
	names := []string{dir + "/" + e.File.Name}
	for _, extra := range e.File.ExtraFiles {
		names = append(names, dir+"/"+extra)
	}
	x.files[names[0]] = names
	return nil
}

// pardon takes a data file off the list.
func (x *expiry) pardon(e *Entry) error {
	if len(x.files) == 0 || e.File.ExternalPath != nil {
		return nil
	}
	dir, err := x.dir(e)
	if err == nil {
		delete(x.files, dir+"/"+e.File.Name)
	}
	return err
}

// dir is DataDir, remembered for each bucket.
func (x *expiry) dir(e *Entry) (string, error) {
	key := fmt.Sprintf("%d/%s", e.Bucket, e.Partition)
	dir, ok := x.dirs[key]
	if !ok {
		var err error
		if dir, err = DataDir(x.schema, x.options, e.Partition, e.Bucket); err != nil {
			return "", err
		}
		x.dirs[key] = dir
	}
	return dir, nil
}

// staying protects what a snapshot names: its metadata, and its live files when they may be among the condemned.
func (x *expiry) staying(ctx context.Context, s *Snapshot, files bool) error {
	x.note(x.stays, s)
	if err := x.noteIndex(ctx, x.stays, s); err != nil {
		return err
	}
	metas, err := x.table.manifests(ctx, s)
	if err != nil {
		return err
	}
	x.noteMetas(x.stays, metas)
	if s.ChangelogManifestList != nil {
		metas, err := x.table.readList(ctx, *s.ChangelogManifestList, s.ChangelogManifestListSize)
		if err != nil {
			return fmt.Errorf("snapshot %d: %w", s.ID, err)
		}
		x.noteMetas(x.stays, metas)
	}
	if !files || len(x.files) == 0 {
		return nil
	}
	var bad error
	live, err := x.table.Live(ctx, s, func(e *Entry) bool {
		dir, err := x.dir(e)
		if err != nil {
			bad = err
			return false
		}
		_, condemned := x.files[dir+"/"+e.File.Name]
		return condemned
	})
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	changes, err := x.table.Changelog(ctx, s)
	if err != nil {
		return err
	}
	for _, e := range slices.Concat(live, changes) {
		if err := x.pardon(&e); err != nil {
			return err
		}
	}
	return nil
}

// unnamed lists the metadata files of a set that nothing names which stays.
func (x *expiry) unnamed(set map[string]struct{}) []string {
	var names []string
	for n := range set {
		if _, stays := x.stays[n]; !stays {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// deleteAll deletes files, several at a time, and says how many.
func (t *Table) deleteAll(ctx context.Context, names []string) (int, error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(deleters)
	for _, name := range names {
		g.Go(func() error { return t.store.Delete(gctx, name) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return len(names), nil
}
