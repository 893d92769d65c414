package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema/schematest"
)

func lineTable(t *testing.T) *fakeTable {
	return newFakeTable(schematest.Table(t, "", "v BIGINT", "line BIGINT"))
}

func lineConfig() LinesConfig {
	return LinesConfig{Decode: decode.Config{Metadata: map[string]string{"line": "offset"}}}
}

func TestLines(t *testing.T) {
	const input = "{\"v\":1}\n\n  \r\n{\"v\":2}\r\n{\"v\":\n{\"v\":3}"
	for _, r := range []io.Reader{strings.NewReader(input), iotest.OneByteReader(strings.NewReader(input)), iotest.DataErrReader(strings.NewReader(input))} {
		table, dead := lineTable(t), &list{}
		got, err := RunLines(context.Background(), r, lineConfig(), table, dead, testEnv(), Events{})
		if err != nil {
			t.Fatal(err)
		}
		if rows := fmt.Sprint(table.committed()); rows != "[[+I 1 1] [+I 2 4] [+I 3 6]]" {
			t.Errorf("rows %s", rows)
		}
		if want := (LinesResult{Lines: 4, Rows: 3, Rejected: 1, Bytes: 26, Snapshot: table.commits}); got != want {
			t.Errorf("result %+v, want %+v", got, want)
		}
		if l := dead.all(); len(l) != 1 || !strings.HasPrefix(l[0], `stdin/0@5 "{\"v\":"`) || dead.flushed != 1 {
			t.Errorf("letters %v", l)
		}
	}
}

func TestLinesTooLong(t *testing.T) {
	cfg, table, dead := lineConfig(), lineTable(t), &list{}
	cfg.Decode.MaxRecordBytes = 50
	long := `{"v":1,"x":"` + strings.Repeat("y", 3*chunkBytes) + `"}`
	input := "{\"v\":1}\n" + long + "\n" + strings.Repeat(" ", 2*chunkBytes) + "\n{\"v\":2}\n" + long
	if _, err := RunLines(context.Background(), strings.NewReader(input), cfg, table, dead, testEnv(), Events{}); err != nil {
		t.Fatal(err)
	}
	if rows := fmt.Sprint(table.committed()); rows != "[[+I 1 1] [+I 2 4]]" {
		t.Errorf("rows %s", rows)
	}
	if len(dead.letters) != 2 {
		t.Fatalf("letters %v", dead.all())
	}
	for _, l := range dead.letters {
		if l.Size != int64(len(long)) || !l.Truncated || !strings.Contains(l.Reason, fmt.Sprintf("%d bytes, more than the record size limit of 50", len(long))) {
			t.Errorf("size %d (line has %d), truncated %v: %s", l.Size, len(long), l.Truncated, l.Reason)
		}
	}
}

// TestLinesResume crashes at every call and resumes until the input is in the table, once.
func TestLinesResume(t *testing.T) {
	r := schematest.Rand(t)
	var input bytes.Buffer
	const n = 2000
	for i := range n {
		fmt.Fprintf(&input, "{\"v\":%d}\n", i)
		if r.IntN(10) == 0 {
			input.WriteString("\n")
		}
	}
	input.Truncate(input.Len() - 1)
	cfg, table := lineConfig(), lineTable(t)
	cfg.Resume, cfg.Decode.BatchRows, cfg.Limits.CommitRows = true, 50, 100
	for round := 0; ; round++ {
		left, lost := 1+r.IntN(8), r.IntN(2) == 0
		table.fault = func(string) (error, bool) {
			left--
			if left < 0 {
				return errCrash, lost
			}
			return nil, false
		}
		_, err := RunLines(context.Background(), iotest.HalfReader(bytes.NewReader(input.Bytes())), cfg, table, &list{}, testEnv(), Events{})
		table.crash()
		if err == nil {
			if round < 3 {
				t.Errorf("only %d crashes", round)
			}
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
	}
	for i, row := range table.committed() {
		if row[1] != int64(i) {
			t.Fatalf("row %d is %v", i, row)
		}
	}
	if len(table.committed()) != n || table.property(PropRecords) != fmt.Sprint(n) {
		t.Fatalf("%d rows, %s records", len(table.committed()), table.property(PropRecords))
	}
	// The same job with other inputs.
	changed := bytes.Replace(input.Bytes(), []byte(`{"v":7}`), []byte(`{"v":8}`), 1)
	for _, c := range []struct {
		name  string
		input []byte
	}{{"stdin", changed}, {"stdin", input.Bytes()[:100]}, {"other", input.Bytes()}} {
		cfg.Name = c.name
		_, err := RunLines(context.Background(), bytes.NewReader(c.input), cfg, table, &list{}, testEnv(), Events{})
		if !errors.Is(err, ErrSourceChanged) {
			t.Errorf("%s with %d bytes: %v", c.name, len(c.input), err)
		}
	}
}

// TestLinesSlow: lines are committed while the input blocks, and the end of the context does not wait for it.
func TestLinesSlow(t *testing.T) {
	table, cfg := lineTable(t), lineConfig()
	cfg.Limits.CommitInterval = 10 * time.Millisecond
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := RunLines(ctx, in, cfg, table, &list{}, testEnv(), Events{})
		done <- err
	}()
	fmt.Fprintf(out, "{\"v\":1}\n{\"v\":")
	table.until(t, "first row", func() bool { return len(table.committed()) == 1 })
	fmt.Fprintf(out, "2}\n")
	table.until(t, "second row", func() bool { return len(table.committed()) == 2 })
	fmt.Fprintf(out, "{\"v\":3}")
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(table.committed()); n != 2 {
		t.Errorf("%d rows: the third line has no end", n)
	}
	out.Close() // ends the reading goroutine (goleak)
}

func TestLinesReadError(t *testing.T) {
	table := lineTable(t)
	in := io.MultiReader(strings.NewReader("{\"v\":1}\n{\"v\""), iotest.ErrReader(errors.New("disk on fire")))
	_, err := RunLines(context.Background(), in, lineConfig(), table, &list{}, testEnv(), Events{})
	if err == nil || err.Error() != "read stdin after line 1: disk on fire" {
		t.Errorf("got %v", err)
	}
	if n := len(table.committed()); n != 1 {
		t.Errorf("%d rows: what was read before the error is committed", n)
	}
}
