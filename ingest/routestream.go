package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
)

// stream reads the topic at one position for the feeds of some tables: nearly always there is one, for all of them. Its
// goroutine fetches, looks which table each record belongs to, and hands over.
type stream struct {
	r       *Route
	source  identity
	keys    KeyFunc
	schemas *schemaFetcher // of what keys misses; nil: it needs none
	key     []byte
	chosen  map[string]choice // by key: what Route.admit gave

	// Guarded by Route.mu.
	next    map[int32]int64 // everything before was handed over
	epoch   map[int32]int32
	logs    map[int32]extent // of the last fetches
	rawID   [16]byte         // of the topic, as fetches tell
	subs    map[*routeFeed]bool
	turn    int                // counts how often it begins to read anew
	wake    context.CancelFunc // ends the poll that waits
	waiting bool               // it has not begun to read
	ended   bool
	asks    error // why the schema that it waits for has to be asked for again

	letters []Letter // of records without table; the goroutine's
}

// choice is the table of a key, or why there is none.
type choice struct {
	table   string
	refused error
}

// placeError is an error of reading a partition at one offset.
type placeError struct {
	part int32
	err  error
}

func (e *placeError) Error() string { return fmt.Sprintf("partition %d: %v", e.part, e.err) }
func (e *placeError) Unwrap() error { return e.err }

// dealt is what became of a fetched part of a partition.
type dealt struct {
	part      int32
	topicID   [16]byte
	low, high int64 // the log's beginning and end
	last      mark
	tables    map[string]*bundle
}

func (s *stream) epochOf(part int32) int32 {
	if e, ok := s.epoch[part]; ok {
		return e
	}
	return -1
}

// sync moves a feed to where its stream is; Route.mu is held.
func (s *stream) sync(f *routeFeed) {
	for part, next := range s.next {
		if at, known := f.next[part]; known && at < next {
			f.next[part] = next
			f.epoch[part] = s.epochOf(part)
		}
	}
}

// reopen has the stream begin to read anew, at next; Route.mu is held.
func (s *stream) reopen() {
	s.turn++
	if s.wake != nil {
		s.wake()
	}
}

// back takes the stream back to a position where that is before its own, also for partitions that it does not read yet;
// Route.mu is held.
func (s *stream) back(next map[int32]int64, epoch map[int32]int32) {
	for f := range s.subs {
		s.sync(f)
	}
	for part, at := range next {
		if has, known := s.next[part]; known && has <= at {
			continue
		}
		s.next[part] = at
		if e, ok := epoch[part]; ok {
			s.epoch[part] = e
		} else {
			delete(s.epoch, part)
		}
	}
	s.reopen()
}

// run is the stream's goroutine.
func (s *stream) run() {
	r := s.r
	select { // others may come, and be read for by one fetch
	case <-r.env.After(gatherTime):
	case <-r.ctx.Done():
	}
	for {
		r.mu.Lock()
		if s.ended || r.ctx.Err() != nil {
			r.removeLocked(s)
			r.mu.Unlock()
			return
		}
		s.waiting = false
		turn, at := s.turn, map[int32]kgo.Offset{}
		for part, next := range s.next {
			at[part] = kgo.NewOffset().At(next).WithEpoch(s.epochOf(part))
		}
		ctx, wake := context.WithCancel(r.ctx)
		s.wake = wake
		r.mu.Unlock()
		err := s.read(ctx, at, turn)
		wake()
		if err != nil && r.ctx.Err() == nil {
			s.fail(err)
			return
		}
	}
}

// read reads from a position on until ctx ends.
func (s *stream) read(ctx context.Context, at map[int32]kgo.Offset, turn int) error {
	feed, err := s.r.cfg.Hub.open(ctx, s.r.cfg.Topic, at)
	if err != nil {
		return stopped(ctx, err)
	}
	defer feed.close()
	for ctx.Err() == nil {
		s.schemas.again()
		if pieces := feed.poll(ctx, pollRecords); len(pieces) > 0 {
			if err := s.deal(ctx, pieces, turn); err != nil {
				return stopped(ctx, err)
			}
		}
	}
	return nil
}

// deal hands over what was fetched. What comes before a record whose schema must be waited for waits for one request at most.
func (s *stream) deal(ctx context.Context, pieces []piece, turn int) error {
	for {
		rest, missing, err := s.dealKnown(ctx, pieces, turn)
		if err != nil || missing == nil {
			return err
		}
		if s.schemas == nil {
			return fmt.Errorf("%w: the records of topic %q need a schema registry: %w", ErrConfig, s.r.cfg.Topic, missing)
		}
		err = s.schemas.fetch(ctx, missing.ID)
		s.r.mu.Lock()
		s.asks = nil
		s.r.mu.Unlock()
		if err == nil {
			err = context.Cause(ctx) // the stream may read from another place by now
		}
		if err != nil {
			return err
		}
		pieces = rest
	}
}

// dealKnown looks through what was fetched, as far as the schemas of the records are known, and hands it over; else missing
// is the next record's, with which rest begins. The order matters: before any table has a position behind a record, the
// record's table is remembered with the place where it begins, or the record is with the dead letters. So whatever position
// of a table is read on from, no record before it can belong to a table that nobody knows.
func (s *stream) dealKnown(ctx context.Context, pieces []piece, turn int) (rest []piece, missing *decode.MissingSchema, err error) {
	parts := make([]dealt, 0, len(pieces))
	s.letters = nil // of a deal that was broken off
	var refused error
	for i := range pieces {
		p := &pieces[i]
		if p.Err != nil { // what came before it is handed over first, so that next is the place that it is of
			refused = &placeError{p.Partition, p.Err}
			break
		}
		if id := topicID(p.topicID); id != "" && s.source.topicID != "" && id != s.source.topicID {
			return nil, nil, fmt.Errorf("%w: topic %q had id %s, now it has %s: it was deleted and created again", ErrSourceChanged, s.r.cfg.Topic, s.source.topicID, id)
		}
		if len(p.Records) == 0 {
			continue
		}
		d, n, err := s.look(ctx, p)
		if err != nil && !errors.As(err, &missing) {
			return nil, nil, err
		}
		if n > 0 {
			parts = append(parts, d)
		}
		if missing != nil {
			p.Records = p.Records[n:]
			rest = pieces[i:]
			break
		}
	}
	if err := s.buryOf(ctx, parts); err != nil {
		return nil, nil, err
	}
	if err := s.room(ctx, parts); err != nil {
		return nil, nil, err
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.turn != turn || s.ended {
		return nil, nil, nil // an error is of a place where nobody reads any more
	}
	s.hand(parts)
	if refused == nil && missing == nil {
		s.r.mergeLocked()
	}
	return rest, missing, refused
}

// buryOf writes the letters of what was looked through.
func (s *stream) buryOf(ctx context.Context, parts []dealt) error {
	if len(s.letters) == 0 {
		return nil
	}
	upTo := map[int32]int64{}
	for i := range parts {
		upTo[parts[i].part] = parts[i].last.next
	}
	if err := s.r.bury(ctx, s, s.letters, upTo); err != nil {
		return err
	}
	s.letters = nil
	return nil
}

// look sorts the records of a partition by table; n is how many of them, up to the one of which the error is.
func (s *stream) look(ctx context.Context, p *piece) (d dealt, n int, err error) {
	d = dealt{part: p.Partition, topicID: p.topicID, low: p.LogStartOffset, high: p.HighWatermark, tables: map[string]*bundle{}}
	var headers []decode.Header
	for i, r := range p.Records {
		if !r.Attrs.IsControl() {
			headers = headers[:0]
			for _, h := range r.Headers {
				headers = append(headers, decode.Header{Name: h.Key, Value: h.Value})
			}
			rec := decode.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: max(0, r.Timestamp.UnixMilli()), Key: r.Key, Value: r.Value, Headers: headers}
			table, err := s.choose(ctx, &rec)
			switch {
			case errors.Is(err, decode.ErrRow):
				s.letters = append(s.letters, newLetter(&rec, s.source.topicID, err))
			case err != nil:
				return d, i, err
			case table != "":
				b := d.tables[table]
				if b == nil {
					b = &bundle{}
					d.tables[table] = b
				}
				b.add(r)
			}
		}
		d.last = mark{r.Offset + 1, r.LeaderEpoch}
		r.Recycle()
	}
	return d, len(p.Records), nil
}

// choose gives the table of a record; "": it has none, and needs none.
func (s *stream) choose(ctx context.Context, r *decode.Record) (string, error) {
	var ok bool
	var err error
	if s.key, ok, err = s.keys(s.key[:0], r); err != nil && s.settles(ctx, err) {
		s.key, ok, err = s.keys(s.key[:0], r)
	}
	if err != nil || !ok {
		return "", err
	}
	c, known := s.chosen[string(s.key)]
	if !known {
		if c, err = s.r.admit(ctx, s, string(s.key)); err != nil {
			return "", err
		}
		if c.refused != nil && len(s.key) > maxRefusedKey {
			return "", c.refused
		}
		if len(s.chosen) >= maxChosen {
			clear(s.chosen)
		}
		s.chosen[string(s.key)] = c
	}
	return c.table, c.refused
}

// settles reports whether the schema that a record misses is known, or its records are refused, when the registry was asked
// once. So what was fetched is mostly handed over at once, and its letters written, however many schemas it has.
func (s *stream) settles(ctx context.Context, err error) bool {
	var missing *decode.MissingSchema
	if s.schemas == nil || !errors.As(err, &missing) {
		return false
	}
	settled, _ := s.schemas.try(ctx, missing.ID, s.r.env.Now())
	return settled
}

// room waits for tables whose feeds are full: for as long as it takes if the stream is for one table alone that has a
// pipeline, else for a moment. hand leaves the others behind.
func (s *stream) room(ctx context.Context, parts []dealt) error {
	var over <-chan time.Time
	for {
		s.r.mu.Lock()
		full := s.fullLocked(parts)
		alone := s.aloneLocked()
		s.r.mu.Unlock()
		if len(full) == 0 {
			return nil
		}
		if over == nil && !alone {
			over = s.r.env.After(routePatience)
		}
		select {
		case <-s.r.room:
		case <-over:
			return nil
		case <-ctx.Done():
			return nil // hand sees that the stream has turned, or ended
		case <-s.r.env.After(routePatience): // room is told to one of several streams
		}
	}
}

// aloneLocked reports whether the stream is for one table alone. One whose pipeline has not come may never have one, and
// those of other records must be found all the same; Route.mu is held.
func (s *stream) aloneLocked() bool {
	for f := range s.subs {
		return len(s.subs) == 1 && !f.pending
	}
	return false
}

// fullLocked gives the feeds of the stream that have no room for what is theirs; Route.mu is held.
func (s *stream) fullLocked(parts []dealt) (full []*routeFeed) {
	for i := range parts {
		for table := range parts[i].tables {
			if f := s.r.feeds[table]; f != nil && f.stream == s && f.isFull() {
				full = append(full, f)
			}
		}
	}
	return full
}

// hand gives the tables what is theirs; Route.mu is held.
func (s *stream) hand(parts []dealt) {
	if !s.aloneLocked() {
		for _, f := range s.fullLocked(parts) {
			if f.stream == s {
				s.sync(f)
				s.leave(f)
			}
		}
	}
	got := map[*routeFeed]bool{}
	for i := range parts {
		d := &parts[i]
		for table, b := range d.tables {
			if f := s.r.feeds[table]; f != nil && f.stream == s {
				f.give(d, b)
				got[f] = true
			}
		}
		s.next[d.part], s.logs[d.part], s.rawID = d.last.next, extent{d.low, d.high, -1}, d.topicID
		if s.epoch[d.part] = d.last.epoch; d.last.epoch < 0 {
			delete(s.epoch, d.part)
		}
	}
	for f := range got {
		f.tellRest(s)
	}
}

// leave detaches a feed, which knows where it is; Route.mu is held. One that no pipeline has come for is forgotten: the
// pipeline reads from where it begins.
func (s *stream) leave(f *routeFeed) {
	delete(s.subs, f)
	f.stream = nil
	if f.pending {
		f.closeLocked()
	}
	f.poke()
}

// fail ends the stream: the pipelines of its tables are told why, and begin anew. An error of a place in a partition is told
// to those that have not passed it; the others are read for by another stream.
func (s *stream) fail(err error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	told := kgo.FetchPartition{Err: err}
	var place *placeError
	if errors.As(err, &place) {
		told = kgo.FetchPartition{Partition: place.part, Err: place.err}
	}
	for f := range maps.Clone(s.subs) {
		s.sync(f)
		s.leave(f)
		if at, reads := f.next[told.Partition]; place != nil && (!reads || at > s.next[told.Partition]) {
			continue
		}
		if !f.closed {
			f.put(piece{FetchPartition: told})
		}
	}
	r.failedLocked(err)
	r.removeLocked(s)
}
