package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
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
