package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table is a server that writes each key once.
type table struct {
	*httptest.Server
	mu     sync.Mutex
	keys   map[string]bool
	bodies []string // written, in order
	asked  int
	// fault is asked before each request: a status other than 0 is the answer; lost writes it nevertheless.
	fault func(n int, body string) (status int, lost bool)
}

func newTable(t *testing.T) *table {
	x := &table{keys: map[string]bool{}}
	x.Server = httptest.NewServer(x)
	t.Cleanup(x.Close)
	return x
}

// ServeHTTP implements http.Handler.
func (x *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked++
	status, lost := 0, false
	if x.fault != nil {
		status, lost = x.fault(x.asked, string(b))
	}
	key := r.Header.Get("Calve-Client") + "/" + r.Header.Get("Calve-Sequence")
	repeated := x.keys[key]
	if (status == 0 || lost) && !repeated {
		x.keys[key] = true
		x.bodies = append(x.bodies, string(b))
	}
	if status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, "as the test says")
		return
	}
	fmt.Fprintf(w, `{"snapshot":%d,"accepted":%d,"repeated":%v}`, len(x.bodies), strings.Count(string(b), "\n"), repeated)
}

func (x *table) written() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Join(x.bodies, "|")
}

// writer makes a writer that pauses for a millisecond at most, but for its delay.
func (x *table) writer(t *testing.T, cfg Config) *Writer {
	t.Helper()
	if cfg.MaxDelay == 0 {
		cfg.MaxDelay = time.Hour
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg.URL, cfg.NewID, cfg.Client = x.URL, uuid.NewString, &http.Client{Transport: transport}
	cfg.After = func(d time.Duration) <-chan time.Time {
		if d < time.Hour {
			d = min(d, time.Millisecond)
		}
		return time.After(d)
	}
	w, err := NewWriter(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestBatches: rows are sent when there are enough, when they have waited, and by Flush and Close; in order.
func TestBatches(t *testing.T) {
	x, ctx := newTable(t), t.Context()
	w := x.writer(t, Config{MaxBytes: 20})
	for i := range 5 {
		if err := w.Append(ctx, fmt.Appendf(nil, "{\n\"id\": %d}", i)); err != nil { // a line of 9 bytes
			t.Fatal(err)
		}
	}
	if got, want := x.written(), "{\"id\":0}\n{\"id\":1}\n|{\"id\":2}\n{\"id\":3}\n"; got != want {
		t.Errorf("by size: %q", got)
	}
	if err := w.Flush(ctx); err != nil || !strings.HasSuffix(x.written(), "|{\"id\":4}\n") {
		t.Errorf("flush: %v %q", err, x.written())
	}
	for _, bad := range []string{"", "5", "{", "[{}]", "{} {}"} {
		if err := w.Append(ctx, []byte(bad)); !errors.Is(err, ErrRow) {
			t.Errorf("row %q: %v", bad, err)
		}
	}
	if err := errors.Join(w.Append(ctx, []byte(`{"id":5}`)), w.Close(ctx)); err != nil || w.Total() != (Answer{Snapshot: 4, Accepted: 6}) {
		t.Errorf("close: %v %+v", err, w.Total())
	}
	if err := w.Append(ctx, []byte("{}")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	w = x.writer(t, Config{MaxDelay: time.Millisecond})
	if err := w.Append(ctx, []byte(`{"late":1}`)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !strings.Contains(x.written(), "late"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is sent after the delay")
		}
	}
	if err := w.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestRetries: whatever fails on the way, each row is written once, in order.
func TestRetries(t *testing.T) {
	x, ctx := newTable(t), t.Context()
	x.fault = func(n int, _ string) (int, bool) {
		return []int{0, 503, 429, 500, 0, 502}[n%6], n%2 == 1
	}
	w := x.writer(t, Config{MaxBytes: 30, Patience: 2})
	want, failed := "", 0
	for i := range 60 {
		row := fmt.Sprintf(`{"id":%d}`, i)
		want += row + "\n"
		for w.Append(ctx, []byte(row)) != nil {
			failed++
		}
	}
	for w.Close(ctx) != nil {
		failed++
	}
	if got := strings.ReplaceAll(x.written(), "|", ""); got != want || failed == 0 || !w.Total().Repeated || w.Total().Accepted != 60 {
		t.Errorf("%d failures, %+v: %q", failed, w.Total(), got)
	}
}

// TestRefused: a batch that is refused for good ends the writer, which gives the rows back.
func TestRefused(t *testing.T) {
	x, ctx := newTable(t), t.Context()
	x.fault = func(int, string) (int, bool) { return http.StatusUnprocessableEntity, false }
	w := x.writer(t, Config{})
	if err := w.Append(ctx, []byte(`{"id":"x"}`)); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{func() error { return w.Flush(ctx) }, func() error { return w.Append(ctx, []byte("{}")) }, func() error { return w.Close(ctx) }} {
		var refused *RefusedError
		if err := f(); !errors.As(err, &refused) || refused.Status != 422 || string(refused.Rows) != "{\"id\":\"x\"}\n" {
			t.Error(err)
		}
	}
	if x.asked != 1 {
		t.Errorf("it was sent %d times", x.asked)
	}
}

// TestArrow: streams are batches of their own, in order with the rows before and behind them.
func TestArrow(t *testing.T) {
	x := newTable(t)
	x.fault = func(n int, body string) (int, bool) {
		switch {
		case n == 2:
			return http.StatusServiceUnavailable, true
		case body == "bad":
			return http.StatusBadRequest, false
		}
		return 0, false
	}
	w := x.writer(t, Config{MaxDelay: time.Hour})
	for i, step := range []error{w.Append(t.Context(), []byte(`{"id":1}`)), w.AppendArrow(t.Context(), []byte("stream")), w.Append(t.Context(), []byte(`{"id":2}`)), w.Flush(t.Context())} {
		if step != nil {
			t.Errorf("step %d: %v", i, step)
		}
	}
	if got := x.written(); got != `{"id":1}`+"\n|stream|"+`{"id":2}`+"\n" {
		t.Errorf("%q", got)
	}
	var refused *RefusedError
	if err := w.AppendArrow(t.Context(), []byte("bad")); !errors.As(err, &refused) || !refused.Arrow || !strings.Contains(err.Error(), "Arrow stream of 3 bytes") {
		t.Error(err)
	}
	if err := w.Close(t.Context()); !errors.As(err, &refused) {
		t.Error(err)
	}
	if err := w.AppendArrow(t.Context(), nil); err == nil {
		t.Error("a writer that has ended takes a stream")
	}
}

func ExampleWriter() {
	server := httptest.NewServer(&table{keys: map[string]bool{}}) // stands for calve serve
	defer server.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	ctx := context.Background()
	w, err := NewWriter(Config{URL: server.URL + "/v1/tables/shop/events/rows", NewID: uuid.NewString, After: time.After})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 3 {
		if err := w.Append(ctx, fmt.Appendf(nil, `{"id": %d}`, i)); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Close(ctx); err != nil { // all rows are in a snapshot, or it says why not
		fmt.Println(err)
	}
	fmt.Println(w.Total().Accepted, "rows")
	// Output: 3 rows
}
