package schema

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func TestArrowType(t *testing.T) {
	cases := map[string]string{
		"BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64", "FLOAT": "float32",
		"DOUBLE": "float64", "DECIMAL(9, 2)": "decimal(9, 2)", "DECIMAL(38, 0)": "decimal(38, 0)", "CHAR(3)": "utf8",
		"VARCHAR(3)": "utf8", "STRING": "utf8", "BINARY(3)": "binary", "BYTES": "binary", "DATE": "date32", "TIME(6)": "time32[ms]",
		"TIMESTAMP(0)": "timestamp[ms]", "TIMESTAMP(3)": "timestamp[ms]", "TIMESTAMP(4)": "timestamp[us]",
		"TIMESTAMP(6)": "timestamp[us]", "TIMESTAMP(7)": "timestamp[ns]", "TIMESTAMP_LTZ(3)": "timestamp[ms, tz=UTC]",
		"TIMESTAMP_LTZ(6)": "timestamp[us, tz=UTC]", "TIMESTAMP_LTZ(9)": "timestamp[ns, tz=UTC]",
		"VARIANT": "struct<value: binary, metadata: binary>",
	}
	for in, want := range cases {
		typ, err := ParseType(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ArrowType(typ); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v, want %s", in, got, err, want)
		}
	}
	for _, typ := range []Type{{}, {Root: Array, Element: &Type{}}} {
		if got, err := ArrowType(typ); err == nil {
			t.Errorf("%v has the Arrow form %v", typ, got)
		}
	}
}

func TestArrowSchema(t *testing.T) {
	s, err := Parse(goldenSchemas(t)["pk_all_types-schema-0"])
	if err != nil {
		t.Fatal(err)
	}
	a := s.Arrow()
	if a.NumFields() != len(s.Fields) {
		t.Fatalf("%d fields", a.NumFields())
	}
	for i, f := range a.Fields() {
		id, ok := f.Metadata.GetValue(FieldIDKey)
		if f.Name != s.Fields[i].Name || f.Nullable == s.Fields[i].Type.NotNull || !ok || id == "" {
			t.Errorf("field %d: %v", i, f)
		}
	}
	row, _ := a.FieldsByName("t_row")
	if id, _ := row[0].Type.(*arrow.StructType).Field(1).Metadata.GetValue(FieldIDKey); id != "31" {
		t.Errorf("nested field has id %q", id)
	}
	fields, err := s.ArrowFields()
	if err != nil || !arrow.NewSchema(fields, nil).Equal(a) {
		t.Errorf("ArrowFields differs from Arrow (%v)", err)
	}
	s.Fields = append(s.Fields, Field{ID: 99, Name: "v", Type: Type{}})
	if f := s.Arrow().Field(a.NumFields()); f.Type != arrow.Null {
		t.Errorf("a column without type is %v", f)
	}
}

func TestCell(t *testing.T) {
	s, err := Parse(goldenSchemas(t)["pk_all_types-schema-0"])
	if err != nil {
		t.Fatal(err)
	}
	// One row with a value in each column, one with null where it is allowed; the slice below starts at row 1.
	const rows = `[{"k":0,"t_arr_str":[]},{"k":1,"t_bool":true,"t_tiny":-8,"t_small":-16,"t_int":-32,"t_big":-64,"t_float":1.5,"t_double":2.5,
		"t_dec9":"1.25","t_dec38":"-1.0000000000","t_char":"ab","t_string":"é","t_binary":"AQI=","t_bytes":"","t_date":"1969-12-31",
		"t_time":"00:00:01.500","t_ts3":"1970-01-01 00:00:01.500","t_ts6":"1970-01-01 00:00:01.500000","t_ts9":"1970-01-01 00:00:01.500000000",
		"t_ltz6":"1970-01-01 00:00:01.500000Z","t_arr":[1,null],"t_arr_str":["x"],"t_map":[{"key":"a","value":1.5},{"key":"b","value":null}],
		"t_row":{"x":7,"y":null,"z":{"deep":null}}},{"k":2,"t_arr_str":["y"]}]`
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, s.Arrow(), bytes.NewReader([]byte(rows)))
	if err != nil {
		t.Fatal(err)
	}
	rec = rec.NewSlice(1, 3)
	want := map[string]any{
		"k": int32(1), "t_bool": true, "t_tiny": int8(-8), "t_small": int16(-16), "t_int": int32(-32), "t_big": int64(-64),
		"t_float": float32(1.5), "t_double": 2.5, "t_dec9": decimal128.FromI64(125), "t_dec38": decimal128.FromI64(-10000000000),
		"t_char": "ab", "t_string": "é", "t_binary": []byte{1, 2}, "t_bytes": []byte{}, "t_date": int32(-1), "t_time": int32(1500),
		"t_ts3": int64(1500), "t_ts6": int64(1500000), "t_ts9": int64(1500000000), "t_ltz6": int64(1500000),
		"t_arr": []any{int32(1), nil}, "t_arr_str": []any{"x"}, "t_map": [][2]any{{"a", 1.5}, {"b", nil}},
		"t_row": []any{int32(7), nil, []any{nil}},
	}
	for i, f := range s.Fields {
		if got := Cell(rec.Column(i), 0); !reflect.DeepEqual(got, want[f.Name]) {
			t.Errorf("%s: %#v, want %#v", f.Name, got, want[f.Name])
		}
		if got := Cell(rec.Column(i), 1); got != nil && f.Name != "k" && f.Name != "t_arr_str" {
			t.Errorf("%s: null is %#v", f.Name, got)
		}
	}
}

func TestRowKind(t *testing.T) {
	for kind, want := range map[RowKind]string{Insert: "+I", UpdateBefore: "-U", UpdateAfter: "+U", Delete: "-D", 9: "?"} {
		if kind.String() != want || kind.IsAdd() != (want[0] == '+') {
			t.Errorf("kind %d is %s, add %v", kind, kind, kind.IsAdd())
		}
	}
}
