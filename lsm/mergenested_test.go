package lsm

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// nestedOracle is collect, merge_map and nested_update value by value; sets and maps keep the order of arrival.
type nestedOracle struct {
	schema.Aggregate
	nested bool // collect of nested elements
	keys   []int
}

func (o *nestedOracle) id(v any) string {
	switch x := v.(type) {
	case [2]any:
		return fmt.Sprintf("%#v", x[0])
	case []any:
		if len(o.keys) > 0 {
			var part []any
			for _, k := range o.keys {
				part = append(part, x[k])
			}
			return fmt.Sprintf("%#v", part)
		}
	}
	return fmt.Sprintf("%#v", v)
}

func list(v any) []any {
	if pairs, ok := v.([][2]any); ok {
		var out []any
		for _, p := range pairs {
			out = append(out, p)
		}
		return out
	}
	out, _ := v.([]any)
	return out
}

// unite is a LinkedHashMap filled in order: the last value of an id in the place of the first.
func (o *nestedOracle) unite(vals []any, last bool) []any {
	var ids []string
	var out []any
	for _, v := range vals {
		id := o.id(v)
		if i := slices.Index(ids, id); i < 0 {
			ids, out = append(ids, id), append(out, v)
		} else if last {
			out[i] = v
		}
	}
	return out
}

func (o *nestedOracle) agg(acc, v any) any {
	distinct := o.Function == schema.AggCollect && o.Distinct
	if acc == nil && v == nil {
		return nil
	}
	if (acc == nil || v == nil) && !distinct {
		if acc == nil {
			return v
		}
		return acc
	}
	a, b := list(acc), list(v)
	switch {
	case distinct && o.nested:
		for _, x := range b {
			if !slices.ContainsFunc(a, func(y any) bool { return o.id(x) == o.id(y) }) {
				a = append(slices.Clone(a), x)
			}
		}
		return a
	case distinct:
		return o.unite(slices.Concat(a, b), false)
	case o.Function == schema.AggCollect:
		return slices.Concat(a, b)
	case o.Function == schema.AggMergeMap:
		return o.unite(slices.Concat(a, b), true)
	}
	if len(a) >= o.CountLimit {
		return acc
	}
	room := o.CountLimit - len(a)
	isNull := func(v any) bool { return v == nil }
	a, b = slices.DeleteFunc(slices.Clone(a), isNull), slices.DeleteFunc(slices.Clone(b), isNull)
	out := slices.Concat(a, b[:min(room, len(b))])
	if len(o.keys) > 0 {
		return o.unite(out, true)
	}
	return out
}

func (o *nestedOracle) retract(acc, v any) any {
	if acc == nil || v == nil || o.IgnoreRetract {
		return acc
	}
	a, b := list(acc), list(v)
	nested := o.Function == schema.AggNestedUpdate
	if len(b) == 0 && !nested {
		return acc
	}
	var gone []string
	for _, x := range b {
		if x != nil || !nested {
			gone = append(gone, o.id(x))
		}
	}
	if nested {
		a = slices.DeleteFunc(slices.Clone(a), func(v any) bool { return v == nil })
	}
	if o.Function == schema.AggMergeMap || len(o.keys) > 0 {
		a = o.unite(a, true)
	}
	out := []any{}
	for _, x := range a {
		i := slices.Index(gone, o.id(x))
		if i < 0 {
			out = append(out, x)
		} else if o.Function == schema.AggCollect {
			gone = slices.Delete(gone, i, i+1)
		}
	}
	return out
}

func nestedType(root schema.Root, key *schema.Type, element schema.Type) schema.Type {
	return schema.Type{Root: root, Key: key, Element: &element}
}

// TestNestedFolds holds collect, merge_map and nested_update against the oracle over random rows of one key, and late
// rows of a sequence group.
func TestNestedFolds(t *testing.T) {
	r := newRand(t)
	num, text := mustType(t, "INT"), mustType(t, "STRING NOT NULL")
	pair := schema.Type{Root: schema.Row, Fields: []schema.Field{{ID: 10, Name: "a", Type: num}, {ID: 11, Name: "b", Type: mustType(t, "STRING")}}}
	for n := range 600 {
		a := schema.Aggregate{CountLimit: math.MaxInt32, IgnoreRetract: r.IntN(4) == 0}
		o := &nestedOracle{}
		var typ schema.Type
		switch r.IntN(4) {
		case 0:
			a.Function, a.Distinct, typ = schema.AggCollect, r.IntN(2) == 0, nestedType(schema.Array, nil, num)
		case 1:
			a.Function, a.Distinct, typ = schema.AggCollect, r.IntN(2) == 0, nestedType(schema.Array, nil, pair)
			o.nested = true
		case 2:
			a.Function, typ = schema.AggMergeMap, nestedType(schema.Map, &text, num)
		default:
			a.Function, typ = schema.AggNestedUpdate, nestedType(schema.Array, nil, pair)
			if r.IntN(2) == 0 {
				a.NestedKey, o.keys = []string{"a"}, []int{0}
			}
			if r.IntN(3) == 0 {
				a.CountLimit = 1 + r.IntN(6)
			}
		}
		o.Aggregate = a
		t.Run(fmt.Sprintf("%d/%s", n, a.Function), func(t *testing.T) { nestedFold(t, r, typ, o) })
	}
}

func nestedFold(t *testing.T, r *rand.Rand, typ schema.Type, o *nestedOracle) {
	opts := schema.Options{MergeEngine: schema.Aggregation}
	late := r.IntN(2) == 0
	if late {
		opts.MergeEngine = schema.PartialUpdate
		opts.Merge.Groups = []schema.SequenceGroup{{By: []string{"s"}, Fields: []string{"v"}}}
	}
	opts.Merge.Functions = map[string]schema.Aggregate{"v": o.Aggregate}
	s := &schema.Schema{PrimaryKeys: []string{"k"}, Options: map[string]string{}, Fields: []schema.Field{
		{ID: 1, Name: "k", Type: mustType(t, "INT NOT NULL")}, {ID: 2, Name: "s", Type: mustType(t, "INT")}, {ID: 3, Name: "v", Type: typ}}}
	rule, err := NewMergeRule(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	n := 2 + r.IntN(5)
	var runs []Run
	var acc any
	var story []string
	at := int32(math.MinInt32)
	for i := range n {
		var v any
		if r.IntN(6) > 0 {
			v = smallNested(r, typ)
		}
		seq, kind := int32(r.IntN(5)), int8(0)
		if i > 0 && r.IntN(4) == 0 {
			kind = 3
		}
		story = append(story, fmt.Sprintf("%d at %d: %v", kind, seq, v))
		switch behind := late && seq < at; {
		case kind == 3:
			acc = o.retract(acc, v)
		case !behind:
			acc = o.agg(acc, v)
		case o.Function == schema.AggCollect && !o.IgnoreRetract:
			acc = o.agg(acc, v)
		default:
			acc = o.agg(v, acc)
		}
		at = max(at, seq)
		runs = append(runs, &sliceRun{windows: []datafile.Rows{{N: 1, Seq: []int64{int64(i)}, Kinds: []int8{kind}, Cols: []arrow.Array{
			schematest.Array(t, s.Fields[0].Type, int32(1)), schematest.Array(t, s.Fields[1].Type, seq), nestedArray(t, typ, v)}}}})
	}
	m := Merge(MergeSpec{Schema: s, KeyCols: []int{0}, Rule: rule}, runs)
	out, err := m.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	got := schema.Cell(out.Cols[2], 0)
	if (got == nil) != (acc == nil) || fmt.Sprintf("%#v", list(got)) != fmt.Sprintf("%#v", list(acc)) && len(list(got))+len(list(acc)) > 0 {
		t.Fatalf("late %v, %+v\n%s\ngot  %#v\nwant %#v", late, o.Aggregate, strings.Join(story, "\n"), list(got), list(acc))
	}
}

// smallNested makes values of few different elements, so that they meet.
func smallNested(r *rand.Rand, typ schema.Type) any {
	var num any
	if r.IntN(6) > 0 {
		num = int32(r.IntN(4))
	}
	element := func() any {
		if typ.Element.Root == schema.Row {
			if r.IntN(8) == 0 {
				return nil
			}
			return []any{num, string(rune('a' + r.IntN(2)))}
		}
		return num
	}
	if typ.Root == schema.Map {
		out := [][2]any{}
		for _, k := range r.Perm(4)[:r.IntN(4)] {
			out = append(out, [2]any{string(rune('a' + k)), int32(r.IntN(9))})
		}
		return out
	}
	out := []any{}
	for range r.IntN(5) {
		if r.IntN(3) == 0 {
			num = int32(r.IntN(4))
		}
		out = append(out, element())
	}
	return out
}

func nestedArray(t *testing.T, typ schema.Type, v any) arrow.Array {
	t.Helper()
	dt, err := schema.ArrowType(typ)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	b.AppendNull()
	appendNested(t, b, v)
	return array.NewSlice(b.NewArray(), 1, 2)
}
