//go:build interop

package interop

import "strings"

func init() {
	RegisterCase(numbersCase())
	RegisterCase(stringsCase())
	RegisterCase(timesCase())
	RegisterCase(decimalsCase())
}

func numbersCase() *Case {
	columns := []Column{{"t", "TINYINT NOT NULL"}, {"l", "BIGINT NOT NULL"}, {"s", "SMALLINT"}, {"i", "INT"}, {"f", "FLOAT"},
		{"d", "DOUBLE"}, {"nan", "DOUBLE"}, {"nanf", "FLOAT"}, {"zero", "DOUBLE"}}
	const minLong, maxLong = "-9223372036854775808", "9223372036854775807"
	rows := rowsOf(columns,
		[]any{-128, minLong, -32768, -2147483648, "-3.4028235e38", "-1.7976931348623157e308", "NaN", "NaN", "-0.0"},
		[]any{127, maxLong, 32767, 2147483647, "3.4028235e38", "1.7976931348623157e308", "Infinity", "Infinity", "0.0"},
		[]any{0, 0, 0, 0, "1.4e-45", "4.9e-324", "-Infinity", "-Infinity", "0.0"},
		[]any{-1, -1, -1, -1, "-1.4e-45", "-4.9e-324", "1.5", "1.5", "-0.0"},
		[]any{-1, 1, 1, 1, "0.1", "0.1", nil, nil, nil},
		[]any{1, -2, nil, nil, nil, nil, "0.3333333333333333", "0.33333334", "1.0"})
	return &Case{
		Name: "numbers", About: "negative and extreme integers and floating-point values, as values and as keys",
		Columns: columns, Key: []string{"t", "l"}, Options: map[string]string{"bucket": "3"},
		Steps: []Step{{Ops: puts(rows[:4])}, {Ops: puts(rows[2:]), Compact: true, Export: true}, {Ops: deletes(rows[1:2])}, Publish},
	}
}

func stringsCase() *Case {
	columns := []Column{{"k", "STRING NOT NULL"}, {"s", "STRING"}, {"c", "CHAR(4)"}, {"v", "VARCHAR(10)"}, {"x", "BYTES"}, {"y", "BINARY(3)"}}
	const mebibyte = 1 << 20
	rows := rowsOf(columns,
		[]any{"", "", "abcd", "", "", "000000"},
		[]any{"big", strings.Repeat("x", mebibyte), "    ", "0123456789", strings.Repeat("ab", mebibyte), "ffffff"},
		[]any{"big2", strings.Repeat("é", mebibyte/2), "ab  ", "日本語", "00", "010203"},
		[]any{"zażółć gęślą jaźń", "😀 🏳️‍🌈 e\u0301 \u202eright to left\u202c", "żółw", "ÄÖÜ", "deadbeef", "7fff80"},
		[]any{"quotes \"'`\\", "tab\tnewline\ncarriage\rnull\u0000end", "a'b\"", "%_", "ff", "00ff00"},
		[]any{"\u07ff\uffff\U0010ffff", "\ufeff", "\u00a0\u00a0\u00a0x", nil, nil, nil},
		[]any{strings.Repeat("long key ", 30) + "a", nil, nil, "", "", "000001"},
		[]any{strings.Repeat("long key ", 30) + "b", "after", nil, " ", "20", "000001"})
	return &Case{
		Name: "strings", About: "empty and 1 MiB texts and binaries, characters beyond ASCII, quotes and control characters",
		Columns: columns, Key: []string{"k"}, Options: map[string]string{"bucket": "2"},
		Steps: []Step{{Ops: puts(rows[:5])}, {Ops: puts(rows[3:]), Compact: true, Export: true}},
	}
}

func timesCase() *Case {
	columns := []Column{{"day", "DATE NOT NULL"}, {"id", "INT NOT NULL"}, {"at", "TIMESTAMP(6)"}, {"z", "TIMESTAMP(6) WITH LOCAL TIME ZONE"}}
	moments := []string{"1969-12-31T23:59:59.999999000", "1970-01-01T00:00:00.000000000", "1969-12-31T00:00:00.000001000",
		"1901-12-13T20:45:51.000000000", "1582-10-04T12:00:00.123456000", "0001-01-01T00:00:00.000000000",
		"9999-12-31T23:59:59.999999000", "2000-02-29T23:59:59.500000000", "2262-04-12T00:00:00.000000000"}
	var rows []map[string]any
	for i, m := range moments {
		rows = append(rows, rowsOf(columns, []any{m[:10], i, m, moments[len(moments)-1-i]})...)
	}
	rows = append(rows, rowsOf(columns, []any{"1968-02-29", 100, nil, nil})...)
	return &Case{
		Name: "times", About: "dates and timestamps before 1970, before the Gregorian calendar, at the ends of the calendar",
		Columns: columns, Key: []string{"day", "id"}, Options: map[string]string{"bucket": "2"},
		Steps: []Step{{Ops: puts(rows[:6])}, {Ops: puts(rows[5:]), Compact: true, Export: true}},
	}
}

func decimalsCase() *Case {
	columns := []Column{{"k", "DECIMAL(38, 0) NOT NULL"}, {"whole", "DECIMAL(38, 0)"}, {"part", "DECIMAL(38, 38)"}, {"mid", "DECIMAL(38, 18)"},
		{"w19", "DECIMAL(19, 2)"}, {"w18", "DECIMAL(18, 9)"}, {"w10", "DECIMAL(10, 3)"}, {"w9", "DECIMAL(9, 2)"}, {"w1", "DECIMAL(1, 0)"}, {"w28", "DECIMAL(28, 10)"}}
	nines := func(n int) string { return strings.Repeat("9", n) }
	line := func(sign, k string) []any {
		return []any{sign + k, sign + nines(38), sign + "0." + nines(38), sign + nines(20) + "." + nines(18), sign + nines(17) + "." + nines(2),
			sign + nines(9) + "." + nines(9), sign + nines(7) + "." + nines(3), sign + nines(7) + "." + nines(2), sign + "9", sign + nines(18) + "." + nines(10)}
	}
	small := []any{"0", "1", "0." + strings.Repeat("0", 37) + "1", "0.000000000000000001", "0.01", "0.000000001", "0.001", "0.01", "1", "0.0000000001"}
	rows := rowsOf(columns, line("", nines(38)), line("-", nines(38)), line("", "1"), line("-", "1"), small)
	rows = append(rows, rowsOf(columns, append([]any{"12345678901234567890123456789012345678"}, make([]any, len(columns)-1)...))...)
	return &Case{
		Name: "decimals", About: "decimals of 1 to 38 digits at both ends of their range, as values and as key",
		Columns: columns, Key: []string{"k"}, Options: map[string]string{"bucket": "2"},
		Steps: []Step{{Ops: puts(rows[:3])}, {Ops: puts(rows[2:]), Compact: true, Export: true}, {Ops: deletes(rows[:1])}, Publish},
	}
}
