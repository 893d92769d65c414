package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// decoded are the rows of a request, by a schema.
type decoded struct {
	schema  *schema.Schema
	batches []schema.Batch
	letters []Letter // of a request with DeadLetter
	bad     []BadLine
	refused int64 // lines
	lines   int64 // without blank ones
	rows    int64
	bytes   int64 // about what batches and letters take
}

// pushOverhead is what a request takes at least, beside its body.
const pushOverhead = 1024

// letterOverhead is about what a letter takes in a list that grows, beside Letter.bytes.
const letterOverhead = 400

// pushSource is what the offsets of a table's pushed letters count in: the lines refused so far.
const pushSource = "push"

// maxPushSchemas bounds how often one request may change the table's schema.
const maxPushSchemas = 64

// decodeInTurn is decode on few goroutines at once: what a decoder has in hand is not counted before it is taken.
func (p *Pusher) decodeInTurn(ctx context.Context, q *pushed) error {
	select {
	case p.slots <- struct{}{}:
	case <-p.ended:
		return ErrNotWritten
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.slots }()
	return p.decode(ctx, q)
}

// hold counts n more bytes that were made of a request, while there is room for them.
func (p *Pusher) hold(q *pushed, n int64) error {
	q.rows.bytes += n
	need := int64(len(q.Body)) + max(pushOverhead, q.rows.bytes)
	more := need - q.held
	switch {
	case more <= 0: // it was decoded before, by another schema
		return nil
	case need > p.cfg.Waiting:
		return fmt.Errorf("%w: its rows take more than the %d bytes of memory that all requests have", ErrTooMuch, p.cfg.Waiting)
	case p.waiting.Add(more) > p.cfg.Waiting:
		p.waiting.Add(-more)
		return fmt.Errorf("%w: other requests take the memory for its rows", ErrBusy)
	}
	q.held = need
	return nil
}

// decode makes rows of a request's lines, by the newest schema that is known. Before lines are refused it looks whether
// there is a newer one. It may run on several goroutines at once.
func (p *Pusher) decode(ctx context.Context, q *pushed) error {
	s := p.schema.Load()
	for range maxPushSchemas {
		err := p.decodeBy(ctx, q, s)
		var need *decode.NeedSchema
		switch {
		case errors.As(err, &need):
			if s, err = p.table.Alter(ctx, need.Changes); errors.Is(err, schema.ErrAlter) {
				return &RefusedError{Refused: 1, Lines: []BadLine{{Line: q.rows.lines, Code: decode.NoSchema, Reason: err.Error()}}}
			} else if err != nil {
				return fmt.Errorf("%w: %w", ErrNotWritten, err)
			}
			continue
		case err != nil:
			return err
		case q.rows.refused == 0:
			return nil
		}
		newer, err := p.table.LookForSchema(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotWritten, err)
		}
		if newer != nil && newer.ID > s.ID {
			s = newer
			continue
		}
		if q.DeadLetter {
			return nil
		}
		return &RefusedError{Refused: q.rows.refused, Lines: q.rows.bad}
	}
	return fmt.Errorf("%w: the table's schema was changed %d times for it", ErrTooMuch, maxPushSchemas)
}

// decodeBy makes rows by a schema. A need for another one is given as it is.
func (p *Pusher) decodeBy(ctx context.Context, q *pushed, s *schema.Schema) error {
	cfg := p.cfg.Decode
	cfg.Schema = s
	if q.Arrow {
		cfg.Format = decode.Arrow
		cfg.MaxSwell = p.cfg.Waiting + 8*int64(len(q.Body)) // an element may be a bit
	}
	dec, err := decode.New(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	q.rows = decoded{schema: s}
	if q.Arrow {
		if err := p.decodeArrow(ctx, q, dec); err != nil {
			return err
		}
		return p.keep(q, dec)
	}
	number := int64(0)
	for line := range bytes.Lines(q.Body) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := p.decodeRow(ctx, q, dec, &decode.Record{Topic: pushSource, Offset: number, Value: line}); err != nil {
			return err
		}
	}
	return p.keep(q, dec)
}

// decodeArrow makes rows of an Arrow stream.
func (p *Pusher) decodeArrow(ctx context.Context, q *pushed, dec decode.Decoder) error {
	in, err := decode.OpenArrowStream(q.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	defer in.Close()
	for number := int64(0); ; {
		b, err := in.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%w: after row %d: %w", ErrStream, number, err)
		case b.NumRows() > int64(p.cfg.MaxRows)-number:
			return fmt.Errorf("%w: it has more than %d rows", ErrTooMuch, p.cfg.MaxRows)
		}
		for i := range int(b.NumRows()) {
			number++
			if err := p.decodeRow(ctx, q, dec, &decode.Record{Topic: pushSource, Offset: number, Rows: b, Row: i}); err != nil {
				return err
			}
		}
	}
}

// lookEvery is after how many rows it is looked at whether anybody still waits for them.
const lookEvery = 64

// decodeRow makes rows of a line, or of a row of Arrow.
func (p *Pusher) decodeRow(ctx context.Context, q *pushed, dec decode.Decoder, r *decode.Record) error {
	d := &q.rows
	if d.lines++; d.lines > int64(p.cfg.MaxRows) {
		return fmt.Errorf("%w: it has more than %d lines", ErrTooMuch, p.cfg.MaxRows)
	}
	if d.lines%lookEvery == 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := dec.Decode(r)
	switch {
	case errors.Is(err, decode.ErrSwell):
		return fmt.Errorf("%w: %w", ErrTooMuch, err)
	case errors.Is(err, decode.ErrRow):
		if err := p.refuse(q, r, err); err != nil {
			return err
		}
	case err != nil:
		d.lines = r.Offset
		return err
	}
	if dec.Full() {
		return p.keep(q, dec)
	}
	return nil
}

// keep takes the rows that a decoder has. Those of a request that is refused are let go.
func (p *Pusher) keep(q *pushed, dec decode.Decoder) error {
	n := dec.Rows()
	if n == 0 {
		return nil
	}
	d, b := &q.rows, dec.Take().Batch // JSON has neither holes nor truncates
	if d.refused > 0 && !q.DeadLetter {
		d.batches = nil
		return nil
	}
	d.rows += int64(n)
	d.batches = append(d.batches, b)
	size := int64(len(b.Kinds))
	for _, c := range b.Rec.Columns() {
		size += int64(c.Data().SizeInBytes())
	}
	return p.hold(q, size)
}

// refuse notes a line that is no row of the table, and keeps it if it is to be a dead letter.
func (p *Pusher) refuse(q *pushed, r *decode.Record, why error) error {
	d := &q.rows
	d.refused++
	if len(d.bad) < maxBadLines {
		d.bad = append(d.bad, BadLine{Line: r.Offset, Code: decode.CodeOf(why), Reason: reasonOf(why)})
	}
	if !q.DeadLetter {
		return nil
	}
	r.Headers = q.headers(r.Offset)
	l := newLetter(r, pushSource, why)
	d.letters = append(d.letters, l)
	return p.hold(q, int64(l.bytes())+letterOverhead)
}

// headers of a letter tell where the line was.
func (q *pushed) headers(line int64) []decode.Header {
	h := []decode.Header{{Name: "line", Value: fmt.Append(nil, line)}}
	if q.Key != "" {
		h = append(h, decode.Header{Name: "idempotency-key", Value: []byte(q.Key)})
	}
	if q.Client != "" {
		h = append(h, decode.Header{Name: "client", Value: []byte(q.Client)}, decode.Header{Name: "sequence", Value: fmt.Append(nil, q.Sequence)})
	}
	return h
}
