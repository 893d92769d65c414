package decode

import (
	"strings"
	"testing"
)

func TestInfer(t *testing.T) {
	for _, x := range []struct{ value, want string }{
		{`true`, "BOOLEAN"}, {`-9223372036854775808`, "BIGINT"}, {`9223372036854775808`, "DECIMAL(38, 0)"}, {`1e3`, "DOUBLE"},
		{`"2026-01-01"`, "STRING"}, {`null`, ""}, {`{}`, ""}, {`[]`, ""}, {`[null,{}]`, ""}, {`{"a":null,"b":[]}`, ""},
		{`[1,2.5,null]`, "ARRAY<DOUBLE>"}, {`[1,123456789012345678901]`, "ARRAY<DECIMAL(38, 0)>"}, {`[[1],[],[2]]`, "ARRAY<ARRAY<BIGINT>>"},
		{`{"b":1,"a":{"x":"s","y":null}}`, "ROW<`b` BIGINT, `a` ROW<`x` STRING>>"},
		{`[{"a":1},{"b":true},{"a":0.5}]`, "ARRAY<ROW<`a` DOUBLE, `b` BOOLEAN>>"},
		{`[1,"x"]`, "!have no type in common"}, {`{"a":1,"a":2}`, "!occurs twice"}, {`{"a":1,"A":2}`, "!in case alone"},
		{`[{"a":1},{"A":2}]`, "!in case alone"}, {`1234567890123456789012345678901234567890`, "!more digits"},
		{`[`, "!malformed"}, {`1 2`, "!more text"}, {strings.Repeat("[", 40) + strings.Repeat("]", 40), "!levels"},
		{`{` + strings.Repeat(`"a":1,`, 2000) + `"b":1}`, "!"},
	} {
		typ, known, err := Infer([]byte(x.value))
		switch fail, bad := strings.CutPrefix(x.want, "!"); {
		case bad && (err == nil || !strings.Contains(err.Error(), fail)):
			t.Errorf("%.40s: %v, not an error that says %q", x.value, err, fail)
		case bad:
		case err != nil || known != (x.want != ""):
			t.Errorf("%.40s: known=%v, %v", x.value, known, err)
		case known && typ.String() != x.want:
			t.Errorf("%.40s: %s, not %s", x.value, typ, x.want)
		}
	}
}
