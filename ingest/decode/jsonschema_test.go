package decode

import (
	"fmt"
	"strings"
	"testing"
)

// TestFramedJSON: JSON behind the id of a schema, with keys that are framed too or not; places are those in the record.
func TestFramedJSON(t *testing.T) {
	d, err := New(Config{Schema: tableOf(t, "id BIGINT, s STRING", "id"), Format: FramedJSON})
	if err != nil {
		t.Fatal(err)
	}
	frame := func(s string) []byte { return append([]byte{0, 0, 0, 0, 9}, s...) }
	for _, c := range []struct {
		key, value []byte
		want       string
	}{
		{nil, frame(`{"id":1,"s":"x"}`), `+I{"id":1,"s":"x"}`}, {[]byte("any"), frame(`{"id":1,"op":"d"}`), `-D{"id":1,"s":null}`}, {frame(`{"id":2}`), nil, `-D{"id":2,"s":null}`},
		{[]byte(`3`), nil, `-D{"id":3,"s":null}`}, {nil, nil, "no key"}, {nil, []byte{}, "is empty"}, {nil, []byte(`{"id":1}`), "begins with the byte 123"}, {nil, []byte{0, 0}, "ends within"},
		{nil, frame(`{"id":"x"}`), "at byte 11 of the value"}, {frame(`{"id":"x"}`), nil, "at byte 11 of the key"}, {[]byte(`{"id":"x"}`), nil, "at byte 6 of the key"}, {nil, frame(``), "is empty"},
	} {
		err := d.Decode(&Record{Key: c.key, Value: c.value})
		if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, c.want) {
			t.Errorf("%q %q: %s, want %s", c.key, c.value, got, c.want)
		}
	}
}
