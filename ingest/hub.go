package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// HubConfig says which brokers a Hub talks to, and how.
type HubConfig struct {
	Brokers []string
	TLS     *tls.Config // nil: plain text
	SASL    SASL
	// RefreshInterval is the time between two looks at the topics: new partitions, their identities. Default 30 s.
	RefreshInterval time.Duration
	// FetchBytes bounds one fetch from one broker. A topic's records wait for its pipeline up to twice that, those of all
	// topics up to 32 times that. Default 1 MiB.
	FetchBytes int32
	// Client are further options of the Kafka clients, for example a dialer.
	Client []kgo.Opt
}

// fetchWait is how long brokers may hold a fetch that has nothing to tell. A topic that is added, or goes on after a
// pause, is part of the next fetch, so it waits for as long, and for the rest of its lane.
const fetchWait = 250 * time.Millisecond

// Hub reads the topics of one cluster for any number of pipelines, with one client that fetches and one that asks. Each
// topic has a feed, a bounded queue of what was fetched. A feed that stays full is paused alone: its pipeline is slow or
// stalled, and nobody else waits for it.
//
// A client reads a topic at one position. Where several pipelines read the same topic, each further one of it is fetched
// by a client of its own (a lane).
type Hub struct {
	cfg     HubConfig
	env     Env
	opts    []kgo.Opt
	admin   *kgo.Client
	ask     *kadm.Client
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	holding atomic.Int64 // feeds that are not empty

	mu       sync.Mutex // guards what follows, and the fields of lanes that say so; held for moments
	lanes    []*lane
	watchers map[*watcher]struct{}
}

// NewHub makes a hub; nothing connects yet. Errors match ErrConfig. Close it when no pipeline uses it any more.
func NewHub(cfg HubConfig, env Env) (*Hub, error) {
	if len(cfg.Brokers) == 0 {
		return nil, fmt.Errorf("%w: no brokers; give at least one host:port", ErrConfig)
	}
	if cfg.RefreshInterval <= 0 {
		cfg.RefreshInterval = 30 * time.Second
	}
	if cfg.FetchBytes <= 0 {
		cfg.FetchBytes = 1 << 20
	}
	opts, err := ClientOptions(cfg.Brokers, cfg.TLS, cfg.SASL, env.Log)
	if err != nil {
		return nil, err
	}
	opts = append(opts, kgo.FetchMaxWait(fetchWait))
	h := &Hub{cfg: cfg, env: env, opts: append(opts, cfg.Client...), watchers: map[*watcher]struct{}{}}
	if h.admin, err = kgo.NewClient(h.opts...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	h.ask = kadm.NewClient(h.admin)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.workers.Go(h.watch)
	return h, nil
}

// Close ends the clients. Pipelines that still use the hub fail.
func (h *Hub) Close() {
	h.cancel()
	h.mu.Lock()
	lanes := slices.Clone(h.lanes)
	h.mu.Unlock()
	for _, l := range lanes {
		l.close() // whatever the lane waits for ends
	}
	h.admin.Close()
	h.workers.Wait()
}

// Topics gives the names of all topics of the cluster that are not its own, sorted.
func (h *Hub) Topics(ctx context.Context) ([]string, error) {
	a, err := h.metadata(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("topics of %v: %w%s", h.cfg.Brokers, err, hint(err))
	}
	var names []string
	for name, t := range a.topics {
		if !t.IsInternal && t.ErrorCode == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// watcher is told of a topic at each look.
type watcher struct {
	topic string
	mu    sync.Mutex // held while it is told
	told  func(identity, error)
}

// watchTopic has told called after each look at the topics, until stop is called; told must return quickly. When stop has
// returned told does not run any more.
func (h *Hub) watchTopic(topic string, told func(identity, error)) (stop func()) {
	w := &watcher{topic: topic, told: told}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[w] = struct{}{}
	return func() {
		h.mu.Lock()
		delete(h.watchers, w)
		h.mu.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = nil
	}
}

// watch looks at all topics now and then.
func (h *Hub) watch() {
	for {
		select {
		case <-h.env.After(h.cfg.RefreshInterval):
			h.look()
		case <-h.ctx.Done():
			return
		}
	}
}

// look asks once for all topics that somebody watches.
func (h *Hub) look() {
	h.mu.Lock()
	watchers := slices.Collect(maps.Keys(h.watchers))
	h.mu.Unlock()
	topics := map[string]bool{}
	for _, w := range watchers {
		topics[w.topic] = true
	}
	if len(topics) == 0 {
		return
	}
	a, err := h.metadata(h.ctx, slices.Sorted(maps.Keys(topics)))
	if h.ctx.Err() != nil {
		return
	}
	for _, w := range watchers {
		id, err := identify(a, err, w.topic, h.cfg.Brokers)
		w.mu.Lock()
		if w.told != nil {
			w.told(id, err)
		}
		w.mu.Unlock()
	}
}

// open begins to read partitions of a topic at the given offsets.
func (h *Hub) open(ctx context.Context, topic string, at map[int32]kgo.Offset) (*topicFeed, error) {
	for {
		f, leaving, err := h.tryOpen(topic, at)
		if leaving == nil {
			return f, err
		}
		select { // the client is about to forget the topic
		case <-leaving:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-h.ctx.Done():
			return nil, errHubClosed
		}
	}
}

// errHubClosed: the hub was closed under its pipelines.
var errHubClosed = errors.New("the connection to the brokers was closed")

// tryOpen takes the first lane in which nobody reads the topic. A lane that has still to forget it is waited for.
func (h *Hub) tryOpen(topic string, at map[int32]kgo.Offset) (f *topicFeed, leaving <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil, nil, errHubClosed
	}
	var free *lane
	for _, l := range h.lanes {
		other := l.feeds[topic]
		if other == nil && !l.ended {
			free = l
			break
		}
		if other != nil && other.closed {
			return nil, other.gone, nil
		}
	}
	if free == nil {
		if free, err = h.newLane(); err != nil {
			return nil, nil, err
		}
	}
	f = &topicFeed{lane: free, topic: topic, filled: make(chan struct{}, 1), gone: make(chan struct{})}
	free.feeds[topic] = f
	free.addLocked(f, at)
	return f, nil, nil
}

// newLane makes a client that fetches; h.mu is held.
func (h *Hub) newLane() (*lane, error) {
	client, err := kgo.NewClient(append(h.opts[:len(h.opts):len(h.opts)],
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Markers of transactions carry offsets too: with them a position reaches the end of the log.
		kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(h.cfg.FetchBytes),
		kgo.WithPools(&recordPool{}),
		kgo.FetchMaxPartitionBytes(max(1<<20, h.cfg.FetchBytes/4)),
	)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l := &lane{hub: h, client: client, feeds: map[string]*topicFeed{}, room: make(chan struct{}, 1), full: map[*topicFeed]bool{}}
	h.lanes = append(h.lanes, l)
	h.workers.Go(l.run)
	return l, nil
}
