package ingest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

var (
	// ErrBusy: there is no room for a request now; nothing of it was written.
	ErrBusy = errors.New("no room for it now")
	// ErrNotWritten: the table was closed, or failed, before a request was written; nothing of it was.
	ErrNotWritten = errors.New("not written")
	// ErrOutcome: a request was being written when the table failed, and may have been. Asked again with the same key or
	// sequence number, the truth is told.
	ErrOutcome = errors.New("outcome unknown")
	// ErrRepeat: a key or sequence number was used before for another request.
	ErrRepeat = errors.New("used before")
	// ErrTooMuch: a request is larger than the limits.
	ErrTooMuch = errors.New("request too large")
	// ErrStream: a request's body cannot be read as the Arrow stream that it should be; nothing of it was written.
	ErrStream = errors.New("the body cannot be read")
)

// PushConfig says how requests become rows. Zero values mean the defaults.
type PushConfig struct {
	Decode   decode.Config // its Schema is taken from the table
	Limits   Limits
	MaxRows  int   // lines or rows of a request. Default 1,000,000
	Waiting  int64 // bytes of requests that wait for their commit and what is made of them; beyond it ErrBusy. Default 256 MiB
	Remember int   // keys, and as many clients, that are remembered; while they are younger than ten minutes: ErrBusy. Default 10,000
	Snapshot int64 // the newest of the table when it was opened
}

// PushRequest are rows that a client sends.
type PushRequest struct {
	Body []byte // JSON lines; kept until the request is answered
	// Arrow says that Body is an Arrow stream, whose columns are found by name. Its rows count as lines, from 1.
	Arrow bool
	// Key identifies the request, if not empty: sent again it is answered as the first time, and written once. Instead of
	// it Client and Sequence may: a client sends one request at a time, with growing numbers.
	Key      string
	Client   string
	Sequence int64
	// DeadLetter has lines that are no rows of the table go to its dead letters. Without it one such line refuses the
	// whole request.
	DeadLetter bool
}

// PushAnswer tells what was written of a request.
type PushAnswer struct {
	Snapshot int64     `json:"snapshot"` // has the rows; it and all after it
	Accepted int64     `json:"accepted"` // lines
	Refused  int64     `json:"refused"`  // lines; they are dead letters
	Repeated bool      `json:"repeated"` // it was written before, and is not written again
	Lines    []BadLine `json:"lines,omitempty"`
}

// BadLine is a line that is no row of the table.
type BadLine struct {
	Line   int64       `json:"line"`
	Code   decode.Code `json:"code"`
	Reason string      `json:"reason"`
}

// maxBadLines is how many of them are told.
const maxBadLines = 100

// RefusedError says which lines refuse a request; nothing of it was written.
type RefusedError struct {
	Refused int64
	Lines   []BadLine // at most the first 100
}

// Error gives the first line's reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%d lines are no rows of the table; the first is line %d: %s", e.Refused, e.Lines[0].Line, e.Lines[0].Reason)
}

// Pusher writes requests of many clients into a table: those that come within a commit interval share a snapshot, which
// also has what is remembered of them. A request is answered when its snapshot is there.
//
// Push decodes, on its caller's goroutine; Run owns the table and does the rest.
type Pusher struct {
	cfg   PushConfig
	table Table
	dead  DeadLetter
	env   Env
	event Events

	in      chan *pushed  // received by Run, which answers all it has received
	ended   chan struct{} // Run has ended
	waiting atomic.Int64  // bytes of requests that are not answered, and of their rows and letters
	slots   chan struct{} // one for each request that is being decoded
	schema  atomic.Pointer[schema.Schema]

	mu    sync.Mutex
	known pushMemory // of committed requests

	// Run's own:
	pos     pushPosition
	last    Progress  // that of pos, as the last snapshot has it
	pending []*pushed // written, not committed
	byKey   map[string]*pushed
	fresh   map[byte]int // of pending, by kind: those that take new room in the memory
	tick    <-chan time.Time
	pace    pace
	tally   Committed
}

// pushed is a request on its way.
type pushed struct {
	PushRequest
	sum     uint32 // CRC-32C of the body
	rows    decoded
	held    int64     // of Pusher.waiting
	same    []*pushed // the same request again, while this one waits
	answer  chan pushResult
	release func() // gives held back
}

type pushResult struct {
	PushAnswer
	err error
}

// pushPosition is what the table's snapshots hold of a push source.
type pushPosition struct {
	records, rejected int64
	memory            pushMemory
}

func (p *pushPosition) progress() Progress {
	return Progress{Properties: map[string]string{PropKind: kindPush, PropRecords: strconv.FormatInt(p.records, 10),
		PropRejected: strconv.FormatInt(p.rejected, 10), propPushKnown: p.memory.String()}}
}

// NewPusher prepares a pusher; it takes requests while Run runs.
func NewPusher(ctx context.Context, cfg PushConfig, table Table, dead DeadLetter, env Env, events Events) (*Pusher, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.MaxRows <= 0 {
		cfg.MaxRows = 1_000_000
	}
	if cfg.Waiting <= 0 {
		cfg.Waiting = 256 << 20
	}
	if cfg.Remember <= 0 {
		cfg.Remember = 10_000
	}
	if f := cfg.Decode.Format; f != "" && f != decode.JSON {
		return nil, fmt.Errorf("%w: format %q cannot be pushed, only %q", ErrConfig, f, decode.JSON)
	}
	cfg.Decode.Schema = table.Schema()
	if _, err := decode.New(cfg.Decode); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	p := &Pusher{cfg: cfg, table: table, dead: dead, env: env, event: events, in: make(chan *pushed), ended: make(chan struct{}),
		slots: make(chan struct{}, min(runtime.GOMAXPROCS(0), runtime.NumCPU())), byKey: map[string]*pushed{}, fresh: map[byte]int{}}
	p.schema.Store(table.Schema())
	last, _, err := table.LastProgress(ctx)
	if err != nil {
		return nil, err
	}
	switch kind := last.Properties[PropKind]; kind {
	case "", kindPush:
	default:
		return nil, fmt.Errorf("%w: the last snapshot of this job holds the position of a %q source; use another job name for push", ErrSourceChanged, kind)
	}
	if p.pos.records, err = parseCount(last.Properties, PropRecords); err != nil {
		return nil, err
	}
	if p.pos.rejected, err = parseCount(last.Properties, PropRejected); err != nil {
		return nil, err
	}
	if p.pos.memory, err = parsePushMemory(last.Properties[propPushKnown]); err != nil {
		return nil, err
	}
	p.pos.memory.published(cfg.Snapshot)
	p.known, p.last = p.pos.memory.clone(), last
	return p, dead.Rewind(ctx, last)
}

// Push writes a request and returns when its rows are in a snapshot. When ctx ends before, they may yet be.
func (p *Pusher) Push(ctx context.Context, r PushRequest) (PushAnswer, error) {
	n := int64(len(r.Body)) + pushOverhead
	if p.waiting.Add(n) > p.cfg.Waiting && p.waiting.Load() > n {
		p.waiting.Add(-n)
		return PushAnswer{}, ErrBusy
	}
	q := &pushed{PushRequest: r, sum: crc32.Checksum(r.Body, castagnoli), answer: make(chan pushResult, 1), held: n}
	q.release = func() { p.waiting.Add(-q.held) }
	taken := false
	defer func() {
		if !taken {
			q.release()
		}
	}()
	p.mu.Lock()
	a, known, err := p.known.find(q)
	p.mu.Unlock()
	if known || err != nil {
		return a, err
	}
	if p.table.Stalled() != nil {
		return PushAnswer{}, fmt.Errorf("%w: the table waits for compaction", ErrBusy)
	}
	if err := p.decodeInTurn(ctx, q); err != nil {
		return PushAnswer{}, err
	}
	select {
	case p.in <- q:
		taken = true // Run answers, whether somebody still waits or not
	case <-p.ended:
		return PushAnswer{}, ErrNotWritten
	case <-ctx.Done():
		return PushAnswer{}, context.Cause(ctx)
	}
	select {
	case res := <-q.answer:
		return res.PushAnswer, res.err
	case <-ctx.Done():
		return PushAnswer{}, fmt.Errorf("%w: %w", ErrOutcome, context.Cause(ctx))
	}
}

// Run writes requests until ctx ends; then it commits what it has taken.
func (p *Pusher) Run(ctx context.Context) (err error) {
	work, release := graceful(ctx, p.cfg.Limits.StopTimeout, p.env)
	defer release()
	defer close(p.ended)
	defer func() {
		for _, q := range p.pending {
			q.tell(PushAnswer{}, fmt.Errorf("%w: %w", outcomeOf(err), err))
		}
		p.pending = nil
	}()
	if p.event.Started != nil {
		p.event.Started(nil)
	}
	p.pace = newPace(p.cfg.Limits, p.env.Now())
	for {
		select {
		case <-ctx.Done():
			return p.commit(work)
		case q := <-p.in:
			if err := p.take(work, q); err != nil {
				return err
			}
			if p.tally.Rows < p.cfg.Limits.CommitRows && p.tally.Bytes < p.cfg.Limits.CommitBytes {
				continue
			}
		case <-p.tick:
		}
		if err := p.commit(work); err != nil {
			return err
		}
	}
}

// outcomeOf says what a failure means for a request that waits.
func outcomeOf(err error) error {
	if errors.Is(err, engine.ErrPoisoned) || errors.Is(err, storage.ErrUnknown) {
		return ErrOutcome
	}
	return ErrNotWritten
}

func (q *pushed) tell(a PushAnswer, err error) {
	for i, x := range append([]*pushed{q}, q.same...) {
		again := a
		again.Repeated = a.Repeated || i > 0
		x.release()
		x.answer <- pushResult{again, err} // has room for one, and gets one
	}
}

// take writes a request, unless it is known.
func (p *Pusher) take(ctx context.Context, q *pushed) error {
	a, known, err := p.pos.memory.find(q)
	if known || err != nil {
		q.tell(a, err)
		return nil
	}
	if id := q.identity(); id != "" {
		if first := p.byKey[id]; first != nil {
			switch {
			case first.sum == q.sum && first.Sequence == q.Sequence:
				first.same = append(first.same, q)
				return nil
			case q.Key != "" || q.Sequence <= first.Sequence:
				q.tell(PushAnswer{}, fmt.Errorf("%w for another request, which is being written", ErrRepeat))
				return nil
			}
			if err := p.commit(ctx); err != nil { // a client's numbers are remembered one by one
				q.tell(PushAnswer{}, fmt.Errorf("%w: %w", ErrNotWritten, err))
				return err
			}
			return p.take(ctx, q)
		}
		if known, now := p.pos.memory.of(id), p.env.Now(); !known.isYoung(id, now) && known.young(now)+p.fresh[id[0]] >= p.cfg.Remember {
			q.tell(PushAnswer{}, fmt.Errorf("%w: the table remembers %d keys or clients of the last ten minutes, as many as it may (push.remember); clients with sequence numbers need one place each",
				ErrBusy, p.cfg.Remember))
			return nil
		}
	}
	if p.table.Stalled() != nil {
		q.tell(PushAnswer{}, fmt.Errorf("%w: the table waits for compaction", ErrBusy))
		return nil
	}
	return p.write(ctx, q)
}

// write puts a request's rows into the table's buffer. It is answered if that is not done.
func (p *Pusher) write(ctx context.Context, q *pushed) error {
	err := p.ready(ctx, q)
	var refused *RefusedError
	if errors.As(err, &refused) || errors.Is(err, ErrTooMuch) || errors.Is(err, ErrStream) || errors.Is(err, ErrBusy) {
		q.tell(PushAnswer{}, err)
		return nil
	}
	for i := 0; err == nil && i < len(q.rows.batches); i++ {
		err = p.table.Write(ctx, q.rows.batches[i])
	}
	for i := 0; err == nil && i < len(q.rows.letters); i++ {
		l := q.rows.letters[i]
		l.Offset = p.pos.rejected + p.tally.Rejected + int64(i)
		if p.event.Rejected != nil {
			p.event.Rejected(l)
		}
		err = p.dead.Add(ctx, l)
	}
	if err != nil {
		q.tell(PushAnswer{}, fmt.Errorf("%w: %w", ErrNotWritten, err))
		return err
	}
	p.pending = append(p.pending, q)
	if id := q.identity(); id != "" {
		p.byKey[id] = q
		if !p.pos.memory.of(id).isYoung(id, p.env.Now()) {
			p.fresh[id[0]]++
		}
	}
	p.tally.Records += q.rows.lines
	p.tally.Rows += q.rows.rows
	p.tally.Rejected += int64(len(q.rows.letters))
	p.tally.Bytes += int64(len(q.Body))
	if p.tick == nil {
		p.tick = p.env.After(p.pace.wait(p.env.Now()))
	}
	return nil
}

// ready sees to it that the rows have the columns that the table takes.
func (p *Pusher) ready(ctx context.Context, q *pushed) error {
	for q.rows.schema.ID != p.table.Schema().ID {
		if q.rows.schema.ID > p.table.Schema().ID {
			return p.follow(ctx, q.rows.schema)
		}
		if err := p.decode(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pusher) follow(ctx context.Context, s *schema.Schema) error {
	if err := p.table.Follow(ctx, s); err != nil {
		return fmt.Errorf("go on with schema %d: %w", s.ID, err)
	}
	p.schema.Store(p.table.Schema())
	if p.event.Followed != nil {
		p.event.Followed(s)
	}
	return nil
}

// commit publishes what was taken, and answers it.
func (p *Pusher) commit(ctx context.Context) error {
	p.tick = nil
	for len(p.pending) > 0 {
		start := p.env.Now()
		p.pace.began(start)
		snap, err := p.publish(ctx)
		if err == nil {
			end := p.env.Now()
			p.pace.ended(end)
			return p.committed(ctx, snap, end.Sub(start))
		}
		if !errors.Is(err, engine.ErrNewSchema) {
			return err
		}
		if err := p.again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next is the position behind what was taken.
func (p *Pusher) next() pushPosition {
	n := pushPosition{records: p.pos.records + p.tally.Records, rejected: p.pos.rejected + p.tally.Rejected, memory: p.pos.memory.clone()}
	now := p.env.Now()
	for _, q := range p.pending {
		n.memory.put(q, PushAnswer{Accepted: q.rows.lines - int64(len(q.rows.letters)), Refused: int64(len(q.rows.letters))}, now)
	}
	n.memory.trim(now, p.cfg.Remember)
	return n
}

// publish makes the snapshot; letters are durable before it.
func (p *Pusher) publish(ctx context.Context) (*manifest.Snapshot, error) {
	next := p.next()
	progress := next.progress()
	if err := p.dead.Flush(ctx, progress); err != nil {
		return nil, err
	}
	snap, err := p.table.CommitCurrent(ctx, progress)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	if snap == nil { // requests without lines and keys
		snap = &manifest.Snapshot{}
	}
	p.pos, p.last = next, progress
	return snap, nil
}

// committed answers what a snapshot has.
func (p *Pusher) committed(ctx context.Context, snap *manifest.Snapshot, took time.Duration) error {
	p.pos.memory.published(snap.ID)
	p.mu.Lock()
	p.known = p.pos.memory.clone()
	p.mu.Unlock()
	for _, q := range p.pending {
		q.tell(PushAnswer{Snapshot: snap.ID, Accepted: q.rows.lines - int64(len(q.rows.letters)), Refused: int64(len(q.rows.letters)), Lines: q.rows.bad}, nil)
	}
	t := p.tally
	t.Took, t.Snapshot = took, snap.ID
	p.pending, p.tally = nil, Committed{}
	clear(p.byKey)
	clear(p.fresh)
	if p.event.Committed != nil {
		p.event.Committed(t)
	}
	if s := p.table.NewSchema(); s != nil {
		return p.follow(ctx, s)
	}
	return nil
}

// again gives up what was written and writes it by the table's newest schema.
func (p *Pusher) again(ctx context.Context) error {
	requests := p.pending
	p.pending, p.tally = nil, Committed{}
	clear(p.byKey)
	clear(p.fresh)
	fail := func(err error) error {
		p.pending = append(p.pending, requests...) // Run tells them
		return err
	}
	if err := p.table.Discard(ctx); err != nil {
		return fail(err)
	}
	if s := p.table.NewSchema(); s != nil {
		if err := p.follow(ctx, s); err != nil {
			return fail(err)
		}
	}
	if err := p.dead.Rewind(ctx, p.last); err != nil {
		return fail(err)
	}
	for i, q := range requests {
		if err := p.write(ctx, q); err != nil {
			requests = requests[i+1:]
			return fail(err)
		}
	}
	p.tick = nil
	return nil
}
