// Package schematest makes Arrow arrays of single values, for tests: schema.Cell the other way round.
package schematest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// Builder makes a builder of a type's arrays.
func Builder(t testing.TB, typ schema.Type) array.Builder {
	t.Helper()
	at, err := schema.ArrowType(typ)
	if err != nil {
		t.Fatal(err)
	}
	return array.NewBuilder(memory.DefaultAllocator, at)
}

// Array makes an array of values, each as Append takes it.
func Array(t testing.TB, typ schema.Type, vals ...any) arrow.Array {
	t.Helper()
	b := Builder(t, typ)
	for _, v := range vals {
		Append(b, v)
	}
	return b.NewArray()
}

// Append appends a value as schema.Cell gives it, or nil; of lists and rows []any, of maps pairs of key and value. It panics
// if the value is not of the builder's type.
func Append(b array.Builder, v any) {
	if v == nil {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v.(bool))
	case *array.Int8Builder:
		b.Append(v.(int8))
	case *array.Int16Builder:
		b.Append(v.(int16))
	case *array.Int32Builder:
		b.Append(v.(int32))
	case *array.Int64Builder:
		b.Append(v.(int64))
	case *array.Float32Builder:
		b.Append(v.(float32))
	case *array.Float64Builder:
		b.Append(v.(float64))
	case *array.Decimal128Builder:
		b.Append(v.(decimal128.Num))
	case *array.StringBuilder:
		b.Append(v.(string))
	case *array.BinaryBuilder:
		b.Append(v.([]byte))
	case *array.Date32Builder:
		b.Append(arrow.Date32(v.(int32)))
	case *array.Time32Builder:
		b.Append(arrow.Time32(v.(int32)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.(int64)))
	case *array.MapBuilder:
		b.Append(true)
		for _, p := range v.([][2]any) {
			Append(b.KeyBuilder(), p[0])
			Append(b.ItemBuilder(), p[1])
		}
	case *array.ListBuilder:
		b.Append(true)
		for _, x := range v.([]any) {
			Append(b.ValueBuilder(), x)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i, x := range v.([]any) {
			Append(b.FieldBuilder(i), x)
		}
	default:
		panic(fmt.Sprintf("no builder for %T", b))
	}
}

// Type parses a type's name.
func Type(t testing.TB, s string) schema.Type {
	t.Helper()
	typ, err := schema.ParseType(s)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// Table builds a schema of one bucket from "name TYPE" pairs; the names in keys, with commas, are the primary key.
func Table(t testing.TB, keys string, cols ...string) *schema.Schema {
	t.Helper()
	s := &schema.Schema{Options: map[string]string{"bucket": "1"}}
	for i, c := range cols {
		name, typ, _ := strings.Cut(c, " ")
		s.Fields = append(s.Fields, schema.Field{ID: i + 1, Name: name, Type: Type(t, typ)})
	}
	if keys == "" {
		return s
	}
	s.PrimaryKeys = strings.Split(keys, ",")
	for i := range s.Fields {
		if slices.Contains(s.PrimaryKeys, s.Fields[i].Name) {
			s.Fields[i].Type.NotNull = true
		}
	}
	return s
}

// Rand gives the generator of a randomized test and prints its seed; CALVE_SEED sets another.
func Rand(t testing.TB) *rand.Rand {
	seed := uint64(20261129)
	if s := os.Getenv("CALVE_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = v
	}
	t.Logf("seed %d (set CALVE_SEED to change it)", seed)
	return rand.New(rand.NewPCG(seed, 1))
}
