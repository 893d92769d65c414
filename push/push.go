// Package push sends rows to a table over HTTP: to a pipeline of `calve serve` that has push as its source. Rows are sent in
// batches, one at a time and in order; each is acknowledged by the snapshot that has it, and written once however often it
// has to be sent, as long as less than ten minutes lie between two tries.
package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

var (
	// ErrRow: a row is no JSON object. It was not taken; the writer goes on.
	ErrRow = errors.New("no JSON object")
	// ErrClosed: the writer was closed.
	ErrClosed = errors.New("writer closed")
)

// Config says where rows go and how. Zero values mean the defaults, where there are any.
type Config struct {
	// URL is that of the table's rows: http://HOST:8181/v1/tables/DATABASE/TABLE/rows.
	URL string
	// Token is sent as bearer token, if not empty.
	Token string
	// Client does the requests. It should have no timeout that is shorter than the pipeline's commit interval. Default
	// http.DefaultClient.
	Client *http.Client
	// MaxBytes of rows are a batch; a larger row is one by itself. Default 1 MiB.
	MaxBytes int
	// MaxDelay is how long a row waits for others before it is sent. Default 1 s.
	MaxDelay time.Duration
	// DeadLetter has rows that the table cannot take go to its dead letters. Without it one such row refuses its batch.
	DeadLetter bool
	// Patience is how many times a batch is sent before Append, Flush or Close gives the error; the next of them sends it
	// again. Pauses between two grow from 100 ms to 5 s, or are as long as the server says, up to 30 s. Default 10.
	Patience int

	NewID func() string                          // names the writer: unique among all clients of the table, at most 200 bytes
	After func(d time.Duration) <-chan time.Time // as time.After
}

// Answer is what the server tells of a batch.
type Answer struct {
	Snapshot int64 `json:"snapshot"` // has the rows; it and all after it
	Accepted int64 `json:"accepted"`
	Refused  int64 `json:"refused"`  // rows that are dead letters
	Repeated bool  `json:"repeated"` // an earlier request had written it, whose answer was lost
}

// RefusedError says that the server will not take a batch, sent again or not: nothing of it was written. The writer ends
// with it, since rows behind the batch may build on it.
type RefusedError struct {
	Status int    // of HTTP
	Text   string // what the server says
	Rows   []byte // the batch, a row a line, or an Arrow stream
	Arrow  bool
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Arrow {
		return fmt.Sprintf("the server refuses an Arrow stream of %d bytes (status %d): %s", len(e.Rows), e.Status, e.Text)
	}
	return fmt.Sprintf("the server refuses %d rows (status %d): %s", bytes.Count(e.Rows, []byte{'\n'}), e.Status, e.Text)
}

// Writer gathers rows and sends them. Its methods may be called by several goroutines.
type Writer struct {
	cfg  Config
	stop context.CancelFunc // ends the waits of ctx
	ctx  context.Context    // of sends that no caller waits for
	late sync.WaitGroup     // those
	turn chan struct{}      // has room: nobody sends. Its holder owns batch and number
	name string             // for the server

	batch  []byte // is being sent, or was in vain; nil: none
	arrow  bool   // the batch is an Arrow stream
	number int64  // of the batch, or the one before

	mu      sync.Mutex // guards what follows; it may be taken by the holder of turn, not the other way round
	rows    []byte     // behind the batch
	err     error      // ends the writer
	closed  bool
	waiting bool   // sendLater runs
	total   Answer // sums, and the newest snapshot
}

// NewWriter makes a writer; Close it.
func NewWriter(cfg Config) (*Writer, error) {
	if cfg.NewID == nil || cfg.After == nil || cfg.URL == "" {
		return nil, errors.New("push: URL, NewID and After have to be set")
	}
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 1 << 20
	}
	if cfg.MaxDelay <= 0 {
		cfg.MaxDelay = time.Second
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 10
	}
	if _, err := http.NewRequest(http.MethodPost, cfg.URL, nil); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	w := &Writer{cfg: cfg, turn: make(chan struct{}, 1), name: cfg.NewID()}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w, nil
}

// Append takes a row, a JSON object, which is copied. If there are enough rows for a batch they are sent before, and
// Append returns when they are in a snapshot. With an error the row was not taken.
func (w *Writer) Append(ctx context.Context, row []byte) error {
	var line bytes.Buffer // on one line
	if err := json.Compact(&line, row); err != nil {
		return fmt.Errorf("%w: %w", ErrRow, err)
	}
	if line.Len() == 0 || line.Bytes()[0] != '{' {
		return fmt.Errorf("%w: %.100s", ErrRow, row)
	}
	line.WriteByte('\n')
	for {
		taken, err := w.take(line.Bytes())
		if taken || err != nil {
			return err
		}
		if err := w.Flush(ctx); err != nil {
			return err
		}
	}
}

// take appends a row unless the batch would be too large with it.
func (w *Writer) take(line []byte) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return false, w.err
	}
	if w.closed {
		return false, ErrClosed
	}
	if len(w.rows) > 0 && len(w.rows)+len(line) > w.cfg.MaxBytes {
		return false, nil
	}
	if !w.waiting {
		w.waiting = true
		w.late.Go(w.sendLater)
	}
	w.rows = append(w.rows, line...)
	return true, nil
}

// sendLater sends what is there after MaxDelay, until nothing is. Where that fails the rows are kept, and it tries again.
func (w *Writer) sendLater() {
	for {
		select {
		case <-w.cfg.After(w.cfg.MaxDelay):
		case <-w.ctx.Done():
			return
		}
		err := w.Flush(w.ctx)
		w.mu.Lock()
		w.waiting = w.err == nil && (err != nil || len(w.rows) > 0)
		on := w.waiting
		w.mu.Unlock()
		if !on {
			return
		}
	}
}

// Flush returns when all rows that were appended before are in a snapshot. With another error than a *RefusedError they are
// kept, and a later call sends them again; the server writes none twice.
func (w *Writer) Flush(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return w.drain(ctx)
}

// AppendArrow sends an Arrow stream (IPC streaming format, buffers not compressed, at most the server's push.max-body) as a
// batch of its own, behind the rows that were appended before, and returns when its rows are in a snapshot. Errors are as
// Flush's: the stream is kept and must not be changed until a later call has sent it. With ErrClosed, or what ended the
// writer, it was not taken.
func (w *Writer) AppendArrow(ctx context.Context, stream []byte) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := w.drain(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.batch, w.arrow, w.number = stream, true, w.number+1
	w.mu.Unlock()
	return w.drain(ctx)
}

// drain sends the batch and what is behind it; its caller has the turn.
func (w *Writer) drain(ctx context.Context) error {
	for {
		w.mu.Lock()
		err := w.err
		if w.batch == nil && err == nil && len(w.rows) > 0 {
			w.batch, w.arrow, w.number, w.rows = w.rows, false, w.number+1, nil
		}
		w.mu.Unlock()
		if err != nil || w.batch == nil {
			return err
		}
		a, err := w.send(ctx)
		var refused *RefusedError
		w.mu.Lock()
		if errors.As(err, &refused) {
			w.err = err
		}
		if err == nil {
			w.total.Snapshot = max(w.total.Snapshot, a.Snapshot)
			w.total.Accepted += a.Accepted
			w.total.Refused += a.Refused
			w.total.Repeated = w.total.Repeated || a.Repeated
			w.batch = nil
		}
		w.mu.Unlock()
		if err != nil {
			return fmt.Errorf("push batch %d of %s: %w", w.number, w.name, err)
		}
		// Rows that came while a batch was sent again are the next one.
	}
}

// Total sums the answers of all batches; Snapshot is the newest one's.
func (w *Writer) Total() Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Close sends what is there and ends the writer. With an error rows may not have been written.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.late.Wait()
	return w.Flush(ctx)
}

// send sends the batch until it is answered.
func (w *Writer) send(ctx context.Context) (Answer, error) {
	pause := 100 * time.Millisecond
	for tries := 1; ; tries++ {
		a, wait, err := w.post(ctx)
		var refused *RefusedError
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil || tries >= w.cfg.Patience {
			return a, err
		}
		select {
		case <-w.cfg.After(max(pause, wait)):
		case <-ctx.Done():
			return a, err
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// post sends the batch once. wait is how long the server wants to be left alone.
func (w *Writer) post(ctx context.Context) (a Answer, wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cfg.URL, bytes.NewReader(w.batch))
	if err != nil {
		return a, 0, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if w.arrow {
		req.Header.Set("Content-Type", "application/vnd.apache.arrow.stream")
	}
	req.Header.Set("Calve-Client", w.name)
	req.Header.Set("Calve-Sequence", strconv.FormatInt(w.number, 10))
	if w.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.cfg.Token)
	}
	if w.cfg.DeadLetter {
		q := req.URL.Query()
		q.Set("on-error", "dead-letter")
		req.URL.RawQuery = q.Encode()
	}
	resp, err := w.cfg.Client.Do(req)
	if err != nil {
		return a, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return a, 0, fmt.Errorf("read the answer: %w", err)
	}
	switch s := resp.StatusCode; {
	case s == http.StatusOK:
		if err := json.Unmarshal(text, &a); err != nil {
			return a, 0, fmt.Errorf("answer of the server: %w", err)
		}
		return a, 0, nil
	case s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s >= 500:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date, or nothing, is no number: our own pauses do
		wait = time.Duration(min(max(seconds, 0), 30)) * time.Second
		return a, wait, fmt.Errorf("status %d: %.1000s", s, text)
	}
	return a, 0, &RefusedError{Status: resp.StatusCode, Text: string(text), Rows: w.batch, Arrow: w.arrow}
}
