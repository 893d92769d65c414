package lsm

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sort"
	"time"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Files makes and reads the data files of a table. It has no state of its own and is safe for concurrent use if its
// functions are.
type Files struct {
	Store   storage.Store // the table's folder
	Schema  *schema.Schema
	Options schema.Options
	// NewName makes a unique data file name, without folder, and NewChangelogName one of a changelog file.
	NewName, NewChangelogName func() string
	// Now is the clock for creation times.
	Now func() time.Time
	// Parallel is how many goroutines a call may use; below 2: only the caller's.
	Parallel int
	// NoStats leaves the statistics of columns out of the metadata of new files, as the mode none does.
	NoStats bool
	// OpenSchema finds the schema a file was written with. It is asked for schemas other than Schema only.
	OpenSchema func(ctx context.Context, id int64) (*schema.Schema, error)
	// Vectors are the deletion vectors of the bucket's data files, by name: rows in them are not there.
	Vectors map[string]*indexfile.Vector
	// WindowBytes is about how much decoded data a sorted run holds in memory while it is read; 0: DefaultWindowBytes.
	WindowBytes int64
	// Pace, if set, is called by Compact for each batch of rows, with about the bytes of the files that were read for it.
	// It may wait: the compaction then holds its memory and nothing else. An error ends the compaction.
	Pace func(ctx context.Context, bytes int64) error

	// Follow, if set, is told of each data file with sorted rows that Compact begins above level 0, by its name below Store. What
	// it gives, unless it is nil, is told the file's rows as they are written.
	Follow func(name string) Follower

	// For tests: nothing is copied without being decoded; and another least size of what is, and of what can be.
	noCopy    bool
	leastCopy int64
	cutRows   int
	readMost  int64

	runs int // how many are read at once; 0: not known
}

// Part is where the files of one bucket belong.
type Part struct {
	Partition    []byte // serialized BinaryRow
	Values       []any  // the same, decoded
	Bucket       int
	TotalBuckets int
	Dir          string // folder of the bucket below the table
}

// Follower is told the rows of a data file that is being written. Its calls do not fail: whatever it makes of the rows, the
// file does not depend on it.
type Follower interface {
	// Rows gives the next rows of the file, with all columns of its schema. Their memory is the caller's again afterwards.
	Rows(datafile.Rows)
	// Done tells that the file is whole. Nothing is called after it.
	Done(*manifest.DataFile)
	// Drop tells that rows follow which are not told, since they are copied without being decoded, or that the file
	// will not be. Nothing is called after it.
	Drop()
}

// outputs writes data files one after the other. Everything it has made is deleted by discard.
type outputs struct {
	files Files
	part  Part
	level int
	src   manifest.FileSource
	roll  int64 // size at which a file ends; 0: never
	// changelog: the files tell changes. Rows of one key follow each other there, and nobody looks for single ones.
	changelog bool

	name   string
	upload storage.Upload
	w      *datafile.Writer
	// filters are the file index of the file being written, nil if it has none.
	filters  *filters
	follow   func(name string) Follower // nil: nobody is told
	follower Follower                   // of the file being written; nil: nobody
	made     []manifest.DataFile
	names    []string // everything that may exist on storage
}

// write adds rows, which follow those before in file order.
func (o *outputs) write(ctx context.Context, rows datafile.Rows) error {
	if rows.N == 0 {
		return nil
	}
	if o.w == nil {
		if err := o.begin(ctx); err != nil {
			return err
		}
	}
	if err := o.w.Write(rows); err != nil {
		return o.wrap("write", err)
	}
	if o.filters != nil {
		if err := o.filters.add(rows); err != nil {
			return o.wrap("write", err)
		}
	}
	if o.follower != nil {
		o.follower.Rows(rows)
	}
	if o.roll > 0 && o.w.Size() >= o.roll {
		return o.end(ctx)
	}
	return nil
}

// lose ends what the follower is told of the file being written.
func (o *outputs) lose() {
	if o.follower != nil {
		o.follower.Drop()
		o.follower = nil
	}
}

// copy adds rows of another file as they are.
func (o *outputs) copy(ctx context.Context, from *datafile.Outline, p datafile.Piece) error {
	if o.w == nil {
		if err := o.begin(ctx); err != nil {
			return err
		}
	}
	o.lose()
	if err := o.w.Copy(from, p); err != nil {
		return o.wrap("write", err)
	}
	if o.roll > 0 && o.w.Size() >= o.roll {
		return o.end(ctx)
	}
	return nil
}

// pieceBytes is about how much is copied at once: in between a compaction may be told to wait.
const pieceBytes = 16 << 20

// fitting is where rows of a file that are copied at once end, counted from a row on: before they are many, or where they
// fill the file being written.
func (o *outputs) fitting(from *datafile.Outline, rows datafile.RowRange) int64 {
	room := int64(pieceBytes)
	if o.roll > 0 {
		used := int64(0)
		if o.w != nil {
			used = o.w.Size()
		}
		room = min(room, o.roll-used)
	}
	first := sort.Search(len(from.Units), func(i int) bool { return from.Units[i].From >= rows.From })
	for _, u := range from.Units[first:] {
		if room -= u.Bytes; room <= 0 || u.To >= rows.To {
			return min(u.To, rows.To)
		}
	}
	return rows.To
}

func (o *outputs) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s data file %s: %w", what, o.files.Store.URL(path.Join(o.part.Dir, o.name)), err)
}

func (o *outputs) begin(ctx context.Context) error {
	f := o.files
	o.name = f.NewName()
	if o.changelog {
		o.name = f.NewChangelogName()
	}
	full := path.Join(o.part.Dir, o.name)
	up, err := f.Store.Create(ctx, full)
	if err != nil {
		return o.wrap("create", err)
	}
	o.upload = up
	o.names = append(o.names, full)
	o.w, err = datafile.NewWriter(up, o.writerConfig())
	if err != nil || o.changelog {
		return o.wrap("create", err)
	}
	if o.filters, err = newFilters(f.Schema); err != nil {
		return o.wrap("create", err)
	}
	if o.follow != nil {
		o.follower = o.follow(full)
	}
	return nil
}

// end closes the file being written, if there is one.
func (o *outputs) end(ctx context.Context) error {
	if o.w == nil {
		return nil
	}
	info, err := o.w.Close()
	if err != nil {
		return o.wrap("write", err)
	}
	o.w = nil
	if err := o.upload.Commit(); err != nil {
		return o.wrap("commit", err)
	}
	o.upload = nil
	f, err := o.files.dataFile(o.name, o.level, o.src, info)
	if err != nil {
		return o.wrap("describe", err)
	}
	if o.filters != nil {
		if err := o.index(ctx, &f); err != nil {
			return o.wrap("index", err)
		}
		o.filters = nil
	}
	if o.follower != nil {
		o.follower.Done(&f)
		o.follower = nil
	}
	o.made = append(o.made, f)
	return nil
}

// discard deletes everything that was made. No snapshot can name these files yet, so that deleting them is safe even
// if it is not known whether they came to be; and it must happen when the context has ended, too.
func (o *outputs) discard(ctx context.Context, cause error) error {
	o.lose()
	if o.upload != nil {
		o.upload.Abort()
	}
	ctx = context.WithoutCancel(ctx)
	errs := []error{cause}
	for _, n := range o.names {
		if err := o.files.Store.Delete(ctx, n); err != nil {
			errs = append(errs, fmt.Errorf("clean up: %w", err))
		}
	}
	return errors.Join(errs...)
}

// writerConfig is how the files are written.
func (o *outputs) writerConfig() datafile.WriterConfig {
	c := o.files.writerConfig(o.level)
	if o.changelog {
		opts, level := o.files.Options, o.level
		c.Compression = opts.ChangelogCompressionAt(level)
		if !o.files.NoStats {
			c.Stats = func(column string) schema.StatsMode { return opts.ChangelogStats(column, level) }
		}
	}
	return c
}

func (f Files) writerConfig(level int) datafile.WriterConfig {
	o, statsLevel := f.Options, level
	stats := func(column string) schema.StatsMode { return o.Stats(column, statsLevel) }
	if f.NoStats {
		stats = func(string) schema.StatsMode { return schema.StatsNone }
	}
	if !f.Schema.Keyed() {
		statsLevel = -1 // metadata.stats-mode.per.level is not for append tables
	}
	return datafile.WriterConfig{
		Schema: f.Schema, Keyed: f.Schema.Keyed(), Thin: o.ThinMode, RowGroupBytes: o.BlockSize,
		Compression: o.CompressionAt(level), ZstdLevel: o.ZstdLevel, Parallel: f.Parallel, CutRows: f.cutRows,
		Stats: stats,
	}
}

// dataFile describes a finished file for the manifest.
func (f Files) dataFile(name string, level int, src manifest.FileSource, info datafile.Info) (manifest.DataFile, error) {
	deletes := info.DeleteRows // a copy: a pointer into info would keep the statistics of all columns in memory
	now := f.Now()
	_, zone := now.Zone()
	d := manifest.DataFile{
		Name: name, Size: info.Size, Rows: info.Rows, MinSeq: info.MinSeq, MaxSeq: info.MaxSeq,
		MinKey: info.MinKey, MaxKey: info.MaxKey, SchemaID: f.Schema.ID, Level: level, Source: &src,
		CreatedMillis: now.UnixMilli() + int64(zone)*1000,
		DeleteRows:    &deletes,
	}
	if !f.Schema.Keyed() {
		d.MinKey, d.MaxKey = binrow.EmptyRow, binrow.EmptyRow
	}
	keys := f.Schema.Types(f.Schema.KeyColumns())
	var err error
	if d.KeyStats, err = stats(keys, info.Key); err != nil {
		return d, err
	}
	return d, f.valueStats(&d, info.Value)
}

// valueStats fills in the statistics of the columns whose mode is not none (§9).
func (f Files) valueStats(d *manifest.DataFile, all []datafile.ColumnStats) error {
	var cols []int
	for i := range f.Schema.Fields {
		if !f.Options.StatsDense || all[i].Nulls >= 0 { // the writer knows better than the option: keys of thin files
			cols = append(cols, i)
		}
	}
	kept := make([]datafile.ColumnStats, 0, len(cols))
	for _, c := range cols {
		kept = append(kept, all[c])
	}
	if len(cols) == len(f.Schema.Fields) {
		d.ValueStatsAll = true
	} else {
		d.ValueStatsCols = append([]string{}, f.Schema.Names(cols)...)
	}
	var err error
	d.ValueStats, err = stats(f.Schema.Types(cols), kept)
	return err
}

func stats(types []schema.Type, cols []datafile.ColumnStats) (manifest.Stats, error) {
	var s manifest.Stats
	lo, hi := make([]any, len(cols)), make([]any, len(cols))
	for i, c := range cols {
		lo[i], hi[i] = c.Min, c.Max
		s.NullCounts = append(s.NullCounts, known(c.Nulls))
	}
	var err error
	s.Min, s.Max, err = binrow.EncodeStats(types, lo, hi)
	return s, err
}

// known is a null count as the manifest has it: nil if it was not counted.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
