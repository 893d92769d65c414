//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	chaosPartitions = 3
	chaosKeys       = 2000
	chaosPlain      = 400 // records a second of the producer without transactions
	chaosTx         = 300 // of the one with them
)

// chaosEvent is the value of a record.
type chaosEvent struct {
	Op  string `json:"op"` // U or D
	ID  int64  `json:"id"`
	K   int64  `json:"k"`
	P   string `json:"p"` // partition of the table that has some
	V   string `json:"v"`
	TS  int64  `json:"ts"` // event time in ms
	One int64  `json:"one"`
}

// What is known of the records of an id.
const (
	idUnknown = iota // the log decides
	idAcked          // at least one is in the log
	idAborted        // none is told to readers of committed records
)

// chaosProducers write into two topics until they are stopped: "plain" has records of a producer that is not idempotent,
// sends some records again, at once or much later, and holds others back, so that times go back and forth; "mixed" has such
// records too, between those of transactions, of which some are aborted and some left open by a client that is gone.
type chaosProducers struct {
	address      string
	plain, mixed string // names of the topics
	client       *kgo.Client
	stop         context.CancelFunc
	done         sync.WaitGroup

	mu     sync.Mutex // guards what follows
	fates  []byte     // by id
	errs   []error
	broken int // records that are no JSON
	again  int // records sent again
	late   int // records held back
	ended  struct{ committed, aborted, abandoned, unknown int }
}

func startChaosProducers(ctx context.Context, kafka *Kafka, seed uint64, suffix string) (*chaosProducers, error) {
	p := &chaosProducers{address: kafka.Address, plain: "chaos-plain-" + suffix, mixed: "chaos-mixed-" + suffix}
	var err error
	p.client, err = kgo.NewClient(kgo.SeedBrokers(kafka.Address), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.ProducerLinger(5*time.Millisecond), kgo.RetryTimeout(2*time.Minute))
	if err != nil {
		return nil, err
	}
	topics, err := kadm.NewClient(p.client).CreateTopics(ctx, chaosPartitions, 1, nil, p.plain, p.mixed)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		p.client.Close()
		return nil, fmt.Errorf("create topics: %w", err)
	}
	ctx, p.stop = context.WithCancel(ctx)
	p.done.Go(func() { p.producePlain(ctx, rand.New(rand.NewPCG(seed, 41))) })
	p.done.Go(func() { p.produceTx(ctx, rand.New(rand.NewPCG(seed, 43))) })
	return p, nil
}

// next makes the next record; its id has no fate yet.
func (p *chaosProducers) next(rng *rand.Rand, topic string) (*kgo.Record, int64) {
	p.mu.Lock()
	id := int64(len(p.fates))
	p.fates = append(p.fates, idUnknown)
	p.mu.Unlock()
	k := rng.Int64N(chaosKeys)
	e := chaosEvent{Op: "U", ID: id, K: k, P: string(rune('a' + k%chaosPartitions)), V: "event " + strconv.FormatInt(id, 10), TS: time.Now().UnixMilli() - rng.Int64N(5000), One: 1}
	if rng.IntN(5) == 0 {
		e.Op = "D"
	}
	value, err := json.Marshal(e)
	if err != nil || rng.IntN(500) == 0 {
		value = fmt.Appendf(nil, "{broken %d", id)
		p.mu.Lock()
		p.broken++
		p.mu.Unlock()
	}
	return &kgo.Record{Topic: topic, Partition: int32(k % chaosPartitions), Value: value}, id
}

func (p *chaosProducers) fate(id int64, fate byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fates[id] = fate
}

func (p *chaosProducers) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errs) < 10 {
		p.errs = append(p.errs, err)
	}
}

// held is a record that is sent, or sent again, later.
type held struct {
	record *kgo.Record
	id     int64
	due    time.Time
}

func (p *chaosProducers) producePlain(ctx context.Context, rng *rand.Rand) {
	const beat = 20 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var waiting []held
	for {
		select {
		case <-ctx.Done():
			for _, h := range waiting {
				p.send(h.record, h.id)
			}
			return
		case <-tick.C:
		}
		kept := waiting[:0]
		for _, h := range waiting {
			if time.Now().Before(h.due) {
				kept = append(kept, h)
			} else {
				p.send(h.record, h.id)
			}
		}
		waiting = kept
		for range chaosPlain * int(beat) / int(time.Second) {
			topic := p.plain
			if rng.IntN(4) == 0 {
				topic = p.mixed
			}
			r, id := p.next(rng, topic)
			later := held{r, id, time.Now().Add(time.Duration(200+rng.IntN(15000)) * time.Millisecond)}
			again, late := 0, 0
			switch n := rng.IntN(100); {
			case n < 4:
				p.send(r, id)
				p.send(r, id)
				again = 1
			case n < 8:
				p.send(r, id)
				waiting = append(waiting, later)
				again = 1
			case n < 11:
				waiting = append(waiting, later)
				late = 1
			default:
				p.send(r, id)
			}
			p.mu.Lock()
			p.again, p.late = p.again+again, p.late+late
			p.mu.Unlock()
		}
	}
}

// send sends a copy of a record.
func (p *chaosProducers) send(r *kgo.Record, id int64) {
	c := *r
	p.client.Produce(context.Background(), &c, func(_ *kgo.Record, err error) {
		if err != nil {
			p.failed(fmt.Errorf("produce: %w", err))
			return
		}
		p.fate(id, idAcked)
	})
}

// produceTx writes transactions.
func (p *chaosProducers) produceTx(ctx context.Context, rng *rand.Rand) {
	var client *kgo.Client
	defer func() {
		if client != nil {
			client.Close()
		}
	}()
	for ctx.Err() == nil {
		if client == nil {
			var err error
			client, err = kgo.NewClient(kgo.SeedBrokers(p.address), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(p.mixed),
				kgo.TransactionTimeout(30*time.Second), kgo.ProducerLinger(2*time.Millisecond))
			if err != nil {
				p.failed(err)
				return
			}
		}
		start := time.Now()
		n, again := p.transaction(ctx, client, rng)
		if !again {
			client.Close()
			client = nil
		}
		pause(ctx, time.Until(start.Add(time.Duration(n)*time.Second/chaosTx)))
	}
	if client == nil { // the one that is gone may have left a transaction open, behind which readers wait
		p.settle()
	}
}

// settle has the broker end a transaction that is open.
func (p *chaosProducers) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.address), kgo.TransactionalID(p.mixed), kgo.TransactionTimeout(30*time.Second))
	if err == nil {
		defer client.Close()
		_, _, err = client.ProducerID(ctx)
	}
	if err != nil {
		p.failed(fmt.Errorf("end the last transaction: %w", err))
	}
}

// transaction writes one, and reports how many records it had, and whether the client can go on.
func (p *chaosProducers) transaction(ctx context.Context, client *kgo.Client, rng *rand.Rand) (n int, again bool) {
	if err := client.BeginTransaction(); err != nil {
		p.failed(fmt.Errorf("begin a transaction: %w", err))
		return 0, false
	}
	n = 10 + rng.IntN(400)
	ids := make([]int64, 0, n)
	var failed firstError
	for i := range n {
		r, id := p.next(rng, p.mixed)
		ids = append(ids, id)
		client.Produce(context.Background(), r, func(_ *kgo.Record, err error) { failed.set(err) })
		if i == n/2 && rng.IntN(4) == 0 {
			pause(ctx, time.Duration(rng.IntN(1500))*time.Millisecond)
		}
	}
	fate := rng.IntN(100)
	end, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	err := errors.Join(client.Flush(end), failed.get())
	if err == nil && fate < 4 { // the client is gone; the next one with its id has the transaction aborted
		p.settled(ids, idAborted, &p.ended.abandoned)
		return n, false
	}
	commit := kgo.TransactionEndTry(err == nil && fate >= 25)
	if end := client.EndTransaction(end, commit); end != nil {
		p.settled(ids, idUnknown, &p.ended.unknown)
		return n, false
	}
	if commit {
		p.settled(ids, idAcked, &p.ended.committed)
	} else {
		p.settled(ids, idAborted, &p.ended.aborted)
	}
	return n, true
}

func (p *chaosProducers) settled(ids []int64, fate byte, count *int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		p.fates[id] = fate
	}
	*count++
}

// Stop ends producing and waits until the broker has everything.
func (p *chaosProducers) Stop() error {
	p.stop()
	p.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.client.Flush(ctx)
	p.client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(append([]error{err}, p.errs...)...)
}

// firstError keeps the first of errors that come from several goroutines.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
