package datafile

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
)

// Row groups end at the first of these limits: the second bounds the memory of a writer, which holds a row group
// compressed until it is whole.
const (
	defaultRowGroupRows  = 1 << 20
	maxRowGroupBytes     = 64 << 20
	dictionaryBytes      = 1 << 20
	maxFooterStatsLength = 4096
)

// createdBy is what files say about their writer.
const createdBy = "calve"

// WriterConfig says how a file is written. The zero values of all but Schema are usable.
type WriterConfig struct {
	// Schema of the table. The file carries the names and types of exactly this version.
	Schema *schema.Schema
	// Keyed files have sequence number and kind of each row and, unless Thin, the key columns once more in front.
	Keyed, Thin bool
	// Compression is zstd, snappy, lz4 or none; empty is zstd.
	Compression string
	// ZstdLevel is the level of zstd; 0 is 1, the fastest.
	ZstdLevel int
	// RowGroupRows ends a row group at that many rows; 0 is 1,048,576.
	RowGroupRows int
	// Parallel is how many goroutines encode the columns of a Write. At 1 and below the caller does it alone.
	Parallel int
	// Stats gives the statistics mode of a table column. nil is truncate(16) for all. Key columns of thin files have
	// truncate(128) whatever it says.
	Stats func(column string) schema.StatsMode
}

// Info describes a finished file. Key and Value are the statistics of the key columns (key order) and of all columns
// of the table (schema order); MinKey and MaxKey are the serialized keys of the first and the last row.
// Append files have no key: Key is empty and both keys are binrow.EmptyRow.
type Info struct {
	Size, Rows     int64
	DeleteRows     int64 // rows that are no insert or update-after
	MinSeq, MaxSeq int64
	Key, Value     []ColumnStats
	MinKey, MaxKey []byte
}

// Writer writes one file. It is for one goroutine; with Parallel it starts others within Write and waits for them.
//
//	w, err := NewWriter(upload, cfg)
//	for … { err = w.Write(rows) }   // in file order
//	info, err := w.Close()
//
// After an error the file is useless: drop what was written.
type Writer struct {
	cfg  WriterConfig
	out  *countingWriter
	cols []*columnEncoder
	mode []schema.StatsMode
	keys []int

	fw   *file.Writer // nil until the first rows have chosen the encodings
	rg   file.BufferedRowGroupWriter
	rows int // in the open row group

	stats  []collector // one for each table column
	info   Info
	last   Rows // the newest rows, for MaxKey
	err    error
	closed bool
}

// NewWriter starts a file. Nothing is written to w before the first rows come. w is not closed.
func NewWriter(w io.Writer, cfg WriterConfig) (*Writer, error) {
	if cfg.Schema == nil {
		return nil, errors.New("data file writer: no schema given")
	}
	if cfg.RowGroupRows <= 0 {
		cfg.RowGroupRows = defaultRowGroupRows
	}
	if cfg.ZstdLevel == 0 {
		cfg.ZstdLevel = 1
	}
	if _, err := codecOf(cfg.Compression); err != nil {
		return nil, err
	}
	out := &Writer{cfg: cfg, out: &countingWriter{w: w}}
	fields := fileColumns(cfg.Schema, cfg.Keyed, cfg.Thin)
	if _, err := parquetRoot(fields); err != nil {
		return nil, fmt.Errorf("data file writer: %w", err)
	}
	for _, c := range fields {
		e, err := newColumnEncoder(c)
		if err != nil {
			return nil, fmt.Errorf("data file writer: %w", err)
		}
		out.cols = append(out.cols, e)
	}
	if cfg.Keyed {
		out.keys = cfg.Schema.KeyColumns()
	}
	for i, f := range cfg.Schema.Fields {
		m := defaultStats
		switch {
		case cfg.Thin && slices.Contains(out.keys, i):
			m = keyStats // they stand in for the key columns
		case cfg.Stats != nil:
			m = cfg.Stats(f.Name)
		}
		out.mode = append(out.mode, m)
		out.stats = append(out.stats, newCollector(f.Type))
	}
	return out, nil
}

// Write appends rows: all columns of the table in schema order, in file order. The arrays may be read until Close.
func (w *Writer) Write(r Rows) error {
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return errors.New("data file writer: Write after Close")
	}
	if r.N == 0 {
		return nil
	}
	w.err = w.write(r)
	return w.err
}

func (w *Writer) write(r Rows) error {
	if err := w.check(r); err != nil {
		return fmt.Errorf("data file writer: %w", err)
	}
	if w.fw == nil {
		if err := w.start(&r); err != nil {
			return fmt.Errorf("data file writer: %w", err)
		}
	}
	if err := w.note(r); err != nil {
		return fmt.Errorf("data file writer: %w", err)
	}
	for r.N > 0 {
		part := r
		if room := w.cfg.RowGroupRows - w.rows; r.N > room {
			part, r = split(r, room)
		} else {
			r = Rows{}
		}
		if err := w.append(part); err != nil {
			return fmt.Errorf("data file writer: %w", err)
		}
	}
	return nil
}

// check refuses rows that do not fit the file.
func (w *Writer) check(r Rows) error {
	if len(r.Cols) != len(w.cfg.Schema.Fields) {
		return fmt.Errorf("%d columns given, the table has %d", len(r.Cols), len(w.cfg.Schema.Fields))
	}
	if w.cfg.Keyed && (len(r.Seq) != r.N || len(r.Kinds) != r.N) {
		return fmt.Errorf("%d rows but %d sequence numbers and %d kinds", r.N, len(r.Seq), len(r.Kinds))
	}
	for i, a := range r.Cols {
		if a.Len() != r.N {
			return fmt.Errorf("column %q has %d rows, expected %d", w.cfg.Schema.Fields[i].Name, a.Len(), r.N)
		}
	}
	for _, e := range w.cols {
		if e.from >= 0 {
			if err := e.check(r.Cols[e.from]); err != nil {
				return err
			}
		}
	}
	return nil
}

// start opens the Parquet file; the first rows choose the encodings. Without rows all is plain.
func (w *Writer) start(r *Rows) error {
	codec, err := codecOf(w.cfg.Compression)
	if err != nil {
		return err
	}
	props := []parquet.WriterProperty{
		parquet.WithCreatedBy(createdBy),
		parquet.WithRootName(rootName),
		parquet.WithCompression(codec),
		parquet.WithDataPageSize(pageBytes),
		parquet.WithDictionaryPageSizeLimit(dictionaryBytes),
		parquet.WithDictionaryDefault(false),
		parquet.WithPageIndexEnabled(true),
		parquet.WithMaxStatsSize(maxFooterStatsLength),
		parquet.WithMaxRowGroupLength(int64(w.cfg.RowGroupRows)),
	}
	if codec == compress.Codecs.Zstd {
		props = append(props, parquet.WithCompressionLevel(w.cfg.ZstdLevel))
	}
	fields := make([]fileColumn, len(w.cols))
	for i, e := range w.cols {
		fields[i] = e.fileColumn
		enc := deltaEncoding
		if e.from >= 0 {
			enc = plainEncoding
			if r != nil {
				enc = chooseEncoding(e.typ, r.Cols[e.from])
			}
		}
		switch enc {
		case deltaEncoding:
			props = append(props, parquet.WithEncodingFor(e.name, parquet.Encodings.DeltaBinaryPacked))
		case dictEncoding:
			props = append(props, parquet.WithDictionaryFor(e.name, true))
		}
	}
	root, err := parquetRoot(fields)
	if err != nil {
		return err
	}
	w.fw, err = file.NewParquetWriterWithError(w.out, root, file.WithWriterProps(parquet.NewWriterProperties(props...)))
	return err
}

// note keeps what the manifest wants to know of the rows as a whole.
func (w *Writer) note(r Rows) error {
	if w.cfg.Keyed {
		if w.info.Rows == 0 {
			k, err := w.key(r, 0)
			if err != nil {
				return err
			}
			w.info.MinKey = k
			w.info.MinSeq, w.info.MaxSeq = r.Seq[0], r.Seq[0]
		}
		lo, hi := w.info.MinSeq, w.info.MaxSeq
		for _, s := range r.Seq {
			lo, hi = min(lo, s), max(hi, s)
		}
		w.info.MinSeq, w.info.MaxSeq = lo, hi
		adds := 0
		for _, k := range r.Kinds {
			if schema.RowKind(k).IsAdd() {
				adds++
			}
		}
		w.info.DeleteRows += int64(r.N - adds)
		w.last = r
	}
	w.info.Rows += int64(r.N)
	return nil
}

// key serializes the key of a row.
func (w *Writer) key(r Rows, row int) ([]byte, error) {
	cols := make([]arrow.Array, len(w.keys))
	for i, k := range w.keys {
		cols[i] = r.Cols[k]
	}
	b, err := binrow.NewEncoder(w.cfg.Schema.Types(w.keys)).Append(nil, cols, row)
	if err != nil {
		return nil, fmt.Errorf("key of row %d: %w", row, err)
	}
	return binrow.Serialize(b, len(w.keys)), nil
}

// append encodes rows into the open row group and closes it when it is full.
func (w *Writer) append(r Rows) error {
	if w.rg == nil {
		rg, err := w.fw.AppendBufferedRowGroupChecked()
		if err != nil {
			return err
		}
		for i, e := range w.cols {
			if e.cw, err = rg.Column(i); err != nil {
				return err
			}
		}
		w.rg = rg
	}
	if err := w.encode(r); err != nil {
		return err
	}
	w.rows += r.N
	if w.rows >= w.cfg.RowGroupRows || w.rg.TotalCompressedBytes() >= maxRowGroupBytes {
		return w.endGroup()
	}
	return nil
}

func (w *Writer) endGroup() error {
	err := w.rg.Close()
	w.rg, w.rows = nil, 0
	for _, e := range w.cols {
		e.cw = nil
	}
	return err
}

// encode spreads the columns over goroutines. Which column a goroutine takes next is whatever is left.
func (w *Writer) encode(r Rows) error {
	workers := min(w.cfg.Parallel, len(w.cols))
	if workers <= 1 || r.N < 1024 {
		for i := range w.cols {
			if err := w.encodeColumn(i, r); err != nil {
				return err
			}
		}
		return nil
	}
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		errs = make([]error, workers)
	)
	work := func(slot int) {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(w.cols) {
				return
			}
			if errs[slot] = w.encodeColumn(i, r); errs[slot] != nil {
				return
			}
		}
	}
	for slot := 1; slot < workers; slot++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			work(slot)
		}()
	}
	work(0)
	wg.Wait()
	return errors.Join(errs...)
}

// encodeColumn encodes one column. Statistics are gathered with the table's column, not with its copy in the key.
func (w *Writer) encodeColumn(i int, r Rows) (err error) {
	defer recovered(&err, errEncoder)
	e := w.cols[i]
	switch e.from {
	case fromSeq:
		return e.writeSeq(r.Seq)
	case fromKind:
		return e.writeKinds(r.Kinds)
	}
	a := r.Cols[e.from]
	if e.id < keyIDStart {
		w.stats[e.from].add(a)
	}
	return e.write(a)
}

// errEncoder names panics of the Parquet library, which are not expected.
var errEncoder = errors.New("encoder failed")

// Size is how large the file would be if it were closed now: what is written plus an estimate of what is buffered.
func (w *Writer) Size() int64 {
	n := w.out.n
	if w.rg == nil {
		return n
	}
	for _, e := range w.cols {
		n += e.cw.TotalCompressedBytes()
		if b, ok := e.cw.(interface{ EstimatedBufferedValueBytes() int64 }); ok {
			n += b.EstimatedBufferedValueBytes() / 2 // compression roughly halves it
		}
	}
	return n
}

// Close ends the file and describes it. A file without rows is valid but has no keys.
func (w *Writer) Close() (Info, error) {
	if w.err != nil {
		return Info{}, w.err
	}
	if w.closed {
		return Info{}, errors.New("data file writer: Close after Close")
	}
	w.closed = true
	if err := w.finish(); err != nil {
		w.err = fmt.Errorf("data file writer: %w", err)
		return Info{}, w.err
	}
	return w.info, nil
}

func (w *Writer) finish() (err error) {
	defer recovered(&err, errEncoder)
	if w.fw == nil {
		if err := w.start(nil); err != nil {
			return err
		}
	}
	if w.rg != nil {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if err := w.fw.Close(); err != nil {
		return err
	}
	w.info.Size = w.out.n
	w.info.Value = make([]ColumnStats, len(w.stats))
	for i, s := range w.stats {
		w.info.Value[i] = keep(w.mode[i], s.result())
	}
	w.info.Key = make([]ColumnStats, len(w.keys))
	for i, k := range w.keys {
		w.info.Key[i] = keep(keyStats, w.stats[k].result())
	}
	if !w.cfg.Keyed {
		w.info.MinKey, w.info.MaxKey = binrow.EmptyRow, binrow.EmptyRow
	} else if w.info.Rows > 0 {
		if w.info.MaxKey, err = w.key(w.last, w.last.N-1); err != nil {
			return err
		}
	}
	w.last = Rows{}
	return nil
}

// split cuts rows in two.
func split(r Rows, n int) (head, tail Rows) {
	cut := func(from, to int) Rows {
		out := Rows{N: to - from, Cols: make([]arrow.Array, len(r.Cols))}
		for i, a := range r.Cols {
			out.Cols[i] = array.NewSlice(a, int64(from), int64(to))
		}
		if r.Seq != nil {
			out.Seq = r.Seq[from:to]
		}
		if r.Kinds != nil {
			out.Kinds = r.Kinds[from:to]
		}
		return out
	}
	return cut(0, n), cut(n, r.N)
}

// codecOf maps the option file.compression.
func codecOf(name string) (compress.Compression, error) {
	switch name {
	case "", "zstd":
		return compress.Codecs.Zstd, nil
	case "snappy":
		return compress.Codecs.Snappy, nil
	case "lz4", "lz4_raw":
		return compress.Codecs.Lz4Raw, nil
	case "none", "uncompressed":
		return compress.Codecs.Uncompressed, nil
	}
	return 0, fmt.Errorf("data file writer: compression %q is not one of zstd, snappy, lz4, none", name)
}

// countingWriter counts bytes and hides a Close method, which the Parquet library would call.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
