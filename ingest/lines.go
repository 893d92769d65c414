package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/calve-io/calve/ingest/decode"
)

// LinesConfig describes a run over lines of JSON, or over CSV, whose rows may span lines and whose first names its fields.
type LinesConfig struct {
	// Name identifies the input: as the topic of records and dead letters, and when a run is resumed. Default "stdin".
	Name string
	// Run identifies the run, or the job of which it is one, in dead letters. Default: a new name each time.
	Run string
	// Resume goes on behind the lines that the last snapshot of this job holds, after checking that the input begins
	// with the very same bytes. Without it every run starts at the first line.
	Resume bool
	// Decode says how lines become rows; its Schema is taken from the table.
	Decode decode.Config
	Limits Limits
}

// LinesResult counts what a run did.
type LinesResult struct {
	Lines    int64 `json:"lines"` // lines read by this run, without blank ones
	Rows     int64 `json:"rows"`
	Rejected int64 `json:"rejected"`
	Bytes    int64 `json:"bytes"`
	Snapshot int64 `json:"snapshot"` // the last one published; 0: none
}

// RunLines reads JSON lines, or CSV, into a table until the input or ctx ends, and commits what it has read. The result counts
// what was committed, also when there is an error. Blank lines are skipped; a last line needs no newline.
//
// What no snapshot holds yet is kept in memory, so that it can be decoded again if the table has a newer schema when it
// is committed. A commit starts when that comes to 64 MiB. Of a single line beyond three times that the kept bytes are
// dropped: what is read with it goes to the table as it was decoded.
//
// When ctx ends while the input blocks, RunLines returns at once; the goroutine that reads ends with that read.
func RunLines(ctx context.Context, r io.Reader, cfg LinesConfig, table Table, dead DeadLetter, env Env, events Events) (LinesResult, error) {
	if cfg.Name == "" {
		cfg.Name = "stdin"
	}
	if cfg.Decode.Format.Framed() {
		return LinesResult{}, fmt.Errorf("%w: format %q has no lines", ErrConfig, cfg.Decode.Format)
	}
	if cfg.Run == "" {
		cfg.Run = env.NewID()
	}
	if cfg.Decode.MaxRecordBytes <= 0 {
		cfg.Decode.MaxRecordBytes = decode.DefaultRecordBytes
	}
	in := &lineInput{name: cfg.Name, csv: cfg.Decode.Format == decode.CSV, runID: cfg.Run, input: r, chunks: make(chan chunk, 1), free: make(chan []byte, 4), kept: newKept(0, keptBytes)}
	if _, err := newLinePass(cfg, table, env, events, in); err != nil { // before anything is read
		return LinesResult{}, err
	}
	if cfg.Resume {
		if err := in.resumeFrom(ctx, table, cfg.Decode.MaxRecordBytes); err != nil {
			return LinesResult{}, err
		}
	}
	if events.Started != nil {
		events.Started(nil)
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go readChunks(reading, r, in.chunks, in.free)
	var total Committed
	err := passes(ctx, table, dead, events, func(again bool) error {
		if !in.kept.rewindable() {
			return fmt.Errorf("the table's columns changed while a line too long to be kept was written: what follows line %d of %s was not written; give the rest again", in.committed.lines, cfg.Name)
		}
		s, err := newLinePass(cfg, table, env, events, in)
		if err != nil {
			return err
		}
		c := &committer{table: table, follower: s.batch.follower, dead: dead, env: env, events: events, limits: cfg.Limits.withDefaults(),
			progress:   func() Progress { return Progress{Properties: s.done.properties(cfg.Name, cfg.Run)} },
			published:  func() { in.committed = s.done; in.kept.release(s.done.bytes) },
			rewindable: in.kept.rewindable,
			eager:      again,
		}
		err = pump(ctx, s.run, c)
		total.add(c.total)
		return err
	})
	return LinesResult{Lines: total.Records, Rows: total.Rows, Rejected: total.Rejected, Bytes: total.Bytes, Snapshot: total.Snapshot}, err
}

// linePosition is how far an input was read.
type linePosition struct {
	lines, bytes      int64
	sum               uint32 // CRC-32C of the bytes
	records, rejected int64
}

func (p linePosition) properties(name, run string) map[string]string {
	return map[string]string{PropKind: kindLines, PropTopic: name, PropRun: run,
		PropLine: strconv.FormatInt(p.lines, 10), PropBytes: strconv.FormatInt(p.bytes, 10),
		PropChecksum: fmt.Sprintf("%08x", p.sum),
		PropRecords:  strconv.FormatInt(p.records, 10), PropRejected: strconv.FormatInt(p.rejected, 10)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lineInput is an input over all passes over it.
type lineInput struct {
	name   string
	runID  string
	csv    bool
	header []string // of CSV, once the first line is read
	input  io.Reader
	chunks chan chunk
	free   chan []byte

	committed linePosition // of the last commit; owned by the committer's goroutine, and between two passes
	kept      *kept        // what follows it
	ended     *chunk       // how the input ended, once it was read to its end; owned by the source's goroutine
}

// lineSource cuts an input into lines, from the last commit on.
type lineSource struct {
	*lineInput
	batch   batcher
	maxLine int

	read  linePosition // decoded: owned by the source's goroutine
	last  linePosition // before the line being decoded
	done  linePosition // written: owned by the committer's goroutine
	asked int64        // bytes up to which a commit was asked for

	sum     uint32 // of all bytes, also those of a line whose end is not read yet
	partial []byte // beginning of that line
	cut     int    // bytes of that line that were not kept, as it is too long
	at      csvAt  // CSV: where in a row it ends so far
	length  int64  // of that line so far
}

// newLinePass makes a source that decodes by the schema that the table has now.
func newLinePass(cfg LinesConfig, table Table, env Env, events Events, in *lineInput) (*lineSource, error) {
	cfg.Decode.Schema, cfg.Decode.Header = table.Schema(), in.header
	dec, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	pos, at := in.committed, csvField
	if pos.bytes == 0 {
		at = csvBegin
	}
	return &lineSource{lineInput: in, at: at, maxLine: cfg.Decode.MaxRecordBytes, read: pos, done: pos, asked: pos.bytes, sum: pos.sum,
		batch: batcher{source: in.runID, dec: dec, schema: cfg.Decode.Schema, follower: newFollower(table, cfg.Decode, env, events, cfg.Limits)}}, nil
}

// resumeFrom skips what the last snapshot holds.
func (s *lineInput) resumeFrom(ctx context.Context, table Table, maxLine int) error {
	p, ok, err := table.LastProgress(ctx)
	if err != nil || !ok || p.Properties[PropKind] == "" {
		return err
	}
	if kind, name := p.Properties[PropKind], p.Properties[PropTopic]; kind != kindLines || name != s.name {
		return fmt.Errorf("%w: the last snapshot of this job holds the position of %s %q, not of lines %q; use another job name or do not resume",
			ErrSourceChanged, kind, name, s.name)
	}
	var pos linePosition
	for _, f := range []struct {
		key string
		to  *int64
	}{{PropLine, &pos.lines}, {PropBytes, &pos.bytes}, {PropRecords, &pos.records}, {PropRejected, &pos.rejected}} {
		if *f.to, err = parseCount(p.Properties, f.key); err != nil {
			return err
		}
	}
	sum, head := crc32.New(castagnoli), &head{most: maxLine}
	n, err := io.CopyN(io.MultiWriter(sum, head), s.input, pos.bytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("skip %d bytes of %s: %w", pos.bytes, s.name, err)
	}
	if pos.sum = sum.Sum32(); n != pos.bytes || fmt.Sprintf("%08x", pos.sum) != p.Properties[PropChecksum] {
		return fmt.Errorf("%w: input %q does not begin with the %d lines (%d bytes) that were read before; give the same input, or do not resume",
			ErrSourceChanged, s.name, pos.lines, pos.bytes)
	}
	s.committed, s.kept = pos, newKept(pos.bytes, keptBytes)
	if s.csv && pos.lines > 0 {
		n, _ := csvEnd(head.data, csvBegin)
		s.header, err = decode.ParseHeader(bytes.TrimRight(head.data[:n+1], "\r\n"))
	}
	return err
}

// head keeps the beginning of what is written to it.
type head struct {
	data []byte
	most int
}

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	h.data = append(h.data, b[:max(0, min(len(b), h.most-len(h.data)))]...)
	return len(b), nil
}

// chunk is a piece of the input, or how it ended.
type chunk struct {
	data []byte
	err  error
}

const chunkBytes = 256 << 10

// readChunks reads ahead until the input ends, into buffers that come back through free. It may block in Read, so
// nothing waits for it.
func readChunks(ctx context.Context, r io.Reader, out chan<- chunk, free <-chan []byte) {
	for {
		var buf []byte
		select {
		case buf = <-free:
		default:
			buf = make([]byte, chunkBytes)
		}
		n, err := r.Read(buf)
		select {
		case out <- chunk{buf[:n], err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// run is the source's goroutine. It begins with what was read before and not committed.
func (s *lineSource) run(ctx context.Context, out chan<- unit) error {
	s.batch.out, s.batch.place = out, s
	for _, piece := range s.kept.pieces() {
		if err := s.split(ctx, piece); err != nil {
			return stopped(ctx, err)
		}
	}
	s.handOver(ctx, s.ended == nil && len(s.chunks) == 0)
	for s.ended == nil {
		var c chunk
		select {
		case c = <-s.chunks:
		case <-ctx.Done():
			return nil
		}
		if err := s.batch.follow(ctx, -1, s.advance); err != nil {
			return err
		}
		s.kept.add(c.data)
		if c.err != nil {
			s.ended = &c
		}
		if err := s.split(ctx, c.data); err != nil {
			return stopped(ctx, err)
		}
		s.handOver(ctx, c.err == nil && len(s.chunks) == 0)
		select {
		case s.free <- c.data[:cap(c.data)]:
		default:
		}
	}
	if s.ended.err == io.EOF && s.length > 0 {
		if err := s.line(ctx, nil); err != nil {
			return stopped(ctx, err)
		}
	}
	if !s.batch.empty() {
		s.batch.emit(ctx, true, -1, s.advance)
	}
	if s.ended.err != io.EOF {
		return fmt.Errorf("read %s after line %d: %w", s.name, s.read.lines, s.ended.err)
	}
	return nil
}

// handOver emits the batch: with nothing more at hand surely, as the next read may block for long, and also when so much
// is kept that it should be committed.
func (s *lineSource) handOver(ctx context.Context, idle bool) {
	if s.read.bytes-s.asked >= s.kept.most {
		s.batch.urgent, s.asked = true, s.read.bytes
	}
	if s.batch.urgent || !s.batch.empty() {
		s.batch.emit(ctx, idle || s.batch.urgent, -1, s.advance)
	}
}

// split decodes the lines that end in data and keeps what follows the last.
func (s *lineSource) split(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		n := 0
		if s.csv {
			n, s.at = csvEnd(data, s.at)
		} else {
			n = bytes.IndexByte(data, '\n')
		}
		piece := data[:n+1]
		if n < 0 {
			piece = data
		}
		data = data[len(piece):]
		s.sum = crc32.Update(s.sum, castagnoli, piece)
		s.length += int64(len(piece))
		if n >= 0 {
			if err := s.line(ctx, piece); err != nil {
				return err
			}
			continue
		}
		// One byte more than allowed is kept, so that the decoder sees that it is too long.
		keep := max(0, min(len(piece), s.maxLine+1-len(s.partial)))
		s.partial = append(s.partial, piece[:keep]...)
		s.cut += len(piece) - keep
	}
	return nil
}

// line decodes the line that ends with rest.
func (s *lineSource) line(ctx context.Context, rest []byte) error {
	rest = bytes.TrimRight(rest, "\r\n")
	value := rest
	if len(s.partial) > 0 {
		keep := max(0, min(len(rest), s.maxLine+2-len(s.partial)))
		value = append(s.partial, rest[:keep]...)
		s.cut += len(rest) - keep
	}
	value = bytes.TrimRight(value, "\r\n") // also a \r that ended the piece before
	s.last = s.read
	s.read.lines++
	s.read.bytes += s.length
	s.read.sum = s.sum
	if !s.csv {
		value = bytes.TrimSpace(value)
	} else if s.read.lines == 1 {
		if err := s.bindHeader(value); err != nil {
			return err
		}
		value = nil
	}
	if len(value) > 0 {
		if err := s.batch.add(ctx, &decode.Record{Topic: s.name, Offset: s.read.lines, Value: value, Cut: s.cut}); err != nil {
			return err
		}
	}
	s.partial, s.cut, s.length = s.partial[:0], 0, 0
	if cap(s.partial) > chunkBytes {
		s.partial = nil
	}
	if s.batch.full() {
		s.batch.emit(ctx, true, -1, s.advance)
	}
	return nil
}

// bindHeader goes on with a decoder for the fields that the first line of CSV names.
func (s *lineSource) bindHeader(line []byte) (err error) {
	if s.header, err = decode.ParseHeader(line); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrConfig, s.name, err)
	}
	cfg := &s.batch.follower.decode
	cfg.Header = s.header
	now := *cfg
	now.Schema = s.batch.schema
	if s.batch.dec, err = decode.New(now); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrConfig, s.name, err)
	}
	return nil
}

// emitBefore implements place.
func (s *lineSource) emitBefore(ctx context.Context) bool {
	now := s.read
	s.read = s.last
	defer func() { s.read = now }()
	return s.batch.emit(ctx, true, -1, s.advance)
}

// advance gives the function that moves the committed position to where reading is now.
func (s *lineSource) advance() func() {
	read, tally := s.read, s.batch.tally
	return func() {
		records, rejected := s.done.records+tally.Records, s.done.rejected+tally.Rejected
		s.done = read
		s.done.records, s.done.rejected = records, rejected
	}
}
