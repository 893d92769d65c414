package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

var latencyGroup = group{name: "latency", limits: []limitOf{{durableCreate, 1}}, open: openLatency}

// writeEvery is the pause between two writes into the tailed table.
const writeEvery = 10 * time.Millisecond

// openLatency measures how long a written row takes to a tail in the same process, on a table on disk that commits at
// a fixed interval: "idle" with one row a write, "busy" with many and a compaction worker beside.
func openLatency(k *kit, _ *run) ([]*benchmark, func() error, error) {
	var out []*benchmark
	for _, v := range []struct {
		name, text string
		rows       int
		compaction int
	}{
		{"idle", "100 rows a second", 1, 0},
		{"busy", fmt.Sprintf("%s rows a second, compacting", thousands(k.busyPerSec)), k.busyPerSec * int(writeEvery) / int(time.Second), 1},
	} {
		name := "TailLatency/" + v.name
		out = append(out, &benchmark{
			name: name,
			own: func(ctx context.Context, _ time.Duration) (sample, error) {
				s, err := k.latency(ctx, v.rows, v.compaction)
				s.name = name
				return s, err
			},
			shown: &shown{title: "row written → delivered to a woken tail, " + v.text + ": p99 beyond the commit interval", unit: "over-ms", noLimit: "most rows wait less than the interval"},
			also: &shown{title: "begin of a commit → delivered to a woken tail, " + v.text, unit: "commit-p50-ms", limit: func(med lookup) (float64, string) {
				// The data file comes before what the snapshot names.
				return (1 + dependentCreates) * med(durableCreate, 1, "p50-ms"), fmt.Sprintf("%d durable file creations, one after the other", 1+dependentCreates)
			}},
		})
	}
	return out, nil, nil
}

// stream is a table that is written, committed and tailed at once.
type stream struct {
	table    *engine.Table
	mu       sync.Mutex
	written  []time.Time // when each batch was written, by number
	perBatch int64       // rows in a batch: key k is in batch k / perBatch
	began    atomic.Int64
	lags     []time.Duration // write → delivery, of each row
	commits  []time.Duration // begin of the commit → delivery, of each snapshot with rows
}

func (k *kit) latency(ctx context.Context, rows, compaction int) (_ sample, err error) {
	store, remove, err := k.local()
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	s, err := newTable(nil)
	if err != nil {
		return sample{}, err
	}
	if err := engine.Create(ctx, store, s); err != nil {
		return sample{}, err
	}
	table, err := engine.Open(ctx, store, engine.Settings{Job: "bench", Compaction: compaction}, lab.Env())
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, table.Close(context.WithoutCancel(ctx))) }()

	st := &stream{table: table, perBatch: int64(rows)}
	wake, unsubscribe := table.Watch()
	defer unsubscribe()
	batches := int(k.tail / writeEvery)
	tailCtx, stopTail := context.WithCancel(ctx)
	defer stopTail()
	tailed := make(chan error, 1)
	go func() { tailed <- st.tail(tailCtx, lab.Reader(store), wake, int64(batches*rows)) }()
	if err := st.write(ctx, s, batches, k.commits); err != nil {
		stopTail()
		return sample{}, errors.Join(err, <-tailed)
	}
	if err := <-tailed; err != nil {
		return sample{}, err
	}
	return st.sample(k.commits)
}

// write writes a batch every few milliseconds and commits at the interval, as a pipeline does. It returns when the last
// batch is committed.
func (st *stream) write(ctx context.Context, s *schema.Schema, batches int, interval time.Duration) error {
	g := newGenerator(9)
	var ready []schema.Batch // made beforehand: making rows is not what is measured
	for i := range batches {
		keys := make([]int64, st.perBatch)
		for j := range keys {
			keys[j] = int64(i)*st.perBatch + int64(j)
		}
		r := g.rows(s, keys, i*int(st.perBatch))
		ready = append(ready, schema.Batch{Rec: array.NewRecordBatch(s.Arrow(), r.Cols, int64(r.N))})
	}
	stop := make(chan struct{})
	committed := make(chan error, 1)
	go func() { committed <- st.commitEvery(ctx, interval, stop) }()
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	var err error
	for _, b := range ready {
		<-tick.C
		now := time.Now()
		st.mu.Lock()
		st.written = append(st.written, now)
		st.mu.Unlock()
		if err = st.table.Write(ctx, b); err != nil {
			break
		}
	}
	close(stop)
	return errors.Join(err, <-committed)
}

// commitEvery commits at the interval, and once more when stop is closed and the interval has passed.
func (st *stream) commitEvery(ctx context.Context, interval time.Duration, stop <-chan struct{}) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for last := false; !last; {
		<-tick.C
		select {
		case <-stop:
			last = true
		default:
		}
		st.began.Store(time.Now().UnixNano())
		if _, err := st.table.Commit(ctx, engine.Progress{}); err != nil {
			return err
		}
	}
	return nil
}

// tail notes when each row arrives, until all are there.
func (st *stream) tail(ctx context.Context, r *reader.Reader, wake <-chan int64, want int64) error {
	got := int64(0)
	for c, err := range r.Tail(ctx, reader.TailSpec{From: reader.Start{Mode: reader.Earliest}, Follow: true, Wake: wake}) {
		if err != nil {
			return err
		}
		if c.Rec == nil {
			continue
		}
		now := time.Now()
		st.mu.Lock()
		for _, k := range c.Rec.Column(0).(*array.Int64).Int64Values() {
			st.lags = append(st.lags, now.Sub(st.written[k/st.perBatch]))
		}
		st.mu.Unlock()
		st.commits = append(st.commits, time.Duration(now.UnixNano()-st.began.Load()))
		if got += c.Rec.NumRows(); got == want {
			return nil
		}
	}
	return fmt.Errorf("the tail ended with %d rows, want %d", got, want)
}

func (st *stream) sample(interval time.Duration) (sample, error) {
	if len(st.lags) == 0 {
		return sample{}, errors.New("no row was delivered")
	}
	p99 := quantile(st.lags, 0.99)
	return sample{procs: runtime.NumCPU(), n: len(st.lags), metrics: []metric{
		{float64(quantile(st.lags, 0.5).Nanoseconds()), "ns/op"},
		{ms(quantile(st.lags, 0.5)), "p50-ms"}, {ms(p99), "p99-ms"}, {ms(slices.Max(st.lags)), "max-ms"},
		{ms(quantile(st.lags, 0.5) - interval/2), "p50-over-ms"}, {ms(p99 - interval), "over-ms"},
		{ms(quantile(st.commits, 0.5)), "commit-p50-ms"}, {ms(slices.Max(st.commits)), "commit-max-ms"},
	}}, nil
}
