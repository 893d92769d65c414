package main

import (
	"fmt"
	"strings"
	"testing"
)

// typeCases are cells of every type, as scan must print them. What put reads from this text is the same cell again.
var typeCases = []struct {
	typ   string
	cells []string
}{
	{"BOOLEAN", []string{"true", "false"}},
	{"TINYINT", []string{"-128", "127", "0"}},
	{"SMALLINT", []string{"-32768", "32767"}},
	{"INT", []string{"-2147483648", "2147483647"}},
	{"BIGINT", []string{"-9223372036854775808", "9223372036854775807", "0"}},
	{"FLOAT", []string{"0", "-0", "1.1", "3.4028235e+38", "1e-45", `"NaN"`, `"Infinity"`, `"-Infinity"`, "16777216"}},
	{"DOUBLE", []string{"0", "-0", "0.1", "1.7976931348623157e+308", "5e-324", `"NaN"`, `"Infinity"`, `"-Infinity"`, "123456789012345680"}},
	{"DECIMAL(38, 10)", []string{`"9999999999999999999999999999.9999999999"`, `"-9999999999999999999999999999.9999999999"`, `"0.0000000001"`, `"-0.0000000001"`, `"0.0000000000"`}},
	{"DECIMAL(38, 0)", []string{`"99999999999999999999999999999999999999"`, `"-1"`}},
	{"DECIMAL(9, 2)", []string{`"-1234567.89"`, `"0.01"`, `"0.00"`}},
	{"DECIMAL(18, 18)", []string{`"0.999999999999999999"`, `"-0.000000000000000001"`}},
	{"CHAR(4)", []string{`"abcd"`}},
	{"VARCHAR(10)", []string{`""`, `"ç d/=%"`}},
	{"STRING", []string{`""`, `"\"\\/\u0000\u001f\n\r\t"`, `"雪とicebergs 🧊"`, `"<&>\u2028"`, `"true"`, `"null"`}},
	{"BINARY(3)", []string{`"AAEC"`}},
	{"VARBINARY(5)", []string{`""`, `"/w=="`}},
	{"BYTES", []string{`""`, `"//79/A=="`}},
	{"DATE", []string{`"1970-01-01"`, `"1969-12-31"`, `"0001-01-01"`, `"9999-12-31"`, `"2024-02-29"`}},
	{"TIME(0)", []string{`"00:00:00.000"`, `"23:59:59.000"`}},
	{"TIME(3)", []string{`"00:00:00.001"`, `"23:59:59.999"`}},
	{"TIMESTAMP(0)", []string{`"1970-01-01T00:00:00.000"`, `"1969-12-31T23:59:59.000"`}},
	{"TIMESTAMP(3)", []string{`"0001-01-01T00:00:00.000"`, `"9999-12-31T23:59:59.999"`}},
	{"TIMESTAMP(6)", []string{`"1969-12-31T23:59:59.999999"`, `"2262-04-12T00:00:00.000001"`, `"0001-01-01T00:00:00.000000"`, `"9999-12-31T23:59:59.999999"`}},
	{"TIMESTAMP_LTZ(3)", []string{`"2024-01-31T10:30:00.123Z"`}},
	{"TIMESTAMP_LTZ(6)", []string{`"1969-12-31T23:59:59.999999Z"`, `"2024-01-31T10:30:00.000000Z"`}},
	{"TIMESTAMP(9)", []string{`"1969-12-31T23:59:59.999999999"`, `"1678-01-01T00:00:00.000000001"`, `"2261-12-31T23:59:59.999999999"`}},
	{"TIMESTAMP_LTZ(7)", []string{`"2024-01-31T10:30:00.123456700Z"`}},
	{"ARRAY<INT>", []string{`[]`, `[1,null,3]`}},
	{"ARRAY<ARRAY<STRING NOT NULL>>", []string{`[["a",""],[],null]`}},
	{"MAP<INT, ROW<`a b` BYTES, c DECIMAL(20, 2)>>", []string{`[]`, `[[1,{"a b":"//8=","c":"-1.50"}],[-7,null]]`}},
	{"MULTISET<STRING>", []string{`[["x",2]]`}},
	{"ROW<x TIMESTAMP(3), y ROW<z MAP<STRING, DOUBLE>>>", []string{`{"x":null,"y":null}`, `{"x":"1969-12-31T23:59:59.999","y":{"z":[["k",1.5]]}}`}},
}

// TestEveryTypeComesBack puts cells of every type, with nulls, and scans them; what scan printed is put into a second
// table, whose scan must be the same text.
func TestEveryTypeComesBack(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			c := newCLI(t)
			columns, rows := []string{"k INT NOT NULL"}, 0
			for i, tc := range typeCases {
				columns = append(columns, fmt.Sprintf("c%d %s", i, tc.typ))
				rows = max(rows, len(tc.cells))
			}
			var want strings.Builder
			for r := range rows + 1 { // the last row is nulls
				fmt.Fprintf(&want, `{"k":%d`, r)
				for i, tc := range typeCases {
					cell := "null"
					if r < len(tc.cells) {
						cell = tc.cells[r]
					}
					fmt.Fprintf(&want, `,"c%d":%s`, i, cell)
				}
				want.WriteString("}\n")
			}
			// JSON may write these characters in two ways; scan does it in one.
			text := strings.NewReplacer(`\u2028`, "\u2028").Replace(want.String())
			for _, table := range []string{"a", "b"} {
				create := []string{"create", table, "--columns", strings.Join(columns, ", ")}
				if keyed {
					create = append(create, "--primary-key", "k")
				}
				c.ok("", create...)
				c.ok(text, "put", table)
				got := c.ok("", "scan", table)
				if got != text {
					g, w := strings.Split(got, "\n"), strings.Split(text, "\n")
					for i := range min(len(g), len(w)) {
						if g[i] != w[i] {
							t.Fatalf("table %s, row %d\ngot  %s\nwant %s", table, i, g[i], w[i])
						}
					}
					t.Fatalf("table %s has %d lines, want %d", table, len(g), len(w))
				}
				if keyed {
					c.ok("", "compact", table, "--full")
					if c.ok("", "scan", table) != text {
						t.Fatalf("table %s is another after a compaction", table)
					}
				}
				c.ok("", "verify", table)
				text = got
			}
		})
	}
}
