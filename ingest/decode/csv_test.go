package decode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCSV reads rows of every kind of value, and refuses what they cannot be.
func TestCSV(t *testing.T) {
	s := tableOf(t, "id BIGINT, b BOOLEAN, d DECIMAL(6, 2), s STRING, n STRING NOT NULL, x BYTES, at TIMESTAMP(3), day DATE, l ARRAY<INT>, r ROW<a STRING>", "id")
	header, err := ParseHeader([]byte("\xef\xbb\xbfid,b,d,\"s\",n,x,at,day,l,r,\"un\"\"known\",op"))
	if err != nil || len(header) != 12 || header[0] != "id" || header[3] != "s" || header[10] != `un"known` {
		t.Fatal(header, err)
	}
	d, err := New(Config{Schema: s, Format: CSV, Header: header})
	if err != nil {
		t.Fatal(err)
	}
	null := `"b":null,"d":null,"s":null,"n":"","x":null,"at":null,"day":null,"l":null,"r":null}`
	for _, c := range []struct{ line, want string }{
		{`1,true,12.5,"a ""b"", c` + "\nd\"" + `,n,YQ==,2024-02-29 01:02:03.5,2024-02-29,"[1,null]","{""a"":""x,y""}",what,`,
			`+I{"id":1,"b":true,"d":"12.50","s":"a \"b\", c\nd","n":"n","x":"YQ==","at":"2024-02-29T01:02:03.500","day":"2024-02-29","l":[1,null],"r":{"a":"x,y"}}`},
		{"2,,,,,,,,,,,", `+I{"id":2,` + null}, {"2,,,,,,,,,,,u", `+U{"id":2,` + null}, {"2,F,,,,,,,,,,d", `-D{"id":2,"b":false`},
		{`3,1,"-0.10","","","",,,,,,`, `+I{"id":3,"b":true,"d":"-0.10","s":"","n":"","x":"",`}, {"4,,,é,,,,,,,,", `"s":"é"`},
		{",,,,,,,,,,,", "key column is missing"}, {"1,,,,,,,,,,", "has 11 fields, the header 12"}, {"1,,,,,,,,,,,,", "more fields than the header"}, {"1,,,,,,,,,,,?", "operation"},
		{"1,yes,,,,,,,,,,", `"yes" is not true or false`}, {"x,,,,,,,,,,,", "not a value of type BIGINT"}, {"1,,1.234,,,,,,,,,", `column "d"`}, {"1,,,\xff,,,,,,,,", "UTF-8"},
		{"1,,,,,a,,,,,,", "base64"}, {"1,,,,,,2024-02-30,,,,,", "no timestamp"}, {`1,,,,,,,,"[1",,,`, "too early"}, {`1,,,,,,,,"[1]x",,,`, "malformed"},
		{`1,,,"a,,,,,,,,`, "does not end"}, {`1,,,"a"b,,,,,,,,`, "goes on behind"}, {`1,,,a"b,,,,,,,,`, "does not begin with one"}, {`1,,,"`, "does not end"},
	} {
		err := d.Decode(&Record{Value: []byte(c.line)})
		if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.line, got, c.want)
		}
	}
	for line, want := range map[string]string{"": "no name", "a,": "no name", ",a": "no name", `"a`: "does not end", "a,\xff": "no name"} {
		if _, err := ParseHeader([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("header %q: %v", line, err)
		}
	}
	for _, cfg := range []Config{{Schema: s, Format: CSV, Header: []string{"id", "id"}}, {Schema: s, Format: CSV, Evolution: Evolve}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func FuzzCSV(f *testing.F) {
	s := tableOf(f, "id BIGINT, s STRING, l ARRAY<INT>")
	d, err := New(Config{Schema: s, Format: CSV, Header: []string{"id", "s", "l"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`1,"a ""b""",[1]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if names, err := ParseHeader(b); err == nil && (len(names) == 0 || slices.Contains(names, "")) && !strings.Contains(string(b), `""`) {
			t.Fatal(names)
		}
		_ = d.Decode(&Record{Value: b})
		d.Take()
	})
}
