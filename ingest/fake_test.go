package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testEnv() Env {
	return Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}
}

var errCrash = errors.New("crash of the test")

// fakeTable keeps committed rows and progress as one value, as a snapshot does, and loses the rest in a crash.
type fakeTable struct {
	schema *schema.Schema
	// fault is asked before each call, "write" or "commit": an error means that the call fails without effect; lost
	// means that it has its effect and fails nevertheless.
	fault func(call string) (err error, lost bool)
	// wait, when set, is received from before each Write.
	wait chan struct{}

	mu       sync.Mutex
	room     chan struct{} // set: the table is stalled
	buffered [][]any
	rows     [][]any // kind and cells
	progress Progress
	has      bool
	commits  int64
	changed  chan struct{} // closed and renewed by each commit
}

func newFakeTable(s *schema.Schema) *fakeTable {
	return &fakeTable{schema: s, changed: make(chan struct{})}
}

func (f *fakeTable) Schema() *schema.Schema { return f.schema }

func (f *fakeTable) ask(call string) (error, bool) {
	if f.fault == nil {
		return nil, false
	}
	return f.fault(call)
}

func (f *fakeTable) Write(ctx context.Context, b schema.Batch) error {
	if f.wait != nil {
		select {
		case <-f.wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err, _ := f.ask("write"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range b.Len() {
		kind := schema.Insert
		if b.Kinds != nil {
			kind = b.Kinds[r]
		}
		row := []any{kind.String()}
		for c := range int(b.Rec.NumCols()) {
			row = append(row, schema.Cell(b.Rec.Column(c), r))
		}
		f.buffered = append(f.buffered, row)
	}
	return nil
}

func (f *fakeTable) Commit(ctx context.Context, p Progress) (*manifest.Snapshot, error) {
	err, lost := f.ask("commit")
	if err != nil && !lost {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.buffered) == 0 && f.has && maps.Equal(p.Properties, f.progress.Properties) {
		return nil, err
	}
	f.rows = append(f.rows, f.buffered...)
	f.buffered, f.has = nil, true
	f.progress = Progress{Properties: maps.Clone(p.Properties)}
	f.commits++
	close(f.changed)
	f.changed = make(chan struct{})
	return &manifest.Snapshot{ID: f.commits}, err
}

// CommitCurrent is Commit: the schema never changes.
func (f *fakeTable) CommitCurrent(ctx context.Context, p Progress) (*manifest.Snapshot, error) {
	return f.Commit(ctx, p)
}

func (f *fakeTable) Stalled() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.room
}

func (f *fakeTable) Truncate(ctx context.Context, p Progress) (*manifest.Snapshot, error) {
	f.mu.Lock()
	f.rows, f.buffered = nil, nil
	f.mu.Unlock()
	return f.Commit(ctx, p)
}

func (f *fakeTable) RowsBefore(_ context.Context, keys arrow.RecordBatch, _ int) (engine.Found, error) {
	return engine.Found{At: slices.Repeat([]int32{-1}, int(keys.NumRows()))}, nil
}

func (f *fakeTable) Discard(context.Context) error { return nil }

func (f *fakeTable) NewSchema() *schema.Schema { return nil }

func (f *fakeTable) LookForSchema(context.Context) (*schema.Schema, error) { return nil, nil }

func (f *fakeTable) Follow(context.Context, *schema.Schema) error { return nil }

func (f *fakeTable) LastProgress(context.Context) (Progress, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress, f.has, nil
}

// crash forgets what is not committed.
func (f *fakeTable) crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buffered = nil
}

func (f *fakeTable) committed() [][]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows[:len(f.rows):len(f.rows)]
}

func (f *fakeTable) property(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress.Properties[key]
}

// until waits for a commit after which ok holds.
func (f *fakeTable) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // what is waited for may not be a commit
		case <-deadline:
			t.Fatalf("no %s after 30 s: %d rows, progress %v", what, len(f.committed()), f.progress.Properties)
		}
	}
}

// list keeps letters in memory.
type list struct {
	mu      sync.Mutex
	letters []Letter
	flushed int
	err     error
}

func (l *list) Add(_ context.Context, x Letter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.letters = append(l.letters, x)
	return nil
}

func (l *list) Flush(context.Context, Progress) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushed = len(l.letters)
	return l.err
}

func (l *list) Rewind(context.Context, Progress) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.letters = l.letters[:l.flushed]
	return nil
}

func (l *list) all() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.letters {
		out = append(out, fmt.Sprintf("%s/%d@%d %q: %s", x.Topic, x.Partition, x.Offset, x.Raw, x.Reason))
	}
	return out
}

func (f *fakeTable) Holds(made, newer *schema.Schema) bool { return made.Covers(newer) }

func (f *fakeTable) Alter(context.Context, []schema.Change) (*schema.Schema, error) {
	return nil, errors.New("the fake table has one schema")
}
