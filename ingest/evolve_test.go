package ingest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

func init() {
	hard[15] = hardWidening
	hard[16] = hardNestedFields
	hard[18] = hardRenamed
	hard[19] = hardAddedWithDefault
	hard[20] = hardMixedVersions
	hard[21] = hardSchemaless
}

// evolving writes lines into the table on mem, as a process of its own, and gives what was refused.
func evolving(t *testing.T, mem *storage.Mem, how decode.Evolution, lines ...string) []string {
	t.Helper()
	ctx := context.Background()
	table, err := engine.Open(ctx, mem, engine.Settings{Job: "lines"}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	dead := &list{}
	in := strings.NewReader(strings.Join(lines, "\n"))
	if _, err := RunLines(ctx, in, LinesConfig{Decode: decode.Config{Evolution: how}}, table, dead, testEnv(), Events{}); err != nil {
		t.Fatal(err)
	}
	if err := table.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return dead.all()
}

// latest gives the newest schema of the table, as "name TYPE" texts.
func latest(t *testing.T, mem *storage.Mem) (s *schema.Schema, columns string) {
	t.Helper()
	e := testEnv()
	s, err := manifest.Open(mem, manifest.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log}).LatestSchema(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range s.Fields {
		out = append(out, f.Name+" "+f.Type.String())
	}
	return s, strings.Join(out, ", ")
}

func wantColumns(t *testing.T, mem *storage.Mem, want string) *schema.Schema {
	t.Helper()
	s, got := latest(t, mem)
	if got != want {
		t.Fatalf("columns\n\t%s, not\n\t%s", got, want)
	}
	return s
}

// wantRows compares the table with rows as text, keyed by their first column.
func wantRows(t *testing.T, mem *storage.Mem, want ...string) {
	t.Helper()
	rows := scan(t, mem, 1)
	if len(rows) != len(want) {
		t.Errorf("%d rows, not %d: %v", len(rows), len(want), rows)
	}
	for _, w := range want {
		key, _, _ := strings.Cut(w, " ")
		if got := strings.Trim(fmt.Sprint(rows[key]), "[]"); got != w {
			t.Errorf("row %s, not %s", got, w)
		}
	}
}

func wantRefused(t *testing.T, letters []string, words ...string) {
	t.Helper()
	if len(letters) != len(words) {
		t.Fatalf("refused: %q, not %d records", letters, len(words))
	}
	for i, w := range words {
		if !strings.Contains(letters[i], w) {
			t.Errorf("refused with %q, which does not say %q", letters[i], w)
		}
	}
}

// hardWidening: a number outgrows its column. The column becomes wider with its id kept, smaller numbers still fit, and
// what is no number is refused.
func hardWidening(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "qty INT")
	before := wantColumns(t, mem, "id BIGINT NOT NULL, qty INT")
	refused := evolving(t, mem, decode.Evolve, `{"id":1,"qty":2147483647}`, `{"id":2,"qty":2147483648}`, `{"id":3,"qty":5}`, `{"id":4,"qty":"abc"}`)
	after := wantColumns(t, mem, "id BIGINT NOT NULL, qty BIGINT")
	if after.Fields[1].ID != before.Fields[1].ID {
		t.Errorf("the column has field id %d, not %d", after.Fields[1].ID, before.Fields[1].ID)
	}
	wantRows(t, mem, "1 2147483647", "2 2147483648", "3 5")
	wantRefused(t, refused, `column "qty"`)
}

// hardNestedFields: fields appear inside a row, the elements of an array and the values of a map; the first record that
// has the new form has null and nothing where they would be.
func hardNestedFields(t *testing.T) {
	columns, err := schema.ParseColumns("id BIGINT NOT NULL, meta MAP<STRING, ROW<`key` STRING>>")
	if err != nil {
		t.Fatal(err)
	}
	made, err := schema.New(schema.Spec{Columns: columns, PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	mem := storage.NewMem()
	if err := engine.Create(context.Background(), mem, made); err != nil {
		t.Fatal(err)
	}
	refused := evolving(t, mem, decode.Evolve,
		`{"id":1,"customer":{"customer_id":7},"items":[{"product_id":1}],"meta":{"a":{"key":"x"}}}`,
		`{"id":2,"customer":null,"items":[],"meta":{}}`,
		`{"id":3,"customer":{"customer_id":8,"details":{"name":"n","email":"e"}},"items":[{"product_id":2,"qty":3},{"product_id":3,"qty":4}],"meta":{"b":{"key":"y","ts":9}}}`,
		`{"id":4,"customer":{"customer_id":9}}`)
	wantRefused(t, refused)
	wantColumns(t, mem, "id BIGINT NOT NULL, meta MAP<STRING, ROW<`key` STRING, `ts` BIGINT>>, "+
		"customer ROW<`customer_id` BIGINT, `details` ROW<`name` STRING, `email` STRING>>, items ARRAY<ROW<`product_id` BIGINT, `qty` BIGINT>>")
	rows := scan(t, mem, 1)
	if len(rows) != 4 || rows["2"][2] != nil {
		t.Errorf("the customer of row 2 is %v, not null (%d rows)", rows["2"][2], len(rows))
	}
	if s := fmt.Sprint(rows["3"]); !strings.Contains(s, "4") || !strings.Contains(s, "e") {
		t.Errorf("row 3 is %s", s)
	}
}

// hardRenamed: a name goes away, another comes, the first comes back with another type. Old values stay under their
// name, and no field id is used twice.
func hardRenamed(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "department INT")
	refused := evolving(t, mem, decode.Evolve, `{"id":1,"department":10}`, `{"id":2,"team":"a"}`, `{"id":3}`, `{"id":4,"department":40}`, `{"id":5,"department":"sales"}`)
	s := wantColumns(t, mem, "id BIGINT NOT NULL, department INT, team STRING")
	if s.Fields[2].ID <= s.Fields[1].ID {
		t.Errorf("ids %d and %d", s.Fields[1].ID, s.Fields[2].ID)
	}
	wantRows(t, mem, "1 10 <nil>", "2 <nil> a", "3 <nil> <nil>", "4 40 <nil>")
	wantRefused(t, refused, `"sales"`)
}

// hardAddedWithDefault: a field that is NOT NULL with a default at the source comes up, while records without it are
// still under way: the column is nullable and both kinds are taken.
func hardAddedWithDefault(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT")
	wantRefused(t, evolving(t, mem, decode.AddOnly, `{"id":1,"city":"0"}`, `{"id":2}`, `{"id":3,"city":"Oslo"}`))
	wantColumns(t, mem, "id BIGINT NOT NULL, city STRING")
	wantRows(t, mem, "1 0", "2 <nil>", "3 Oslo")
}

// hardMixedVersions: records with and without a new field alternate over two partitions, and the power goes at random
// moments. Every record is there once, with its value.
func hardMixedVersions(t *testing.T) {
	r := schematest.Rand(t)
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	c := &crashing{mem: createTable(t, []string{"id"}, "id BIGINT")}
	cfg := b.config()
	cfg.Decode = decode.Config{Evolution: decode.Evolve}
	want, n := map[string]string{}, 0
	for round := range 8 {
		var rs []*kgo.Record
		for range 40 {
			id, value := n, fmt.Sprintf(`{"id":%d}`, n)
			want[fmt.Sprint(id)] = ""
			if at := r.IntN(round + 2); at > 0 {
				value = fmt.Sprintf(`{"id":%d,"f%d":"x%d"}`, id, at, id)
				want[fmt.Sprint(id)] = fmt.Sprintf("f%d=x%d", at, id)
			}
			rs = append(rs, message("t", int32(n%2), "", value))
			n++
		}
		b.sendAll(rs)
		end := fmt.Sprintf(`{"0":%d,"1":%d}`, (n+1)/2, n/2)
		for tries := 0; ; tries++ {
			c.left.Store(int64(1 + r.IntN(40)))
			if tries > 2 {
				c.left.Store(1 << 40)
			}
			if !runUntilCrash(t, c, cfg, end) {
				break
			}
		}
	}
	s, _ := latest(t, c.mem)
	rows := scan(t, c.mem, 1)
	if len(rows) != n {
		t.Errorf("%d rows, not %d", len(rows), n)
	}
	for id, w := range want {
		got := ""
		for i, v := range rows[id] {
			if i > 0 && v != nil {
				got += fmt.Sprintf("%s=%v", s.Fields[i].Name, v)
			}
		}
		if got != w {
			t.Errorf("row %s has %q, not %q", id, got, w)
		}
	}
}

// hardSchemaless: one field has values of every kind. The first settles the type; what does not fit is refused with the
// reason, and no number loses a digit.
func hardSchemaless(t *testing.T) {
	values := []string{`true`, `12`, `12.5`, `[1]`, `{"a":1}`, `"x"`, `null`}
	for first, want := range map[string]string{
		`true`: "BOOLEAN", `12`: "BIGINT", `12.5`: "DOUBLE", `[1]`: "ARRAY<BIGINT>", `{"a":1}`: "ROW<`a` BIGINT>", `"x"`: "STRING",
	} {
		mem := createTable(t, []string{"k"}, "k BIGINT")
		lines := []string{`{"k":0,"v":` + first + `}`}
		for i, v := range values {
			lines = append(lines, fmt.Sprintf(`{"v":%s,"k":%d}`, v, i+1))
		}
		refused := evolving(t, mem, decode.Evolve, append(lines, `{"k":8}`)...)
		wantColumns(t, mem, "k BIGINT NOT NULL, v "+want)
		rows := scan(t, mem, 1)
		if len(rows)+len(refused) != 9 || rows["0"][1] == nil || rows["7"][1] != nil || rows["8"] == nil {
			t.Errorf("%s first: %d rows, refused %q", first, len(rows), refused)
		}
		if first == `"x"` && (len(refused) != 0 || rows["5"][1] != `{"a":1}`) {
			t.Errorf("text does not keep JSON: %v", rows["5"])
		}
	}
	mem := createTable(t, []string{"k"}, "k BIGINT")
	refused := evolving(t, mem, decode.Evolve, `{"k":1,"Id":1,"id":2}`, `{"k":2,"id":9007199254740993}`, `{"k":3,"ID":4}`, `{"n":123456789012345678901234567890,"k":4}`, `{"k":5,"e":{},"l":[],"z":null}`)
	wantRefused(t, refused, "differs from", `differs from "id" in case alone`)
	wantColumns(t, mem, "k BIGINT NOT NULL, id BIGINT, n DECIMAL(38, 0)")
	wantRows(t, mem, "2 9007199254740993 <nil>", "4 <nil> {14083847773837265618 6692605942}", "5 <nil> <nil>")
}

func TestEvolutionPolicies(t *testing.T) {
	lines := []string{`{"id":1,"new":2}`, `{"id":2,"qty":3000000000}`, `{"id":3}`}
	for _, x := range []struct {
		how     decode.Evolution
		columns string
		refused []string
	}{
		{decode.Freeze, "id BIGINT NOT NULL, qty INT", []string{`out of range`}},
		{decode.Strict, "id BIGINT NOT NULL, qty INT", []string{`"new": there is no such column`, `out of range`}},
		{decode.AddOnly, "id BIGINT NOT NULL, qty INT, new BIGINT", []string{`out of range`}},
		{decode.Evolve, "id BIGINT NOT NULL, qty BIGINT, new BIGINT", nil},
	} {
		mem := createTable(t, []string{"id"}, "id BIGINT", "qty INT")
		wantRefused(t, evolving(t, mem, x.how, lines...), x.refused...)
		wantColumns(t, mem, x.columns)
	}
	// What the table cannot have refuses the record: a key keeps its type.
	mem := createTable(t, []string{"id"}, "id INT", "name VARCHAR(3)", "d DECIMAL(5, 2)", "f FLOAT", "b VARBINARY(2)")
	refused := evolving(t, mem, decode.Evolve, `{"id":3000000000}`, `{"id":1,"name":"four","d":123456.78,"f":1e300,"b":"AAEC"}`, `{"id":2,"d":1.234}`)
	wantRefused(t, refused, "out of range", "1.234")
	wantColumns(t, mem, "id INT NOT NULL, name STRING, d DECIMAL(8, 2), f DOUBLE, b BYTES")
}

// TestEvolutionBesideOthers: somebody else makes the column that a record needs, of another type, or a wider one, just
// before it comes. Whatever the policy, the record is in the table.
func TestEvolutionBesideOthers(t *testing.T) {
	ctx := context.Background()
	for _, x := range []struct {
		change schema.Change
		line   string
	}{
		{schema.AddColumn{Path: []string{"x"}, Type: schema.Type{Root: schema.Date}}, `{"id":1,"x":"2026-11-30"}`},
		{schema.AddColumn{Path: []string{"x"}, Type: schema.Type{Root: schema.Int}}, `{"id":1,"x":5}`},
		{schema.ChangeType{Path: []string{"qty"}, Type: schema.Type{Root: schema.Double}}, `{"id":1,"qty":5.5}`},
	} {
		for _, how := range []decode.Evolution{decode.Freeze, decode.AddOnly, decode.Evolve} {
			mem := createTable(t, []string{"id"}, "id BIGINT", "qty INT")
			table, err := engine.Open(ctx, mem, engine.Settings{Job: "lines"}, testEnv())
			if err != nil {
				t.Fatal(err)
			}
			alterTable(t, mem, x.change)
			dead := &list{}
			in := strings.NewReader(x.line)
			if _, err := RunLines(ctx, in, LinesConfig{Decode: decode.Config{Evolution: how}}, table, dead, testEnv(), Events{}); err != nil {
				t.Fatal(err)
			}
			if err := table.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if rows := scan(t, mem, 1); len(dead.all()) > 0 || len(rows) != 1 || rows["1"][1] == nil && rows["1"][len(rows["1"])-1] == nil {
				t.Errorf("%s, %s: rows %v, refused %q", how, x.change, rows, dead.all())
			}
		}
	}
}
