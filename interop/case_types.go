//go:build interop

package interop

// exportedTypes has a column of every primitive type that an Iceberg v2 table can hold.
var exportedTypes = []Column{{"id", "BIGINT NOT NULL"}, {"c_boolean", "BOOLEAN"}, {"c_tinyint", "TINYINT"}, {"c_smallint", "SMALLINT"},
	{"c_int", "INT"}, {"c_bigint", "BIGINT"}, {"c_float", "FLOAT"}, {"c_double", "DOUBLE"}, {"c_decimal", "DECIMAL(10, 2)"},
	{"c_decimal_big", "DECIMAL(30, 10)"}, {"c_char", "CHAR(5)"}, {"c_varchar", "VARCHAR(20)"}, {"c_string", "STRING"},
	{"c_binary", "BINARY(4)"}, {"c_varbinary", "VARBINARY(16)"}, {"c_bytes", "BYTES"}, {"c_date", "DATE"},
	{"c_timestamp", "TIMESTAMP(6)"}, {"c_ltz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"}}

// exportedRows has values for exportedTypes.
func exportedRows() []map[string]any {
	return rowsOf(exportedTypes,
		[]any{1, true, 1, 2, 3, 4, 1.5, 2.5, "12.34", "1.2345678901", "abcde", "varchar", "string", "00010203", "aabb", "ccdd",
			"2024-05-10", "2024-05-10T10:11:12.123456000", "2024-05-10T10:11:12.654321000"},
		[]any{2, false, -1, -2, -3, -4, -1.5, -2.5, "-12.34", "-1.2345678901", "     ", "", "", "ffffffff", "", "",
			"1969-12-31", "1969-12-31T23:59:59.999999000", "1900-01-01T00:00:00.000000000"},
		append([]any{3}, make([]any, len(exportedTypes)-1)...))
}

func init() {
	rows := exportedRows()
	changed := append(puts(rows[2:]), Put(with(rows[0], "c_string", "changed")), Del(rows[1]))
	steps := []Step{{Ops: puts(rows[:2]), Compact: true, Export: true}, {Ops: changed, Compact: true, Export: true}}
	RegisterCase(&Case{
		Name: "types", About: "every primitive type that can be exported, key table",
		Columns: exportedTypes, Key: []string{"id"}, Options: map[string]string{"bucket": "1"}, Steps: steps,
	})
	RegisterCase(&Case{
		Name: "types_append", About: "the same in a table without key",
		Columns: exportedTypes, Options: map[string]string{"bucket": "2", "bucket-key": "id"},
		Steps: []Step{{Ops: puts(rows[:2]), Export: true}, {Ops: puts(rows), Export: true}},
	})
	all := append(append([]Column{}, exportedTypes...), Column{"c_time", "TIME(3)"}, Column{"c_ts0", "TIMESTAMP(0)"},
		Column{"c_ts3", "TIMESTAMP(3)"}, Column{"c_ltz3", "TIMESTAMP(3) WITH LOCAL TIME ZONE"})
	var more []map[string]any
	for i, row := range rows {
		row = with(with(row, "c_time", nil), "c_ts0", nil)
		row = with(with(row, "c_ts3", nil), "c_ltz3", nil)
		if i == 0 {
			row = with(with(row, "c_time", 86399999), "c_ts0", "1969-07-20T20:17:40.000000000")
			row = with(with(row, "c_ts3", "1969-07-20T20:17:40.123000000"), "c_ltz3", "2038-01-19T03:14:08.999000000")
		}
		more = append(more, row)
	}
	RegisterCase(&Case{
		Name: "types_all", About: "every primitive type up to microseconds; the export refuses TIME and milliseconds by name",
		Columns: all, Key: []string{"id"}, Options: map[string]string{"bucket": "1"}, Refusal: "c_time",
		Steps: []Step{{Ops: puts(more[:2]), Compact: true, Export: true}, {Ops: append(puts(more), Del(more[1])), Compact: true}},
	})
}

// with copies a row and sets one column.
func with(row map[string]any, name string, value any) map[string]any {
	out := map[string]any{}
	for k, v := range row {
		out[k] = v
	}
	out[name] = value
	return out
}
