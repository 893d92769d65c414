//go:build interop

package interop

import "strings"

// nestedColumns are of every nested type that an Iceberg table can hold, inside of each other too.
var nestedColumns = []Column{{"id", "BIGINT NOT NULL"}, {"c_array", "ARRAY<INT>"}, {"c_texts", "ARRAY<STRING NOT NULL>"},
	{"c_lists", "ARRAY<ARRAY<BIGINT>>"}, {"c_map", "MAP<STRING NOT NULL, DOUBLE>"}, {"c_map_int", "MAP<INT NOT NULL, ARRAY<DECIMAL(20, 2)>>"},
	{"c_row", "ROW<`x` INT, `y` STRING, `z` ROW<`deep` TIMESTAMP(6), `day` DATE>>"}, {"c_rows", "ARRAY<ROW<`p` INT, `q` DECIMAL(20, 2)>>"},
	{"c odd é.%", "MAP<STRING NOT NULL, ROW<`a b` INT, `ç.d` BOOLEAN>>"},
	{"c_mix", "ROW<`bytes` ARRAY<BYTES>, `at` TIMESTAMP(6) WITH LOCAL TIME ZONE, `f` FLOAT, `t` TINYINT, `s` SMALLINT, `days` MAP<DATE NOT NULL, VARBINARY(4)>>"},
	{"c_bag", "MULTISET<STRING NOT NULL>"}}

func init() {
	type list = []any
	type object = map[string]any
	pair := func(k, v any) any { return list{k, v} }
	rows := rowsOf(nestedColumns,
		list{1, list{1, nil, 3}, list{"x", ""}, list{list{1, nil}, list{}, nil}, list{pair("one", 1.5), pair("null", nil)},
			list{pair(7, list{"7.25", nil}), pair(-1, list{})}, object{"x": 1, "y": "y", "z": object{"deep": "1969-12-31T23:59:59.999999000", "day": "2024-02-29"}},
			list{object{"p": 1, "q": "1.50"}, nil, object{"p": nil, "q": nil}}, list{pair("k", object{"a b": 1, "ç.d": true}), pair("", nil)},
			object{"bytes": list{"00ff", nil, ""}, "at": "1969-12-31T23:59:59.999999000", "f": 1.5, "t": -128, "s": 32767, "days": list{pair("1969-12-31", "ff"), pair("2024-02-29", nil)}},
			list{pair("a", 2)}},
		list{2, list{}, list{}, list{}, list{}, list{}, object{"x": nil, "y": nil, "z": nil}, list{}, list{},
			object{"bytes": list{}, "at": nil, "f": nil, "t": nil, "s": nil, "days": list{}}, list{}},
		// PyIceberg 0.12 gives lists and maps of rows that are null as empty ones: they are empty here.
		list{3, nil, nil, nil, nil, nil, nil, list{}, list{}, nil, nil},
		list{4, list{0}, list{"longer than seven bytes"}, list{list{9}}, list{pair("", 0.0)}, list{pair(0, nil)},
			object{"x": 0, "y": "", "z": object{"deep": nil, "day": nil}}, list{object{"p": 0, "q": "0.00"}}, list{},
			object{"bytes": list{"01"}, "at": "2024-02-29T12:34:56.789012000", "f": "-Infinity", "t": 0, "s": -1, "days": list{pair("0001-01-01", "")}},
			list{pair("b", 1), pair("c", 3)}})
	changed := append(puts(rows[2:]), Put(with(rows[0], "c_array", list{9})), Del(rows[1]))
	RegisterCase(&Case{
		Name: "nested", About: "nested types in a key table",
		Columns: nestedColumns, Key: []string{"id"}, Options: map[string]string{"bucket": "1"},
		Steps: []Step{{Ops: puts(rows[:2]), Compact: true, Export: true}, {Ops: changed, Compact: true, Export: true}},
	})
	var less []map[string]any // without the MULTISET, which pypaimon does not know
	for _, row := range rows {
		row = with(row, "c_bag", nil)
		delete(row, "c_bag")
		less = append(less, row)
	}
	RegisterCase(&Case{
		Name: "nested_append", About: "the same but for MULTISET in a table without key",
		Columns: nestedColumns[:len(nestedColumns)-1], Options: map[string]string{"bucket": "-1"},
		Steps: []Step{{Ops: puts(less[:2]), Export: true}, {Ops: puts(less), Export: true}},
	})
	nanos := []Column{{"id", "BIGINT NOT NULL"}, {"c_ts9", "TIMESTAMP(9)"}, {"c_ltz9", "TIMESTAMP(9) WITH LOCAL TIME ZONE"}, {"c_ts7s", "ARRAY<TIMESTAMP(7)>"}}
	RegisterCase(&Case{
		Name: "nanos", About: "timestamps finer than microseconds; the export refuses them by name",
		Columns: nanos, Key: []string{"id"}, Options: map[string]string{"bucket": "1"}, Refusal: "c_ts9",
		Steps: []Step{{Ops: puts(rowsOf(nanos,
			list{1, "1969-12-31T23:59:59.999999999", "1678-01-01T00:00:00.000000001", list{"1969-12-31T23:59:59.999999900", nil}},
			list{2, "2024-02-29T12:34:56.789012345", "2261-12-31T23:59:59.999999999", list{}}, list{3, nil, nil, nil})), Compact: true, Export: true}},
	})
}

// isNested reports whether a column is of a nested type.
func (k Kind) isNested() bool {
	switch k.Word {
	case "ARRAY", "MAP", "MULTISET", "ROW":
		return true
	}
	return false
}

// isNano reports whether a column's moments are finer than the microseconds that a literal of Python can have.
func (k Kind) isNano() bool { return strings.HasPrefix(k.Word, "TIMESTAMP") && k.Precision > 6 }

// ids is how many field ids a column takes: one, and one for each field of the rows inside.
func (k Kind) ids() int {
	n := 1
	for _, f := range k.Fields {
		n += f.ids()
		if k.Word != "ROW" {
			n--
		}
	}
	return n
}
