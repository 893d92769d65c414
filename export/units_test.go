package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func typeOf(t testing.TB, s string) schema.Type {
	t.Helper()
	typ, err := schema.ParseType(s)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

func TestBounds(t *testing.T) {
	nan, inf, zero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	long, longer := strings.Repeat("é", maxBoundRunes), strings.Repeat("é", maxBoundRunes+1)
	top := strings.Repeat(string(utf8.MaxRune), maxBoundRunes+1)
	for _, c := range []struct {
		typ       string
		low, high any
		ok        bool
		lo, hi    string // bytes
	}{
		{"BOOLEAN", false, true, true, "\x00", "\x01"},
		{"BOOLEAN", true, false, false, "", ""},
		{"TINYINT", int8(-1), int8(1), true, "\xff\xff\xff\xff", "\x01\x00\x00\x00"},
		{"SMALLINT", int16(-2), int16(2), true, "\xfe\xff\xff\xff", "\x02\x00\x00\x00"},
		{"INT", int32(1), int32(1), true, "\x01\x00\x00\x00", "\x01\x00\x00\x00"},
		{"INT", int32(2), int32(1), false, "", ""},
		{"INT", nil, int32(1), false, "", ""},
		{"BIGINT", int32(1), int32(2), true, "\x01\x00\x00\x00\x00\x00\x00\x00", "\x02\x00\x00\x00\x00\x00\x00\x00"}, // promoted
		{"DATE", int32(-1), int32(0), true, "\xff\xff\xff\xff", "\x00\x00\x00\x00"},
		{"TIMESTAMP(6)", int64(-1), int64(0), true, "\xff\xff\xff\xff\xff\xff\xff\xff", "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"FLOAT", float32(nan), float32(1), false, "", ""},
		{"FLOAT", float32(1), float32(nan), false, "", ""},
		{"FLOAT", float32(0), float32(zero), true, "\x00\x00\x00\x80", "\x00\x00\x00\x00"},
		{"DOUBLE", 0.0, zero, true, "\x00\x00\x00\x00\x00\x00\x00\x80", "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"DOUBLE", -inf, inf, true, "\x00\x00\x00\x00\x00\x00\xf0\xff", "\x00\x00\x00\x00\x00\x00\xf0\x7f"},
		{"DOUBLE", float32(1), float32(1), true, "\x00\x00\x00\x00\x00\x00\xf0\x3f", "\x00\x00\x00\x00\x00\x00\xf0\x3f"}, // promoted
		{"DECIMAL(9,2)", decimal128.FromI64(-129), decimal128.FromI64(128), true, "\xff\x7f", "\x00\x80"},
		{"DECIMAL(9,2)", decimal128.FromI64(0), decimal128.FromI64(-1), false, "", ""},
		{"STRING", "a", "b", true, "a", "b"},
		{"STRING", "", "", true, "", ""},
		{"STRING", "b", "a", false, "", ""},
		{"STRING", "\xff", "\xff", false, "", ""},
		{"STRING", long, long, true, long, long},
		{"STRING", longer, longer, true, long, strings.Repeat("é", maxBoundRunes-1) + "ê"},
		{"STRING", "a", top, false, "", ""},
		{"STRING", "a", strings.Repeat("\ud7ff", maxBoundRunes+1), true, "a", strings.Repeat("\ud7ff", maxBoundRunes-1) + "\ue000"},
		{"BYTES", []byte("a"), []byte("b"), false, "", ""},
		{"STRING", 1, 2, false, "", ""},
		{"INT", "1", "2", false, "", ""},
	} {
		lo, hi, ok := bounds(c.low, c.high, typeOf(t, c.typ))
		if ok != c.ok || ok && (string(lo) != c.lo || string(hi) != c.hi) {
			t.Errorf("bounds(%v, %v, %s) = %q, %q, %v, want %q, %q, %v", c.low, c.high, c.typ, lo, hi, ok, c.lo, c.hi, c.ok)
		}
	}
}

// TestBoundsHold draws random values and checks that Iceberg's own decoding of the bounds still bounds them.
func TestBoundsHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for range 5000 {
		a, b := randomString(rng), randomString(rng)
		if a > b {
			a, b = b, a
		}
		lo, hi, ok := bounds(a, b, typeOf(t, "STRING"))
		if ok && (bytes.Compare(lo, []byte(a)) > 0 || bytes.Compare(hi, []byte(b)) < 0 || !utf8.Valid(lo) || !utf8.Valid(hi)) {
			t.Fatalf("seed %d: bounds %q and %q do not hold %q and %q", seed, lo, hi, a, b)
		}
		v := new(big.Int).SetUint64(rng.Uint64())
		v.Rsh(v, uint(rng.IntN(64)))
		if rng.IntN(2) == 0 {
			v.Neg(v)
		}
		raw := twosComplement(v)
		lit, err := iceberg.LiteralFromBytes(iceberg.DecimalTypeOf(38, 0), raw)
		if err != nil || lit.(iceberg.DecimalLiteral).Val.BigInt().Cmp(v) != 0 {
			t.Fatalf("seed %d: %v is encoded as %x, which reads as %v (%v)", seed, v, raw, lit, err)
		}
		if n := len(raw); n > 1 && (raw[0] == 0 && raw[1] < 0x80 || raw[0] == 0xff && raw[1] >= 0x80) {
			t.Fatalf("seed %d: %v is encoded in %d bytes: %x", seed, v, n, raw)
		}
	}
}

func randomString(rng *rand.Rand) string {
	alphabet := []rune{'a', 'b', 0x7f, 'é', 0xd7ff, 0xe000, 0xffff, 0x10000, utf8.MaxRune}
	var b strings.Builder
	for range rng.IntN(2 * maxBoundRunes) {
		b.WriteRune(alphabet[rng.IntN(len(alphabet))])
	}
	return b.String()
}

// TestStatsOfOldFiles maps the statistics of a file of an older schema by field id, and survives damaged ones.
func TestStatsOfOldFiles(t *testing.T) {
	old, err := schema.New(schema.Spec{Columns: columns(t, "a INT, b STRING, c INT")})
	if err != nil {
		t.Fatal(err)
	}
	now, err := schema.New(schema.Spec{Columns: columns(t, "b2 STRING, a BIGINT, d INT")})
	if err != nil {
		t.Fatal(err)
	}
	now.Fields[0].ID, now.Fields[1].ID, now.Fields[2].ID = 2, 1, 4
	types := old.Types([]int{0, 1, 2})
	low, high, err := binrow.EncodeStats(types, []any{int32(1), "x", int32(5)}, []any{int32(9), "y", int32(6)})
	if err != nil {
		t.Fatal(err)
	}
	one, many := int64(1), int64(11)
	f := manifest.DataFile{Rows: 10, ValueStatsAll: true, ValueStats: manifest.Stats{Min: low, Max: high, NullCounts: []*int64{&one, nil, &one}}}
	st := fileStats(&f, old, now)
	if len(st.values) != 2 || st.values[1] != 10 || st.values[2] != 10 {
		t.Errorf("value counts %v", st.values)
	}
	if len(st.nulls) != 1 || st.nulls[1] != 1 {
		t.Errorf("null counts %v", st.nulls)
	}
	if len(st.lower) != 2 || string(st.lower[2]) != "x" || !bytes.Equal(st.lower[1], []byte{1, 0, 0, 0, 0, 0, 0, 0}) || string(st.upper[2]) != "y" {
		t.Errorf("bounds %v %v", st.lower, st.upper)
	}
	f.ValueStats.NullCounts = []*int64{&many}
	if st := fileStats(&f, old, now); len(st.nulls) != 0 {
		t.Errorf("more nulls than rows were believed: %v", st.nulls)
	}
	for _, bad := range [][]byte{nil, {}, {1, 2, 3}, low[:len(low)-1], bytes.Repeat([]byte{0xff}, len(low))} {
		f.ValueStats.Min = bad
		if st := fileStats(&f, old, now); len(st.lower) != 0 && !bytes.Equal(bad, low) {
			t.Errorf("damaged statistics %x gave bounds %v", bad, st.lower)
		}
	}
	f.ValueStatsAll, f.ValueStatsCols = false, []string{"nobody"}
	if st := fileStats(&f, old, now); len(st.lower) != 0 || len(st.nulls) != 0 {
		t.Errorf("statistics of unknown columns gave %v %v", st.lower, st.nulls)
	}
}

// TestStatsOfTrackedFiles: a compacted file of a table with row tracking has statistics of two more columns.
func TestStatsOfTrackedFiles(t *testing.T) {
	s, err := schema.New(schema.Spec{Columns: columns(t, "a INT, b STRING")})
	if err != nil {
		t.Fatal(err)
	}
	all := s.WithRowTracking(false)
	low, high, err := binrow.EncodeStats(all.Types([]int{0, 1, 2, 3}), []any{int32(1), "x", int64(5), int64(1)}, []any{int32(9), "y", int64(14), int64(2)})
	if err != nil {
		t.Fatal(err)
	}
	zero := int64(0)
	f := manifest.DataFile{Rows: 10, WriteCols: all.Names([]int{0, 1, 2, 3}), ValueStatsAll: true,
		ValueStats: manifest.Stats{Min: low, Max: high, NullCounts: []*int64{&zero, &zero, &zero, &zero}}}
	if st := fileStats(&f, s, s); len(st.values) != 2 || len(st.nulls) != 2 || len(st.lower) != 2 || string(st.upper[2]) != "y" {
		t.Errorf("%+v", st)
	}
}

func TestPromotable(t *testing.T) {
	for _, c := range []struct {
		old, now string
		ok       bool
	}{
		{"INT", "INT", true}, {"TINYINT", "INT", true}, {"INT", "BIGINT", true}, {"BIGINT", "INT", false}, {"FLOAT", "DOUBLE", true},
		{"DOUBLE", "FLOAT", false}, {"DECIMAL(9,2)", "DECIMAL(12,2)", true}, {"DECIMAL(12,2)", "DECIMAL(9,2)", false},
		{"DECIMAL(9,2)", "DECIMAL(9,3)", false}, {"INT", "STRING", false}, {"CHAR(3)", "STRING", true}, {"TIMESTAMP(4)", "TIMESTAMP(6)", true},
		{"TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", false}, {"DATE", "TIMESTAMP(6)", false}, {"INT", "FLOAT", false}, {"DECIMAL(9,2)", "DOUBLE", false},
	} {
		old, err1 := icebergType(typeOf(t, c.old))
		now, err2 := icebergType(typeOf(t, c.now))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if got := promotable(old, now); got != c.ok {
			t.Errorf("%s to %s: promotable %v, want %v", c.old, c.now, got, c.ok)
		}
	}
	for _, typ := range []string{"TIME", "TIMESTAMP(3)", "TIMESTAMP(0)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)"} {
		if it, err := icebergType(typeOf(t, typ)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s became %s, error %v", typ, it, err)
		}
	}
	for _, root := range []schema.Root{schema.Invalid, schema.Variant, schema.Array, schema.Multiset, schema.Map, schema.Row} {
		if it, err := icebergType(schema.Type{Root: root, Element: &schema.Type{Root: schema.Int}, Key: &schema.Type{Root: schema.Int}}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("root %d became %s, error %v", root, it, err)
		}
	}
}

func TestNameMapping(t *testing.T) {
	v := func(names ...any) *schema.Schema {
		s := &schema.Schema{}
		for i := 0; i < len(names); i += 2 {
			s.Fields = append(s.Fields, schema.Field{Name: names[i].(string), ID: names[i+1].(int)})
		}
		return s
	}
	// b was renamed to c; a was dropped and another a added.
	got, err := json.Marshal(nameMapping([]*schema.Schema{v("a", 1, "b", 2), v("a", 1, "c", 2), v("c", 2, "a", 3)}))
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"names":["c","b"],"field-id":2},{"names":["a"],"field-id":3}]`; string(got) != want {
		t.Errorf("name mapping %s, want %s", got, want)
	}
}

func TestPack(t *testing.T) {
	for files, want := range map[int]int{0: minManifestFiles, 10000: minManifestFiles, 1 << 20: 1024, 1 << 40: maxManifestFiles} {
		if got := manifestFiles(files); got != want {
			t.Errorf("manifestFiles(%d) = %d, want %d", files, got, want)
		}
	}
	for _, c := range []struct{ n, target int }{{0, 5}, {1, 5}, {5, 5}, {6, 5}, {11, 5}, {100, 7}} {
		from, most, least := 0, 0, c.target
		for _, to := range chunks(c.n, c.target) {
			most, least = max(most, to-from), min(least, to-from)
			from = to
		}
		if from != c.n || most > c.target || c.n > 0 && most-least > 1 {
			t.Errorf("chunks(%d, %d) = %v", c.n, c.target, chunks(c.n, c.target))
		}
	}
	small := slices.Repeat([]int{3}, 40)
	for _, c := range []struct {
		live []int
		want int
	}{{nil, 0}, {small[:mergeSmall-1], 0}, {small[:mergeSmall], mergeSmall}, {small, mergeMost}, {slices.Repeat([]int{64}, 40), 0}, {slices.Repeat([]int{0}, 40), 0}} {
		got := absorb(c.live, minManifestFiles)
		if len(got) != c.want || !slices.IsSorted(got) {
			t.Errorf("absorb(%v) = %v, want %d", c.live, got, c.want)
		}
	}
}

// TestSchemaEvolution adds, renames, drops and widens columns under exported files.
func TestSchemaEvolution(t *testing.T) {
	ctx := context.Background()
	mem := storage.NewMem()
	w := newWorld(t, mem, schema.Spec{Columns: columns(t, "a INT, b STRING, c FLOAT")})
	w.commit(manifest.Append, w.write(w.part(0), 0, `{"a":1,"b":"x","c":1.5}`))
	w.publish(w.exporter(), 0)

	next := *w.schema
	next.ID, next.HighestFieldID = 1, 4
	next.Fields = []schema.Field{
		{ID: 4, Name: "d", Type: typeOf(t, "DATE")}, {ID: 1, Name: "a", Type: typeOf(t, "BIGINT"), Description: "wider"},
		{ID: 2, Name: "b2", Type: typeOf(t, "STRING")},
	}
	w.evolve(&next)
	e := w.exporter()
	s := w.commit(manifest.Append, w.write(w.part(0), 0, `{"d":"2024-05-14","a":5000000000,"b2":"y"}`))
	w.publish(e, 0)
	tab := w.check()
	if got := tab.Metadata().CurrentSchema().ID; got != 1 {
		t.Errorf("current schema %d, want 1", got)
	}
	if n := len(tab.Metadata().Schemas()); n != 2 || tab.Metadata().LastColumnID() != 4 {
		t.Errorf("%d schemas, last column id %d, want 2 and 4", n, tab.Metadata().LastColumnID())
	}
	want := []string{`{"a":1,"b2":"x","d":null}`, `{"a":5000000000,"b2":"y","d":"2024-05-14"}`}
	if got := scanned(t, mem, ScanSpec{}); !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	if got := scanned(t, mem, ScanSpec{Snapshot: 1}); !slices.Equal(got, []string{`{"a":1,"b":"x","c":1.5}`}) {
		t.Errorf("rows of snapshot 1: %v", got)
	}

	// A schema change without a change of files is shown as well.
	third := next
	third.ID = 2
	third.Fields = append(slices.Clone(next.Fields), schema.Field{ID: 5, Name: "e", Type: typeOf(t, "INT")})
	third.HighestFieldID = 5
	w.evolve(&third)
	w.commit(manifest.Append)
	if r := w.publish(e, 0); !r.Published || r.IcebergSnapshot != s.ID || r.PaimonSnapshot != s.ID+1 {
		t.Errorf("publish of the new schema: %+v", r)
	}
	if _, ok := w.check().Schema().FindFieldByName("e"); !ok {
		t.Error("the new column is not shown")
	}

	// What Paimon casts while reading, Iceberg readers would refuse or misread.
	bad := third
	bad.ID = 3
	bad.Fields = slices.Clone(third.Fields)
	bad.Fields[1].Type = typeOf(t, "STRING")
	w.evolve(&bad)
	w.commit(manifest.Append)
	if _, err := e.Publish(ctx, 0); err == nil || !strings.Contains(err.Error(), `column "a" changed from INT (schema 0) to STRING (schema 3)`) {
		t.Errorf("error %v, want one about the change of column a", err)
	}
	if got := scanned(t, mem, ScanSpec{}); len(got) != 2 {
		t.Errorf("rows after the refused publish: %v", got)
	}
}

// evolve stores a new version of the schema and uses it.
func (w *world) evolve(s *schema.Schema) {
	w.t.Helper()
	data, err := s.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.PutIfAbsent(context.Background(), "schema/schema-"+string(rune('0'+s.ID)), data); err != nil {
		w.t.Fatal(err)
	}
	w.use(s)
}
