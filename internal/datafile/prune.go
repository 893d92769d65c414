package datafile

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// Prune says by statistics which rows of a file need not be read: those of row groups and pages for which Match reports
// false. The rows that are left out are chosen by statistics alone, so what is read may still hold rows nobody wants.
type Prune struct {
	// Cols are the columns, indexes into ReadSpec.Schema.Fields, whose statistics Match wants.
	Cols []int
	// Match decides over some rows. stats gives what is known of column Cols[i] there, in the types of ReadSpec.Schema:
	// every value that is not null lies between Min and Max (each nil if not known; of FLOAT and DOUBLE, a NaN may be
	// there all the same), and Nulls is the number of nulls, or -1. Nulls of a part of a page is 0, rows, or -1.
	Match func(rows int64, stats func(i int) ColumnStats) bool
}

// rowRange is a range of rows of the file, from included, to not.
type rowRange struct{ from, to int64 }

// pruner is a Prune at work on one file.
type pruner struct {
	r    *Reader
	want *Prune
	cols []outColumn // of want.Cols
	to   []schema.Type
	from []schema.Type
}

// newPruner prepares the statistics of some columns of a schema.
func newPruner(r *Reader, fileSchema, read *schema.Schema, cols []int, step int) *pruner {
	p := &pruner{r: r}
	for _, i := range cols {
		f := read.Fields[i]
		c, err := r.column(fileSchema, f, step)
		if err != nil {
			c = outColumn{col: nil, dt: arrow.Null} // it will fail when it is read, if it is
		}
		then := f.Type
		if at, ok := fileSchema.FieldByID(f.ID); ok {
			then = fileSchema.Fields[at].Type
		}
		p.cols, p.to, p.from = append(p.cols, c), append(p.to, f.Type), append(p.from, then)
	}
	return p
}

// prune finds the rows to read. nil is all of them.
func (r *Reader) prune(fileSchema *schema.Schema, want ReadSpec, step int) error {
	p := newPruner(r, fileSchema, want.Schema, want.Prune.Cols, step)
	p.want = want.Prune
	ranges, start, left := []rowRange{}, int64(0), int64(0)
	for g := range r.foot.groups {
		part, err := p.group(g)
		if err != nil {
			return err
		}
		for _, x := range part {
			left += x.to - x.from
			x.from, x.to = x.from+start, x.to+start
			if n := len(ranges); n > 0 && ranges[n-1].to == x.from {
				ranges[n-1].to = x.to
			} else {
				ranges = append(ranges, x)
			}
		}
		start += r.foot.groups[g].rows
	}
	if left < r.left {
		r.ranges, r.left = ranges, left
		if len(ranges) > 0 {
			r.enter(ranges[0])
		}
	}
	return nil
}

// group gives the rows of a row group that are to be read, counted from its first row.
func (p *pruner) group(g int) ([]rowRange, error) {
	rows := p.r.foot.groups[g].rows
	if rows == 0 {
		return nil, nil
	}
	if !p.want.Match(rows, func(i int) ColumnStats { return p.chunk(i, g, rows) }) {
		return nil, nil
	}
	var out []rowRange
	err := p.cuts(g, func(x rowRange, stats func(i int) ColumnStats) {
		if !p.want.Match(x.to-x.from, stats) {
			return
		}
		if n := len(out); n > 0 && out[n-1].to == x.from {
			out[n-1].to = x.to
		} else {
			out = append(out, x)
		}
	})
	return out, err
}

// cuts gives the parts of a row group of which the page index, or else the footer, tells something, counted from its first
// row, in order.
func (p *pruner) cuts(g int, f func(x rowRange, stats func(i int) ColumnStats)) error {
	rows := p.r.foot.groups[g].rows
	places, stats, err := p.pages(g, rows)
	if err != nil {
		return err
	}
	// Pages of the columns end at different rows: between two neighbouring ends, each column has one page.
	cuts := []int64{0, rows}
	for i := range places {
		for _, x := range places[i] {
			cuts = append(cuts, x.row)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for k := range cuts[:len(cuts)-1] {
		x := rowRange{cuts[k], cuts[k+1]}
		f(x, func(i int) ColumnStats {
			if places[i] == nil {
				return p.chunk(i, g, rows).within(rows, x.to-x.from)
			}
			at := sort.Search(len(places[i]), func(j int) bool { return places[i][j].row > x.from }) - 1
			return p.page(i, places[i], stats[i], at, rows, x.to-x.from)
		})
	}
	return nil
}

// within is what the statistics of rows say of n of them.
func (s ColumnStats) within(rows, n int64) ColumnStats {
	switch s.Nulls {
	case 0:
	case rows:
		s.Nulls = n
	default:
		s.Nulls = -1
	}
	return s
}

// pages reads the page indexes of a row group; nil where there is none for a column.
func (p *pruner) pages(g int, rows int64) (places [][]pagePlace, stats [][]pageStats, err error) {
	places, stats = make([][]pagePlace, len(p.cols)), make([][]pageStats, len(p.cols))
	for i := range p.cols {
		c := p.cols[i].col
		if c == nil || !p.trusted(i) {
			continue
		}
		if places[i], err = readPlaces(&p.r.foot.tail, p.r.f, &c.chunks[g], rows); err != nil || places[i] == nil {
			continue
		}
		if stats[i], err = readPageStats(&p.r.foot.tail, p.r.f, &c.chunks[g], len(places[i])); err != nil || stats[i] == nil {
			places[i] = nil
		}
	}
	return places, stats, err
}

// trusted reports whether the bounds of a column are in the order of its type.
func (p *pruner) trusted(i int) bool {
	at := p.cols[i].col.at
	return at < len(p.r.foot.ordered) && p.r.foot.ordered[at]
}

// chunk gives the statistics of a column in a row group.
func (p *pruner) chunk(i, g int, rows int64) ColumnStats {
	c := p.cols[i].col
	if c == nil {
		if p.cols[i].in != nil || p.cols[i].dt == arrow.Null {
			return ColumnStats{Nulls: -1}
		}
		return ColumnStats{Nulls: rows} // the file does not have the column
	}
	s := &c.chunks[g].stats
	out := ColumnStats{Nulls: s.nulls}
	if !c.leaf.optional {
		out.Nulls = 0
	}
	if out.Nulls > rows {
		out.Nulls = -1
	}
	if p.trusted(i) {
		out.Min, out.Max = c.bound(s.lo, p.from[i]), c.bound(s.hi, p.from[i])
	}
	return ConvertStats(out, p.from[i], p.to[i])
}

// page gives the statistics of n rows of a page.
func (p *pruner) page(i int, places []pagePlace, stats []pageStats, at int, rows, n int64) ColumnStats {
	c, s := p.cols[i].col, &stats[at]
	of := rows - places[at].row
	if at+1 < len(places) {
		of = places[at+1].row - places[at].row
	}
	out := ColumnStats{Nulls: s.nulls}
	switch {
	case s.empty:
		return ColumnStats{Nulls: n}
	case !c.leaf.optional:
		out.Nulls = 0
	}
	out.Min, out.Max = c.bound(s.lo, p.from[i]), c.bound(s.hi, p.from[i])
	return ConvertStats(out, p.from[i], p.to[i]).within(of, n)
}

// bound decodes a bound of a file's column; nil if it cannot be one.
func (c *column) bound(raw []byte, t schema.Type) any {
	switch {
	case raw == nil:
		return nil
	case c.text:
		if t.Root == schema.Char || t.Root == schema.VarChar {
			return string(raw)
		}
		return nil
	case c.bool:
		if len(raw) != 1 {
			return nil
		}
		return raw[0] != 0
	case len(raw) != c.form.stored || c.leaf.phys == typeInt96:
		return nil
	}
	buf := alignedBytes(16)
	if err := c.form.convert(buf[:c.form.width], raw); err != nil {
		return nil
	}
	v := binary.LittleEndian.Uint64(buf)
	switch t.Root {
	case schema.TinyInt:
		return int8(v)
	case schema.SmallInt:
		return int16(v)
	case schema.Int, schema.Date, schema.Time:
		return int32(v)
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		return int64(v)
	case schema.Float:
		return notNaN(float64(math.Float32frombits(uint32(v))), math.Float32frombits(uint32(v)))
	case schema.Double:
		return notNaN(math.Float64frombits(v), math.Float64frombits(v))
	case schema.Decimal:
		return decimal128.New(int64(binary.LittleEndian.Uint64(buf[8:])), v)
	}
	return nil
}

// notNaN gives v, or nil for NaN, which is no bound.
func notNaN(f float64, v any) any {
	if f != f {
		return nil
	}
	return v
}

// ConvertStats gives statistics of a column of one type as those of the type it has now, as far as they are known to
// stay true: values that are converted need not keep their order, and may become null.
func ConvertStats(s ColumnStats, from, to schema.Type) ColumnStats {
	from.NotNull, to.NotNull = true, true
	switch {
	case from.Equal(to):
		return s
	case isInt(from.Root) && isInt(to.Root) && from.Root <= to.Root:
		s.Min, s.Max = widened(s.Min, to.Root), widened(s.Max, to.Root)
		return s
	case from.Root == schema.Decimal && to.Root == schema.Decimal && from.Scale == to.Scale && from.Precision <= to.Precision:
		return s
	case isText(from.Root) && to.Root == schema.VarChar && from.Length <= to.Length:
		return s
	}
	return ColumnStats{Nulls: -1}
}

// widened gives an integer cell in the form of a wider type.
func widened(v any, to schema.Root) any {
	var x int64
	switch v := v.(type) {
	case int8:
		x = int64(v)
	case int16:
		x = int64(v)
	case int32:
		x = int64(v)
	case int64:
		x = v
	default:
		return nil
	}
	switch to {
	case schema.TinyInt:
		return int8(x)
	case schema.SmallInt:
		return int16(x)
	case schema.Int:
		return int32(x)
	}
	return x
}
