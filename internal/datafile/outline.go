package datafile

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Outline is what the metadata of a Parquet data file says of its rows, as far as it takes to copy pages of it into another
// file as they are (Writer.Copy). It is for one goroutine.
type Outline struct {
	// Units are the pieces of the file that can be copied, in row order and without a gap: between two of them, all columns
	// begin a page. There is none if the file cannot be copied at all.
	Units []Unit
	// Reading is about how much memory a Reader of all columns holds beside its batches, with the least ReadAhead: a page of each
	// column, as it is and unpacked, and a dictionary. It is known of every Parquet file.
	Reading int64

	f      storage.File
	name   string
	foot   *footer
	cfg    WriterConfig // of the layout
	leaves []fileColumn
	keys   []int // the leaf of each key column
}

// Unit is a piece of a file.
type Unit struct {
	RowRange
	Bytes int64 // of its pages in the file, without dictionaries
	Dict  int64 // bytes of the dictionaries that have to go with any part of its row group
	Group int   // its row group
	Whole bool  // it is all of it
	// Min and Max are bounds of the key columns, in key order, as schema.Cell gives them. A Unit whose file does not tell has
	// none: both are nil.
	Min, Max []any
	// Adds: no row of it is a delete. If false, there may be some.
	Adds bool
}

// copyable are the encodings of files that may be copied: those that Paimon's own reader understands (see encoding).
const copyable = 1<<encPlain | 1<<encPlainDict | 1<<encRLE | 1<<encBitPacked | 1<<encDelta | 1<<encRLEDict

// encBitPacked is the encoding that Java's writer names for levels which are not there.
const encBitPacked = 4

// NewOutline reads the footer and the page index of a file that stays open, and is not closed, until the Outline is done.
// cfg says how the file would be written today. fileSchema is the schema version that the file was written with.
//
// A file has no Units if its columns are not those that a file of cfg has, if no page index tells where pages are, or
// if it was written by a program whose statistics or encodings are not known to be right. Pieces of a row
// group smaller than least bytes are put together. Units of tables without primary key have no bounds.
func NewOutline(f storage.File, name string, fileSchema *schema.Schema, cfg WriterConfig, least int64) (_ *Outline, err error) {
	defer recovered(&err, ErrCorrupt)
	o := &Outline{f: f, name: name, cfg: cfg}
	if formatOf(name) != "parquet" {
		return o, nil
	}
	if o.foot, err = readFooter(f, tailBytes); err != nil {
		return nil, fmt.Errorf("data file %s: %w", name, err)
	}
	o.Reading = o.foot.reading()
	parts, from := fileParts(cfg.Schema, cfg.Keyed, cfg.Thin)
	if o.leaves, err = fileColumns(parts, from); err != nil {
		return nil, err
	}
	if !sameColumns(fileSchema, cfg.Schema) || !o.trusted() || !o.shaped(parts) {
		return o, nil
	}
	if cfg.Keyed {
		for _, k := range cfg.Schema.KeyColumns() {
			o.keys = append(o.keys, slices.IndexFunc(o.leaves, func(c fileColumn) bool { return c.from == k && c.id < keyIDStart }))
		}
	}
	if err := o.foot.fetchIndex(o.f); err != nil {
		return nil, fmt.Errorf("data file %s: %w", name, err)
	}
	start := int64(0)
	for g := range o.foot.groups {
		ok, err := o.group(g, start, least)
		if err != nil {
			return nil, fmt.Errorf("data file %s: %w", name, err)
		}
		if !ok {
			o.Units = nil
			return o, nil
		}
		start += o.foot.groups[g].rows
	}
	return o, nil
}

// otherPage is about the most that pages of other programs have.
const otherPage = 1 << 20

// mostPage is about the most that a page of a file of so many columns has.
func mostPage(columns int) int { return min(max(allPageBytes/columns, leastPageBytes), pageBytes) }

// reading estimates Outline.Reading.
func (f *footer) reading() int64 {
	page := int64(otherPage)
	if strings.HasPrefix(f.writer, "calve version ") {
		page = int64(mostPage(len(f.leaves)))
	}
	sum := int64(0)
	for i := range f.leaves {
		most := int64(0)
		for _, g := range f.groups {
			k := &g.chunks[i]
			full := min(max(k.full, k.size, 0), 16*page)
			n := min(full, page) + min(k.size, page)
			if k.encodings&(1<<encRLEDict|1<<encPlainDict) != 0 {
				n += min(full, page)
			}
			most = max(most, n)
		}
		sum += most
	}
	return sum
}

// sameColumns reports whether two versions of a schema have the same columns.
func sameColumns(a, b *schema.Schema) bool {
	return slices.EqualFunc(a.Fields, b.Fields, func(x, y schema.Field) bool {
		return x.ID == y.ID && x.Name == y.Name && x.Type.Equal(y.Type)
	}) && slices.Equal(a.PrimaryKeys, b.PrimaryKeys) && slices.Equal(a.PartitionKeys, b.PartitionKeys)
}

// trusted reports whether the file was written by a program of which we know that its bounds and encodings are right: calve
// or Java's Parquet library.
func (o *Outline) trusted() bool {
	w := o.foot.writer
	if !strings.HasPrefix(w, "calve version ") && !strings.HasPrefix(w, "parquet-mr version ") {
		return false
	}
	for _, g := range o.foot.groups {
		for i := range g.chunks {
			if k := &g.chunks[i]; k.encodings == 0 || k.encodings&^copyable != 0 {
				return false
			}
			if _, ok := codecNames[g.chunks[i].codec]; !ok {
				return false
			}
		}
	}
	return true
}

// codecNames are the codecs that the pages of a copied file may have: all that decompress knows but Hadoop's LZ4.
var codecNames = map[int32]bool{codecNone: true, codecSnappy: true, codecGzip: true, codecZstd: true, codecLZ4Raw: true}

// shaped reports whether the file has exactly the columns of the layout.
func (o *Outline) shaped(parts []part) bool {
	root := &o.foot.root
	if len(root.children) != len(parts) {
		return false
	}
	for i := range parts {
		if !parts[i].is(root.children[i]) {
			return false
		}
	}
	return len(o.leaves) == len(o.foot.leaves)
}

// is reports whether an element of a file's schema is what the writer makes of the node.
func (p *part) is(e *element) bool {
	if e.name != p.name || e.repeated || e.optional == p.typ.NotNull {
		return false
	}
	if p.typ.Primitive() {
		phys, width := physicalOf(p.typ)
		return e.at >= 0 && e.phys == phys && e.unit == unitOf(p.typ) && (p.typ.Root != schema.Decimal || int(e.scale) == p.typ.Scale) &&
			(phys != typeFixedBytes || int(e.length) == width)
	}
	group := ""
	switch p.typ.Root {
	case schema.Array:
		group = listGroup
	case schema.Map, schema.Multiset:
		group = mapGroup
	}
	if group != "" {
		if len(e.children) != 1 || e.at >= 0 {
			return false
		}
		if e = e.children[0]; e.name != group || !e.repeated {
			return false
		}
	}
	if e.at >= 0 || len(e.children) != len(p.kids) {
		return false
	}
	for i := range p.kids {
		if !p.kids[i].is(e.children[i]) {
			return false
		}
	}
	return true
}

// unitOf is the unit that a file declares for a type.
func unitOf(t schema.Type) timeUnit {
	switch t.Root {
	case schema.Time:
		return unitMillis
	case schema.Timestamp, schema.TimestampLTZ:
		switch {
		case t.Precision > 6:
			return unitNone
		case t.Precision > 3:
			return unitMicros
		}
		return unitMillis
	}
	return unitNone
}

// group finds the units of a row group. It reports false if the file does not say where pages are.
func (o *Outline) group(g int, start, least int64) (bool, error) {
	rows := o.foot.groups[g].rows
	if rows == 0 {
		return true, nil
	}
	places := make([][]pagePlace, len(o.leaves))
	dict := int64(0)
	for i := range o.leaves {
		c := &o.foot.groups[g].chunks[i]
		var err error
		if places[i], err = readPlaces(&o.foot.tail, o.f, c, rows); err != nil || places[i] == nil {
			return false, err
		}
		dict += places[i][0].at - c.offset
	}
	bounds, err := o.newPageBounds(g, places)
	if err != nil {
		return false, err
	}
	cuts := commonCuts(places, rows)
	first := len(o.Units)
	next := make([]int, len(places)) // of each leaf: the first page that is in no unit yet
	u := Unit{RowRange: RowRange{start, start}, Dict: dict, Group: g}
	for _, cut := range cuts {
		for i := range places {
			for next[i] < len(places[i]) && places[i][next[i]].row < cut {
				u.Bytes += places[i][next[i]].size
				next[i]++
			}
		}
		if u.Bytes < least && cut < rows {
			continue
		}
		u.To = start + cut
		bounds.fill(&u, u.From-start, cut)
		o.Units = append(o.Units, u)
		u = Unit{RowRange: RowRange{start + cut, start + cut}, Dict: dict, Group: g}
	}
	if len(o.Units) == first+1 {
		o.Units[first].Whole = true
	}
	return true, nil
}

// commonCuts are the rows, but for 0, at which all columns begin a page, and the end.
func commonCuts(places [][]pagePlace, rows int64) []int64 {
	common := make([]int64, 0, len(places[0]))
	for _, p := range places[0][1:] {
		common = append(common, p.row)
	}
	for _, col := range places[1:] {
		kept, j := common[:0], 0
		for _, row := range common {
			for j < len(col) && col[j].row < row {
				j++
			}
			if j < len(col) && col[j].row == row {
				kept = append(kept, row)
			}
		}
		common = kept
	}
	return append(common, rows)
}

// pageBounds are the bounds of the key columns and the kinds of a row group.
type pageBounds struct {
	o      *Outline
	group  int
	kind   int // its leaf; -1: none
	places map[int][]pagePlace
	stats  map[int][]pageStats // nil: not known
}

func (o *Outline) newPageBounds(g int, places [][]pagePlace) (*pageBounds, error) {
	b := &pageBounds{o: o, group: g, kind: -1, places: map[int][]pagePlace{}, stats: map[int][]pageStats{}}
	if !o.cfg.Keyed {
		return b, nil
	}
	b.kind = slices.IndexFunc(o.leaves, func(c fileColumn) bool { return c.from == fromKind })
	for _, leaf := range append(slices.Clone(o.keys), b.kind) {
		var err error
		b.places[leaf] = places[leaf]
		if b.stats[leaf], err = readPageStats(&o.foot.tail, o.f, &o.foot.groups[g].chunks[leaf], len(places[leaf])); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// of gives the bounds of a leaf in rows of the group, which are cuts.
func (b *pageBounds) of(leaf int, from, to int64) bounds {
	typ, out := b.o.leaves[leaf].typ, bounds{}
	ordered := leaf < len(b.o.foot.ordered) && b.o.foot.ordered[leaf]
	g := &b.o.foot.groups[b.group]
	stats := b.stats[leaf]
	if !ordered || stats == nil && (from > 0 || to < g.rows) {
		return bounds{any: true, lost: true}
	}
	if stats == nil {
		s := &g.chunks[leaf].stats
		return boundsOf(typ, s.lo, s.hi)
	}
	for i, p := range b.places[leaf] {
		if p.row >= from && p.row < to && !stats[i].empty {
			x := boundsOf(typ, stats[i].lo, stats[i].hi)
			out.merge(&x, orderOf(typ))
		}
	}
	return out
}

// fill sets the bounds of a unit.
func (b *pageBounds) fill(u *Unit, from, to int64) {
	if b.kind < 0 {
		u.Adds = true
		return
	}
	k := b.of(b.kind, from, to)
	u.Adds = k.known(orderInt) && (k.hi == int64(schema.Insert) || k.lo == int64(schema.UpdateAfter) && k.hi == int64(schema.UpdateAfter))
	for _, leaf := range b.o.keys {
		typ := b.o.leaves[leaf].typ
		x := b.of(leaf, from, to)
		lo, hi := x.cells(typ)
		if lo == nil || hi == nil {
			u.Min, u.Max = nil, nil
			return
		}
		u.Min, u.Max = append(u.Min, lo), append(u.Max, hi)
	}
}

// Edges gives the keys of the first and the last row of [from, to), serialized as in a manifest.
func (o *Outline) Edges(from, to int64) (first, last []byte, err error) {
	ranges := []RowRange{{from, from + 1}, {to - 1, to}}
	if to-from == 1 {
		ranges = ranges[:1]
	}
	err = o.read(ranges, o.cfg.Schema.KeyColumns(), func(r Rows) error {
		enc := binrow.NewEncoder(o.cfg.Schema.Types(o.cfg.Schema.KeyColumns()))
		for i := range r.N {
			b, err := enc.Append(nil, r.Cols, i)
			if err != nil {
				return err
			}
			if last = binrow.Serialize(b, len(r.Cols)); first == nil {
				first = last
			}
		}
		return nil
	})
	return first, last, err
}

// read reads rows of some columns of the table.
func (o *Outline) read(ranges []RowRange, cols []int, f func(Rows) error) (err error) {
	defer recovered(&err, ErrCorrupt)
	r := &Reader{f: o.f, name: o.name, foot: o.foot, batch: outlineBatch}
	if err := r.openParquet(o.cfg.Schema, ReadSpec{Schema: o.cfg.Schema, Cols: cols, Ranges: ranges}, outlineStep); err != nil {
		return err
	}
	return each(r, f)
}

// How much an Outline reads at once where statistics are missing.
const (
	outlineBatch = 8 << 10
	outlineStep  = 64 << 10
)

// Deletes counts the deletes among the rows [from, to).
func (o *Outline) Deletes(from, to int64) (n int64, err error) {
	err = o.system(KindColumn, schema.TinyInt, from, to, func(a arrow.Array) {
		for _, k := range a.(*array.Int8).Int8Values() {
			if !schema.RowKind(k).IsAdd() {
				n++
			}
		}
	})
	return n, err
}

// sequences gives the least and the greatest sequence number among the rows [from, to).
func (o *Outline) sequences(from, to int64) (lo, hi int64, err error) {
	lo, hi = math.MaxInt64, math.MinInt64
	err = o.system(SeqColumn, schema.BigInt, from, to, func(a arrow.Array) {
		v := a.(*array.Int64).Int64Values()
		lo, hi = min(lo, slices.Min(v)), max(hi, slices.Max(v))
	})
	return lo, hi, err
}

// system reads one of the columns that every key-value file has.
func (o *Outline) system(name string, root schema.Root, from, to int64, each func(arrow.Array)) (err error) {
	defer recovered(&err, ErrCorrupt)
	r := &Reader{f: o.f, name: o.name, foot: o.foot}
	c, err := r.system(name, root, outlineStep)
	if err != nil {
		return err
	}
	c.enter(rowRange{from, to})
	if err := c.skip(from); err != nil {
		return err
	}
	for from < to {
		a, err := c.next(int(min(to-from, outlineBatch)))
		if err != nil {
			return err
		}
		if a.NullN() > 0 {
			return corruptf("rows without %s", name)
		}
		each(a)
		from += int64(a.Len())
	}
	return nil
}
