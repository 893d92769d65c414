package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/schema"
)

// pushStream takes rows over HTTP until ctx ends.
func (p *pipeline) pushStream(ctx context.Context, tab *engine.Table, env ingest.Env) error {
	dead, closeDead := p.deadLetters(ctx, env, p.cfg.Name)
	defer closeDead()
	push, err := ingest.NewPusher(ctx, ingest.PushConfig{
		Decode: Decoding(&p.cfg), MaxRows: p.cfg.Push.MaxRows, Waiting: int64(p.cfg.Push.Waiting), Remember: p.cfg.Push.Remember, Snapshot: tab.Metrics().Snapshot,
		Limits: ingest.Limits{CommitInterval: p.beat(), Phase: p.phase(p.beat())},
	}, tab, dead, env, ingest.Events{
		Started: func(map[int32]int64) {
			p.set(Running, nil)
			p.log.Info("taking rows")
		},
		Committed: func(c ingest.Committed) {
			c.Lag = -1
			p.committed(c)
		},
		Followed: func(s *schema.Schema) { p.log.Info("the table has a new schema", "schema", s.ID) },
		Rejected: func(l ingest.Letter) { p.log.Warn("line refused", "offset", l.Offset, "reason", l.Reason) },
	})
	if err != nil {
		return err
	}
	p.pusher.Store(push)
	defer p.pusher.Store(nil)
	return push.Run(ctx)
}

// pushRows is POST /v1/tables/{database}/{table}/rows.
func (s *Server) pushRows(w http.ResponseWriter, r *http.Request) {
	table := r.PathValue("database") + "." + r.PathValue("table")
	p := s.pushPipeline(table)
	if p == nil {
		refuse(w, problem{Status: http.StatusNotFound, What: "no pipeline takes rows for the table " + table, Where: r.URL.Path, Do: "give the table a pipeline with push in the configuration"})
		return
	}
	req, bad := pushRequest(r)
	if bad != nil {
		bad.Where = r.URL.Path
		refuse(w, *bad)
		return
	}
	push := p.pusher.Load()
	if bad = p.absent(push != nil); bad != nil {
		bad.Where = r.URL.Path
		if bad.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		refuse(w, *bad)
		return
	}
	in := &bodyReader{r: http.MaxBytesReader(w, r.Body, int64(p.cfg.Push.MaxBody)+1<<20), control: http.NewResponseController(w), now: s.env.Now, patience: s.cut}
	body, err := p.readBody(r.Header.Get("Content-Encoding"), in)
	defer p.reading.Add(-int64(cap(body)))
	if err == nil {
		var a ingest.PushAnswer
		req.Body = body
		if a, err = push.Push(r.Context(), req); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(a) // whoever asked may be gone; asked again with its key it learns the same
			return
		}
	}
	bad = pushProblem(err)
	bad.Where = r.URL.Path
	if bad.Status == http.StatusTooManyRequests || bad.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(time.Duration(p.cfg.CommitInterval)/time.Second))))
	}
	if bad.Status == http.StatusServiceUnavailable {
		p.log.Warn("pushed rows were not acknowledged", "error", err)
	}
	refuse(w, *bad)
}

// absent says why a pipeline cannot take rows; nil: it can, if it has a pusher. What it refuses was not written by this
// request; an earlier one with the same key may have been.
func (p *pipeline) absent(ready bool) *problem {
	p.mu.Lock()
	owner, mine, state := p.owner, p.mine, p.state
	p.mu.Unlock()
	switch {
	case !mine && owner != "":
		return &problem{Status: http.StatusMisdirectedRequest, What: "another process owns the table: " + owner + "; nothing was written by this request",
			Do: "send it to that process, which says at its GET /status that it runs the pipeline", More: map[string]any{"written": "no", "owner": owner}}
	case !mine || !ready:
		return &problem{Status: http.StatusServiceUnavailable, What: "the pipeline of the table is " + string(state) + "; nothing was written by this request",
			Do: "try again", More: map[string]any{"written": "no"}}
	}
	return nil
}

// pushPipeline finds the pipeline that takes rows for a table.
func (s *Server) pushPipeline(table string) *pipeline {
	for _, p := range s.all() {
		if p.cfg.Push != nil && fullName(p.cfg.Table) == table {
			return p
		}
	}
	return nil
}

// fullName has the database, which is "default" where a name has none.
func fullName(table string) string {
	if strings.Contains(table, ".") {
		return table
	}
	return "default." + table
}

// maxPushName bounds keys and names of clients.
const maxPushName = 200

// arrowStream is the media type of Arrow's streaming format.
const arrowStream = "application/vnd.apache.arrow.stream"

// pushRequest reads all but the body.
func pushRequest(r *http.Request) (q ingest.PushRequest, bad *problem) {
	no := func(status int, what, do string) (ingest.PushRequest, *problem) {
		return q, &problem{Status: status, What: what, Do: do}
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if t := r.Header.Get("Content-Type"); t != "" {
		switch media {
		case "application/x-ndjson", "application/json", "application/jsonl":
		case arrowStream:
			q.Arrow = true
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return no(http.StatusUnsupportedMediaType, fmt.Sprintf("content type %q", t), "send JSON lines as application/x-ndjson, or an Arrow stream as "+arrowStream)
		}
	}
	for name, values := range r.URL.Query() {
		switch v := values[0]; {
		case name == "wait" && v == "durable":
		case name == "on-error" && v == "refuse":
		case name == "on-error" && v == "dead-letter":
			q.DeadLetter = true
		default:
			return no(http.StatusBadRequest, fmt.Sprintf("parameter %s=%q", name, v), "known are wait=durable, on-error=refuse and on-error=dead-letter")
		}
	}
	q.Key, q.Client = r.Header.Get("Idempotency-Key"), r.Header.Get("Calve-Client")
	number := r.Header.Get("Calve-Sequence")
	switch {
	case len(q.Key) > maxPushName || len(q.Client) > maxPushName:
		return no(http.StatusBadRequest, fmt.Sprintf("the key or client name has more than %d bytes", maxPushName), "use a short one, such as a UUID")
	case q.Key != "" && q.Client != "":
		return no(http.StatusBadRequest, "both Idempotency-Key and Calve-Client", "use one of them")
	case (q.Client == "") != (number == ""):
		return no(http.StatusBadRequest, "Calve-Client and Calve-Sequence belong together", "send both or neither")
	case number != "":
		if q.Sequence, err = strconv.ParseInt(number, 10, 64); err != nil || q.Sequence < 0 {
			return no(http.StatusBadRequest, fmt.Sprintf("Calve-Sequence %q is no number from 0", number), "count the client's requests")
		}
	}
	return q, nil
}

// pushProblem says how an error is answered.
func pushProblem(err error) *problem {
	var refused *ingest.RefusedError
	switch {
	case errors.As(err, &refused):
		return &problem{Status: http.StatusUnprocessableEntity, What: err.Error(), Do: "correct the lines, or send with on-error=dead-letter; nothing was written",
			More: map[string]any{"refused": refused.Refused, "lines": refused.Lines}}
	case errors.Is(err, ingest.ErrBusy):
		return &problem{Status: http.StatusTooManyRequests, What: err.Error(), Do: "try again later; nothing was written"}
	case errors.Is(err, ingest.ErrTooMuch):
		return &problem{Status: http.StatusRequestEntityTooLarge, What: err.Error(), Do: "send less at once; nothing was written"}
	case errors.Is(err, ingest.ErrRepeat):
		return &problem{Status: http.StatusConflict, What: err.Error(), Do: "use a key or number once; nothing was written by this request"}
	case errors.Is(err, errBody):
		return &problem{Status: http.StatusBadRequest, What: err.Error(), Do: "send the whole body, in the encoding that Content-Encoding says; nothing was written"}
	case errors.Is(err, ingest.ErrStream):
		return &problem{Status: http.StatusBadRequest, What: err.Error(), Do: "send an Arrow stream (IPC streaming format) without compressed buffers; nothing was written"}
	case errors.Is(err, errEncoding):
		return &problem{Status: http.StatusUnsupportedMediaType, What: err.Error(), Do: "use gzip, zstd or identity"}
	case errors.Is(err, ingest.ErrNotWritten):
		return &problem{Status: http.StatusServiceUnavailable, What: "the table was closed or failed; nothing was written by this request", Do: "try again", More: map[string]any{"written": "no"}}
	}
	return &problem{Status: http.StatusServiceUnavailable, What: "the table failed while the rows were being written, which may have succeeded",
		Do: "send it again with the same Idempotency-Key, or Calve-Client and Calve-Sequence, to learn it", More: map[string]any{"written": "unknown"}}
}

var (
	errBody     = errors.New("the body cannot be read")
	errEncoding = errors.New("content encoding")
)

// readBody reads and expands a body, within what all requests of the pipeline may hold together. What it gives counts as
// held, by its capacity, also with an error.
func (p *pipeline) readBody(encoding string, in io.Reader) (body []byte, err error) {
	most := int64(p.cfg.Push.MaxBody)
	src := in
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBody, err)
		}
		src = z
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(most, 1<<20))), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBody, err)
		}
		defer z.Close()
		src = z
	default:
		return nil, fmt.Errorf("%w %q is unknown", errEncoding, encoding)
	}
	for size := 64 << 10; ; {
		if len(body) == cap(body) {
			next := min(int64(size), most+1)
			if p.reading.Add(next) > int64(p.cfg.Push.Waiting)+most {
				p.reading.Add(-next)
				return body, fmt.Errorf("%w: bodies that are being read take all the memory there is for them", ingest.ErrBusy)
			}
			grown := make([]byte, len(body), next)
			copy(grown, body)
			p.reading.Add(-int64(cap(body)))
			body, size = grown, 2*size
		}
		n, err := src.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > most:
			return body, fmt.Errorf("%w: the body has more than %d bytes", ingest.ErrTooMuch, most)
		case err == io.EOF:
			return body, nil
		case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
			return body, fmt.Errorf("%w: %w", ingest.ErrTooMuch, err)
		case err != nil:
			return body, fmt.Errorf("%w: %w", errBody, err)
		}
	}
}

// bodyReader gives up a client that sends nothing for too long.
type bodyReader struct {
	r        io.Reader
	control  *http.ResponseController
	now      func() time.Time
	patience time.Duration
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	if err := b.control.SetReadDeadline(b.now().Add(b.patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := b.r.Read(p)
	if err == io.EOF { // the answer takes as long as it takes
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
