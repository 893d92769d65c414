//go:build interop

package interop

import (
	"strings"
	"testing"
)

func TestCellsHaveOneText(t *testing.T) {
	for _, tc := range []struct{ kind, in, want string }{
		{"BOOLEAN", "TRUE", "true"},
		{"BIGINT NOT NULL", "-9223372036854775808", "-9223372036854775808"},
		{"INT", "007", "7"},
		{"FLOAT", "0.10000000149011612", "0.1"},
		{"DOUBLE", "-0.0", "-0"},
		{"DOUBLE", "Infinity", "+Inf"},
		{"DECIMAL(38, 10)", "1E-10", "0.0000000001"},
		{"DECIMAL(12, 2)", "-0", "0.00"},
		{"BYTES", "00FF", "00ff"},
		{"DATE", "0001-01-01", "0001-01-01"},
		{"DATE", "+10000-02-29", "10000-02-29"},
		{"DATE", "292278-08-17", "292278-08-17"},
		{"DATE", "-0001-02-28", "-0001-02-28"},
		{"TIMESTAMP(6)", "1969-12-31 23:59:59.5", "1969-12-31T23:59:59.500000000"},
		{"TIMESTAMP(3)", "+60056-11-30T09:01:26.500000000", "60056-11-30T09:01:26.500000000"},
		{"TIMESTAMP(6) WITH LOCAL TIME ZONE", "2000-01-01 00:00:00 UTC", "2000-01-01T00:00:00.000000000"},
		{"TIMESTAMP_LTZ(6)", "2000-01-01T00:00Z", "2000-01-01T00:00:00.000000000"},
		{"VARCHAR(10)", " x ", " x "},
	} {
		k, err := ParseKind(tc.kind)
		if err != nil {
			t.Fatal(err)
		}
		c, err := k.Cell(tc.in)
		if err != nil || c.Text != tc.want || c.Null {
			t.Errorf("%s %q: %v %q, want %q", tc.kind, tc.in, err, c.Text, tc.want)
		}
	}
}

func TestWrongValuesAreErrors(t *testing.T) {
	for _, tc := range []struct{ kind, in string }{{"INT", "1.5"}, {"DECIMAL(4, 2)", "1.001"}, {"DATE", "2001-02-30"}, {"DATE", "+10001-02-29"}, {"BOOLEAN", "maybe"},
		{"TIMESTAMP(6)", "2001-01-01 25:00:00"}, {"FLOAT", "x"}} {
		k, err := ParseKind(tc.kind)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := k.Cell(tc.in); err == nil {
			t.Errorf("%s %q gives %q", tc.kind, tc.in, c.Text)
		}
	}
	if c, err := (Kind{Word: "VARIANT"}).Cell("x"); err == nil {
		t.Errorf("VARIANT has no normal form, but gives %q", c.Text)
	}
}

func rows(t *testing.T, columns []Column, lines string) *Rows {
	t.Helper()
	r, err := ReadRows(strings.NewReader(lines), columns)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompareSeesEveryDifference(t *testing.T) {
	columns := []Column{{"a", "INT"}, {"s", "STRING"}}
	want := rows(t, columns, `{"a":1,"s":"x"}
{"a":1,"s":"x"}
{"a":null,"s":""}`)
	if err := want.Compare(rows(t, columns, `{"s":"","a":null}
{"a":"1","s":"x"}
{"a":1,"s":"x"}`)); err != nil {
		t.Errorf("the same rows in another order: %v", err)
	}
	for name, other := range map[string]string{
		"a row less":      `{"a":1,"s":"x"}` + "\n" + `{"a":null,"s":""}`,
		"null and empty":  `{"a":1,"s":"x"}` + "\n" + `{"a":1,"s":"x"}` + "\n" + `{"a":null,"s":null}`,
		"another value":   `{"a":1,"s":"x"}` + "\n" + `{"a":1,"s":"y"}` + "\n" + `{"a":null,"s":""}`,
		"a row too many":  `{"a":1,"s":"x"}` + "\n" + `{"a":1,"s":"x"}` + "\n" + `{"a":null,"s":""}` + "\n" + `{"a":null,"s":""}`,
		"nothing at all":  "",
		"repeated others": strings.Repeat(`{"a":null,"s":""}`+"\n", 3),
	} {
		if err := want.Compare(rows(t, columns, other)); err == nil {
			t.Errorf("%s: no difference seen", name)
		}
	}
	if _, err := ReadRows(strings.NewReader(`{"a":1}`), columns); err == nil {
		t.Error("a missing column is no error")
	}
	if _, err := ReadRows(strings.NewReader(`{"a":1,"s":"","_KEY_a":1}`), columns); err == nil {
		t.Error("a column too many is no error")
	}
}

func TestProfile(t *testing.T) {
	columns := []Column{{"n", "BIGINT"}, {"d", "DECIMAL(10, 2)"}, {"f", "DOUBLE"}, {"nan", "DOUBLE"}, {"s", "STRING"}, {"none", "INT"}}
	r := rows(t, columns, `{"n":9,"d":"-1.50","f":1e300,"nan":"NaN","s":"b","none":null}
{"n":-10,"d":"0.25","f":-1,"nan":1,"s":"","none":null}
{"n":null,"d":null,"f":null,"nan":null,"s":null,"none":null}`)
	p := NewProfile(r)
	for name, want := range map[string]Cell{"rows": {Text: "3"}, "n#count": {Text: "2"}, "n#min": {Text: "-10"}, "n#max": {Text: "9"}, "n#sum": {Text: "-1"},
		"d#sum": {Text: "-1.25"}, "d#min": {Text: "-1.50"}, "f#max": {Text: "1e+300"}, "s#min": {Text: ""}, "s#max": {Text: "b"},
		"none#count": {Text: "0"}, "none#min": {Null: true}, "none#sum": {Null: true}} {
		if got, ok := p[name]; !ok || got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if _, ok := p["nan#min"]; ok {
		t.Error("bounds of a column with NaN")
	}
	got, err := ReadProfile(map[string]any{"rows": 3, "n#sum": "-1"}, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Compare(got); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("missing values: %v", err)
	}
}

func TestModel(t *testing.T) {
	columns := []Column{{"k", "INT NOT NULL"}, {"v", "STRING"}}
	m, err := NewModel(columns, []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	row := func(k any, v string) map[string]any { return map[string]any{"k": k, "v": v} }
	if err := m.Apply([]Op{Put(row(1, "a")), Put(row("1", "b")), Put(row(2, "c")), Del(row(2, "")), Del(row(3, ""))}); err != nil {
		t.Fatal(err)
	}
	r, err := m.Rows()
	if err != nil {
		t.Fatal(err)
	}
	if err := rows(t, columns, `{"k":1,"v":"b"}`).Compare(r); err != nil {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	f, err := ParseFilter("^a/calve|trino")
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Filter: f, Log: t.Logf}
	r.Check("a", "calve", func() error { return nil })
	r.Check("a", "trino", func() error { return errReason })
	r.Check("b", "calve", func() error { t.Error("runs against the filter"); return nil })
	r.Skip("a", "trino2", "why")
	passed, failed, skipped := r.Count()
	if passed != 1 || failed != 1 || skipped != 1 || !r.Failed("a", "trino") || r.Failed("a", "calve") {
		t.Errorf("%d passed, %d failed, %d skipped", passed, failed, skipped)
	}
	var b strings.Builder
	r.Print(&b)
	if !strings.HasSuffix(b.String(), "\n1 passed, 1 failed, 1 skipped\n") || !strings.Contains(b.String(), "the reason") {
		t.Errorf("printed:\n%s", b.String())
	}
	if finish(r, false, &b, &b) == 0 || finish(&Report{}, false, &b, &b) == 0 {
		t.Error("a failed or empty run must not end with 0")
	}
}

var errReason = errText("the reason")

type errText string

func (e errText) Error() string { return string(e) }
