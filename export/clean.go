package export

import (
	"context"
	"path"
	"regexp"

	"github.com/apache/iceberg-go"
	"golang.org/x/sync/errgroup"
)

// Removing metadata files. A manifest, once it has left the list of a snapshot, never comes back, so what a dropped
// snapshot had to itself is what the oldest kept snapshot does not list. Files that a crash or an uncertain error left
// behind are found by a sweep: one listing, once in the life of an exporter. Nothing here can fail a Publish: what is
// not removed now is an orphan for a later sweep.

// clean removes what the new version made superfluous.
func (e *Exporter) clean(ctx context.Context, b *build) {
	if v := b.new.ref.Version - e.set.MaxMetadata - 1; v > 0 {
		if err := e.target.Forget(ctx, v); err != nil {
			e.set.Env.Log.Debug("old Iceberg metadata not removed", "table", e.location, "version", v, "error", err)
		}
	}
	if len(b.dropped) > 0 {
		e.cleanSnapshots(ctx, b)
	}
	if !e.swept {
		e.swept = e.sweep(ctx, b.new)
	}
}

// cleanSnapshots removes the manifests and lists that only dropped snapshots used.
func (e *Exporter) cleanSnapshots(ctx context.Context, b *build) {
	keep := map[string]bool{}
	if len(b.meta.Snapshots) > 0 {
		oldest := b.meta.Snapshots[0].ManifestList
		list, err := e.files.readList(ctx, oldest)
		if err != nil {
			e.set.Env.Log.Debug("old Iceberg manifests not removed", "table", e.location, "error", err)
			return
		}
		markList(keep, oldest, list)
	}
	seen := map[string]bool{}
	var names []string
	drop := func(location string) {
		if name, err := e.files.name(location); err == nil && !keep[location] && !seen[location] {
			seen[location] = true
			names = append(names, name)
		}
	}
	for _, s := range b.dropped {
		list, err := e.files.readList(ctx, s.ManifestList)
		if err != nil {
			continue // damaged, or removed by a former attempt; its manifests are left to the sweep
		}
		for _, m := range list {
			drop(m.FilePath())
		}
		drop(s.ManifestList)
	}
	e.discard(ctx, names)
}

func markList(keep map[string]bool, location string, list []iceberg.ManifestFile) {
	keep[location] = true
	for _, m := range list {
		keep[m.FilePath()] = true
	}
}

// discard removes files that nothing names.
func (e *Exporter) discard(ctx context.Context, names []string) {
	for _, name := range names {
		if err := e.files.store.Delete(ctx, name); err != nil {
			e.set.Env.Log.Debug("Iceberg metadata file not removed", "name", e.files.store.URL(name), "error", err)
		}
	}
}

// ours are the names of manifests and lists that calve writes.
var ours = regexp.MustCompile(`^(snap-[0-9]+-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-m[0-9]+)?\.avro$`)

// sweep removes the files of former processes that nothing names. It reports false when it should be tried again.
func (e *Exporter) sweep(ctx context.Context, st *state) bool {
	old := map[string]string{} // name by location
	limit := e.set.Env.Now().Add(-e.set.OrphanAge)
	for info, err := range e.files.store.List(ctx, metadataDir) {
		if err != nil {
			return false
		}
		if !info.Dir && info.ModTime.Before(limit) && ours.MatchString(path.Base(info.Name)) {
			old[e.files.store.URL(info.Name)] = info.Name
		}
	}
	versions, err := e.target.Versions(ctx)
	if err != nil {
		return false
	}
	for _, v := range versions {
		if v < st.ref.Version-e.set.MaxMetadata {
			if err := e.target.Forget(ctx, v); err != nil {
				return false
			}
		}
	}
	if len(old) == 0 {
		return true
	}
	named, err := e.named(ctx, st)
	if err != nil {
		return false
	}
	var names []string
	for location, name := range old {
		if !named[location] {
			names = append(names, name)
		}
	}
	e.discard(ctx, names)
	return true
}

// named gives the locations of all manifests and lists of a version.
func (e *Exporter) named(ctx context.Context, st *state) (map[string]bool, error) {
	lists := make([][]iceberg.ManifestFile, len(st.meta.Snapshots))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, s := range st.meta.Snapshots {
		g.Go(func() (err error) {
			lists[i], err = e.files.readList(gctx, s.ManifestList)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for i, s := range st.meta.Snapshots {
		markList(named, s.ManifestList, lists[i])
	}
	return named, nil
}
