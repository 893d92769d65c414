package decode

import (
	"strings"
	"testing"
)

// TestPick: a field is found where a decoder would read it, and nothing is found where there is none.
func TestPick(t *testing.T) {
	const none = "-"
	for _, c := range []struct {
		format Format
		path   string
		key    string
		value  string // "-": none
		want   string // "-": nothing; "!…": an error that says this
	}{
		{JSON, "who", "", `{"a":[{"who":1}],"who":"x","b":2}`, "x"},
		{JSON, "who", "", ` { "wh\u006f" : "\u00e4\n" } `, "ä\n"},
		{JSON, "who", "", `{"who":12.50}`, "12.50"},
		{JSON, "who", "", `{"who":true}`, "true"},
		{JSON, "who", "", `{"who":null}`, none},
		{JSON, "who", "", `{"who":{"x":1}}`, none},
		{JSON, "who", "", `{}`, none},
		{JSON, "who", "", ``, none},
		{JSON, "who", "", `[1]`, none},
		{JSON, "at.who", "", `{"who":"no","at":{"x":"\"","who":""}}`, ""},
		{JSON, "at.who", "", `{"at":5}`, none},
		{JSON, "who", "", `{"a":`, "!ends too early"},
		{JSON, "who", "", `{"a" 5}`, "!unexpected character"},
		{JSON, "who", "", `{"a":1 "who":2}`, "!unexpected character"},
		{JSON, "who", "", `{"who":tru}`, "!unexpected character"},
		{JSON, "who", "", "{\"who\":\"\xff\"}", "!UTF-8"},
		{JSON, "who", `{"who":"k"}`, none, "k"},
		{JSON, "who", `{"schema":{},"payload":{"who":"k"}}`, none, "k"},
		{JSON, "who", ``, none, none},
		{JSON, "who", `{"who"`, none, "!of the key"},
		{FramedJSON, "who", "", "\x00\x00\x00\x00\x01{\"who\":\"x\"}", "x"},
		{Debezium, "who", "", `{"before":null,"after":{"who":"x"},"op":"c"}`, "x"},
		{Debezium, "who", "", `{"schema":{"fields":[]},"payload":{"before":{"who":"x"},"after":{"who":"x"},"op":"u"}}`, "x"},
		{Debezium, "who", "", `{"before":{"who":"x"},"after":null,"op":"d"}`, "x"},
		{Debezium, "who", "", `{"before":{"id":1},"after":null,"op":"d"}`, none},
		{Debezium, "who", "", `{"before":{"id":1},"after":{"who":"y"},"op":"u"}`, "y"},
		{Debezium, "who", "", `{"before":{"who":"x"},"after":{"who":"y"},"op":"u"}`, `!was "x" before`},
		{Debezium, "who", `{"who":"k"}`, none, "k"},
		{DebeziumFlat, "who", "", `{"schema":{},"payload":{"who":"x","__op":"c"}}`, "x"},
		{DebeziumFlat, "who", "", `{"who":"x","payload":"y"}`, "x"},
	} {
		p, err := NewPicker(c.format, c.path)
		if err != nil {
			t.Fatal(err)
		}
		r := &Record{Key: []byte(c.key), Value: []byte(c.value)}
		if c.value == none {
			r.Value = nil
		}
		text, ok, err := p.Pick([]byte("before "), r)
		got := strings.TrimPrefix(string(text), "before ")
		if !ok {
			got = none
		}
		if want, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", c.value, err, want)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s of %s %s: %q %v, want %q", c.path, c.key, c.value, got, err, c.want)
		}
	}
	for format, path := range map[Format]string{Arrow: "who", JSON: "a..b", CSV: "x", Avro: ".a", Protobuf: "a.", DebeziumAvro: ""} {
		if _, err := NewPicker(format, path); err == nil {
			t.Errorf("%s of %s can be found", path, format)
		}
	}
}

// TestPickWhole: where updates are said to tell the row before, one that does not names no table: the row may come from
// another one.
func TestPickWhole(t *testing.T) {
	p, err := NewPicker(Debezium, "who")
	if err != nil {
		t.Fatal(err)
	}
	p.Whole = true
	for value, want := range map[string]string{
		`{"before":null,"after":{"who":"x"},"op":"c"}`:              "x",
		`{"op":"r","after":{"who":"x"}}`:                            "x",
		`{"before":{"who":"x"},"after":{"who":"x"},"op":"u"}`:       "x",
		`{"before":{"who":"x"},"after":null,"op":"d"}`:              "x",
		`{"before":null,"after":{"who":"x"},"op":"u"}`:              "does not tell the row before",
		`{"schema":{},"payload":{"op":"u","after":{"who":"x"}}}`:    "does not tell the row before",
		`{"before":{"id":1,"who":""},"after":{"who":"x"},"op":"u"}`: "the row is in another table",
	} {
		text, ok, err := p.Pick(nil, &Record{Value: []byte(value)})
		if got := string(text); err != nil && !strings.Contains(err.Error(), want) || err == nil && (!ok || got != want) {
			t.Errorf("%s: %q %v, want %s", value, got, err, want)
		}
	}
}

// TestPickCosts: to find a field allocates nothing.
func TestPickCosts(t *testing.T) {
	p, err := NewPicker(Debezium, "who")
	if err != nil {
		t.Fatal(err)
	}
	r := &Record{Value: []byte(`{"before":{"who":"x","n":1},"after":{"id":5,"who":"x"},"op":"u"}`)}
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		if text, ok, err := p.Pick(buf[:0], r); string(text) != "x" || !ok || err != nil {
			t.Error(text, ok, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a record", n)
	}
}
