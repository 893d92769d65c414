package decode

import (
	"encoding/json"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// RowText gives a row of a batch as a JSON object, for those who look at rows that were refused: at most most bytes of it;
// whole reports whether that is all. What it takes is bounded by most, whatever the batch says that it has.
func RowText(b arrow.RecordBatch, row, most int) (out []byte, whole bool) {
	t := rowText{most: most}
	defer func() {
		if recover() != nil { // a broken batch
			out, whole = []byte("{}"), true
		}
	}()
	t.put('{')
	for i, f := range b.Schema().Fields() {
		if !t.member(i, f.Name) || !t.value(b.Column(i), row) {
			break
		}
	}
	t.put('}')
	return t.out[:min(len(t.out), most)], len(t.out) <= most
}

// rowText writes JSON until it has more than most bytes.
type rowText struct {
	out  []byte
	most int
}

func (t *rowText) put(b ...byte) bool {
	t.out = append(t.out, b...)
	return len(t.out) <= t.most
}

// encode writes a value of encoding/json's that is small, or was cut; what that cannot write is null.
func (t *rowText) encode(v any) bool {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte("null")
	}
	return t.put(b...)
}

// text writes a string, of a long one the beginning.
func (t *rowText) text(s string) bool { return t.encode(s[:min(len(s), t.most)]) }

func (t *rowText) member(i int, name string) bool {
	if i > 0 {
		t.put(',')
	}
	return t.text(name) && t.put(':')
}

// value writes value i of an array, as the library does for JSON, and reports whether there is room for more.
func (t *rowText) value(a arrow.Array, i int) bool {
	if a.IsNull(i) {
		return t.encode(nil)
	}
	switch a := a.(type) {
	case array.ExtensionArray:
		return t.value(a.Storage(), i)
	case *array.Dictionary:
		return t.value(a.Dictionary(), a.GetValueIndex(i))
	case *array.RunEndEncoded:
		return t.value(a.Values(), a.GetPhysicalIndex(i))
	case array.StringLike:
		return t.text(a.Value(i))
	case interface{ Value(int) []byte }: // of any length
		return t.bytes(a.Value(i))
	case *array.Map: // before ListLike: it is a list of pairs
		keys, items := a.Keys(), a.Items()
		return t.list(a, i, func(k int) bool {
			return t.member(0, "key") && t.value(keys, k) && t.put(',') && t.member(0, "value") && t.value(items, k)
		}, '{', '}')
	case array.ListLike:
		inside := a.ListValues()
		return t.list(a, i, func(k int) bool { return t.value(inside, k) })
	case *array.Struct:
		t.put('{')
		for k, f := range a.DataType().(*arrow.StructType).Fields() {
			if !t.member(k, f.Name) || !t.value(a.Field(k), i) {
				return false
			}
		}
		return t.put('}')
	case array.Union:
		return t.encode(nil) // no column takes it
	}
	return t.encode(a.GetOneForMarshal(i))
}

// bytes writes bytes as encoding/json does, of many the first.
func (t *rowText) bytes(b []byte) bool { return t.encode(b[:min(len(b), t.most)]) }

// list writes the elements of a list, each between around if that is given.
func (t *rowText) list(a array.ListLike, i int, element func(k int) bool, around ...byte) bool {
	from, to := a.ValueOffsets(i)
	t.put('[')
	for k := from; k < to; k++ {
		if k > from {
			t.put(',')
		}
		if len(around) == 2 {
			t.put(around[0])
		}
		if !element(int(k)) {
			return false
		}
		if len(around) == 2 {
			t.put(around[1])
		}
	}
	return t.put(']')
}
