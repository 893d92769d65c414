package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

var kafkaGroup = group{name: "kafka", limits: []limitOf{{zstdEncode, 1}}, open: openKafka}

const (
	topic           = "orders"
	topicPartitions = 4
	kafkaBuckets    = 2
	kafkaColumns    = "id BIGINT NOT NULL, lsn BIGINT, kind INT, email STRING, product STRING, score DOUBLE, created_at TIMESTAMP(6), amount DECIMAL(10, 2), qty INT, active BOOLEAN"
)

// feed is a topic full of JSON records, about 200 bytes each, and what the table must be when all of them are in it:
// of each id the record that came last. Half of the records update an id that came before.
type feed struct {
	brokers []string
	records int64
	bytes   int64
	last    map[int64]int64 // id → lsn
}

// openKafka fills the topic of a broker in this process, once, and measures pipelines that read all of it into a new
// table on disk. The broker's and the client's work is part of what is measured; the producer's is reported alone.
func openKafka(k *kit, r *run) ([]*benchmark, func() error, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(topicPartitions, topic))
	if err != nil {
		return nil, nil, err
	}
	closing := func() error { cluster.Close(); return nil }
	f := &feed{brokers: cluster.ListenAddrs(), records: int64(k.kafka), last: map[int64]int64{}}
	produce := &benchmark{name: "Kafka/produce", rows: f.records, once: true, op: f.produce}
	if err := r.take(produce, 0); err != nil {
		return nil, closing, err
	}
	var out []*benchmark
	for _, v := range []struct {
		name, text string
		compact    bool
	}{{"ingest", "Kafka JSON → committed rows on level 0", false}, {"compact", "Kafka JSON → rows on the highest level", true}} {
		checked := false
		out = append(out, &benchmark{
			name: "Kafka/" + v.name, rows: f.records, bytes: f.bytes, once: true,
			op: func(ctx context.Context, c *clock) error {
				err := k.pipeline(ctx, f, v.compact, !checked, c)
				checked = true
				return err
			},
			shown: &shown{title: v.text, unit: "Mrows/cpu-s", limit: func(med lookup) (float64, string) {
				return med(zstdEncode, 1, "Mrows/cpu-s"), "zstd-1 encode of the plain bytes of the ten-column row"
			}},
		})
	}
	return out, closing, nil
}

// produce fills the topic.
func (f *feed) produce(ctx context.Context, c *clock) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	defer client.Close()
	g := newGenerator(11)
	var failed atomic.Pointer[error]
	c.start()
	for lsn := range f.records {
		id := g.r.Int64N(f.records/2 + 1)
		value := g.message(id, lsn)
		f.last[id] = lsn
		f.bytes += int64(len(value))
		client.Produce(ctx, &kgo.Record{Key: strconv.AppendInt(nil, id, 10), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	err = client.Flush(ctx)
	c.stop()
	if p := failed.Load(); p != nil {
		err = errors.Join(err, *p)
	}
	return err
}

// message is one record as JSON.
func (g *generator) message(id, lsn int64) []byte {
	b := fmt.Appendf(make([]byte, 0, 256), `{"id":%d,"lsn":%d,"kind":%d,"email":"%s","product":`, id, lsn, g.r.IntN(4), g.mail(nil))
	if g.null(nullProduct) {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendQuote(b, g.product())
	}
	b = append(b, `,"score":`...)
	if g.null(nullDouble) {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendFloat(b, g.r.NormFloat64()*50+100, 'g', -1, 64)
	}
	return fmt.Appendf(b, `,"created_at":%d,"amount":"%d.%02d","qty":%d,"active":%t}`,
		1_750_000_000_000_000+lsn*1000, g.r.IntN(10000), g.r.IntN(100), g.r.IntN(1000), g.r.IntN(10) == 0)
}

// pipeline reads the whole topic into a new table. The timed part ends when every record is in a published snapshot,
// and with compact when all rows are on the highest level, too.
func (k *kit) pipeline(ctx context.Context, f *feed, compact, check bool, c *clock) (err error) {
	store, remove, err := k.local()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	cols, err := schema.ParseColumns(kafkaColumns)
	if err != nil {
		return err
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": strconv.Itoa(kafkaBuckets)}})
	if err != nil {
		return err
	}
	if err := engine.Create(ctx, store, s); err != nil {
		return err
	}
	set := engine.Settings{Job: "kafka-" + topic}
	if compact {
		set.Compaction = 1
	}
	table, err := engine.Open(ctx, store, set, lab.Env())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close(context.WithoutCancel(ctx))) }()
	c.start()
	err = f.read(ctx, table, store)
	if err == nil && compact {
		err = table.Compact(ctx, true)
	}
	c.stop()
	if err != nil || !check {
		return err
	}
	return f.check(ctx, store)
}

// read runs the pipeline until all records are committed.
func (f *feed) read(ctx context.Context, table *engine.Table, store storage.Store) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done, rejected := int64(0), int64(0)
	dead := ingest.NewDeadLetters(storage.Sub(store, "dead"), ingest.DeadLetterSettings{}, lab.Env())
	err := ingest.RunKafka(ctx, ingest.KafkaConfig{HubConfig: ingest.HubConfig{Brokers: f.brokers}, Topic: topic}, table,
		dead, lab.Env(), ingest.Events{
			Committed: func(c ingest.Committed) {
				rejected += c.Rejected
				if done += c.Records; done >= f.records {
					stop()
				}
			},
		})
	err = errors.Join(err, dead.Close(context.WithoutCancel(ctx)))
	switch {
	case err != nil:
		return err
	case done != f.records || rejected > 0:
		return fmt.Errorf("%d records committed and %d refused, want %d and none", done, rejected, f.records)
	}
	return nil
}

// check compares the table with the feed.
func (f *feed) check(ctx context.Context, store storage.Store) error {
	rows := 0
	for rec, err := range lab.Reader(store).Scan(ctx, reader.Query{Columns: []string{"id", "lsn"}}) {
		if err != nil {
			return err
		}
		ids, lsns := rec.Column(0).(*array.Int64), rec.Column(1).(*array.Int64)
		for i := range ids.Len() {
			if want, ok := f.last[ids.Value(i)]; !ok || lsns.Value(i) != want {
				return fmt.Errorf("wrong rows: id %d has lsn %d, want %d", ids.Value(i), lsns.Value(i), want)
			}
		}
		rows += ids.Len()
	}
	if rows != len(f.last) {
		return fmt.Errorf("wrong rows: %d of them, want %d", rows, len(f.last))
	}
	return nil
}
