// Package reader reads tables: the rows of a snapshot, the changes between snapshots, and the soundness of what is on
// storage. It needs no writer in its process and no lock.
package reader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// ErrQuery: the query does not fit the table.
var ErrQuery = errors.New("invalid query")

// Env is what the reader takes from the world. All fields are required.
type Env struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	NewID func() string
	Rand  func() uint64
	Log   *slog.Logger
}

// Reader reads one table. It is safe for concurrent use.
type Reader struct {
	store storage.Store
	meta  *manifest.Table
	env   Env
}

// Open makes a reader of the table in the store's root. Nothing is read yet.
func Open(store storage.Store, env Env) *Reader {
	return &Reader{store: store, env: env, meta: manifest.Open(store, env.manifest())}
}

// Over makes a reader of a table whose metadata this process has open already, to write it: what it reads holds back
// the expiries of that handle.
func Over(meta *manifest.Table, env Env) *Reader {
	return &Reader{store: meta.Store(), env: env, meta: meta}
}

// OpenBranch makes a reader of a branch of the table in the store's root. Nothing is read yet.
func OpenBranch(store storage.Store, branch string, env Env) (*Reader, error) {
	meta, err := manifest.OpenBranch(store, branch, env.manifest())
	if err != nil {
		return nil, err
	}
	return &Reader{store: meta.Store(), env: env, meta: meta}, nil
}

func (e Env) manifest() manifest.Env {
	return manifest.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log}
}

// Meta gives access to the table's metadata.
func (r *Reader) Meta() *manifest.Table { return r.meta }

// view is a table as one schema sees it.
type view struct {
	schema *schema.Schema
	opts   schema.Options
	keys   *lsm.Keys      // nil for append tables
	rule   *lsm.MergeRule // nil for append tables
}

func (r *Reader) view(ctx context.Context, schemaID int64) (*view, error) {
	s, err := r.meta.Schema(ctx, schemaID)
	if err != nil {
		return nil, err
	}
	if b, ok := s.Options["branch"]; ok && b == r.meta.Branch() { // what was opened is what the option asks for
		own := *s
		own.Options = maps.Clone(s.Options)
		delete(own.Options, "branch")
		s = &own
	}
	if err := s.CheckReadable(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.store.URL(""), err)
	}
	v := &view{schema: s}
	if v.opts, err = s.ParseOptions(); err != nil {
		return nil, err
	}
	if s.Keyed() {
		v.keys = lsm.NewKeys(s)
		if v.rule, err = lsm.NewMergeRule(s, v.opts); err != nil {
			return nil, fmt.Errorf("%s: %w", r.store.URL(""), err)
		}
	}
	return v, nil
}

// part makes the bucket of a manifest entry.
func (v *view) part(e *manifest.Entry) (lsm.Part, error) {
	vals, err := binrow.Decode(e.Partition, v.schema.Types(v.schema.PartitionColumns()))
	if err != nil {
		return lsm.Part{}, fmt.Errorf("partition of file %s: %w", e.File.Name, err)
	}
	dir, err := manifest.DataDir(v.schema, v.opts, e.Partition, e.Bucket)
	if err != nil {
		return lsm.Part{}, err
	}
	return lsm.Part{Partition: e.Partition, Values: vals, Bucket: e.Bucket, TotalBuckets: e.TotalBuckets, Dir: dir}, nil
}

// projection resolves column names; nil means all.
func (v *view) projection(names []string) ([]int, error) {
	if names == nil {
		cols := make([]int, len(v.schema.Fields))
		for i := range cols {
			cols[i] = i
		}
		return cols, nil
	}
	cols := make([]int, len(names))
	for i, n := range names {
		c, ok := v.schema.Field(n)
		if !ok {
			return nil, fmt.Errorf("%w: no column %q; the table has %s", ErrQuery, n, strings.Join(v.columnNames(), ", "))
		}
		cols[i] = c
	}
	return cols, nil
}

func (v *view) columnNames() []string {
	var names []string
	for i := range v.schema.Fields {
		names = append(names, v.schema.Fields[i].Name)
	}
	return names
}

// arrowSchema is the Arrow schema of a projection.
func (v *view) arrowSchema(cols []int) *arrow.Schema {
	all := v.schema.Arrow()
	fields := make([]arrow.Field, len(cols))
	for i, c := range cols {
		fields[i] = all.Field(c)
	}
	return arrow.NewSchema(fields, nil)
}

// batch makes a record batch of the first columns of rows.
func batch(sc *arrow.Schema, rows datafile.Rows) arrow.RecordBatch {
	return array.NewRecordBatch(sc, rows.Cols[:sc.NumFields()], int64(rows.N))
}

// openFile opens one data file for reading the given columns of the view.
func (r *Reader) openFile(ctx context.Context, v *view, dir string, f *manifest.DataFile, cols []int) (*datafile.Reader, error) {
	return r.openSpec(ctx, v, dir, f, datafile.ReadSpec{Cols: cols})
}

// openSpec opens one data file; the schema to read it in is that of the view.
func (r *Reader) openSpec(ctx context.Context, v *view, dir string, f *manifest.DataFile, spec datafile.ReadSpec) (*datafile.Reader, error) {
	if err := datafile.CheckName(f.Name); err != nil {
		return nil, fmt.Errorf("%s: %w", r.store.URL(dir+"/"+f.Name), err)
	}
	spec.Schema, spec.KeyValue = v.schema, v.keys != nil
	fs, err := r.meta.Schema(ctx, f.SchemaID)
	if err != nil {
		return nil, err
	}
	name := dir + "/" + f.Name
	file, err := r.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if file.Size() != f.Size {
		return nil, errors.Join(&manifest.CorruptError{Name: r.store.URL(name), Reason: fmt.Sprintf("the file has %d bytes, the manifest says %d", file.Size(), f.Size)}, file.Close())
	}
	rd, err := datafile.Open(file, r.store.URL(name), fs, spec)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if rd.NumRows() != f.Rows {
		return nil, errors.Join(&manifest.CorruptError{Name: r.store.URL(name), Reason: fmt.Sprintf("the file has %d rows, the manifest says %d", rd.NumRows(), f.Rows)}, rd.Close())
	}
	return rd, nil
}
