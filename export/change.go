package export

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Source is what the exporter reads of a Paimon table. *manifest.Table is one.
type Source interface {
	Store() storage.Store
	Schema(ctx context.Context, id int64) (*schema.Schema, error)
	LatestSchema(ctx context.Context) (*schema.Schema, error)
	Latest(ctx context.Context) (*manifest.Snapshot, error)
	Earliest(ctx context.Context) (*manifest.Snapshot, error)
	Snapshot(ctx context.Context, id int64) (*manifest.Snapshot, error)
	Live(ctx context.Context, s *manifest.Snapshot, keep func(*manifest.Entry) bool) ([]manifest.Entry, error)
	Delta(ctx context.Context, s *manifest.Snapshot) ([]manifest.Entry, error)
}

// maxWalk is how many Paimon snapshots Publish follows one by one. Further behind, it compares whole file lists:
// each step costs some three reads, a whole list some ten for a table of 10,000 files.
const maxWalk = 64

// view decides which files of a table are exported, and where they are. It belongs to one schema version.
type view struct {
	schema  *schema.Schema
	options schema.Options
	store   storage.Store
	level   int // the exported level; -1: all files
}

// newView checks that the table can be exported with this schema.
func newView(s *schema.Schema, store storage.Store) (*view, error) {
	opt, err := s.ParseOptions()
	if err != nil {
		return nil, fmt.Errorf("export %s: options of schema %d: %w", store.URL(""), s.ID, err)
	}
	if err := checkTable(s, opt); err != nil {
		return nil, fmt.Errorf("export %s: %w", store.URL(""), err)
	}
	v := &view{schema: s, options: opt, store: store, level: -1}
	if s.Keyed() {
		// Only on the highest level is every key once, and no row a delete.
		v.level = opt.NumLevels - 1
	}
	return v, nil
}

// exports says whether the file is part of the exported table. Files of bucket -2 wait for their bucket.
func (v *view) exports(e *manifest.Entry) bool {
	return e.Bucket >= 0 && (v.level < 0 || e.File.Level == v.level)
}

// location is the file's absolute location, which identifies it in both formats.
func (v *view) location(e *manifest.Entry) (string, error) {
	if e.File.ExternalPath != nil {
		return *e.File.ExternalPath, nil
	}
	dir, err := manifest.DataDir(v.schema, v.options, e.Partition, e.Bucket)
	if err != nil {
		return "", fmt.Errorf("find data file %s: %w", e.File.Name, err)
	}
	return v.store.URL(dir + "/" + e.File.Name), nil
}

// check refuses a file whose rows, read as they are, are not rows of the table. An unknown number of deletes is none,
// as for Paimon's readers (paimon-format §20.15).
func (v *view) check(e *manifest.Entry, location string) error {
	f := &e.File
	switch {
	case f.DeleteRows != nil && *f.DeleteRows > 0:
		return fmt.Errorf("%w: %s holds %d deleted rows; a file of the exported level must hold none", ErrUnsupported, location, *f.DeleteRows)
	case path.Ext(f.Name) != ".parquet":
		return fmt.Errorf("%w: %s is not a Parquet file; set the table option file.format to parquet and compact the table fully", ErrUnsupported, location)
	case f.WriteCols != nil && !f.Tracked():
		return fmt.Errorf("%w: %s holds only some of the columns of its rows", ErrUnsupported, location)
	}
	return nil
}

// change is the difference between two states of the exported table.
type change struct {
	added   map[string]manifest.Entry // by location
	removed map[string]bool           // locations
	schemas map[int64]bool            // schemas of files that must be readable under the current one
	at      int64                     // id of the first Paimon snapshot with a difference; 0: none, or not known
	rewrite bool                      // every difference came from compactions
}

func newChange() *change {
	return &change{added: map[string]manifest.Entry{}, removed: map[string]bool{}, schemas: map[int64]bool{}, rewrite: true}
}

func (c *change) empty() bool { return len(c.added) == 0 && len(c.removed) == 0 }

// apply adds the entries of one snapshot's delta, in their order.
func (c *change) apply(v *view, s *manifest.Snapshot, delta []manifest.Entry) error {
	for i := range delta {
		e := &delta[i]
		if !v.exports(e) {
			continue
		}
		loc, err := v.location(e)
		if err != nil {
			return err
		}
		if c.at == 0 {
			c.at = s.ID
		}
		if s.CommitKind != manifest.Compact {
			c.rewrite = false
		}
		if e.Kind == manifest.Add {
			c.schemas[e.File.SchemaID] = true
			// A file that was removed and added again (its metadata was rewritten) did not change.
			if !c.removed[loc] {
				c.added[loc] = *e
			}
			delete(c.removed, loc)
			continue
		}
		if _, ok := c.added[loc]; !ok {
			c.removed[loc] = true
		}
		delete(c.added, loc)
	}
	return nil
}

// walk finds the difference between the states at snapshot from and at snapshot to by following the snapshots in
// between. It gives false when it cannot: one of them has expired.
func walk(ctx context.Context, src Source, v *view, from int64, to *manifest.Snapshot) (*change, bool, error) {
	c := newChange()
	for id := from + 1; id <= to.ID; id++ {
		s := to
		if id < to.ID {
			var err error
			if s, err = src.Snapshot(ctx, id); gone(err) {
				return nil, false, nil
			} else if err != nil {
				return nil, false, err
			}
		}
		if s.SchemaID != v.schema.ID {
			return nil, false, nil // another schema may export another level
		}
		delta, err := src.Delta(ctx, s)
		if err != nil {
			return nil, false, fmt.Errorf("changes of snapshot %d: %w", id, err)
		}
		if err := c.apply(v, s, delta); err != nil {
			return nil, false, err
		}
	}
	return c, true, nil
}

// compare finds the difference between the exported locations and the state at a snapshot (nil: no files).
func compare(ctx context.Context, src Source, v *view, exported map[string]string, s *manifest.Snapshot) (*change, error) {
	c := newChange()
	c.rewrite = false
	for loc := range exported {
		c.removed[loc] = true
	}
	if s == nil {
		return c, nil
	}
	live, err := src.Live(ctx, s, v.exports)
	if err != nil {
		return nil, fmt.Errorf("files of snapshot %d: %w", s.ID, err)
	}
	for i := range live {
		loc, err := v.location(&live[i])
		if err != nil {
			return nil, err
		}
		c.schemas[live[i].File.SchemaID] = true
		if c.removed[loc] {
			delete(c.removed, loc)
		} else {
			c.added[loc] = live[i]
		}
	}
	return c, nil
}

// gone says that a snapshot is not there any more.
func gone(err error) bool {
	return errors.Is(err, manifest.ErrSnapshotExpired) || errors.Is(err, manifest.ErrNoSnapshot) || errors.Is(err, storage.ErrNotFound)
}
