package decode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/schema"
)

func nestedDecoder(t *testing.T) Decoder {
	t.Helper()
	cols, err := schema.ParseColumns("id INT NOT NULL, a ARRAY<INT>, s ARRAY<STRING NOT NULL> NOT NULL, m MAP<STRING NOT NULL, DOUBLE>, " +
		"n MAP<INT, ARRAY<BIGINT>>, r ROW<x INT, `a\"b` STRING NOT NULL, z ROW<deep TIMESTAMP(9), l ARRAY<DATE>>>, " +
		"l ARRAY<ROW<p INT, q DECIMAL(10, 2)>>, c MULTISET<STRING>, b MAP<BOOLEAN NOT NULL, BYTES>")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Schema: s})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNested reads nested columns between rows that are refused, and prints them again.
func TestNested(t *testing.T) {
	d := nestedDecoder(t)
	full := `{"id":%d,"a":[1,null,3],"s":["x",""],"m":[["one",1],["null",null]],"n":[[7,[7,null]],[0,[]]],` +
		`"r":{"x":1,"a\"b":"y","z":{"deep":"1999-12-31T23:59:59.999999999","l":["2024-02-29",null]}},` +
		`"l":[{"p":1,"q":"1.50"},null,{"p":null,"q":null}],"c":[["k",2]],"b":[[true,"AAE="]]}`
	empty := `{"id":%d,"a":[],"s":[],"m":[],"n":[],"r":{"x":null,"a\"b":"","z":{"deep":null,"l":[]}},"l":[],"c":[],"b":[]}`
	nulls := `{"id":%d,"a":null,"s":["only"],"m":null,"n":null,"r":null,"l":null,"c":null,"b":null}`
	other := `{"id":%d, "s" : [ ] , "m" : { "o\u006ee" : 1 } ,"n":{"-5":null},"r":{"z":null,"unknown":[{}],"a\"b":"v"},"c":{"k":1}}`
	otherWant := `{"id":%d,"a":null,"s":[],"m":[["one",1]],"n":[[-5,null]],"r":{"x":null,"a\"b":"v","z":null},"l":null,"c":[["k",1]],"b":null}`
	bad := []struct{ row, want string }{
		{`{"id":1,"s":["a",null]}`, "s.element: is missing or null"}, {`{"id":1,"s":"x"}`, "not a value of type ARRAY"},
		{`{"id":1,"a":[1,"x"],"s":[]}`, "a.element"}, {`{"id":1,"a":[1,],"s":[]}`, "malformed"}, {`{"id":1,"a":[1 2],"s":[]}`, "malformed"},
		{`{"id":1,"a":[1`, "too early"}, {`{"id":1,"s":[],"r":{"x":1}}`, `r.a"b: is missing or null`}, {`{"id":1,"s":[],"r":[]}`, "ROW"},
		{`{"id":1,"s":[],"r":{"x":1,"x":2,"a\"b":""}}`, "occurs twice"}, {`{"id":1,"s":[],"m":[["a"]]}`, "no value"},
		{`{"id":1,"s":[],"m":[["a",1,2]]}`, "more than a key"}, {`{"id":1,"s":[],"m":[{}]}`, "pairs"}, {`{"id":1,"s":[],"m":[[null,1]]}`, "m.key"},
		{`{"id":1,"s":[],"n":{"x":[]}}`, "n.key"}, {`{"id":1,"s":[],"b":{"true":""}}`, "pairs"}, {`{"id":1,"s":[],"c":[["k",null]]}`, "c.count"},
		{`{"id":1,"s":[],"l":[{"q":1.234}]}`, "l.element.q"}, {`{"id":1,"s":[],"r":{"z":{"deep":"x"},"a\"b":""}}`, "r.z.deep"}, {`{"id":1,"s":null}`, "s: is missing"},
		{`{"id":1,"s":[` + strings.Repeat("[", 2000) + `]}`, ""},
	}
	var want []string
	decode := func(text string) error { return d.Decode(&Record{Value: []byte(text)}) }
	for i := range 300 {
		for j, text := range []string{full, empty, nulls, other} {
			if err := decode(fmt.Sprintf(text, 4*i+j)); err != nil {
				t.Fatal(err)
			}
			if text == other {
				text = otherWant
			}
			want = append(want, fmt.Sprintf(text, 4*i+j))
			x := bad[(4*i+j)%len(bad)]
			err := decode(x.row)
			for _, part := range strings.Split(x.want, ": ") {
				if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), part) {
					continue
				}
				t.Fatalf("%.100s: %v, want %q", x.row, err, x.want)
			}
		}
		if i == 200 { // in the middle of a batch
			check(t, d, want)
			want = nil
		}
	}
	check(t, d, want)
}

func check(t *testing.T, d Decoder, want []string) {
	t.Helper()
	rec := d.Take().Rec
	enc := rowjson.NewEncoder(rec.Schema())
	if int(rec.NumRows()) != len(want) {
		t.Fatalf("%d rows, want %d", rec.NumRows(), len(want))
	}
	for i, w := range want {
		if got := string(enc.Append(nil, rec, i)); got != w {
			t.Fatalf("row %d: got\n%s, want\n%s", i, got, w)
		}
	}
}

// TestNestedDelete: a delete needs its key alone, also where a nested column is NOT NULL.
func TestNestedDelete(t *testing.T) {
	d := nestedDecoder(t)
	if err := d.Decode(&Record{Value: []byte(`{"id":1,"op":"D"}`)}); err != nil {
		t.Fatal(err)
	}
	b := d.Take()
	if b.Rec.NumRows() != 1 || b.Kinds[0] != schema.Delete || b.Rec.Column(2).IsNull(0) {
		t.Fatalf("%v %v", b.Rec, b.Kinds)
	}
}
