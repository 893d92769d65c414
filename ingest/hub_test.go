package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hubOf makes a hub as the test's pipelines share it.
func (b *broker) hub(cfg KafkaConfig) *Hub {
	b.t.Helper()
	h, err := NewHub(cfg.HubConfig, testEnv())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(h.Close)
	return h
}

// values are what fill has made: rows from 0 on in partition 0.
func values(n int) map[[2]int64]int64 {
	want := map[[2]int64]int64{}
	for i := range int64(n) {
		want[[2]int64{0, i}] = i
	}
	return want
}

// TestHubOneSlowTable: pipelines of one hub, one of which takes nothing for a while. The others read on, what is fetched
// for the slow one is bounded, and in the end it has everything too.
func TestHubOneSlowTable(t *testing.T) {
	const topics, rows = 12, 400
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("t%d", i))
	}
	b := newBroker(t, kfake.SeedTopics(1, names...))
	cfg := b.config()
	cfg.FetchBytes = 4 << 10
	cfg.Decode.BatchRows = 10
	cfg.Hub = b.hub(cfg)
	tables, runs := make([]*fakeTable, topics), make([]*pipeline, topics)
	for i := range topics {
		tables[i] = appendTable(t)
		if i == 0 {
			tables[i].wait = make(chan struct{})
		}
		for from := 0; from < rows; from += 20 {
			b.fill(names[i], 0, from, 20)
		}
		c := cfg
		c.Topic = names[i]
		runs[i] = start(c, tables[i], &list{}, Events{})
	}
	for i := 1; i < topics; i++ {
		tables[i].until(t, "rows of "+names[i], func() bool { return len(tables[i].committed()) == rows })
	}
	cfg.Hub.mu.Lock()
	slow := cfg.Hub.lanes[0].feeds["t0"]
	lanes := len(cfg.Hub.lanes)
	cfg.Hub.mu.Unlock()
	await := time.Now().Add(20 * time.Second)
	for !slow.isPaused() && time.Now().Before(await) {
		time.Sleep(5 * time.Millisecond)
	}
	slow.mu.Lock()
	held, paused := slow.bytes, slow.paused
	slow.mu.Unlock()
	if !paused || held > 2*4<<10+20*220+1<<20 || lanes != 1 {
		t.Errorf("the slow table's topic is paused: %v, %d bytes wait; %d lanes", paused, held, lanes)
	}
	close(tables[0].wait)
	tables[0].until(t, "rows of the slow table", func() bool { return len(tables[0].committed()) == rows })
	b.fill("t0", 0, rows, 5)
	tables[0].until(t, "later rows", func() bool { return len(tables[0].committed()) == rows+5 })
	for i := range runs {
		if err := runs[i].stop(t); err != nil {
			t.Fatal(err)
		}
		n := rows
		if i == 0 {
			n += 5
		}
		checkOffsets(t, tables[i].committed(), values(n))
	}
}

// TestHubOneTopicTwice: two pipelines read one topic from where each is; one of them ends and begins again, while the
// topic beside it goes on.
func TestHubOneTopicTwice(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t", "u"))
	cfg := b.config()
	cfg.Hub = b.hub(cfg)
	first, second, other := appendTable(t), appendTable(t), appendTable(t)
	b.fill("t", 0, 0, 10)
	p := start(cfg, first, &list{}, Events{})
	first.until(t, "rows", func() bool { return len(first.committed()) == 10 })
	u := cfg
	u.Topic = "u"
	o := start(u, other, &list{}, Events{})
	q := start(cfg, second, &list{}, Events{})
	second.until(t, "rows", func() bool { return len(second.committed()) == 10 })
	sent := 10
	for range 5 {
		if err := p.stop(t); err != nil {
			t.Fatal(err)
		}
		b.fill("t", 0, sent, 10)
		b.fill("u", 0, sent-10, 10)
		sent += 10
		second.until(t, "rows", func() bool { return len(second.committed()) == sent })
		p = start(cfg, first, &list{}, Events{})
		first.until(t, "rows", func() bool { return len(first.committed()) == sent })
		other.until(t, "rows", func() bool { return len(other.committed()) == sent-10 })
	}
	for _, r := range []*pipeline{p, q, o} {
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
	}
	checkOffsets(t, first.committed(), values(sent))
	checkOffsets(t, second.committed(), values(sent))
	checkOffsets(t, other.committed(), values(sent-10))
	// Who comes when all have gone gets a new client.
	b.fill("t", 0, sent, 1)
	runToEnd(t, cfg, first, fmt.Sprintf(`{"0":%d}`, sent+1))
}

// TestHubTopicCreatedAgain: a topic that is created again stops its own pipeline, and with a reset the same client reads
// the new one from its beginning. Others read on.
func TestHubTopicCreatedAgain(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t", "u"))
	cfg := b.config()
	cfg.Hub = b.hub(cfg)
	u := cfg
	u.Topic = "u"
	table, other := appendTable(t), appendTable(t)
	b.fill("t", 0, 0, 100)
	o := start(u, other, &list{}, Events{})
	p := start(cfg, table, &list{}, Events{})
	table.until(t, "rows", func() bool { return len(table.committed()) == 100 })
	if err := errors.Join(b.DeleteTopic("t"), b.CreateTopic("t", 1, nil)); err != nil {
		t.Fatal(err)
	}
	b.p = producer(t, b.Cluster)
	b.fill("t", 0, 1000, 50)
	checkError(t, p.wait(t), ErrSourceChanged, "offsets below 100 of partition 0 were read; now it has [0, ")
	b.fill("u", 0, 0, 10)
	other.until(t, "rows", func() bool { return len(other.committed()) == 10 })
	cfg.Reset = true
	runToEnd(t, cfg, table, `{"0":50}`)
	if n := len(table.committed()); n != 150 {
		t.Errorf("%d rows after the reset", n)
	}
	b.fill("u", 0, 10, 10)
	other.until(t, "rows", func() bool { return len(other.committed()) == 20 })
	if err := o.stop(t); err != nil {
		t.Fatal(err)
	}
	names, err := cfg.Hub.Topics(t.Context())
	if err != nil || fmt.Sprint(names) != "[t u]" {
		t.Errorf("topics %v %v", names, err)
	}
	cfg.Hub.Close()
	if err := start(cfg, table, &list{}, Events{}).wait(t); err == nil {
		t.Error("a closed hub serves")
	}
}

// TestHubRefusedFetch: brokers refuse the fetches of a topic whose pipeline takes nothing for a while. One error waits for
// it, and no more are fetched; the topic beside it is read on, and who opens the topic again reads it.
func TestHubRefusedFetch(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t", "u"))
	b.fill("t", 0, 0, 10)
	var fetches atomic.Int64
	b.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	cfg := b.config()
	cfg.Hub = b.hub(cfg)
	refused, err := cfg.Hub.open(t.Context(), "t", map[int32]kgo.Offset{0: kgo.NewOffset().At(1000)})
	if err != nil {
		t.Fatal(err)
	}
	other := appendTable(t)
	u := cfg
	u.Topic = "u"
	p := start(u, other, &list{}, Events{})
	<-refused.filled
	before := fetches.Load()
	for i := range 10 {
		b.fill("u", 0, i, 1)
		other.until(t, "rows", func() bool { return len(other.committed()) == i+1 })
		time.Sleep(20 * time.Millisecond)
	}
	refused.mu.Lock()
	waiting, n := len(refused.queue), fetches.Load()-before
	refused.mu.Unlock()
	if waiting != 1 || n > 200 {
		t.Errorf("%d pieces wait, and there were %d fetches", waiting, n)
	}
	if got := refused.take(1); len(got) != 1 || !errors.Is(got[0].Err, kerr.OffsetOutOfRange) {
		t.Errorf("%d pieces, no error of the broker", len(got))
	}
	b.fill("u", 0, 10, 1)
	other.until(t, "rows", func() bool { return len(other.committed()) == 11 })
	refused.close()
	table := appendTable(t)
	runToEnd(t, cfg, table, `{"0":10}`)
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
}

// TestHubRests: a lane rests behind a fetch, the longer the more topics it has, 100 ms at most; not with few topics, nor while
// there is much to fetch, nor when something is to be changed.
func TestHubRests(t *testing.T) {
	env := testEnv()
	for _, c := range []struct {
		topics, records int
		behind          int64
		want            time.Duration
	}{
		{restTopics - 1, 1, 0, 0}, {200, 1, 0, 10 * time.Millisecond}, {200, 0, 0, 10 * time.Millisecond}, {200, 500, 20, 10 * time.Millisecond},
		{200, restRecords, 0, 0}, {200, 500, restRecords, 0}, {50_000, 1, 0, restMost},
	} {
		l := &lane{hub: &Hub{env: env}, feeds: map[string]*topicFeed{}}
		for i := range c.topics {
			l.feeds[fmt.Sprint(i)] = nil
		}
		part := kgo.FetchPartition{HighWatermark: int64(c.records) + c.behind}
		for i := range c.records {
			part.Records = append(part.Records, &kgo.Record{Offset: int64(i)})
		}
		if got := l.pause(kgo.Fetches{{Topics: []kgo.FetchTopic{{Partitions: []kgo.FetchPartition{part}}}}}); got != c.want {
			t.Errorf("%d topics, %d records and %d more: it rests for %v, want %v", c.topics, c.records, c.behind, got, c.want)
		}
	}
	env.After = func(time.Duration) <-chan time.Time { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(&lane{hub: &Hub{env: env}}).rest(ctx, time.Second) // comes back
}

// TestHubRestsBetweenFetches: where records come one by one, a lane of many topics rests, and gives them all.
func TestHubRestsBetweenFetches(t *testing.T) {
	var names []string
	for i := range restTopics {
		names = append(names, fmt.Sprintf("t%d", i))
	}
	b := newBroker(t, kfake.SeedTopics(1, names...))
	cfg, env, rests := b.config(), testEnv(), atomic.Int64{}
	after := env.After
	env.After = func(d time.Duration) <-chan time.Time {
		if d == restTime*restTopics {
			rests.Add(1)
		}
		return after(d)
	}
	var err error
	if cfg.Hub, err = NewHub(cfg.HubConfig, env); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cfg.Hub.Close)
	tables, runs := make([]*fakeTable, restTopics), make([]*pipeline, restTopics)
	for i := range tables {
		b.fill(names[i], 0, 0, 1)
		tables[i] = appendTable(t)
		c := cfg
		c.Topic = names[i]
		runs[i] = start(c, tables[i], &list{}, Events{})
	}
	for i := range tables {
		tables[i].until(t, "a row", func() bool { return len(tables[i].committed()) == 1 })
	}
	b.fill(names[0], 0, 1, 1)
	tables[0].until(t, "another row", func() bool { return len(tables[0].committed()) == 2 })
	for _, r := range runs {
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
	}
	if rests.Load() == 0 {
		t.Error("the lane did not rest")
	}
}
