package lsm

import (
	"context"
	"fmt"
	"math"
	"path"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// filters collects the values of one data file for its file index (paimon-format §10).
type filters struct {
	cols   []schema.BloomColumn
	names  []string
	types  []schema.Type
	blooms []*indexfile.Bloom
	limit  int64 // up to this size the index goes into the manifest
}

// newFilters is nil if the table has no indexed columns.
func newFilters(s *schema.Schema) (*filters, error) {
	cols, err := s.BloomColumns()
	if err != nil || len(cols) == 0 {
		return nil, err
	}
	x := &filters{cols: cols}
	if x.limit, err = s.IndexInManifest(); err != nil {
		return nil, err
	}
	for _, c := range cols {
		b, err := indexfile.NewBloom(c.Items, c.Wrong)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", s.Fields[c.Column].Name, err)
		}
		x.names, x.types, x.blooms = append(x.names, s.Fields[c.Column].Name), append(x.types, s.Fields[c.Column].Type), append(x.blooms, b)
	}
	return x, nil
}

// add puts the values of rows in.
func (x *filters) add(rows datafile.Rows) error {
	for i, c := range x.cols {
		if err := addHashes(x.blooms[i], rows.Cols[c.Column], x.types[i]); err != nil {
			return fmt.Errorf("file index of column %q: %w", x.names[i], err)
		}
	}
	return nil
}

func addHashes(b *indexfile.Bloom, a arrow.Array, t schema.Type) error {
	switch a := a.(type) {
	case *array.Int8:
		addNumbers(b, a, a.Int8Values())
	case *array.Int16:
		addNumbers(b, a, a.Int16Values())
	case *array.Int32:
		addNumbers(b, a, a.Int32Values())
	case *array.Int64:
		addNumbers(b, a, a.Int64Values())
	case *array.Date32:
		addNumbers(b, a, a.Date32Values())
	case *array.Time32:
		addNumbers(b, a, a.Time32Values())
	case *array.Timestamp:
		addTimes(b, a, schema.TimeUnit(t) == arrow.Nanosecond)
	case *array.Float32:
		for i, v := range a.Float32Values() {
			if !a.IsNull(i) {
				bits := int64(int32(math.Float32bits(v)))
				if v != v {
					bits = 0x7fc00000 // as Float.floatToIntBits
				}
				b.Add(indexfile.HashInt(bits))
			}
		}
	case *array.Float64:
		for i, v := range a.Float64Values() {
			if !a.IsNull(i) {
				bits := int64(math.Float64bits(v))
				if v != v {
					bits = 0x7ff8000000000000 // as Double.doubleToLongBits
				}
				b.Add(indexfile.HashInt(bits))
			}
		}
	case *array.String:
		for i := range a.Len() {
			if !a.IsNull(i) {
				b.Add(indexfile.HashText(a.Value(i)))
			}
		}
	case *array.Binary:
		for i := range a.Len() {
			if !a.IsNull(i) {
				b.Add(indexfile.HashBytes(a.Value(i)))
			}
		}
	default:
		return fmt.Errorf("values of Arrow type %s are not hashed", a.DataType())
	}
	return nil
}

func addNumbers[T ~int8 | ~int16 | ~int32 | ~int64](b *indexfile.Bloom, a arrow.Array, values []T) {
	nulls := a.NullN() > 0
	for i, v := range values {
		if !nulls || !a.IsNull(i) {
			b.Add(indexfile.HashInt(int64(v)))
		}
	}
}

// addTimes puts timestamps in: nanoseconds count as microseconds, rounded down.
func addTimes(b *indexfile.Bloom, a *array.Timestamp, nanos bool) {
	if !nanos {
		addNumbers(b, a, a.TimestampValues())
		return
	}
	for i, v := range a.TimestampValues() {
		if a.IsNull(i) {
			continue
		}
		micros := int64(v) / 1000
		if v%1000 < 0 {
			micros--
		}
		b.Add(indexfile.HashInt(micros))
	}
}

// index stores the filters of the file just written: in its description if they are small, else beside it.
func (o *outputs) index(ctx context.Context, f *manifest.DataFile) error {
	data, err := indexfile.EncodeFileIndex(o.filters.names, o.filters.blooms)
	if err != nil {
		return err
	}
	if int64(len(data)) <= o.filters.limit {
		f.EmbeddedIndex = data
		return nil
	}
	name := f.Name + ".index"
	full := path.Join(o.part.Dir, name)
	o.names = append(o.names, full)
	up, err := o.files.Store.Create(ctx, full)
	if err != nil {
		return err
	}
	if _, err := up.Write(data); err != nil {
		up.Abort()
		return err
	}
	if err := up.Commit(); err != nil {
		return err
	}
	f.ExtraFiles = []string{name}
	return nil
}
