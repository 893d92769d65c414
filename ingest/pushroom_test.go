package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestPushRoom: what is made of a small body counts as memory, be it rows or letters, and comes back.
func TestPushRoom(t *testing.T) {
	cols := []string{"off BIGINT"}
	for i := range 100 {
		cols = append(cols, fmt.Sprintf("c%d STRING", i))
	}
	x := startPush(t, createTable(t, nil, cols...), PushConfig{Limits: Limits{CommitInterval: time.Millisecond}, Waiting: 1 << 20})
	bad := strings.Repeat("x\n", 20_000)
	q := &pushed{PushRequest: push(bad)}
	var refused *RefusedError
	if err := x.decode(t.Context(), q); !errors.As(err, &refused) || refused.Refused != 20_000 || len(refused.Lines) != maxBadLines {
		t.Fatalf("bad lines: %.200v", err)
	}
	if q.rows.letters != nil || q.rows.batches != nil || q.held != 0 {
		t.Errorf("%d letters and %d batches of a refused request are kept", len(q.rows.letters), len(q.rows.batches))
	}
	for _, c := range []struct {
		name, body string
		letters    bool
	}{{"letters", bad, true}, {"rows", strings.Repeat("{}\n", 20_000), false}} {
		r := push(c.body)
		r.DeadLetter = c.letters
		if _, err := x.Push(t.Context(), r); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%s: %.200v", c.name, err)
		}
		if n := x.waiting.Load(); n != 0 {
			t.Errorf("%s: %d bytes are still held", c.name, n)
		}
		x.waiting.Add(1 << 19) // of another request
		r = push(c.body[:len(c.body)/90*6])
		r.DeadLetter = c.letters
		if _, err := x.Push(t.Context(), r); !errors.Is(err, ErrBusy) {
			t.Errorf("%s beside others: %.200v", c.name, err)
		}
		if n := x.waiting.Add(-1 << 19); n != 0 {
			t.Errorf("%s: %d bytes are still held", c.name, n)
		}
	}
	for range cap(x.slots) {
		x.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := x.Push(ctx, push("{}")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more decoder: %v", err)
	}
	for range cap(x.slots) {
		<-x.slots
	}
	x.ok(push("{}"), PushAnswer{Snapshot: 2, Accepted: 1})
}

// TestPushLettersAgain: letters of lines that a newer schema takes are removed, also after a commit with a key.
func TestPushLettersAgain(t *testing.T) {
	for _, key := range []string{"", "k1"} {
		mem := createTable(t, []string{"id"}, "id BIGINT", "v INT")
		x := startPush(t, mem, PushConfig{Limits: Limits{CommitInterval: time.Hour, CommitRows: 2}})
		first := push(`{"id":1,"v":1}` + "\n" + `{"id":2,"v":2}`)
		first.Key = key
		x.ok(first, PushAnswer{Snapshot: 2, Accepted: 2})
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := push(`{"id":3,"v":3000000000}` + "\n" + `{"id":4,"v":4}`)
			r.DeadLetter = true
			x.ok(r, PushAnswer{Snapshot: 3, Accepted: 2})
		}()
		dead := storage.Sub(mem, "dead")
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // until the letter is being added
			if _, err := storage.ReadAll(t.Context(), dead, "schema/schema-0", 1<<20); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}}, addColumn("w"))
		x.ok(push(`{"id":5,"v":5}`), PushAnswer{Snapshot: 3, Accepted: 1})
		<-done
		x.stop()
		if n := len(lettersIn(t, dead)); n != 0 {
			t.Errorf("key %q: %d letters of lines that are in the table", key, n)
		}
	}
}
