package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/changes"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// GET /v1/tables/{database}/{table}/changes is a tail over HTTP. It is told as JSON lines, as server-sent events (Accept:
// text/event-stream) or as an Arrow stream (Accept: application/vnd.apache.arrow.stream), compressed as Accept-Encoding
// allows. Each row has the position behind it ("at", the event's id, the column _at): from=at:POSITION, or the header
// Last-Event-ID, goes on behind it, with the same where and share, and tells every row once.
//
// Nothing is read ahead of the client: a batch is read when the one before it was written. A client that takes nothing
// for http.write-timeout is cut off.

// changesQuery is what a request asks for.
type changesQuery struct {
	spec   reader.TailSpec
	format string
	acked  bool // the client moves the consumer
}

// changes answers with a stream of changes.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) {
	q, err := parseChanges(r)
	if err != nil {
		refuse(w, problem{Status: http.StatusBadRequest, What: err.Error(), Where: r.URL.Path, Do: "see the query parameters from, until, follow, columns, where, share, consumer, consumer_ack, on_gap and order"})
		return
	}
	name := r.PathValue("database") + "." + r.PathValue("table")
	path, err := config.TablePath(name)
	if err != nil {
		refuse(w, problem{Status: http.StatusBadRequest, What: err.Error(), Where: r.URL.Path, Do: "name a table as /v1/tables/DATABASE/TABLE/changes"})
		return
	}
	if s.streams.Add(1) > int64(s.cfg.HTTP.MaxStreams) {
		s.streams.Add(-1)
		w.Header().Set("Retry-After", "5")
		refuse(w, problem{Status: http.StatusServiceUnavailable, What: "there are as many streams of changes as this server takes", Where: r.URL.Path, Do: "come again later, or raise http.max-streams"})
		return
	}
	defer s.streams.Add(-1)
	if r.Method == http.MethodHead { // a stream without a body would not see that its client has gone
		return
	}
	rd, wake, unwatch := s.readerOf(name, path)
	defer unwatch()
	q.spec.Wake, q.spec.Beat, q.spec.SortMemory = wake, s.beat, s.sorting
	if q.acked {
		q.spec.Acks = &s.acks
	}
	out := &answer{w: w, control: http.NewResponseController(w), now: s.env.Now, cut: s.cut, format: q.format, encoding: encodingOf(r)}
	err = s.stream(r.Context(), out, rd, q, changes.Source{Database: r.PathValue("database"), Table: r.PathValue("table")})
	if err != nil && r.Context().Err() == nil && !errors.Is(err, errGone) {
		s.env.Log.Warn("a stream of changes ended", "table", name, "error", err)
		out.fail(problemOf(err, rd.Meta().Store().URL("")))
	}
	out.close()
}

// stream writes what a tail tells.
func (s *Server) stream(ctx context.Context, out *answer, rd *reader.Reader, q *changesQuery, from changes.Source) error {
	enc, err := changes.New(q.format, out, changes.Options{Source: from, Positions: true})
	if err != nil {
		return fmt.Errorf("%w: %w", reader.ErrQuery, err)
	}
	for c, err := range rd.Tail(ctx, q.spec) {
		if err != nil {
			return err
		}
		if c.Idle && q.format != changes.Arrow {
			err = out.beat(&c)
		} else {
			err = enc.Write(c) // in an Arrow stream a batch without rows is the heartbeat
		}
		if err == nil && (c.Complete || c.Idle || c.Rec != nil) {
			err = out.flush()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
	}
	if ctx.Err() != nil {
		return nil // whoever asked is gone, or the server stops
	}
	if err := enc.Close(); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// parseChanges reads a request.
func parseChanges(r *http.Request) (*changesQuery, error) {
	v := r.URL.Query()
	known := map[string]bool{"from": true, "until": true, "follow": true, "columns": true, "where": true, "share": true, "consumer": true, "consumer_ack": true, "on_gap": true, "order": true}
	for name := range v {
		if !known[name] {
			return nil, fmt.Errorf("unknown parameter %q", name)
		}
	}
	q := &changesQuery{format: formatOf(r)}
	q.spec.Follow = true
	var err error
	if text := v.Get("follow"); text != "" {
		if q.spec.Follow, err = strconv.ParseBool(text); err != nil {
			return nil, fmt.Errorf("follow=%q: use true or false", text)
		}
	}
	from := v.Get("from")
	q.spec.IgnoreProgress = from != ""
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		from, q.spec.IgnoreProgress = "at:"+id, true
	}
	if from == "" {
		from = "latest"
	}
	if q.spec.From, err = reader.ParseStart(from); err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	if q.spec.Until, err = reader.ParseUntil(v.Get("until")); err != nil {
		return nil, fmt.Errorf("until: %w", err)
	}
	if q.spec.Share, err = reader.ParseShare(v.Get("share")); err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	if q.spec.OnGap, err = reader.ParseOnGap(v.Get("on_gap")); err != nil {
		return nil, fmt.Errorf("on_gap: %w", err)
	}
	if q.spec.Order, err = reader.ParseOrder(v.Get("order")); err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	if v.Get("columns") != "" {
		q.spec.Columns = strings.Split(v.Get("columns"), ",")
	}
	q.spec.Where, q.spec.Consumer = v.Get("where"), v.Get("consumer")
	switch text := v.Get("consumer_ack"); text {
	case "", "server":
	case "client":
		q.acked = true
	default:
		return nil, fmt.Errorf("consumer_ack=%q: use server or client", text)
	}
	return q, nil
}

// formatOf chooses the format by the Accept header; JSON lines if it names none that there is.
func formatOf(r *http.Request) string {
	for _, part := range strings.Split(r.Header.Get("Accept"), ",") {
		kind, _, _ := strings.Cut(part, ";")
		for _, f := range []string{changes.SSE, changes.Arrow, changes.JSON} {
			if want, _, _ := strings.Cut(changes.ContentType(f), ";"); strings.EqualFold(strings.TrimSpace(kind), want) {
				return f
			}
		}
	}
	return changes.JSON
}

// encodingOf chooses the compression by the Accept-Encoding header; "" for none.
func encodingOf(r *http.Request) string {
	best := ""
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		_, value, _ := strings.Cut(weight, "=")
		if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && n == 0 {
			continue
		}
		if name = strings.ToLower(strings.TrimSpace(name)); name == "zstd" || name == "gzip" && best == "" {
			best = name
		}
	}
	return best
}

// acknowledge is POST /v1/tables/{database}/{table}/consumers/{consumer}: the client of a stream with consumer_ack=client has
// dealt with all before a position.
func (s *Server) acknowledge(w http.ResponseWriter, r *http.Request) {
	bad := func(err error) {
		refuse(w, problem{Status: http.StatusBadRequest, What: err.Error(), Where: r.URL.Path, Do: `send {"at": POSITION} as JSON, a position that the stream told; with share=I/N if the stream has it`})
	}
	name := r.PathValue("database") + "." + r.PathValue("table")
	path, err := config.TablePath(name)
	if err != nil {
		bad(err)
		return
	}
	var body struct {
		At string `json:"at"`
	}
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
	in.DisallowUnknownFields()
	if err := in.Decode(&body); err != nil {
		bad(fmt.Errorf("the body is no position: %w", err))
		return
	}
	spec := reader.TailSpec{Consumer: r.PathValue("consumer")}
	at, err := reader.ParsePosition(body.At)
	if err == nil {
		spec.Share, err = reader.ParseShare(r.URL.Query().Get("share"))
	}
	if err != nil {
		bad(err)
		return
	}
	rd, _, unwatch := s.readerOf(name, path)
	defer unwatch()
	next := int64(0)
	if _, err = rd.Meta().LatestSchema(r.Context()); err == nil {
		next, err = s.acks.Acknowledge(r.Context(), rd, spec, at)
	}
	if err != nil {
		refuse(w, problemOf(err, r.URL.Path))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"consumer": spec.Share.Consumer(spec.Consumer), "next": next}) // sent again it does no harm
}

// readerOf opens a table. If a pipeline of this process writes it, reads hold back its expiry and its commits wake them.
func (s *Server) readerOf(name, path string) (rd *reader.Reader, wake <-chan int64, unwatch func()) {
	env := reader.Env{Now: s.env.Now, After: s.env.After, NewID: s.env.NewID, Rand: s.env.Rand, Log: s.env.Log}
	for _, p := range s.all() {
		if own, err := config.TablePath(p.cfg.Table); err != nil || own != path {
			continue
		}
		p.mu.Lock()
		tab := p.table
		p.mu.Unlock()
		if tab != nil {
			wake, unwatch := tab.Watch()
			return reader.Over(tab.Meta(), env), wake, unwatch
		}
		// It is about to open the table; what is held now is held then.
		meta := manifest.Env{Now: env.Now, After: env.After, NewID: env.NewID, Rand: env.Rand, Log: env.Log, Holds: p.holds}
		return reader.Over(manifest.Open(p.store, meta), env), nil, func() {}
	}
	return reader.Open(storage.Sub(s.warehouse, path), env), nil, func() {}
}

// problemOf tells an error of a stream to its client.
func problemOf(err error, where string) problem {
	p := problem{Status: http.StatusInternalServerError, What: err.Error(), Where: where, Do: "try again from the last position"}
	if gap, ok := errors.AsType[*reader.GapError](err); ok {
		p.Status, p.Do = http.StatusGone, "read the rows anew with from=full, or ask with on_gap=rescan; with a consumer expiry waits for you"
		p.More = map[string]any{"from": gap.From, "to": gap.To, "earliest": gap.Earliest, "latest": gap.Latest}
		return p
	}
	switch {
	case errors.Is(err, manifest.ErrNoTable):
		p.Status, p.What, p.Do = http.StatusNotFound, "no such table", "`calve ls` shows the tables of the warehouse"
	case errors.Is(err, manifest.ErrNoConsumer):
		p.Status, p.Do = http.StatusNotFound, "see whether the name and share are those of the stream; begin it with GET /v1/tables/DATABASE/TABLE/changes?consumer=NAME&consumer_ack=client, which makes it known, and acknowledge again"
	case errors.Is(err, reader.ErrQuery), errors.Is(err, manifest.ErrNoTag), errors.Is(err, manifest.ErrConsumerName):
		p.Status, p.Do = http.StatusBadRequest, "change the request"
	case errors.Is(err, storage.ErrReadOnly), errors.Is(err, engine.ErrUnsupported), errors.Is(err, manifest.ErrUnsupported):
		p.Status, p.Do = http.StatusBadRequest, "ask without what is not supported"
	}
	return p
}

// answer is the body of a response: its header is sent with the first byte, so that an error before it has a status.
type answer struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	now      func() time.Time
	cut      time.Duration // for a write
	format   string
	encoding string

	begun bool
	body  io.Writer
	pack  interface {
		io.WriteCloser
		Flush() error
	} // nil: not compressed
}

func (a *answer) begin() error {
	if a.begun {
		return nil
	}
	a.begun = true
	h := a.w.Header()
	h.Set("Content-Type", changes.ContentType(a.format))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must not wait for more
	h.Set("Vary", "Accept, Accept-Encoding")
	a.body = a.w
	switch a.encoding {
	case "zstd":
		enc, err := zstd.NewWriter(a.w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<18), zstd.WithLowerEncoderMem(true), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return err
		}
		a.pack = enc
	case "gzip":
		enc, err := gzip.NewWriterLevel(a.w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		a.pack = enc
	default:
		a.encoding = ""
	}
	if a.pack != nil {
		h.Set("Content-Encoding", a.encoding)
		a.body = a.pack
	}
	a.w.WriteHeader(http.StatusOK)
	return nil
}

// Write implements io.Writer, with a deadline for each piece of what is written.
func (a *answer) Write(p []byte) (int, error) {
	if err := a.begin(); err != nil {
		return 0, err
	}
	const piece = 64 << 10
	n := 0
	for n < len(p) {
		a.extend()
		m, err := a.body.Write(p[n:min(len(p), n+piece)])
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// extend gives the client time for the next write. Where the connection knows no deadlines there are none.
func (a *answer) extend() { _ = a.control.SetWriteDeadline(a.now().Add(a.cut)) }

// flush sends what was written so far; without anything it sends the header.
func (a *answer) flush() error {
	if err := a.begin(); err != nil {
		return err
	}
	a.extend()
	if a.pack != nil {
		if err := a.pack.Flush(); err != nil {
			return err
		}
	}
	return a.control.Flush()
}

// beat tells that the stream is alive and where it stands.
func (a *answer) beat(c *reader.Changes) error {
	at := c.After(0).String()
	var err error
	switch a.format {
	case changes.SSE:
		_, err = fmt.Fprintf(a, ": idle at %s\n\n", at)
	case changes.JSON:
		_, err = fmt.Fprintf(a, `{"snapshot":%d,"event":"idle","at":"%s"}`+"\n", c.Snapshot, at)
	}
	return err
}

// fail tells an error: by the status if nothing was sent yet, else at the end of the stream. An Arrow stream is broken off.
func (a *answer) fail(p problem) {
	if !a.begun {
		a.begun = true
		refuse(a.w, p)
		return
	}
	var err error
	switch a.format {
	case changes.SSE:
		_, err = fmt.Fprintf(a, "event: error\ndata: %s\n", p.json())
	case changes.JSON:
		_, err = a.Write(p.json())
	default:
		panic(http.ErrAbortHandler) // net/http's way to break a response off: the client sees that it is not whole
	}
	if err == nil {
		_ = a.flush()
	}
}

// close ends the body.
func (a *answer) close() {
	if !a.begun {
		_ = a.flush() // the header of an empty stream
	}
	if a.pack != nil {
		a.extend()
		_ = a.pack.Close() // the client may be gone
	}
}
