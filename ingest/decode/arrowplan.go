package decode

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/schema"
)

// arrowKind is how the values of an array are laid out.
type arrowKind uint8

const (
	arrowNone arrowKind = iota // refused
	arrowNull
	arrowBool
	arrowInt8
	arrowInt16
	arrowInt32
	arrowInt64
	arrowUint8
	arrowUint16
	arrowUint32
	arrowUint64
	arrowFloat16
	arrowFloat32
	arrowFloat64
	arrowDays // milliseconds that are dates
	arrowText
	arrowLargeText
	arrowFixed
	arrowDecimal
	arrowDictionary
	arrowList
	arrowLargeList
	arrowFixedList
	arrowStruct
)

// arrowNode is how an array is read into a column.
type arrowNode struct {
	cell
	kind  arrowKind
	place int // of the array among the batch's, or those of a struct
	width int // bytes of a value, elements of a list

	kids []arrowNode // element; key and value; fields; of a dictionary its values
	rest []*column   // fields of a ROW that the struct does not have

	// The batch's buffers, from its first row on but for bits, which begin at off.
	count  int
	valid  []byte // nil: there are no nulls
	off    int
	data   []byte
	i16    []int16
	i32    []int32
	i64    []int64
	f32    []float32
	f64    []float64
	limits []int32 // offsets of texts and lists
	wide   []int64
}

// arrowPlan is how the batches of a schema become rows.
type arrowPlan struct {
	refused string
	adds    []wish
	kids    []arrowNode
}

// arrowPlanner makes a plan for the columns of a table.
type arrowPlanner struct{ adder }

func (d *arrowDecoder) planOf(s *arrow.Schema) arrowPlan {
	p := arrowPlanner{adder{d: &d.rowBuilder}}
	var out arrowPlan
	seen := map[string]bool{}
	for i, f := range s.Fields() {
		if seen[f.Name] {
			return arrowPlan{refused: fmt.Sprintf("the column %q occurs twice", f.Name)}
		}
		seen[f.Name] = true
		c, ok := d.cfg.Schema.Field(f.Name)
		switch {
		case ok && d.cols[c].meta == metaNone:
			n := p.node(f.Type, &d.cols[c], false)
			n.place = i
			out.kids = append(out.kids, n)
		case !ok && d.op != "" && f.Name == d.op && (f.Type.ID() == arrow.STRING || f.Type.ID() == arrow.LARGE_STRING):
			n := arrowNode{cell: cell{put: putKind}, kind: arrowText, place: i}
			if f.Type.ID() == arrow.LARGE_STRING {
				n.kind = arrowLargeText
			}
			out.kids = append(out.kids, n)
		case !ok:
			p.add(nil, d.cfg.Schema.Fields, f.Name, func() (schema.Type, bool, error) { return typeOfArrow(f.Type, 0) })
		}
	}
	if out.adds, out.refused = p.adds, p.bad; p.bad != "" {
		out.adds = nil
	}
	return out
}

// unitDigits are the digits below a second of a unit.
func unitDigits(u arrow.TimeUnit) int { return 3 * int(u) }

// ColumnsOfArrow gives the columns of a table for batches of a schema. Numbers without sign get a type with one that holds
// them (UINT64: DECIMAL(20, 0)), times finer than milliseconds and decimals beyond 38 digits STRING; timestamps with a zone
// are WITH LOCAL TIME ZONE. Columns of nulls give none.
func ColumnsOfArrow(s *arrow.Schema) ([]schema.Column, error) {
	var out []schema.Column
	for _, f := range s.Fields() {
		t, ok, err := typeOfArrow(f.Type, 0)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		if ok {
			out = append(out, schema.Column{Name: f.Name, Type: t})
		}
	}
	return out, nil
}

// typeOfArrow gives the type of a column; not ok: there is nothing in it.
func typeOfArrow(t arrow.DataType, depth int) (out schema.Type, ok bool, err error) {
	if depth > maxInferDepth {
		return out, false, fmt.Errorf("types are more than %d levels deep", maxInferDepth)
	}
	root := func(r schema.Root) (schema.Type, bool, error) { return schema.Type{Root: r}, true, nil }
	switch t := t.(type) {
	case *arrow.NullType:
		return out, false, nil
	case *arrow.BooleanType:
		return root(schema.Boolean)
	case *arrow.Int8Type:
		return root(schema.TinyInt)
	case *arrow.Int16Type, *arrow.Uint8Type:
		return root(schema.SmallInt)
	case *arrow.Int32Type, *arrow.Uint16Type:
		return root(schema.Int)
	case *arrow.Int64Type, *arrow.Uint32Type:
		return root(schema.BigInt)
	case *arrow.Uint64Type:
		return schema.Type{Root: schema.Decimal, Precision: 20}, true, nil
	case *arrow.Float16Type, *arrow.Float32Type:
		return root(schema.Float)
	case *arrow.Float64Type:
		return root(schema.Double)
	case *arrow.StringType, *arrow.LargeStringType:
		return textType, true, nil
	case *arrow.BinaryType, *arrow.LargeBinaryType:
		return bytesType, true, nil
	case *arrow.FixedSizeBinaryType:
		return schema.Type{Root: schema.Binary, Length: t.ByteWidth}, t.ByteWidth > 0, nil
	case *arrow.Date32Type, *arrow.Date64Type:
		return root(schema.Date)
	case *arrow.Time32Type:
		return schema.Type{Root: schema.Time, Precision: 3}, true, nil
	case *arrow.Time64Type:
		return textType, true, nil
	case *arrow.TimestampType:
		out = schema.Type{Root: schema.Timestamp, Precision: max(3, unitDigits(t.Unit))}
		if t.TimeZone != "" {
			out.Root = schema.TimestampLTZ
		}
		return out, true, nil
	case arrow.DecimalType:
		p, s := int(t.GetPrecision()), int(t.GetScale())
		if p < 1 || p > maxPrecision || s < 0 || s > p {
			return textType, true, nil
		}
		return schema.Type{Root: schema.Decimal, Precision: p, Scale: s}, true, nil
	case *arrow.DictionaryType:
		return typeOfArrow(t.ValueType, depth+1)
	case arrow.ExtensionType:
		return typeOfArrow(t.StorageType(), depth+1)
	}
	return nestedOfArrow(t, depth)
}

func nestedOfArrow(t arrow.DataType, depth int) (out schema.Type, ok bool, err error) {
	switch t := t.(type) {
	case *arrow.MapType:
		k, kok, err := typeOfArrow(t.KeyType(), depth+1)
		if err != nil {
			return out, false, err
		}
		v, ok, err := typeOfArrow(t.ItemType(), depth+1)
		k.NotNull = true
		return schema.Type{Root: schema.Map, Key: &k, Element: &v}, ok && kok, err
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType:
		e, ok, err := typeOfArrow(t.(arrow.ListLikeType).Elem(), depth+1)
		return schema.Type{Root: schema.Array, Element: &e}, ok, err
	case *arrow.StructType:
		out.Root = schema.Row
		for _, f := range t.Fields() {
			x, ok, err := typeOfArrow(f.Type, depth+1)
			if err != nil {
				return out, false, fmt.Errorf("%s: %w", f.Name, err)
			}
			if ok {
				out.Fields = append(out.Fields, schema.Field{Name: f.Name, Type: x})
			}
		}
		return out, len(out.Fields) > 0, nil
	}
	return out, false, fmt.Errorf("there is no column type for the Arrow type %s", t)
}

// node makes the node that reads an array of a type into a column.
func (p *arrowPlanner) node(t arrow.DataType, c *column, inner bool) arrowNode {
	n := arrowNode{cell: cell{to: c, inner: inner}}
	switch t := t.(type) {
	case *arrow.NullType:
		n.kind, n.put = arrowNull, putText // whatever: there is no value
	case *arrow.BooleanType:
		n.kind = arrowBool
		n.boolean()
	case *arrow.Float16Type, *arrow.Float32Type, *arrow.Float64Type:
		n.kind = map[arrow.Type]arrowKind{arrow.FLOAT16: arrowFloat16, arrow.FLOAT32: arrowFloat32, arrow.FLOAT64: arrowFloat64}[t.ID()]
		n.float()
	case *arrow.StringType, *arrow.LargeStringType:
		if n.kind = arrowText; t.ID() == arrow.LARGE_STRING {
			n.kind = arrowLargeText
		}
		n.texts()
	case *arrow.BinaryType, *arrow.LargeBinaryType:
		if n.kind = arrowText; t.ID() == arrow.LARGE_BINARY {
			n.kind = arrowLargeText
		}
		n.raw()
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth >= 0 && t.ByteWidth <= maxArrowWidth {
			n.kind, n.width = arrowFixed, t.ByteWidth
			n.raw()
		}
	case arrow.DecimalType:
		n.kind, n.width, n.scale = arrowDecimal, t.BitWidth()/8, int(t.GetScale())
		if (numeric(c.shape) || c.shape == shapeText) && n.scale >= -maxDigits && n.scale <= maxDigits {
			n.put = putDecimal
		}
	case *arrow.DictionaryType:
		n.kind, n.put = arrowDictionary, putText
		n.kids = []arrowNode{p.node(t.ValueType, c, inner)}
		n.width = t.IndexType.(arrow.FixedWidthDataType).BitWidth()
		return n
	case arrow.ExtensionType:
		return p.node(t.StorageType(), c, inner)
	default:
		if !p.number(&n, t) {
			p.nested(&n, t)
		}
	}
	n.refuses("the Arrow type " + t.String())
	return n
}

// number plans whole numbers, which are also dates and times.
func (p *arrowPlanner) number(n *arrowNode, t arrow.DataType) bool {
	kind, known := map[arrow.Type]arrowKind{arrow.INT8: arrowInt8, arrow.INT16: arrowInt16, arrow.INT32: arrowInt32, arrow.INT64: arrowInt64, arrow.UINT8: arrowUint8,
		arrow.UINT16: arrowUint16, arrow.UINT32: arrowUint32, arrow.UINT64: arrowUint64, arrow.DATE32: arrowInt32, arrow.DATE64: arrowDays, arrow.TIME32: arrowInt32,
		arrow.TIME64: arrowInt64, arrow.TIMESTAMP: arrowInt64}[t.ID()]
	if !known {
		return false
	}
	n.kind = kind
	switch t := t.(type) {
	case *arrow.Date32Type, *arrow.Date64Type:
		n.whole(senseDate, 0)
	case *arrow.Time32Type:
		n.whole(senseTime, unitDigits(t.Unit))
	case *arrow.Time64Type:
		n.whole(senseTime, unitDigits(t.Unit))
	case *arrow.TimestampType:
		n.whole(senseTimestamp, unitDigits(t.Unit))
	default:
		n.whole(senseNumber, 0)
	}
	return true
}

// nested plans lists, maps and structs.
func (p *arrowPlanner) nested(n *arrowNode, t arrow.DataType) {
	c := n.to
	switch t := t.(type) {
	case *arrow.MapType:
		if n.kind = arrowList; c.shape == shapeMap {
			n.put = putMap
			n.kids = []arrowNode{p.node(t.KeyType(), &c.kids[0], true), p.node(t.ItemType(), &c.kids[1], true)}
		}
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType:
		n.kind = map[arrow.Type]arrowKind{arrow.LIST: arrowList, arrow.LARGE_LIST: arrowLargeList, arrow.FIXED_SIZE_LIST: arrowFixedList}[t.ID()]
		if f, ok := t.(*arrow.FixedSizeListType); ok {
			if n.width = int(f.Len()); n.width < 0 || n.width > maxArrowWidth {
				n.kind = arrowNone
				return
			}
		}
		if c.shape == shapeList {
			n.put = putList
			n.kids = []arrowNode{p.node(t.(arrow.ListLikeType).Elem(), &c.kids[0], true)}
		}
	case *arrow.StructType:
		if n.kind = arrowStruct; c.shape != shapeStruct {
			return
		}
		n.put = putStruct
		taken := map[int]bool{}
		for i, f := range t.Fields() {
			k, ok := c.members[f.Name]
			switch {
			case !ok:
				p.add(c.path, c.typ.Fields, f.Name, func() (schema.Type, bool, error) { return typeOfArrow(f.Type, 0) })
			case !taken[k]:
				taken[k] = true
				x := p.node(f.Type, &c.kids[k], true)
				x.place = i
				n.kids = append(n.kids, x)
			}
		}
		for k := range c.kids {
			if !taken[k] {
				n.rest = append(n.rest, &c.kids[k])
			}
		}
	}
}

// Bounds with which no product of a number of values and the bytes of one overflows.
const (
	maxArrowValues = 1 << 40
	maxArrowWidth  = 1 << 20
)

// bind takes the buffers of an array. Where one is missing or shorter than the array says, it panics, for which its callers are
// ready: a check for each would stand in every case.
func (n *arrowNode) bind(a arrow.Array) error {
	if x, ok := a.(array.ExtensionArray); ok {
		return n.bind(x.Storage())
	}
	d := a.Data()
	n.count, n.off, n.valid = a.Len(), d.Offset(), nil
	if n.count < 0 || n.off < 0 || n.count > maxArrowValues || n.off > maxArrowValues {
		return errors.New("an array of more values than there can be")
	}
	if n.kind == arrowNone {
		return nil
	}
	buffers := d.Buffers()
	if len(buffers) > 0 && buffers[0] != nil && n.kind != arrowNull {
		if n.valid = buffers[0].Bytes(); len(n.valid) < (n.off+n.count+7)/8 {
			return errors.New("the bits of nulls are too few")
		}
	}
	if n.count == 0 {
		return n.bindKids(a)
	}
	bytes := func(width int) []byte {
		return buffers[1].Bytes()[n.off*width : (n.off+n.count)*width]
	}
	switch n.kind {
	case arrowBool:
		if n.data = buffers[1].Bytes(); len(n.data) < (n.off+n.count+7)/8 {
			return errors.New("the bits of values are too few")
		}
	case arrowInt8, arrowUint8:
		n.data = bytes(1)
	case arrowInt16, arrowUint16, arrowFloat16:
		n.i16 = arrow.Int16Traits.CastFromBytes(bytes(2))
	case arrowInt32, arrowUint32:
		n.i32 = arrow.Int32Traits.CastFromBytes(bytes(4))
	case arrowInt64, arrowUint64, arrowDays:
		n.i64 = arrow.Int64Traits.CastFromBytes(bytes(8))
	case arrowFloat32:
		n.f32 = arrow.Float32Traits.CastFromBytes(bytes(4))
	case arrowFloat64:
		n.f64 = arrow.Float64Traits.CastFromBytes(bytes(8))
	case arrowFixed, arrowDecimal:
		n.data = bytes(n.width)
	case arrowText, arrowList:
		n.limits = arrow.Int32Traits.CastFromBytes(buffers[1].Bytes()[n.off*4 : (n.off+n.count+1)*4])
	case arrowLargeText, arrowLargeList:
		n.wide = arrow.Int64Traits.CastFromBytes(buffers[1].Bytes()[n.off*8 : (n.off+n.count+1)*8])
	case arrowDictionary:
		n.data = bytes(n.width / 8)
	}
	if n.kind == arrowText || n.kind == arrowLargeText {
		if n.data = nil; len(buffers) > 2 && buffers[2] != nil {
			n.data = buffers[2].Bytes()
		}
	}
	return n.bindKids(a)
}

// bindKids takes the buffers of the arrays inside.
func (n *arrowNode) bindKids(a arrow.Array) error {
	if len(n.kids) == 0 {
		return nil
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return n.kids[0].bind(a.Dictionary())
	case *array.Map: // before List: a map is a list of pairs
		if err := n.kids[0].bind(a.Keys()); err != nil {
			return err
		}
		return n.kids[1].bind(a.Items())
	case array.ListLike:
		return n.kids[0].bind(a.ListValues())
	case *array.Struct:
		for k := range n.kids {
			x := &n.kids[k]
			f := a.Field(x.place)
			if f.Len() < a.Len() {
				return fmt.Errorf("a field has %d values, its struct %d", f.Len(), a.Len())
			}
			if err := x.bind(f); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("an array of type %s where the schema says another", strings.ToLower(a.DataType().Name()))
}

// span gives a text or bytes; false: offsets are beyond them.
func (n *arrowNode) span(i int) ([]byte, bool) {
	var from, to int64
	if n.kind == arrowText {
		from, to = int64(n.limits[i]), int64(n.limits[i+1])
	} else {
		from, to = n.wide[i], n.wide[i+1]
	}
	if from < 0 || to < from || to > int64(len(n.data)) {
		return nil, false
	}
	return n.data[from:to], true
}

// elements gives which values of the array inside are those of a list; false: offsets are beyond them.
func (n *arrowNode) elements(i int) (from, to int, ok bool) {
	switch n.kind {
	case arrowList:
		from, to = int(n.limits[i]), int(n.limits[i+1])
	case arrowLargeList:
		from, to = int(n.wide[i]), int(n.wide[i+1])
	default:
		from = (n.off + i) * n.width
		to = from + n.width
	}
	if from < 0 || to < from {
		return 0, 0, false
	}
	for k := range n.kids {
		if to > n.kids[k].count {
			return 0, 0, false
		}
	}
	return from, to, true
}

// index gives the place in a dictionary.
func (n *arrowNode) index(i int) int {
	switch n.width {
	case 8:
		return int(n.data[i])
	case 16:
		return int(arrow.Uint16Traits.CastFromBytes(n.data)[i])
	case 32:
		return int(arrow.Uint32Traits.CastFromBytes(n.data)[i])
	}
	return int(arrow.Int64Traits.CastFromBytes(n.data)[i])
}
