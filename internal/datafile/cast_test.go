package datafile

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// castLine is a line of internal/testdata/casts.jsonl: what Paimon's executor made of some values. A result is a text,
// null, or an object for an error.
type castLine struct {
	From, To string
	Explicit bool
	Values   [][2]json.RawMessage
}

// TestCasts: every cast gives what Paimon's own library gives.
func TestCasts(t *testing.T) {
	f, err := os.Open("../testdata/casts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	pairs, values := 0, 0
	for in.Scan() {
		var line castLine
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		from, err1 := schema.ParseType(line.From)
		to, err2 := schema.ParseType(line.To)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		cast, err := casterOf(from, to)
		if !line.Explicit {
			continue // the schema does not change so
		}
		if err != nil {
			t.Errorf("%s as %s: %v", from, to, err)
			continue
		}
		pairs++
		for _, v := range line.Values {
			checkCast(t, from, to, cast, v)
			values++
		}
	}
	if err := in.Err(); err != nil || pairs < 400 || values < 6000 {
		t.Errorf("%d pairs of types, %d values: %v", pairs, values, err)
	}
}

func checkCast(t *testing.T, from, to schema.Type, cast caster, v [2]json.RawMessage) {
	t.Helper()
	a, ok := castInput(t, from, text(v[0]))
	if !ok {
		return // nanoseconds from 1970 on do not reach it
	}
	var err error
	if cast != nil {
		a, err = cast(a)
	}
	if strings.HasPrefix(string(v[1]), "{") {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s %s as %s: %v %v, Paimon fails", from, v[0], to, a, err)
		}
		return
	}
	if err != nil {
		if want, fits := castInput(t, to, text(v[1])); fits {
			t.Errorf("%s %s as %s: %v, want %v", from, v[0], to, err, want)
		}
		return
	}
	if a.Len() != 2 || !a.IsNull(1) {
		t.Fatalf("%s as %s: the null is lost: %v", from, to, a)
	}
	if dt, err := schema.ArrowType(to); err != nil || !arrow.TypeEqual(dt, a.DataType()) {
		t.Fatalf("%s as %s: type %s", from, to, a.DataType())
	}
	got := "null"
	if a.IsValid(0) {
		got = castOutput(a, to)
	}
	want := "null"
	if string(v[1]) != "null" {
		if want = text(v[1]); isTime(to.Root) {
			w, fits := castInput(t, to, want)
			if !fits {
				t.Fatalf("%s %s as %s: %s, want %s", from, v[0], to, got, want)
			}
			want = castOutput(w, to)
		}
	}
	if got != want && !sameFloat(got, want, from, to) {
		t.Errorf("%s %s as %s: %q, want %q", from, v[0], to, got, want)
	}
}

// sameFloat accepts the digits that Java before 19 writes too many.
func sameFloat(got, want string, from, to schema.Type) bool {
	bits := 64
	if from.Root == schema.Float || to.Root == schema.Float {
		bits = 32
	}
	g, err1 := strconv.ParseFloat(got, bits)
	w, err2 := strconv.ParseFloat(want, bits)
	return err1 == nil && err2 == nil && g == w && len(got) < len(want)
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// castInput builds a column of a value and a null.
func castInput(t *testing.T, typ schema.Type, s string) (arrow.Array, bool) {
	t.Helper()
	dt, err := schema.ArrowType(typ)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	switch b := b.(type) {
	case *array.BinaryBuilder:
		raw, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		b.Append(raw)
	case *array.StringBuilder:
		b.Append(s)
	case *array.Decimal128Builder:
		n, err := decimal128.FromString(s, int32(typ.Precision), int32(typ.Scale))
		if err != nil {
			t.Fatal(err)
		}
		b.Append(n)
	case *array.TimestampBuilder:
		m, n, _ := strings.Cut(s, ":")
		millis, _ := strconv.ParseInt(m, 10, 64)
		nanos, _ := strconv.ParseInt(n, 10, 64)
		f := perSecond(typ) / 1000
		v := millis*f + nanos*f/1_000_000
		if f > 1 && (v-nanos*f/1_000_000)/f != millis {
			return nil, false
		}
		b.Append(arrow.Timestamp(v))
	case *array.Date32Builder:
		v, _ := strconv.ParseInt(s, 10, 32)
		b.Append(arrow.Date32(v))
	case *array.Time32Builder:
		v, _ := strconv.ParseInt(s, 10, 32)
		b.Append(arrow.Time32(v))
	default:
		if err := b.AppendValueFromString(strings.Replace(s, "Infinity", "Inf", 1)); err != nil {
			t.Fatal(err)
		}
	}
	b.AppendNull()
	return b.NewArray(), true
}

// castOutput writes a value as the file does.
func castOutput(a arrow.Array, typ schema.Type) string {
	switch a := a.(type) {
	case *array.Float32:
		return string(appendJavaFloat(nil, float64(a.Value(0)), 32))
	case *array.Float64:
		return string(appendJavaFloat(nil, a.Value(0), 64))
	case *array.Binary:
		return hex.EncodeToString(a.Value(0))
	case *array.Decimal128:
		return a.Value(0).ToString(int32(typ.Scale))
	case *array.String:
		return strings.ToValidUTF8(a.Value(0), "\ufffd")
	}
	return fmt.Sprint(schema.Cell(a, 0))
}
