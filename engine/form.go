package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// form is all of a table handle that follows from one version of the table's schema. It does not change, but for the
// router's scratch space, which is used under Table.mu.
type form struct {
	schema *schema.Schema
	opts   schema.Options
	files  lsm.Files
	keys   *lsm.Keys // nil for tables without primary key
	policy lsm.Policy
	kinds  *rowKinds
	router *router
}

// newForm checks that calve can write the table as the schema says.
func (t *Table) newForm(s *schema.Schema) (*form, error) {
	if err := s.CheckWritable(); err != nil {
		return nil, fmt.Errorf("%s: schema %d: %w: %w", t.store.URL(""), s.ID, ErrUnsupported, err)
	}
	opts, err := s.ParseOptions()
	if err != nil {
		return nil, err
	}
	f := &form{schema: s, opts: opts, policy: lsm.PolicyOf(opts, s.Keyed())}
	f.files = lsm.Files{
		Store: t.store, Schema: s, Options: opts, Now: t.env.Now, Parallel: t.set.Parallel,
		NewName:          func() string { return opts.DataFilePrefix + t.env.NewID() + "-0.parquet" },
		NewChangelogName: func() string { return opts.Changelog.Prefix + t.env.NewID() + "-0.parquet" },
		OpenSchema:       t.meta.Schema,
	}
	if s.Keyed() {
		f.keys = lsm.NewKeys(s)
	}
	f.kinds = newRowKinds(s, opts)
	if opts.Merge.ExpireTime > 0 {
		f.policy.Expired = f.expired(map[int64]*schema.Schema{s.ID: s})
	}
	f.router, err = newRouter(s, opts)
	return f, err
}

// checkFollows says why a handle cannot go on from one form with another, where only opening the table again, or
// rewriting it, would do.
func (f *form) checkFollows(next *form) error {
	a, b := f.opts, next.opts
	switch {
	case a.Bucket != b.Bucket:
		return fmt.Errorf("the number of buckets changed from %d to %d: rescale the table (rewrite it with INSERT OVERWRITE) before writing to it",
			a.Bucket, b.Bucket)
	case f.schema.Keyed() != next.schema.Keyed():
		return errors.New("the primary key was dropped")
	case a.DataFileDirectory != b.DataFileDirectory,
		f.schema.Partitioned() && (a.LegacyPartitionName != b.LegacyPartitionName || a.DefaultPartitionName != b.DefaultPartitionName):
		return errors.New("the folders of data files are named in another way than before")
	}
	return nil
}

// NewSchema is a newer schema than Schema that a commit of this handle has come across, or nil. The handle goes on
// with the old one until Follow is called. It costs nothing.
func (t *Table) NewSchema() *schema.Schema {
	s := t.newer.Load()
	if s == nil || s.ID <= t.Schema().ID {
		return nil
	}
	return s
}

// LookForSchema looks whether there is a newer schema than Schema, by one request to the storage, and gives it, or nil.
// It is for writers that did not commit for a while.
func (t *Table) LookForSchema(ctx context.Context) (*schema.Schema, error) {
	s, err := t.meta.LatestSchema(ctx)
	if err != nil {
		return nil, err
	}
	t.sawSchema(s)
	return t.NewSchema(), nil
}

// Alter changes the schema of the table (manifest.Table.AlterSchema) and gives the one that has all the changes. The
// handle goes on with its schema until Follow is called. It is for changes that rows ask for: see Holds.
func (t *Table) Alter(ctx context.Context, changes []schema.Change) (*schema.Schema, error) {
	t.alterMu.Lock()
	defer t.alterMu.Unlock()
	s, made, err := t.meta.AlterSchema(ctx, changes)
	if err != nil {
		return nil, err
	}
	if made {
		if t.altered == nil {
			t.altered = map[int64]bool{}
		}
		t.altered[s.ID] = true
	}
	t.sawSchema(s)
	return s, nil
}

// sawSchema keeps the newest schema seen.
func (t *Table) sawSchema(s *schema.Schema) {
	for {
		old := t.newer.Load()
		if old != nil && old.ID >= s.ID || t.newer.CompareAndSwap(old, s) {
			return
		}
	}
}

// noteSchema remembers that a snapshot names a schema.
func (t *Table) noteSchema(ctx context.Context, id int64) {
	if id <= t.Schema().ID {
		return
	}
	s, err := t.meta.Schema(ctx, id) // the commit has read it just now
	if err != nil {
		t.env.Log.Warn("the table has a new schema, which cannot be read yet", "table", t.store.URL(""), "schema", id, "error", err)
		return
	}
	t.sawSchema(s)
}

// Follow goes on with a newer schema, which NewSchema or LookForSchema gave: rows written so far are flushed as they are,
// under the old schema, and later Writes take rows of the new one. Files of both are published by the next Commit.
// No Write may run at the same time.
//
// An error that matches ErrUnsupported means that calve cannot write the table as it is now; nothing has changed then.
func (t *Table) Follow(ctx context.Context, s *schema.Schema) error {
	old := t.form.Load()
	if s.ID <= old.schema.ID {
		return nil
	}
	next, err := t.newForm(s)
	if err != nil {
		return err
	}
	if err := old.checkFollows(next); err != nil {
		return fmt.Errorf("%s: schema %d: %w: %w", t.store.URL(""), s.ID, ErrUnsupported, err)
	}
	return t.flushThen(ctx, func() error {
		if t.form.Load() != old {
			return errors.New("another Follow runs at the same time")
		}
		if err := t.relevelLocked(next); err != nil {
			return err
		}
		t.form.Store(next)
		for _, b := range t.buckets {
			t.enqueueLocked(b)
		}
		return nil
	})
}

// relevelLocked makes room for another number of levels; mu is held.
func (t *Table) relevelLocked(next *form) error {
	if t.form.Load().policy.NumLevels == next.policy.NumLevels {
		return nil
	}
	made := map[*bucket]*lsm.Levels{}
	for _, b := range t.buckets {
		levels, err := lsm.NewLevels(next.keys, next.policy.NumLevels, b.levels.Files())
		if err != nil {
			return fmt.Errorf("%s: %w", t.store.URL(b.part.Dir), err)
		}
		made[b] = levels
	}
	for b, levels := range made {
		b.levels = levels
	}
	return nil
}

// formFor gives the form to compact files with: the handle's, unless another writer made some of them with a newer
// schema, for a merge through an older one would lose what is new.
func (t *Table) formFor(ctx context.Context, files []manifest.DataFile) (*form, error) {
	f, newest := t.form.Load(), int64(0)
	for i := range files {
		newest = max(newest, files[i].SchemaID)
	}
	if newest <= f.schema.ID {
		return f, nil
	}
	s, err := t.LookForSchema(ctx)
	if err != nil {
		return nil, err
	}
	if s == nil || s.ID < newest {
		return nil, fmt.Errorf("%s: a file was written with schema %d, which is not there", t.store.URL(""), newest)
	}
	return t.newForm(s)
}

// expired tells files with expired rows, of the schemas that are given.
func (f *form) expired(known map[int64]*schema.Schema) func(*manifest.DataFile) bool {
	return func(m *manifest.DataFile) bool {
		s := known[m.SchemaID]
		return s != nil && f.files.Expired(m, s)
	}
}

// olds gives the schemas of live files that are older than the handle's, and those of them whose columns have other types
// by now.
func (t *Table) olds(ctx context.Context) (known map[int64]*schema.Schema, recast map[int64]bool, err error) {
	now, out := t.form.Load().schema, map[int64]bool{}
	t.mu.Lock()
	for _, b := range t.buckets {
		for _, f := range b.levels.Files() {
			if f.SchemaID < now.ID {
				out[f.SchemaID] = false
			}
		}
	}
	t.mu.Unlock()
	known = map[int64]*schema.Schema{now.ID: now}
	for id := range out {
		then, err := t.meta.Schema(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		known[id] = then
		for _, f := range now.Fields {
			if i, ok := then.FieldByID(f.ID); ok && !then.Fields[i].Type.SameValues(f.Type) {
				out[id] = true
			}
		}
	}
	return known, out, nil
}
