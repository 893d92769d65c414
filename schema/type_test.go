package schema

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseType(t *testing.T) {
	cases := []struct{ in, want string }{
		{"BOOLEAN", "BOOLEAN"}, {"tinyint", "TINYINT"}, {"SmallInt not null", "SMALLINT NOT NULL"},
		{"INT", "INT"}, {"INTEGER NULL", "INT"}, {"BIGINT NOT NULL", "BIGINT NOT NULL"}, {"FLOAT", "FLOAT"},
		{"DOUBLE", "DOUBLE"}, {"DOUBLE PRECISION NOT NULL", "DOUBLE NOT NULL"},
		{"DECIMAL", "DECIMAL(10, 0)"}, {"DECIMAL(5)", "DECIMAL(5, 0)"}, {"NUMERIC(38,38)", "DECIMAL(38, 38)"},
		{"dec ( 10 , 2 )", "DECIMAL(10, 2)"},
		{"CHAR", "CHAR(1)"}, {"CHAR(5)", "CHAR(5)"}, {"VARCHAR", "VARCHAR(1)"}, {"VARCHAR(20)", "VARCHAR(20)"},
		{"VARCHAR(2147483647)", "STRING"}, {"STRING", "STRING"}, {"BINARY", "BINARY(1)"}, {"BINARY(4)", "BINARY(4)"},
		{"VARBINARY", "VARBINARY(1)"}, {"VARBINARY(2147483647)", "BYTES"}, {"BYTES", "BYTES"},
		{"DATE", "DATE"}, {"TIME", "TIME(0)"}, {"TIME(3)", "TIME(3)"}, {"TIME(3) WITHOUT TIME ZONE", "TIME(3)"},
		{"TIMESTAMP", "TIMESTAMP(6)"}, {"TIMESTAMP(9)", "TIMESTAMP(9)"},
		{"TIMESTAMP(0) WITHOUT TIME ZONE NOT NULL", "TIMESTAMP(0) NOT NULL"},
		{"TIMESTAMP WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
		{"TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
		{"timestamp_ltz(3) not null", "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL"},
		{"VARIANT", "VARIANT"}, {"  INT\tNOT\nNULL ", "INT NOT NULL"},
	}
	for _, c := range cases {
		got, err := ParseType(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got.String() != c.want {
			t.Errorf("%q gives %q, not %q", c.in, got, c.want)
		}
		again, err := ParseType(got.String())
		if err != nil || !again.Equal(got) {
			t.Errorf("%q written and read again: %v, %v", c.in, again, err)
		}
	}
}

func TestParseTypeErrors(t *testing.T) {
	cases := []struct{ in, want string }{
		{"", "missing"}, {"   ", "missing"}, {"INT INT", `unexpected "INT"`}, {"WORD", `unknown type "WORD"`},
		{"DECIMAL(39)", "precision 39"}, {"DECIMAL(0)", "precision 0"}, {"DECIMAL(5,6)", "scale 6"},
		{"DECIMAL(5,1,1)", "at most 2"}, {"DECIMAL(", `parameter ""`}, {"DECIMAL(5", "expected , or )"},
		{"DECIMAL(x)", `parameter "x"`}, {"DECIMAL(-1)", `parameter "-1"`}, {"DECIMAL(99999999999999999999)", "parameter"},
		{"CHAR(0)", "length 0"}, {"VARCHAR(2147483648)", "parameter"}, {"VARCHAR(1,2)", "at most 1"},
		{"TIME(10)", "precision 10"}, {"TIMESTAMP(10)", "precision 10"}, {"INT NOT", `unexpected "NOT"`},
		{"ARRAY<INT>", "ARRAY"}, {"`INT`", "quoted"}, {"'INT", "not closed"}, {strings.Repeat("x", 300), "300 characters"},
		{"INT(4)", `unexpected "("`},
	}
	for _, c := range cases {
		_, err := ParseType(c.in)
		wantError(t, c.in, err, c.want)
	}
}

func TestTypeJSON(t *testing.T) {
	nested := `{"type":"MAP NOT NULL","key":"STRING NOT NULL","value":{"type":"ROW","fields":[` +
		`{"id":3,"name":"a","type":{"type":"MULTISET","element":"INT"}},` +
		`{"id":4,"name":"b","type":{"type":"ARRAY","element":"BYTES"},"description":"<d>","defaultValue":"x"}]}}`
	var typ Type
	if err := json.Unmarshal([]byte(nested), &typ); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(typ)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(out)); got != nested {
		t.Errorf("got  %s\nwant %s", got, nested)
	}
	if want := "MAP<STRING NOT NULL, ROW<`a` MULTISET<INT>, `b` ARRAY<BYTES>>> NOT NULL"; typ.String() != want {
		t.Errorf("text %q, want %q", typ, want)
	}
	if typ.Primitive() || !typ.Equal(typ) || typ.Equal(Type{Root: Map}) {
		t.Error("Primitive or Equal is wrong for a nested type")
	}
	other := typ
	other.Element = &Type{Root: Row, Fields: []Field{{ID: 9, Name: "a", Type: Type{Root: Int}}}}
	if typ.Equal(other) {
		t.Error("types with other fields are equal")
	}
	for _, bad := range []string{`{"type":"ARRAY"}`, `{"type":"MAP","key":"INT"}`, `{"type":"ROW"}`, `{"type":"SET"}`,
		`{"type":7}`, `7`, `null`, `"NOPE"`, `{"type":"ARRAY","element":"NOPE"}`} {
		if err := json.Unmarshal([]byte(`{"t":`+bad+`}`), &struct{ T Type }{}); err == nil {
			t.Errorf("%s is taken as a type", bad)
		}
	}
	if _, err := json.Marshal(Type{}); err == nil {
		t.Error("the zero type has a JSON form")
	}
}

func TestParseColumns(t *testing.T) {
	cols, err := ParseColumns("id BIGINT NOT NULL, name STRING COMMENT 'it''s, a name' ,amount DECIMAL(10,2),\n`due date` DATE," +
		"\"a\"\"b\" timestamp_ltz(3) not null,")
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ name, typ, comment string }{
		{"id", "BIGINT NOT NULL", ""}, {"name", "STRING", "it's, a name"}, {"amount", "DECIMAL(10, 2)", ""},
		{"due date", "DATE", ""}, {`a"b`, "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL", ""},
	}
	if len(cols) != len(want) {
		t.Fatalf("%d columns: %v", len(cols), cols)
	}
	for i, w := range want {
		if c := cols[i]; c.Name != w.name || c.Type.String() != w.typ || c.Comment != w.comment {
			t.Errorf("column %d is %+v, want %+v", i, c, w)
		}
	}
}

func TestParseColumnsErrors(t *testing.T) {
	cases := []struct{ in, want string }{
		{"", "empty"}, {" , ", "no name"}, {"id", `column "id"`}, {"id BIGINT name STRING", `expected , after column "id"`},
		{"id BIGINT, id INT", `"id" is given twice`}, {"id WORD", `column "id": type "WORD"`},
		{"a INT, (b) INT", "column 2 has no name"}, {"a DECIMAL(40, 2), b INT", `type "DECIMAL(40, 2)"`},
		{"a INT COMMENT b", "COMMENT needs"}, {"a INT COMMENT", "COMMENT needs"}, {"`a INT", "not closed"},
		{"`` INT", "no name"}, {"a ARRAY<INT", "expected"}, {"a MAP<INT>", "MAP does not take 1"}, {"a ROW<INT>", "unknown type"}, {"a ARRAY", "in <>"}, {"a " + strings.Repeat("ARRAY<", 40) + "INT", "deeper"}, {strings.Repeat("a", maxColumnsText+1), "at most"},
	}
	for _, c := range cases {
		_, err := ParseColumns(c.in)
		wantError(t, c.in[:min(len(c.in), 40)], err, c.want)
	}
}
