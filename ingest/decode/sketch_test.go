package decode

import (
	"fmt"
	"strings"
	"testing"
)

func TestSketch(t *testing.T) {
	for _, x := range []struct {
		format  Format
		records [][2]string // key and value; "" is null
		want    string
	}{
		{JSON, [][2]string{{`{"id":1}`, `{"id":1,"v":1,"op":"I","n":null}`}, {`{"id":2}`, `{"v":2.5,"id":2,"n":{"x":true}}`}, {`{"id":2}`, ``}},
			"id BIGINT, v DOUBLE, n ROW<`x` BOOLEAN> key [id] of 2"},
		{JSON, [][2]string{{``, `{"id":1}`}}, "id BIGINT key [] of 1"},
		{JSON, [][2]string{{`7`, `{"id":1}`}}, "id BIGINT key [] of 1"},
		{JSON, [][2]string{{`{"other":7}`, `{"id":1}`}}, "id BIGINT key [] of 1"},
		{JSON, [][2]string{{`{"id":1}`, `{"id":1,"op":5}`}, {`{"id":1}`, `{"id":"x"}`}, {``, `[1]`}}, "id BIGINT, op BIGINT key [id] of 1"},
		{Debezium, [][2]string{{`{"schema":{},"payload":{"b":1,"a":2}}`, `{"before":null,"after":{"a":2,"b":1,"c":"x"},"op":"c"}`},
			{`{"schema":{},"payload":{"b":1,"a":2}}`, `{"payload":{"before":{"a":2,"b":1,"d":false},"after":null,"op":"d"}}`}, {`{"b":1,"a":2}`, ``}},
			"a BIGINT, b BIGINT, c STRING, d BOOLEAN key [a b] of 2"},
	} {
		s := NewSketch(x.format, "")
		for _, r := range x.records {
			rec := &Record{}
			if r[0] != "" {
				rec.Key = []byte(r[0])
			}
			if r[1] != "" {
				rec.Value = []byte(r[1])
			}
			_ = s.Add(rec) // what is refused leaves no trace
		}
		var cols []string
		for _, c := range s.Columns() {
			cols = append(cols, c.Name+" "+c.Type.String())
		}
		if got := fmt.Sprintf("%s key %v of %d", strings.Join(cols, ", "), s.Key(), s.Records()); got != x.want {
			t.Errorf("%s, not %s", got, x.want)
		}
	}
}
