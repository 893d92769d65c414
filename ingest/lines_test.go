package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
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
		if l.Size != len(long) || !l.Truncated || !strings.Contains(l.Reason, fmt.Sprintf("%d bytes, more than the record size limit of 50", len(long))) {
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

func TestDeadLetterFiles(t *testing.T) {
	ctx, store, env := context.Background(), storage.NewMem(), testEnv()
	set := DeadLetterSettings{FileBytes: 3 << 20, TotalBytes: 16 << 20, Patience: 5 * time.Second}
	fails := 2
	faulty := storage.WithFaults(store, func(op storage.Op) error {
		if op.Kind == storage.OpCommit && fails > 0 {
			fails--
			return storage.LoseReply(errors.New("reply lost")) // the file may be there: its letters are written again
		}
		return nil
	})
	d := NewDeadLetters(faulty, set, env)
	big := bytes.Repeat([]byte("x"), maxRaw+5)
	recs := []decode.Record{
		{Topic: "t", Partition: 1, Offset: 5, Timestamp: 9, Key: []byte("k"), Value: []byte("\xff\x00")},
		{Topic: "t", Partition: 1, Offset: 6},
		{Topic: "t", Partition: 1, Offset: 7, Value: []byte{}},
		{Topic: "t", Partition: 2, Offset: 5, Key: big, Value: big},
	}
	for i := range recs {
		if err := d.Add(ctx, newLetter(&recs[i], &decode.RowError{Offset: 3, Column: "c", Reason: "is bad"})); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := d.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var got []Letter
	for l, err := range ReadDeadLetters(ctx, store) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	if len(got) != 4 || fails != 0 {
		t.Fatalf("%d letters, %d faults left", len(got), fails)
	}
	for i, l := range got {
		r := recs[i]
		cut := len(r.Value) > maxRaw
		if cut {
			r.Key, r.Value = r.Key[:maxRaw], r.Value[:maxRaw]
		}
		if l.Topic != r.Topic || l.Partition != r.Partition || l.Offset != r.Offset || l.Timestamp != r.Timestamp || !bytes.Equal(l.Key, r.Key) || !bytes.Equal(l.Raw, r.Value) ||
			(l.Raw == nil) != (r.Value == nil) || l.Truncated != cut || l.Size != len(recs[i].Value) || l.Reason != `column "c": is bad (at byte 3 of the value)` || l.Time.IsZero() {
			b, _ := json.Marshal(l)
			t.Errorf("letter %d: %.300s", i, b)
		}
	}
	// The bound counts what is there already, of all attempts.
	set.TotalBytes = 14 << 20
	d = NewDeadLetters(store, set, env)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = d.Add(ctx, newLetter(&decode.Record{Value: big[:maxRaw]}, errors.New("is bad")))
	}
	if !errors.Is(err, ErrDeadLettersFull) || n < 3 || n > 6 {
		t.Errorf("after %d letters: %v", n, err)
	}
	d = NewDeadLetters(storage.WithFaults(store, func(storage.Op) error { return errCrash }), DeadLetterSettings{Patience: 50 * time.Millisecond}, env)
	if err := errors.Join(d.Add(ctx, Letter{}), d.Flush(ctx)); !errors.Is(err, errCrash) {
		t.Errorf("with a dead store: %v", err)
	}
	up, err := store.Create(ctx, DeadLetterDir+"/a.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(up, "{\"topic\":\"t\"}\n{\"to")
	if err := up.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, err = range ReadDeadLetters(ctx, store) {
	}
	if err == nil || !strings.Contains(err.Error(), "a.jsonl") {
		t.Errorf("a cut file: %v", err)
	}
}
