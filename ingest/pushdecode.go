package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// decoded are the rows of a request, by a schema.
type decoded struct {
	schema  *schema.Schema
	batches []schema.Batch
	letters []Letter
	bad     []BadLine
	lines   int64 // without blank ones
	rows    int64
}

// pushSource is what the offsets of a table's pushed letters count in: the lines refused so far.
const pushSource = "push"

// maxPushSchemas bounds how often one request may change the table's schema.
const maxPushSchemas = 64

// decode makes rows of a request's lines, by the newest schema that is known. Before lines are refused it looks whether
// there is a newer one. It may run on several goroutines at once.
func (p *Pusher) decode(ctx context.Context, q *pushed) error {
	s := p.schema.Load()
	for range maxPushSchemas {
		err := p.decodeBy(q, s)
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
		case len(q.rows.letters) == 0:
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
		return &RefusedError{Refused: int64(len(q.rows.letters)), Lines: q.rows.bad}
	}
	return fmt.Errorf("%w: the table's schema was changed %d times for it", ErrTooMuch, maxPushSchemas)
}

// decodeBy makes rows by a schema. A need for another one is given as it is.
func (p *Pusher) decodeBy(q *pushed, s *schema.Schema) error {
	cfg := p.cfg.Decode
	cfg.Schema = s
	dec, err := decode.New(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	q.rows = decoded{schema: s}
	d, number := &q.rows, int64(0)
	for line := range bytes.Lines(q.Body) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if d.lines++; d.lines > int64(p.cfg.MaxRows) {
			return fmt.Errorf("%w: it has more than %d lines", ErrTooMuch, p.cfg.MaxRows)
		}
		r := decode.Record{Topic: pushSource, Offset: number, Value: line}
		err := dec.Decode(&r)
		switch {
		case errors.Is(err, decode.ErrRow):
			if len(d.bad) < maxBadLines {
				d.bad = append(d.bad, BadLine{Line: number, Code: decode.CodeOf(err), Reason: err.Error()})
			}
			r.Headers = q.headers(number)
			d.letters = append(d.letters, newLetter(&r, pushSource, err))
		case err != nil:
			d.lines = number
			return err
		}
		if dec.Full() {
			d.take(dec)
		}
	}
	d.take(dec)
	return nil
}

func (d *decoded) take(dec decode.Decoder) {
	if n := dec.Rows(); n > 0 {
		d.rows += int64(n)
		d.batches = append(d.batches, dec.Take().Batch) // JSON has neither holes nor truncates
	}
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
