//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const killTopic = "kill-events"

// event is one record that was produced: an upsert or delete of a key, or bytes that are no JSON.
type event struct {
	op     string // U, D or "" for a broken one
	key, n int
	text   string
}

// events produces records at a steady rate until it is stopped, and knows them all. A key has one partition, so the
// order of its records is that of their offsets.
type events struct {
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}
	rng    *rand.Rand

	mu   sync.Mutex
	sent [killPartitions][]event // by offset
	err  error
}

func startEvents(ctx context.Context, kafka *Kafka, seed uint64) (*events, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Address), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(killTopic), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return nil, err
	}
	topics, err := kadm.NewClient(client).CreateTopics(ctx, killPartitions, 1, nil, killTopic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("create topic: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	e := &events{client: client, stop: stop, done: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 11))}
	go e.produce(ctx)
	return e, nil
}

func (e *events) produce(ctx context.Context) {
	defer close(e.done)
	const beat = 20 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for range killRate * int(beat) / int(time.Second) {
			e.send(n)
			n++
		}
	}
}

func (e *events) send(n int) {
	ev := event{op: "U", key: e.rng.IntN(killKeys), n: n, text: fmt.Sprintf("event %d", n)}
	value := ""
	switch {
	case n%1000 == 999:
		ev.op, value = "", fmt.Sprintf("{broken %d", n)
	case e.rng.IntN(5) == 0:
		ev.op = "D"
	}
	if value == "" {
		value = fmt.Sprintf(`{"op":%q,"k":%d,"v":%q,"n":%d}`, ev.op, ev.key, ev.text, n)
	}
	partition := ev.key % killPartitions
	e.mu.Lock()
	expected := int64(len(e.sent[partition]))
	e.sent[partition] = append(e.sent[partition], ev)
	e.mu.Unlock()
	record := &kgo.Record{Value: []byte(value), Partition: int32(partition)}
	e.client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
		if err == nil && r.Offset != expected {
			err = fmt.Errorf("event %d of partition %d has offset %d", expected, partition, r.Offset)
		}
		if err != nil {
			e.mu.Lock()
			e.err = errors.Join(e.err, err)
			e.mu.Unlock()
		}
	})
}

// Stop ends producing and waits until the broker has everything.
func (e *events) Stop() error {
	e.stop()
	<-e.done
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := e.client.Flush(ctx)
	e.client.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(err, e.err)
}

// each calls f for every event in the order of partitions and offsets; only after Stop.
func (e *events) each(f func(partition, offset int, ev event) error) error {
	for p, list := range e.sent {
		for o, ev := range list {
			if err := f(p, o, ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// Count is the number of records, Good of those that are rows.
func (e *events) Count() int { return e.Good() + len(e.Broken()) }

// Good is the number of records that are rows.
func (e *events) Good() (n int) {
	_ = e.each(func(_, _ int, ev event) error { // f gives no error
		if ev.op != "" {
			n++
		}
		return nil
	})
	return n
}

// Broken gives "partition/offset" of each record that is no row.
func (e *events) Broken() (positions []string) {
	_ = e.each(func(p, o int, ev event) error { // f gives no error
		if ev.op == "" {
			positions = append(positions, fmt.Sprintf("%d/%d", p, o))
		}
		return nil
	})
	return positions
}

// Appended is what the table without key must hold: every event, deletes too.
func (e *events) Appended() (*Rows, error) {
	rows, err := NewRows(killAppend)
	if err != nil {
		return nil, err
	}
	err = e.each(func(p, o int, ev event) error {
		if ev.op == "" {
			return nil
		}
		return rows.Add(map[string]any{"k": ev.key, "v": ev.text, "n": ev.n, "part": p, "off": o})
	})
	return rows, err
}

// Keyed is what the table with key must hold: the last event of each key, if it is no delete.
func (e *events) Keyed() (*Rows, error) {
	model, err := NewModel(killKeyed, []string{"k"})
	if err != nil {
		return nil, err
	}
	err = e.each(func(_, o int, ev event) error {
		if ev.op == "" {
			return nil
		}
		row := map[string]any{"k": ev.key, "v": ev.text, "n": ev.n, "off": o}
		return model.Apply([]Op{{ev.op, row}})
	})
	if err != nil {
		return nil, err
	}
	return model.Rows()
}
