package datafile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
)

// Row groups end at so many rows or bytes. The most bytes bound the memory of a writer, which holds a row group compressed until
// it is whole. In files with keys they are fewer, so that the pages of a row, whose columns lie in different places of its row
// group, can be read at once (betweenBytes), but not so few that a column has less than a page is worth.
const (
	defaultRowGroupRows = 1 << 20
	minRowGroupBytes    = 1 << 20
	maxRowGroupBytes    = 32 << 20
	keyedGroupBytes     = 8 << 20
	keyedColumnBytes    = 128 << 10
)

// All columns end a page at the first of these limits, so that the rows between two such cuts can be copied as they are: see
// Outline. A cut is not worth less than some 32 KiB a column.
const (
	defaultCutRows = 8 << 10
	cutBytes       = 4 << 20
	cutColumnBytes = 32 << 10
)

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
	// RowGroupBytes ends it at about that many bytes, compressed, but not below 1 MiB and not beyond 32 MiB. 0 is 32 MiB, and
	// for files with keys 8 MiB, or 128 KiB a column if that is more.
	RowGroupBytes int64
	// CutRows is the number of rows after which all columns end a page; 0 is 8,192.
	CutRows int
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
	top  []part           // the file's fields
	cols []*columnEncoder // its leaves
	mode []schema.StatsMode
	keys []int

	groups []groupMeta
	open   bool       // a row group is
	copied copiedRows // all of them, if it was copied
	rows   int        // in it
	cutAt  int        // its rows up to the last cut,
	cutOf  int64      // and what was buffered then

	info   Info
	last   Rows   // the newest rows, for MaxKey
	maxKey []byte // the same, if the newest rows were copied
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
	if cfg.CutRows <= 0 {
		cfg.CutRows = defaultCutRows
	}
	if cfg.ZstdLevel == 0 {
		cfg.ZstdLevel = 1
	}
	pack, err := newCompressor(cfg.Compression, cfg.ZstdLevel)
	if err != nil {
		return nil, err
	}
	out := &Writer{cfg: cfg, out: &countingWriter{w: w}}
	parts, from := fileParts(cfg.Schema, cfg.Keyed, cfg.Thin)
	leaves, err := fileColumns(parts, from)
	if err != nil {
		return nil, fmt.Errorf("data file writer: %w", err)
	}
	out.top = parts
	out.cfg.RowGroupBytes = rowGroupBytes(cfg, len(leaves))
	for _, c := range leaves {
		e, err := newColumnEncoder(c, pack)
		if err != nil {
			return nil, fmt.Errorf("data file writer: %w", err)
		}
		e.most = mostPage(len(leaves))
		out.cols = append(out.cols, e)
	}
	out.takeSpare()
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
		_, short := m.Truncate()
		for _, e := range out.cols {
			e.whole = e.whole || e.from == i && !short && m != schema.StatsNone && m != schema.StatsCounts
		}
	}
	return out, nil
}

// rowGroupBytes is the size of row groups of a file of so many columns.
func rowGroupBytes(cfg WriterConfig, columns int) int64 {
	switch {
	case cfg.RowGroupBytes > 0:
		return min(max(cfg.RowGroupBytes, minRowGroupBytes), maxRowGroupBytes)
	case cfg.Keyed:
		return min(max(keyedGroupBytes, keyedColumnBytes*int64(columns)), maxRowGroupBytes)
	}
	return maxRowGroupBytes
}

// Write appends rows: all columns of the table in schema order, in file order. The arrays must stay as they are until
// the next Write or Close has returned.
func (w *Writer) Write(r Rows) error {
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return errClosed
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
	if err := w.note(r); err != nil {
		return fmt.Errorf("data file writer: %w", err)
	}
	for r.N > 0 {
		part := r
		if room := min(w.cfg.RowGroupRows, w.cutAt+w.cfg.CutRows) - w.rows; r.N > room {
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

// start writes the first bytes of the file.
func (w *Writer) start() error {
	if w.out.n > 0 {
		return nil
	}
	_, err := io.WriteString(w.out, magic)
	return err
}

// begin starts a row group; its first rows choose the encodings.
func (w *Writer) begin(r Rows) error {
	if err := w.start(); err != nil {
		return err
	}
	for _, e := range w.cols {
		enc := deltaEncoding
		if e.from >= 0 {
			enc = chooseEncoding(e.typ, leafOf(r.Cols[e.from], e.steps))
		}
		e.begin(enc)
	}
	w.open = true
	return nil
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
		}
		w.noteSeq(slices.Min(r.Seq), slices.Max(r.Seq))
		adds := 0
		for _, k := range r.Kinds {
			if schema.RowKind(k).IsAdd() {
				adds++
			}
		}
		w.info.DeleteRows += int64(r.N - adds)
		w.last, w.maxKey = r, nil
	}
	w.info.Rows += int64(r.N)
	return nil
}

// noteSeq widens the range of sequence numbers by that of the next rows.
func (w *Writer) noteSeq(lo, hi int64) {
	if w.info.Rows > 0 {
		lo, hi = min(lo, w.info.MinSeq), max(hi, w.info.MaxSeq)
	}
	w.info.MinSeq, w.info.MaxSeq = lo, hi
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
	if w.open && w.copied != (copiedRows{}) {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if !w.open {
		if err := w.begin(r); err != nil {
			return err
		}
	}
	if err := w.each(r.N, func(i int) error { return w.encode(w.cols[i], r) }); err != nil {
		return err
	}
	w.rows += r.N
	size := w.buffered()
	switch {
	case w.rows >= w.cfg.RowGroupRows || size >= w.cfg.RowGroupBytes:
		return w.endGroup()
	case w.rows-w.cutAt >= w.cfg.CutRows || size-w.cutOf >= max(cutBytes, cutColumnBytes*int64(len(w.cols))):
		return w.cut()
	}
	return nil
}

// cut ends a page of every column.
func (w *Writer) cut() error {
	rows := w.rows - w.cutAt
	w.cutAt, w.cutOf = w.rows, w.buffered()
	return w.each(rows, func(i int) error { return w.cols[i].endPage() })
}

// buffered is about how many bytes the open row group will have.
func (w *Writer) buffered() int64 {
	n := int64(0)
	if w.open {
		for _, e := range w.cols {
			n += e.size()
		}
	}
	return n
}

// endGroup writes the row group, column by column.
func (w *Writer) endGroup() error {
	dicts := make([][]byte, len(w.cols))
	err := w.each(w.rows, func(i int) (err error) {
		dicts[i], err = w.cols[i].end()
		return err
	})
	if err != nil {
		return err
	}
	g := groupMeta{rows: int64(w.rows), chunks: make([]chunkMeta, len(w.cols))}
	for i, e := range w.cols {
		if len(dicts[i]) > 0 {
			e.meta.dictAt = w.out.n
			if _, err := w.out.Write(dicts[i]); err != nil {
				return err
			}
		}
		e.meta.dataAt = w.out.n
		for p := range e.meta.pages {
			e.meta.pages[p].at += w.out.n
		}
		if _, err := w.out.Write(e.data); err != nil {
			return err
		}
		g.chunks[i] = e.meta
	}
	w.groups = append(w.groups, g)
	w.open, w.rows, w.cutAt, w.cutOf, w.copied = false, 0, 0, 0, copiedRows{}
	return nil
}

// each does something with every column, by index, on several goroutines if there is enough to do. Which column a goroutine
// takes next is whatever is left.
func (w *Writer) each(rows int, do func(i int) error) error {
	safe := func(i int) (err error) {
		defer recovered(&err, errEncoder)
		return do(i)
	}
	workers := min(w.cfg.Parallel, len(w.cols))
	if workers <= 1 || rows < 1024 {
		for i := range w.cols {
			if err := safe(i); err != nil {
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
			if errs[slot] = safe(i); errs[slot] != nil {
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

// encode encodes one column.
func (w *Writer) encode(e *columnEncoder, r Rows) error {
	switch e.from {
	case fromSeq:
		return e.writeSeq(r.Seq)
	case fromKind:
		return e.writeKinds(r.Kinds)
	}
	if e.nested() {
		return e.writeNested(r.Cols[e.from])
	}
	return e.write(r.Cols[e.from])
}

var (
	errClosed = errors.New("data file writer: the file is closed")
	errLayout = errors.New("the files have different layouts")
)

// errEncoder names panics of the encoder, which are mistakes of calve.
var errEncoder = errors.New("encoder failed")

// Size is about how large the file would be if it were closed now.
func (w *Writer) Size() int64 { return w.out.n + w.buffered() }

// Close ends the file and describes it. A file without rows is valid but has no keys.
func (w *Writer) Close() (Info, error) {
	if w.err != nil {
		return Info{}, w.err
	}
	if w.closed {
		return Info{}, errClosed
	}
	w.closed = true
	if err := w.finish(); err != nil {
		w.err = fmt.Errorf("data file writer: %w", err)
		return Info{}, w.err
	}
	return w.info, nil
}

func (w *Writer) finish() error {
	if w.open {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if err := w.writeFooter(); err != nil {
		return err
	}
	w.giveSpare()
	w.info.Size = w.out.n
	w.info.Value = make([]ColumnStats, len(w.cfg.Schema.Fields))
	cut := make([]bool, len(w.info.Value))
	for _, e := range w.cols {
		if e.from >= 0 && e.id < keyIDStart {
			w.info.Value[e.from], cut[e.from] = e.statistics(), e.file.cut
		}
	}
	w.info.Key = make([]ColumnStats, len(w.keys))
	for i, k := range w.keys {
		w.info.Key[i] = keep(keyStats, w.info.Value[k])
	}
	for i, m := range w.mode {
		if _, short := m.Truncate(); cut[i] && !short { // bounds that are not of these very values
			w.info.Value[i].Min, w.info.Value[i].Max = nil, nil
		}
		w.info.Value[i] = keep(m, w.info.Value[i])
	}
	switch {
	case !w.cfg.Keyed:
		w.info.MinKey, w.info.MaxKey = binrow.EmptyRow, binrow.EmptyRow
	case w.maxKey != nil:
		w.info.MaxKey = w.maxKey
	case w.info.Rows > 0:
		var err error
		if w.info.MaxKey, err = w.key(w.last, w.last.N-1); err != nil {
			return err
		}
	}
	w.last, w.cols, w.groups = Rows{}, nil, nil
	return nil
}

// writeFooter writes the page index and the footer.
func (w *Writer) writeFooter() error {
	var b []byte
	at := w.out.n
	if at == 0 {
		b = append(b, magic...)
	}
	b = appendPageIndexes(b, at+int64(len(b)), w.groups)
	from := len(b)
	b = appendFooter(b, w.top, len(w.cols), w.groups)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)-from))
	_, err := w.out.Write(append(b, magic...))
	return err
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

// countingWriter counts bytes.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
