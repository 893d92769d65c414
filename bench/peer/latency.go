package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// latencies measures how long messages take from just before they are produced to a tail in another process than the
// server's, which looks for snapshots every few milliseconds.
func (g ingest) latencies(ctx context.Context, bin string, b *broker, dir string, interval time.Duration) (line string, err error) {
	topic := "paced-" + interval.String()
	if err := b.create(ctx, topic, ingestPartitions); err != nil {
		return "", err
	}
	s, err := g.serve(ctx, bin, b.address, topic, dir, interval)
	if err != nil {
		return "", err
	}
	var u used
	defer func() {
		if u.wall == 0 {
			_, serr := s.stop()
			err = errors.Join(err, serr)
		}
	}()
	gctx, end := context.WithCancel(ctx)
	defer end()
	var l lags
	w, wctx := errgroup.WithContext(gctx)
	w.Go(func() error { return g.pace(wctx, b, topic) })
	w.Go(func() error { return g.tail(wctx, filepath.Join(dir, "db.db", "t"), &l) })
	select {
	case <-wctx.Done():
	case <-time.After(warmUp):
	}
	l.reset()
	select {
	case <-wctx.Done():
	case <-time.After(g.latency):
	}
	q := l.quantiles()
	end()
	if err := w.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return "", err
	}
	if u, err = s.stop(); err != nil {
		return "", err
	}
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	return fmt.Sprintf("ingest: commit=%s rows_per_s=%d seen=%d produce_to_tail_p50_ms=%.0f p99_ms=%.0f max_ms=%.0f rss_mib=%d\n", interval, g.rate, q[0], ms(q[1]), ms(q[2]), ms(q[3]), u.rss>>20), nil
}

// warmUp passes before latencies count.
const warmUp = 10 * time.Second

// pace produces at the rate until ctx ends. If it cannot, that is an error: the latencies would be of another rate.
func (g ingest) pace(ctx context.Context, b *broker, topic string) error {
	p, err := b.produce(topic)
	if err != nil {
		return err
	}
	began, sent := time.Now(), 0
	tick := time.NewTicker(writePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.close(context.WithoutCancel(ctx))
		case <-tick.C:
		}
		due := int(time.Since(began).Seconds() * float64(g.rate))
		if due-sent > 2*g.rate {
			return errors.Join(fmt.Errorf("the producer is two seconds behind: this machine cannot produce %d messages a second", g.rate), p.close(context.WithoutCancel(ctx)))
		}
		for ; sent < due; sent++ {
			p.send(ctx, p.r.Int64N(int64(g.keys)), time.Now())
		}
	}
}

// tail takes the rows that are added from now on; the table may not be there yet.
func (g ingest) tail(ctx context.Context, dir string, l *lags) error {
	st, err := storage.NewLocal(dir)
	if err != nil {
		return err
	}
	rd := lab.Reader(st)
	for {
		if _, err := rd.Meta().LatestSchema(ctx); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	spec := reader.TailSpec{From: reader.Start{Mode: reader.Latest}, Follow: true, Columns: []string{"created_at"}, Poll: followPoll}
	for c, err := range rd.Tail(ctx, spec) {
		if err != nil {
			return err
		}
		if c.Rec == nil {
			continue
		}
		at := make([]int64, c.Rec.NumRows())
		for i, v := range c.Rec.Column(0).(*array.Timestamp).TimestampValues() {
			at[i] = int64(v)
		}
		l.took(at)
	}
	return nil
}
