package datafile

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Bounds of what a File reads ahead.
const (
	// pointTail bounds what is read with the footer, which is to hold the page index: about one part in tailShare of a file.
	pointTail = 1 << 20
	tailShare = 200
	// windowBytes is about how much of a file is held at once while rows of many places are read.
	windowBytes = 8 << 20
	windowRows  = 32 << 10
	// pageHead is what a reader looks at behind the pages it wants, since it does not know how long a page's header is.
	pageHead = 1 << 10
	// pointAhead is ReadSpec.ReadAhead of what was not fetched before.
	pointAhead = 64 << 10
	// fetches is how many requests are under way at once.
	fetches = 16
)

// File is a data file of which a few rows are read, again and again: its footer and page index are read once, and what is
// needed of its pages is fetched in few reads. It is safe for concurrent use.
type File struct {
	f      storage.File
	name   string
	schema *schema.Schema
	foot   *footer // nil: an Avro file, of which everything is read each time
	rows   int64
	gap    int64
}

// placeCache keeps the places of a file's pages. mu is held for moments only.
type placeCache struct {
	mu sync.Mutex
	m  map[placeKey][]pagePlace
}

// placeKey is all that what is read of a chunk's OffsetIndex depends on: a damaged file may have several chunks name the same
// one.
type placeKey struct{ indexAt, indexLen, offset, size, rows int64 }

func (k *placeCache) places(w *tailWindow, f storage.File, c *chunk, rows int64) ([]pagePlace, error) {
	key := placeKey{c.stats.offsetAt, c.stats.offsetLen, c.offset, c.size, rows}
	k.mu.Lock()
	p, ok := k.m[key]
	k.mu.Unlock()
	if ok {
		return p, nil
	}
	p, err := parsePlaces(w, f, c, rows)
	if err == nil {
		k.mu.Lock()
		k.m[key] = p
		k.mu.Unlock()
	}
	return p, err
}

// OpenFile reads the footer and the page index of a data file, which stays open, and is not closed, until the File is
// done. fileSchema is the schema version the file was written with. Pages that lie no more than gap bytes apart are fetched
// at once. tail is how much of the file's end is read first, at least: see Tail and Ends.
func OpenFile(f storage.File, name string, fileSchema *schema.Schema, gap, tail int64) (_ *File, err error) {
	defer recovered(&err, ErrCorrupt)
	d := &File{f: f, name: name, schema: fileSchema, gap: gap}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if formatOf(name) == "avro" {
		r, err := Open(f, name, fileSchema, ReadSpec{Schema: fileSchema})
		if err != nil {
			return nil, err
		}
		d.rows = r.NumRows()
		return d, nil
	}
	if d.foot, err = readFooter(f, max(tail, Tail(f.Size()))); err == nil {
		err = d.foot.fetchIndex(f)
	}
	if err != nil {
		return nil, fmt.Errorf("data file %s: %w", name, err)
	}
	d.foot.tail.known = &placeCache{m: map[placeKey][]pagePlace{}}
	d.rows = d.foot.rows
	return d, nil
}

// Tail is how much of the end of a file of some size is read first, to find its footer and page index there.
func Tail(size int64) int64 { return max(tailBytes, min(size/tailShare, pointTail)) }

// Ends is how much of the file's end its footer, page index and Bloom filters take: what would have been the right tail.
func (d *File) Ends() int64 {
	if d.foot == nil {
		return 0
	}
	return d.foot.ends
}

// Fetch brings along all that Read needs of some rows and columns: reads of the File that it gives ask the store for nothing, as
// long as they ask for no more. It is for few rows. room is asked first whether there is room for the bytes; where it says no, or
// they are too many to be held at once, Fetch fetches nothing and gives d.
func (d *File) Fetch(want ReadSpec, room func(bytes int64) bool) (_ *File, err error) {
	defer recovered(&err, ErrCorrupt)
	if d.foot == nil {
		return d, nil
	}
	ranges := cutRanges(want.Ranges)
	all, n, err := d.window(d.leaves(want), ranges)
	if err != nil {
		return nil, fmt.Errorf("data file %s: %w", d.name, err)
	}
	if n < len(ranges) || !room(total(all)) {
		return d, nil // too much to be held
	}
	w := &fetched{File: d.f}
	if err := w.fetch(all); err != nil {
		return nil, fmt.Errorf("data file %s: %w", d.name, err)
	}
	out := *d
	out.f, out.gap = w, 0 // each page that is asked for is at hand, not all that is between them
	return &out, nil
}

// NumRows is the number of rows in the file.
func (d *File) NumRows() int64 { return d.rows }

// Memory is about how many bytes the File holds.
func (d *File) Memory() int64 {
	if d.foot == nil {
		return 1 << 10
	}
	n := int64(len(d.foot.tail.b)) * 2 // as it is, and what was made of it
	for _, g := range d.foot.groups {
		n += int64(len(g.chunks)) * 256
	}
	return n + 4<<10
}

// Bounds are some rows of a file with bounds of their values: those of each column asked for, as Prune.Match has them.
type Bounds struct {
	RowRange
	Min, Max []any
}

// Bounds gives all rows of the file, page by page where the page index tells of pages, with bounds of columns of a schema.
func (d *File) Bounds(read *schema.Schema, cols []int) (out []Bounds, err error) {
	defer recovered(&err, ErrCorrupt)
	if d.foot == nil {
		return []Bounds{{RowRange: RowRange{To: d.rows}, Min: make([]any, len(cols)), Max: make([]any, len(cols))}}, nil
	}
	p := newPruner(&Reader{f: d.f, name: d.name, foot: d.foot}, d.schema, read, cols, pointAhead)
	start := int64(0)
	for g := range d.foot.groups {
		if d.foot.groups[g].rows == 0 {
			continue
		}
		err := p.cuts(g, func(x rowRange, stats func(i int) ColumnStats) {
			b := Bounds{RowRange: RowRange{start + x.from, start + x.to}, Min: make([]any, len(cols)), Max: make([]any, len(cols))}
			for i := range cols {
				s := stats(i)
				b.Min[i], b.Max[i] = s.Min, s.Max
			}
			out = append(out, b)
		})
		if err != nil {
			return nil, fmt.Errorf("data file %s: %w", d.name, err)
		}
		start += d.foot.groups[g].rows
	}
	return out, nil
}

// Read gives f the rows of want.Ranges, which are in order and do not overlap, in batches: Rows.First tells which they are.
// Of an Avro file f gets all rows. want.Prune and want.Keep are not for it.
func (d *File) Read(want ReadSpec, f func(Rows) error) (err error) {
	defer recovered(&err, ErrCorrupt)
	if want.ReadAhead == 0 {
		want.ReadAhead = pointAhead
	}
	if d.foot == nil {
		want.Ranges = nil
		r, err := Open(d.f, d.name, d.schema, want)
		if err != nil {
			return err
		}
		return each(r, f)
	}
	leaves := d.leaves(want)
	for ranges := cutRanges(want.Ranges); len(ranges) > 0; {
		all, n, err := d.window(leaves, ranges)
		w := &fetched{File: d.f}
		if err == nil {
			err = w.fetch(all)
		}
		if err != nil {
			return fmt.Errorf("data file %s: %w", d.name, err)
		}
		part := want
		part.Ranges, ranges = ranges[:n], ranges[n:]
		r := &Reader{f: w, name: d.name, foot: d.foot, batch: want.BatchRows}
		if r.batch <= 0 {
			r.batch = defaultBatchRows
		}
		if err := r.openParquet(d.schema, part, part.ReadAhead); err != nil {
			return fmt.Errorf("data file %s: %w", d.name, err)
		}
		if err := each(r, f); err != nil {
			return err
		}
	}
	return nil
}

// cutRanges cuts long ranges, of which not all is to be held at once.
func cutRanges(in []RowRange) (out []RowRange) {
	for _, x := range in {
		for x.To-x.From > windowRows {
			out = append(out, RowRange{x.From, x.From + windowRows})
			x.From += windowRows
		}
		out = append(out, x)
	}
	return out
}

func each(r *Reader, f func(Rows) error) error {
	for {
		rows, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(rows)
		}
		if err != nil {
			return err
		}
	}
}

// leaves are the leaves of the file that a read touches.
func (d *File) leaves(want ReadSpec) []int {
	var out []int
	var add func(e *element)
	add = func(e *element) {
		if e == nil {
			return
		}
		if e.at >= 0 {
			out = append(out, e.at)
		}
		for _, c := range e.children {
			add(c)
		}
	}
	if want.KeyValue {
		add(d.foot.root.child(SeqColumn))
		add(d.foot.root.child(KindColumn))
	}
	for _, c := range want.Cols {
		if at, ok := d.schema.FieldByID(want.Schema.Fields[c].ID); ok {
			add(d.foot.root.child(d.schema.Fields[at].Name))
		}
	}
	return out
}

// span is a piece of a file.
type span struct{ from, to int64 }

// total is how many bytes pieces have that do not overlap.
func total(all []span) (sum int64) {
	for _, s := range all {
		sum += s.to - s.from
	}
	return sum
}

// window gives what to fetch for the pages of the first of the ranges, of as many as there is room for, and their number.
func (d *File) window(leaves []int, ranges []RowRange) ([]span, int, error) {
	var spans []span
	size, n := int64(0), 0
	last := make([]int64, len(leaves)) // of each leaf: where the pages end that are counted
	for ; n < len(ranges); n++ {
		if n > 0 && size >= windowBytes {
			break
		}
		start := int64(0)
		for g := range d.foot.groups {
			end := start + d.foot.groups[g].rows
			x := rowRange{max(ranges[n].From, start) - start, min(ranges[n].To, end) - start}
			for i, leaf := range leaves {
				if x.from >= x.to {
					break
				}
				more, err := d.pages(g, leaf, x)
				if err != nil {
					return nil, 0, err
				}
				for _, s := range more {
					if s.from = max(s.from, last[i]); s.from < s.to {
						spans = append(spans, s)
						size += s.to - s.from
						last[i] = s.to
					}
				}
			}
			start = end
		}
	}
	all := joined(spans, d.gap)
	if total(all) > 2*windowBytes { // small pages far apart: what lies between them is more than they are
		all = joined(spans, 0)
	} else if d.gap >= farGap {
		all = fewer(all, betweenBytes)
	}
	return all, n, nil
}

// pages are the places of some rows' pages and of their dictionary; none if the file does not tell.
func (d *File) pages(g, leaf int, x rowRange) ([]span, error) {
	c := &d.foot.groups[g].chunks[leaf]
	places, err := readPlaces(&d.foot.tail, d.f, c, d.foot.groups[g].rows)
	if err != nil || places == nil {
		return nil, err
	}
	a := sort.Search(len(places), func(i int) bool { return places[i].row > x.from }) - 1
	b := sort.Search(len(places), func(i int) bool { return places[i].row >= x.to }) - 1
	s := span{places[a].at, places[b].at + places[b].size}
	if dict := (span{c.offset, places[0].at}); dict.to > dict.from {
		return []span{dict, s}, nil
	}
	return []span{s}, nil
}

// joined sorts spans and joins those that lie close together.
func joined(spans []span, gap int64) []span {
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	var out []span
	for _, s := range spans {
		s.to += pageHead
		if n := len(out); n > 0 && s.from <= out[n-1].to+gap {
			out[n-1].to = max(out[n-1].to, s.to)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// farGap is the least gap of a store where requests cost more than the bytes between two pages, and betweenBytes how many of
// these are read at most to save requests of a window: about a row group of a file with keys. A row of ten columns takes two requests
// so, and 6.6 MB. What is saved is what stores charge for, and what they throttle; requests that run side
// by side would take less time, some tens of milliseconds of it.
const (
	farGap       = 1 << 20
	betweenBytes = 12 << 20
)

// fewer joins spans, those first that have the least between them, as long as there are more than two and what lies between is
// no more than most.
func fewer(spans []span, most int64) []span {
	for len(spans) > 2 {
		at := 1
		for i := 2; i < len(spans); i++ {
			if spans[i].from-spans[i-1].to < spans[at].from-spans[at-1].to {
				at = i
			}
		}
		if most -= spans[at].from - spans[at-1].to; most < 0 {
			break
		}
		spans[at-1].to = spans[at].to
		spans = slices.Delete(spans, at, at+1)
	}
	return spans
}

// fetched is a file with some of its bytes at hand.
type fetched struct {
	storage.File
	spans []span
	data  [][]byte
}

// fetch reads the spans, several at a time.
func (w *fetched) fetch(spans []span) error {
	w.spans, w.data = spans, make([][]byte, len(spans))
	var g errgroup.Group
	g.SetLimit(fetches)
	for i := range spans {
		s := &spans[i]
		s.to = min(s.to, w.Size())
		b := make([]byte, s.to-s.from)
		w.data[i] = b
		if len(spans) == 1 {
			return readAt(w.File, b, s.from)
		}
		g.Go(func() error { return readAt(w.File, b, s.from) })
	}
	return g.Wait()
}

// ReadAt implements io.ReaderAt. What was not fetched is read from the file.
func (w *fetched) ReadAt(p []byte, off int64) (int, error) {
	i := sort.Search(len(w.spans), func(i int) bool { return w.spans[i].to > off })
	if i < len(w.spans) && off >= w.spans[i].from && off+int64(len(p)) <= w.spans[i].to {
		return copy(p, w.data[i][off-w.spans[i].from:]), nil
	}
	return w.File.ReadAt(p, off)
}

// Close does nothing: the file stays open.
func (w *fetched) Close() error { return nil }
