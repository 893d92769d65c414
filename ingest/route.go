package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/ingest/decode"
)

// KeyFunc appends to dst the key of the table that a record belongs to: whatever tells the tables of a route apart. An
// error that matches decode.ErrRow sends the record to the dead letters of the route, a *decode.MissingSchema has the
// schema be fetched and the record be asked again; with neither a key (ok) nor an error the record needs no table.
type KeyFunc func(dst []byte, r *decode.Record) (key []byte, ok bool, err error)

// RouteConfig describes a route. All fields but Start, Registry, SaveMark and LoadMark are required.
type RouteConfig struct {
	Hub   *Hub
	Topic string
	// Start is where a route without any table begins. Default Earliest.
	Start Start
	// Registry is asked for the schemas that functions miss. nil: they need none.
	Registry Registry
	// Keys makes functions, each of which is called by one goroutine and has the schemas that are fetched for it.
	Keys func(*decode.Schemas) KeyFunc
	// Admit is asked for the table of a key that the route was not told by Know. When it returns, the table and where it
	// begins (at, in the form of a pipeline's position) must be durable and told by Know, so that they are known when the
	// process starts again. Hold says that this process runs the table's pipeline from there on, so that its records are
	// kept for it. An error that matches decode.ErrRow refuses the key for as long as the process lives; others are tried
	// again.
	Admit func(ctx context.Context, key string, at Progress) (table string, hold bool, err error)
	// Begin is asked once by a route that begins at the end of the log without any table: it makes the place durable, and
	// gives the one that was there before, if there is one.
	Begin func(ctx context.Context, at Progress) (Progress, error)
	// Dead takes the records without table. It is used by one goroutine at a time.
	Dead DeadLetter
	// SaveMark keeps up to where the letters of all records are written, LoadMark gives what was kept last, by this process
	// or another one; the zero Progress: nothing. Without them letters may be written again when the topic is looked through
	// again by another process.
	SaveMark func(ctx context.Context, at Progress) error
	LoadMark func(ctx context.Context) (Progress, error)
}

// Bounds of a route.
const (
	// maxStreams is how often a topic may be read at once: for the tables that are up to date, and for those that are not.
	maxStreams = 3
	// nearby is how many records may be read again for tables to share a stream.
	nearby = 20_000
	// gatherTime is how long a stream waits for others before it begins to read.
	gatherTime = 300 * time.Millisecond
	// routePatience is how long a stream waits for a table that takes nothing before it goes on without it.
	routePatience = 200 * time.Millisecond
	// bareAfter is how long nobody reads before the route does so by itself.
	bareAfter = 5 * time.Second
	// tellEvery is how soon a table without records has the position told, which makes a commit.
	tellEvery = 10 * time.Minute
	// maxChosen bounds the keys that a stream remembers.
	maxChosen = 20_000
	// maxRefusedKey is the size of the longest key of which it is remembered that it is refused.
	maxRefusedKey = 256
)

// Route reads one topic for many tables, each of which has a pipeline of its own (KafkaConfig.Route) with its own position
// in its own snapshots. The topic is fetched once for all of them; each record goes to the table that its key says.
//
// Tables whose records do not come make no commits; their position is told every ten minutes. A table that takes nothing
// is left behind and read for anew by another stream, which joins the others' when it has caught up.
type Route struct {
	cfg    RouteConfig
	env    Env
	events Events
	c      *cluster
	ctx    context.Context
	room   chan struct{} // some feed has taken something; one is enough
	asking sync.Mutex    // held by the stream that admits a key or writes dead letters
	mark   position      // letters of records before it are written; guarded by asking

	mu      sync.Mutex // guards what follows, and the fields of streams and feeds that say so
	tables  map[string]choice
	begin   map[string]position // of tables, where they begin
	feeds   map[string]*routeFeed
	streams []*stream
	best    position // everything before it was looked through, and what came of it is durable
	known   bool     // best is
	err     error    // of the last stream that failed, or the last look for a place to begin
	over    bool     // no stream begins any more
	workers sync.WaitGroup
}

// NewRoute makes a route. Nothing is read before Run is called.
func NewRoute(cfg RouteConfig, env Env, events Events) *Route {
	if cfg.Start == "" {
		cfg.Start = Earliest
	}
	return &Route{cfg: cfg, env: env, events: events, room: make(chan struct{}, 1), tables: map[string]choice{}, begin: map[string]position{}, feeds: map[string]*routeFeed{},
		c: &cluster{cfg: KafkaConfig{Topic: cfg.Topic, Start: cfg.Start, Reset: true, Patience: time.Minute}, hub: cfg.Hub, env: env, events: events}}
}

// Know tells the table of a key, and where it begins.
func (r *Route) Know(key, table string, begin Progress) error {
	pos, ok, err := parsePosition(begin.Properties)
	if err != nil || !ok {
		return fmt.Errorf("where table %s begins: %w", table, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tables[key] = choice{table: table}
	r.begin[table] = pos
	r.lookedLocked(pos, false)
	return nil
}

// begins gives where a table begins that has no position yet.
func (r *Route) begins(table string) (position, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.begin[table]
	p.next, p.epoch = maps.Clone(p.next), maps.Clone(p.epoch)
	return p, ok
}

// Err is why the topic is not read, nil if it is or nobody knows yet.
func (r *Route) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for _, s := range r.streams {
		if s.asks != nil {
			return s.asks
		}
	}
	return nil
}

// Run runs the route until ctx ends and no pipeline uses it any more.
func (r *Route) Run(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	for _, f := range r.feeds {
		f.poke() // those that came before can be attached now
	}
	known := r.known
	r.mu.Unlock()
	defer r.end()
	defer r.watch(ctx)()
	if !known { // there are no tables
		r.bare(ctx)
	}
	idle, told := r.env.Now(), r.env.Now()
	for ctx.Err() == nil {
		select {
		case <-r.env.After(time.Second):
		case <-ctx.Done():
			return
		}
		now := r.env.Now()
		r.mu.Lock()
		if len(r.streams) > 0 {
			idle = now
		}
		if now.Sub(told) >= time.Minute {
			told = now
			r.tellLocked(now)
		}
		r.mu.Unlock()
		if now.Sub(idle) >= bareAfter {
			r.bare(ctx)
		}
	}
}

// end waits for the streams, and has no other begin: a feed that looks for one as ctx ends must not add to workers once
// they are waited for.
func (r *Route) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.workers.Wait()
}

// watch has partitions that are new be read for no table, where the pipeline of none tells of them by itself. The function
// that it gives ends that.
func (r *Route) watch(ctx context.Context) (stop func()) {
	var adding atomic.Bool
	var adders sync.WaitGroup
	unwatch := r.cfg.Hub.watchTopic(r.cfg.Topic, func(id identity, err error) {
		if err != nil || !r.add(id, nil) || !adding.CompareAndSwap(false, true) {
			return
		}
		adders.Go(func() { // it asks the brokers, which others must not wait for
			defer adding.Store(false)
			if logs, err := r.c.logs(ctx, id.partitions, nil); err == nil { // else there will be another look
				r.add(id, logs)
			}
		})
	})
	return func() {
		unwatch()
		adders.Wait()
	}
}

// add has streams without pipelines read the partitions of a topic that they do not, from the beginning of their logs; nil:
// it only reports whether there are any.
func (r *Route) add(id identity, logs map[int32]extent) (found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		if s.ended || !s.source.same(id) || slices.ContainsFunc(slices.Collect(maps.Keys(s.subs)), func(f *routeFeed) bool { return !f.pending }) {
			continue
		}
		added := false
		for _, part := range id.partitions {
			if _, has := s.next[part]; has {
				continue
			}
			found = true
			if l, ok := logs[part]; ok {
				s.next[part], added = l.start, true
			}
		}
		if added {
			s.reopen()
		}
	}
	return found
}

// bare begins to read for no table, so that the tables of records to come are found.
func (r *Route) bare(ctx context.Context) {
	r.mu.Lock()
	best, known := r.best, r.known
	best.next, best.epoch = maps.Clone(best.next), maps.Clone(best.epoch)
	r.mu.Unlock()
	// What the log has lost before it, or with a topic that was created again, cannot be looked through any more. All that
	// there is of such a topic is to be: the route was there before it.
	again := *r.c
	again.cfg.Start = Earliest
	var pos position
	var err error
	if known {
		pos, err = again.begin(ctx, best, true)
	} else if pos, err = r.c.begin(ctx, best, false); err == nil && r.cfg.Start == Latest {
		var was Progress
		if was, err = r.cfg.Begin(ctx, Progress{Properties: pos.properties()}); err == nil {
			var first position
			if first, _, err = parsePosition(was.Properties); err == nil {
				pos, err = again.begin(ctx, first, true)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = stopped(ctx, err); err != nil {
		return
	}
	r.lookedLocked(pos, true)
	if len(r.streams) == 0 {
		r.startLocked(pos)
	}
}

// startLocked begins to read at a position; mu is held.
func (r *Route) startLocked(pos position) *stream {
	schemas := &decode.Schemas{}
	s := &stream{r: r, source: identity{cluster: pos.cluster, topicID: pos.topicID}, keys: r.cfg.Keys(schemas), chosen: map[string]choice{},
		next: maps.Clone(pos.next), epoch: maps.Clone(pos.epoch), logs: map[int32]extent{}, subs: map[*routeFeed]bool{}, waiting: true}
	s.schemas = r.newFetcher(s, schemas)
	r.streams = append(r.streams, s)
	r.workers.Go(s.run)
	return s
}

// newFetcher gives who asks the registry for a stream; while it has to ask again that is why the topic is not read.
func (r *Route) newFetcher(s *stream, schemas *decode.Schemas) *schemaFetcher {
	if r.cfg.Registry == nil {
		return nil
	}
	events := r.events
	events.Retrying = func(what string, err error, wait time.Duration) {
		r.mu.Lock()
		s.asks = fmt.Errorf("trying again to %s: %w", what, err)
		r.mu.Unlock()
		if r.events.Retrying != nil {
			r.events.Retrying(what, err, wait)
		}
	}
	return &schemaFetcher{registry: r.cfg.Registry, schemas: schemas, env: r.env, events: events, refused: map[int]time.Time{}}
}

// position is where the stream is; Route.mu is held.
func (s *stream) position() position {
	return position{cluster: s.source.cluster, topic: s.r.cfg.Topic, topicID: s.source.topicID, next: maps.Clone(s.next), epoch: maps.Clone(s.epoch)}
}

// removeLocked forgets a stream that has ended; mu is held.
func (r *Route) removeLocked(s *stream) {
	s.ended = true
	r.streams = slices.DeleteFunc(r.streams, func(o *stream) bool { return o == s })
	r.lookedLocked(s.position(), false)
}

// lookedLocked remembers the position that is furthest. Brokers have just said that the topic is the one of a position that
// is verified; others may be of a topic that was there before. mu is held.
func (r *Route) lookedLocked(pos position, verified bool) {
	if same := pos.topicID == r.best.topicID; !r.known || same && total(pos.next) > total(r.best.next) || !same && verified {
		r.best, r.known = pos, true
	}
}

func (r *Route) failedLocked(err error) {
	r.err = err
	r.env.Log.Warn("a topic whose records are routed cannot be read", "topic", r.cfg.Topic, "error", err)
}

// open gives the feed of a table, which reads on at a position. A feed that was made for it when its table was found, and
// has kept all since, is taken over.
func (r *Route) open(table string, pos position) *routeFeed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.feeds[table]; f != nil {
		if f.pending && maps.Equal(f.begin, pos.next) && f.source.same(identity{cluster: pos.cluster, topicID: pos.topicID}) {
			f.pending = false
			return f
		}
		f.closeLocked()
	}
	f := r.newFeedLocked(table, pos)
	r.lookedLocked(position{cluster: pos.cluster, topic: pos.topic, topicID: pos.topicID, next: maps.Clone(pos.next), epoch: maps.Clone(pos.epoch)}, true)
	return f
}

// newFeedLocked makes a feed; mu is held.
func (r *Route) newFeedLocked(table string, pos position) *routeFeed {
	f := &routeFeed{r: r, table: table, source: identity{cluster: pos.cluster, topicID: pos.topicID}, next: maps.Clone(pos.next), epoch: maps.Clone(pos.epoch),
		told: maps.Clone(pos.next), begin: maps.Clone(pos.next), since: r.env.Now(), filled: make(chan struct{}, 1)}
	if f.epoch == nil {
		f.epoch = map[int32]int32{}
	}
	r.feeds[table] = f
	return f
}

// attach finds a stream for a feed that has none.
func (r *Route) attach(f *routeFeed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.mu.Lock()
	failed := f.failed
	f.mu.Unlock()
	if f.stream != nil || f.closed || failed || r.ctx == nil || r.over {
		return
	}
	best, least := r.nearestLocked(f, nil)
	if best != nil && least > nearby && len(r.streams) >= maxStreams { // not that of those that are up to date: it may come again and again
		best, _ = r.nearestLocked(f, r.frontLocked(f.source))
	}
	if best == nil || least > nearby && len(r.streams) < maxStreams {
		best = r.startLocked(position{cluster: f.source.cluster, topicID: f.source.topicID, next: f.next, epoch: f.epoch})
	}
	if !covers(best.next, f.next) {
		best.back(f.next, f.epoch)
	}
	best.subs[f], f.stream = true, best
	r.err = nil
}

// nearestLocked gives the stream of a feed's topic that is nearest to it, except for one, and how many records it is away; mu
// is held.
func (r *Route) nearestLocked(f *routeFeed, not *stream) (best *stream, least int64) {
	for _, s := range r.streams {
		if s == not || s.ended || !s.source.same(f.source) {
			continue
		}
		if d := apart(f.next, s.next); best == nil || d < least {
			best, least = s, d
		}
	}
	return best, least
}

// frontLocked gives the stream of a topic that has read most, if there is another one of it; mu is held.
func (r *Route) frontLocked(source identity) (front *stream) {
	n := 0
	for _, s := range r.streams {
		if s.ended || !s.source.same(source) {
			continue
		}
		n++
		if front == nil || total(s.next) > total(front.next) {
			front = s
		}
	}
	if n == 1 {
		return nil // then there is no other to go to
	}
	return front
}

// total is how many records are before a position, as far as offsets tell.
func total(next map[int32]int64) (n int64) {
	for _, at := range next {
		n += at
	}
	return n
}

// apart is how many records two positions are apart.
func apart(a, b map[int32]int64) (n int64) {
	for part, x := range a {
		if y, both := b[part]; both {
			n += max(x-y, y-x)
		}
	}
	return n
}

// covers reports whether a stream at next reads all that follows at.
func covers(next, at map[int32]int64) bool {
	for part, x := range at {
		if y, known := next[part]; !known || y > x {
			return false
		}
	}
	return true
}

// same reports whether two sources are one, as far as brokers tell.
func (id identity) same(o identity) bool {
	return id.cluster == o.cluster && id.topicID == o.topicID
}

// mergeLocked makes one stream of two that are near each other, and ends those that read for nobody; mu is held.
func (r *Route) mergeLocked() {
	for i := 0; i < len(r.streams); i++ {
		for j := i + 1; j < len(r.streams); j++ {
			a, b := r.streams[i], r.streams[j]
			if !a.source.same(b.source) || apart(a.next, b.next) > nearby {
				continue
			}
			if len(b.subs) > len(a.subs) {
				a, b = b, a
			}
			for f := range b.subs {
				b.sync(f)
			}
			if len(b.subs) > 0 && !covers(a.next, b.next) {
				a.back(b.next, b.epoch)
			}
			for f := range b.subs {
				a.subs[f], f.stream = true, a
			}
			clear(b.subs)
			r.endLocked(b)
			j = i // begin again with the streams that are left
		}
	}
	// A position that some stream has was looked through to, so one without tables is of use only where there is no other.
	for i := len(r.streams) - 1; i >= 0 && len(r.streams) > 1; i-- {
		if s := r.streams[i]; len(s.subs) == 0 {
			r.endLocked(s)
		}
	}
}

// endLocked has a stream end; mu is held.
func (r *Route) endLocked(s *stream) {
	r.removeLocked(s)
	s.reopen()
}

// tellLocked tells tables without records how far the topic was read, so that their position is committed: when they were
// not told for long, and sooner where the log may be cut off past it; mu is held.
func (r *Route) tellLocked(now time.Time) {
	for _, f := range r.feeds {
		s := f.stream
		if s == nil || f.pending || !f.isEmpty() {
			continue
		}
		due := now.Sub(f.since) >= tellEvery
		for part, l := range s.logs {
			due = due || l.start > 0 && f.told[part] < (l.start+s.next[part])/2
		}
		if due {
			f.tellRest(s)
		}
	}
}

// admit finds the table of a key that a stream has come across.
func (r *Route) admit(ctx context.Context, s *stream, key string) (choice, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	r.mu.Lock()
	c, known := r.tables[key]
	at := s.position()
	r.mu.Unlock()
	if known {
		return c, nil
	}
	var table string
	var hold bool
	try := retry{env: r.env, events: r.events, patience: r.c.cfg.Patience, what: "make room for the records of a new table", final: func(err error) bool { return errors.Is(err, decode.ErrRow) }}
	err := try.do(ctx, func(ctx context.Context) (err error) {
		table, hold, err = r.cfg.Admit(ctx, key, Progress{Properties: at.properties()})
		return err
	})
	if err != nil && !errors.Is(err, decode.ErrRow) {
		return choice{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // it is not remembered beyond the stream, as keys that are refused may be any number
		return choice{refused: err}, nil
	}
	if hold && r.feeds[table] == nil && !s.ended {
		f := r.newFeedLocked(table, at)
		f.pending, f.stream = true, s
		s.subs[f] = true
	}
	return choice{table: table}, nil
}
