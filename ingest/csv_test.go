package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// TestCSVLines reads CSV whose rows span lines, stops in the middle, and goes on behind what was committed.
func TestCSVLines(t *testing.T) {
	cols, err := schema.ParseColumns("id BIGINT, s STRING")
	if err != nil {
		t.Fatal(err)
	}
	store := createFrom(t, cols)
	var text strings.Builder
	text.WriteString("\"s\",other,id\r\n")
	var want []string
	for i := range 500 {
		fmt.Fprintf(&text, "\"line\r\nof %d, \"\"quoted\"\"\",x,%d\r\n", i, i)
		want = append(want, fmt.Sprintf(`{"id":%d,"s":"line\r\nof %d, \"quoted\""}`, i, i))
	}
	text.WriteString("too few,1\nlast,,777")
	want = append(want, `{"id":777,"s":"last"}`)
	slices.Sort(want)
	ctx := context.Background()
	run := func(text string) (LinesResult, error) {
		table, err := engine.Open(ctx, store, engine.Settings{Job: "csv"}, testEnv())
		if err != nil {
			t.Fatal(err)
		}
		res, err := RunLines(ctx, &slowReader{text: text, step: 700}, LinesConfig{Name: "in", Resume: true, Decode: decode.Config{Format: decode.CSV}, Limits: Limits{CommitRows: 50}}, table, &list{}, testEnv(), Events{})
		return res, errors.Join(err, table.Close(ctx))
	}
	if _, err := run("id,id\n1,2\n"); !errors.Is(err, ErrConfig) {
		t.Fatalf("a header that names a column twice: %v", err)
	}
	if res, err := run(text.String()[:9000]); err != nil || res.Rows == 0 {
		t.Fatal(res, err)
	}
	before := len(jsonRows(t, store))
	// The first try ended within a row, which stands in the table in part now: begin anew to compare all.
	store = createFrom(t, cols)
	if res, err := run(text.String()[:strings.Index(text.String(), ",x,99\r\n")+len(",x,99\r\n")]); err != nil || res.Rows != 100 {
		t.Fatal(res, err)
	}
	res, err := run(text.String())
	if err != nil || res.Rejected != 1 || res.Rows != 401 {
		t.Fatalf("%+v %v", res, err)
	}
	if got := jsonRows(t, store); !slices.Equal(got, want) || before == 0 {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
}

// TestCSVRows: where rows end does not depend on where the pieces do in which they come, and quotes that open nothing spoil
// their own row only.
func TestCSVRows(t *testing.T) {
	for _, c := range []struct{ in, rows, letters string }{
		{"id,s\r\n1,a\r\n2,\"b\"\r\n3,\r\n", `[["+I" '\x01' "a"] ["+I" '\x02' "b"] ["+I" '\x03' <nil>]]`, `[]`},
		{"id,s\n1,a\r\n\r\n2,b\r", `[["+I" '\x01' "a"] ["+I" '\x02' "b"]]`, `[]`},
		{"id,s\n1,a 5\" disk\n2,b\n4,a 6\" disk\n5,e\n", `[["+I" '\x02' "b"] ["+I" '\x05' "e"]]`, `["1,a 5\" disk" "4,a 6\" disk"]`},
		{"id,s\n1,\"a\"\"\nb\",\n2,\"c\"d\"\n3,\"\"\"\"\n", `[["+I" '\x03' "\""]]`, `["1,\"a\"\"\nb\"," "2,\"c\"d\""]`},
		{"\ufeff\"id\",\"s\",\"\nx\"\n1,\"a,\r\nb\",x\r\n", `[["+I" '\x01' "a,\r\nb"]]`, `[]`},
		{"id,s\n1,\"a\n2,b", `[]`, `["1,\"a\n2,b"]`},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(c.in), "bytes": iotest.OneByteReader(strings.NewReader(c.in)), "pieces": &slowReader{c.in, 9}} {
			table, dead := newFakeTable(schematest.Table(t, "", "id BIGINT", "s STRING")), &list{}
			if _, err := RunLines(context.Background(), r, LinesConfig{Decode: decode.Config{Format: decode.CSV}}, table, dead, testEnv(), Events{}); err != nil {
				t.Fatal(err)
			}
			var letters []string
			for _, l := range dead.letters {
				letters = append(letters, string(l.Raw))
			}
			if rows := fmt.Sprintf("%q", table.committed()); rows != c.rows || fmt.Sprintf("%q", letters) != c.letters {
				t.Errorf("%q, %s: rows %s, letters %q; want %s and %s", c.in, name, rows, letters, c.rows, c.letters)
			}
		}
	}
}

// slowReader gives a few bytes at a time.
type slowReader struct {
	text string
	step int
}

func (r *slowReader) Read(b []byte) (int, error) {
	n := copy(b, r.text[:min(r.step, len(r.text))])
	if r.text = r.text[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
