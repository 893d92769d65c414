package ingest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// broker is an in-process Kafka with one producer.
type broker struct {
	*kfake.Cluster
	t *testing.T
	p *kgo.Client
}

func newBroker(t *testing.T, opts ...kfake.Opt) *broker {
	t.Helper()
	b := newBrokerNoProducer(t, opts...)
	b.p = producer(t, b.Cluster)
	return b
}

func newBrokerNoProducer(t *testing.T, opts ...kfake.Opt) *broker {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.ClusterID("cluster-a")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &broker{Cluster: c, t: t}
}

func producer(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	p, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// send produces one record; "-" as value is a null value.
func (b *broker) send(topic string, partition int32, key, value string) {
	b.t.Helper()
	b.sendAll([]*kgo.Record{message(topic, partition, key, value)})
}

func (b *broker) sendAll(rs []*kgo.Record) {
	b.t.Helper()
	if err := b.p.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

func message(topic string, partition int32, key, value string) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value), Timestamp: time.UnixMilli(1500)}
	if value == "-" {
		r.Value = nil
	}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

func (b *broker) fill(topic string, partition int32, from, n int) {
	b.t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, message(topic, partition, "", fmt.Sprintf(`{"v":%d}`, from+i)))
	}
	b.sendAll(rs)
}

func (b *broker) config() KafkaConfig {
	return KafkaConfig{Topic: "t", Patience: 2 * time.Second,
		Limits: Limits{CommitInterval: 20 * time.Millisecond, StopTimeout: 5 * time.Second},
		Decode: decode.Config{Metadata: map[string]string{"part": "partition", "off": "offset"}},
		HubConfig: HubConfig{Brokers: b.ListenAddrs(), RefreshInterval: 50 * time.Millisecond,
			Client: []kgo.Opt{kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(10 * time.Millisecond)}}}
}

func appendTable(t *testing.T) *fakeTable {
	return newFakeTable(schematest.Table(t, "", "v BIGINT", "part INT", "off BIGINT"))
}

// pipeline is a RunKafka in the background.
type pipeline struct {
	cancel context.CancelFunc
	done   chan error
}

func start(cfg KafkaConfig, table Table, dead DeadLetter, events Events) *pipeline {
	return startIn(testEnv(), cfg, table, dead, events)
}

func startIn(env Env, cfg KafkaConfig, table Table, dead DeadLetter, events Events) *pipeline {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipeline{cancel, make(chan error, 1)}
	go func() { p.done <- RunKafka(ctx, cfg, table, dead, env, events) }()
	return p
}

// stop ends the pipeline and gives its error.
func (p *pipeline) stop(t *testing.T) error {
	t.Helper()
	p.cancel()
	return p.wait(t)
}

func (p *pipeline) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.done:
		p.cancel()
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the pipeline does not end")
		return nil
	}
}

// checkOffsets checks that the rows are exactly the given values, each (partition, offset) once.
func checkOffsets(t *testing.T, rows [][]any, want map[[2]int64]int64) {
	t.Helper()
	got := map[[2]int64]int64{}
	for _, r := range rows {
		at := [2]int64{int64(r[2].(int32)), r[3].(int64)}
		if _, twice := got[at]; twice {
			t.Fatalf("partition and offset %v are in the table twice", at)
		}
		got[at] = r[1].(int64)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("table has %d rows, produced were %d; the sets differ", len(got), len(want))
	}
}

// TestKafkaExactlyOnce lets the pipeline fail at random calls, with and without effect, until all is read.
func TestKafkaExactlyOnce(t *testing.T) {
	r := schematest.Rand(t)
	b := newBroker(t, kfake.SeedTopics(3, "t"))
	want, poison := map[[2]int64]int64{}, map[[2]int64]bool{}
	next := [3]int64{}
	produce := func(n int) {
		var rs []*kgo.Record
		for range n {
			p := r.IntN(3)
			at := [2]int64{int64(p), next[p]}
			next[p]++
			if r.IntN(20) == 0 {
				poison[at] = true
				rs = append(rs, message("t", int32(p), "", []string{`{"v":`, "\xff", `{"v":"x"}`, ""}[r.IntN(4)]))
				continue
			}
			want[at] = r.Int64()
			rs = append(rs, message("t", int32(p), "", fmt.Sprintf(`{"v":%d}`, want[at])))
		}
		b.sendAll(rs)
	}
	table, store := appendTable(t), storage.NewMem()
	cfg := b.config()
	cfg.Decode.BatchRows = 20
	cfg.Limits.CommitRows = 50
	const rounds = 40
	crashes := 0
	for round := 0; round < rounds || len(table.committed()) < len(want); round++ {
		left, lost := r.IntN(6), r.IntN(2) == 0
		if round < rounds {
			produce(30 + r.IntN(50))
		} else {
			left = 1 << 30
		}
		table.fault = func(string) (error, bool) {
			left--
			if left < 0 {
				return errCrash, lost
			}
			return nil, false
		}
		dead := NewDeadLetters(store, DeadLetterSettings{Engine: engine.Settings{Job: "t"}}, testEnv())
		p := start(cfg, table, dead, Events{})
		end := fmt.Sprintf(`{"0":%d,"1":%d,"2":%d}`, next[0], next[1], next[2])
		table.until(t, "end or crash", func() bool { return len(p.done) > 0 || table.property(PropOffsets) == end })
		if err := p.stop(t); errors.Is(err, errCrash) {
			crashes++
		} else if err != nil {
			t.Fatal(err)
		}
		if err := dead.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		table.crash()
	}
	checkOffsets(t, table.committed(), want)
	for _, l := range lettersIn(t, store) {
		at := [2]int64{int64(l.Partition), l.Offset}
		if !poison[at] || l.Topic != "t" || l.Reason == "" {
			t.Fatalf("letter %+v", l)
		}
		delete(poison, at)
	}
	if len(poison) > 0 || crashes < rounds/2 {
		t.Fatalf("%d poison records are not in the dead letters; %d crashes", len(poison), crashes)
	}
	if got := table.property(PropOffsets); got != fmt.Sprintf(`{"0":%d,"1":%d,"2":%d}`, next[0], next[1], next[2]) {
		t.Fatalf("position %s, produced %v", got, next)
	}
	if got, n := table.property(PropRecords), next[0]+next[1]+next[2]; got != fmt.Sprint(n) {
		t.Fatalf("%s records counted, %d produced", got, n)
	}
}

// TestKafkaHardInputs sends what must not stop the stream.
func TestKafkaHardInputs(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table := newFakeTable(schematest.Table(t, "id", "id BIGINT", "s STRING"))
	for _, kv := range [][2]string{
		{`{"id":1}`, `{"id":1,"s":"new"}`}, {"", `{"op":"u","id":1,"s":"paid"}`}, {"", `{"op":"d","id":1}`}, {`{"id":1}`, "-"}, {"", `{"id":2,"s":"new"}`},
		{"", "{\"id\":3,\"s\":\"\xff\"}"}, {"", `{"id":4,"s":"tru`}, {`{"id":5}`, ""}, {"", "\x00\x00\x00\x00\x07rest"}, {"", `{"id":null,"s":"x"}`},
		{"", `{"s":"x"}`}, {"x", "-"}, {"", `{"id":6,"s":"` + strings.Repeat("y", 3000) + `"}`}, {"", `{"id":7,"s":"last"}`},
	} {
		b.send("t", 0, kv[0], kv[1])
	}
	cfg, dead := b.config(), &list{}
	cfg.Decode = decode.Config{MaxRecordBytes: 2000}
	var events []Letter
	var sum Committed
	p := start(cfg, table, dead, Events{
		Rejected:  func(l Letter) { events = append(events, l) },
		Committed: func(c Committed) { sum.add(c) },
	})
	table.until(t, "end", func() bool { return table.property(PropOffsets) == `{"0":14}` })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	want := `[[+I 1 new] [+U 1 paid] [-D 1 <nil>] [-D 1 <nil>] [+I 2 new] [+I 7 last]]`
	if got := fmt.Sprint(table.committed()); got != want {
		t.Errorf("rows\n got %s\nwant %s", got, want)
	}
	letters := dead.all()
	reasons := []string{"invalid UTF-8 (at byte 13", "ends too early", "the value is empty", "want a JSON object, not", "key column is missing or null",
		"key column is missing or null", "(at byte 0 of the key)", "has 3015 bytes, more than the record size limit of 2000"}
	if len(letters) != len(reasons) || len(events) != len(letters) {
		t.Fatalf("dead letters:\n%s", strings.Join(letters, "\n"))
	}
	for i, reason := range reasons {
		if !strings.Contains(letters[i], reason) || !strings.HasPrefix(letters[i], "t/0@") {
			t.Errorf("letter %d: %s, want %s", i, letters[i], reason)
		}
	}
	if sum.Records != 14 || sum.Rejected != 8 || sum.Rows != 6 || sum.Lag != 0 {
		t.Errorf("events counted %+v", sum)
	}
}

// TestKafkaTombstonesOfEnvelopes: the tombstone after a delete says nothing new and is counted.
func TestKafkaTombstonesOfEnvelopes(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table := newFakeTable(schematest.Table(t, "id", "id BIGINT", "s STRING"))
	for _, v := range []string{`{"before":null,"after":{"id":1,"s":"a"},"op":"c"}`, `{"before":{"id":1,"s":"a"},"after":null,"op":"d"}`, "-", `{"before":null,"after":{"id":2,"s":"b"},"op":"r"}`} {
		b.send("t", 0, `{"id":1}`, v)
	}
	cfg, dead := b.config(), &list{}
	cfg.Decode = decode.Config{Format: decode.Debezium}
	var sum Committed
	p := start(cfg, table, dead, Events{Committed: func(c Committed) { sum.add(c) }})
	table.until(t, "end", func() bool { return table.property(PropOffsets) == `{"0":4}` })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(table.committed()); got != `[[+I 1 a] [-D 1 a] [+I 2 b]]` || sum.Tombstones != 1 || len(dead.all()) != 0 {
		t.Errorf("rows %s, %d tombstones, letters %v", got, sum.Tombstones, dead.all())
	}
}

// runToEnd reads until the table's position is want, then stops.
func runToEnd(t *testing.T, cfg KafkaConfig, table *fakeTable, want string) {
	t.Helper()
	p := start(cfg, table, &list{}, Events{})
	table.until(t, "position "+want, func() bool { return table.property(PropOffsets) == want })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
}

func expectError(t *testing.T, cfg KafkaConfig, table Table, want error, words ...string) {
	t.Helper()
	checkError(t, start(cfg, table, &list{}, Events{}).wait(t), want, words...)
}

func checkError(t *testing.T, err, want error, words ...string) {
	t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func init() { hard[9] = hardRecreated }

func hardRecreated(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	b.fill("t", 0, 0, 100)
	runToEnd(t, cfg, table, `{"0":100}`)
	old := table.property(PropTopicID)
	if err := b.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	expectError(t, cfg, table, ErrNoTopic, `"t"`)
	if err := b.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	b.p = producer(t, b.Cluster)
	b.fill("t", 0, 1000, 150) // longer than the old log: its offsets alone would look right
	expectError(t, cfg, table, ErrSourceChanged, "deleted and created again", old, "reset", "offsets below 100 of partition 0 were read", "now it has [0, 150) in partition 0")
	if n := len(table.committed()); n != 100 {
		t.Fatalf("%d rows after the refusal", n)
	}
	cfg.Reset = true
	runToEnd(t, cfg, table, `{"0":150}`)
	if n := len(table.committed()); n != 250 || table.property(PropTopicID) == old {
		t.Fatalf("%d rows after the reset, topic id %s", n, table.property(PropTopicID))
	}
	// A reset that is left on changes nothing when the source can be continued.
	b.fill("t", 0, 2000, 1)
	runToEnd(t, cfg, table, `{"0":151}`)
	if n := len(table.committed()); n != 251 {
		t.Fatalf("%d rows with a reset left on", n)
	}
}

func TestKafkaTopicCreatedAgainWhileReading(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	b.fill("t", 0, 0, 10)
	p := start(cfg, table, &list{}, Events{})
	table.until(t, "rows", func() bool { return len(table.committed()) == 10 })
	if err := errors.Join(b.DeleteTopic("t"), b.CreateTopic("t", 1, nil)); err != nil {
		t.Fatal(err)
	}
	b.p = producer(t, b.Cluster)
	b.fill("t", 0, 1000, 50)
	checkError(t, p.wait(t), ErrSourceChanged, "deleted and created again")
	if n := len(table.committed()); n != 10 {
		t.Fatalf("%d rows, 10 were in the topic that was read", n)
	}
}

func TestKafkaTopicDeletedWhileReading(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	cfg.Patience = 200 * time.Millisecond
	b.fill("t", 0, 0, 10)
	p := start(cfg, table, &list{}, Events{})
	table.until(t, "rows", func() bool { return len(table.committed()) == 10 })
	if err := b.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	checkError(t, p.wait(t), ErrNoTopic, `"t"`)
}

func TestKafkaSASL(t *testing.T) {
	b := newBrokerNoProducer(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "u1", "p1"), kfake.Superuser("SCRAM-SHA-256", "u2", "p2"), kfake.Superuser("SCRAM-SHA-512", "u3", "p3"))
	b.p = producer(t, b.Cluster, kgo.SASL(plain.Auth{User: "u1", Pass: "p1"}.AsMechanism()))
	b.fill("t", 0, 0, 3)
	for _, auth := range []SASL{{"PLAIN", "u1", "p1"}, {"SCRAM-SHA-256", "u2", "p2"}, {"SCRAM-SHA-512", "u3", "p3"}} {
		cfg := b.config()
		cfg.SASL = auth
		runToEnd(t, cfg, appendTable(t), `{"0":3}`)
	}
	cfg := b.config()
	cfg.SASL, cfg.Patience = SASL{"PLAIN", "u1", "wrong"}, 100*time.Millisecond
	expectError(t, cfg, appendTable(t), nil, "SASL")
}

func TestKafkaOtherClusterOrTopic(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t", "u"))
	table, cfg := appendTable(t), b.config()
	b.fill("t", 0, 0, 5)
	runToEnd(t, cfg, table, `{"0":5}`)
	c := newBroker(t, kfake.SeedTopics(1, "t"), kfake.ClusterID("cluster-b"))
	other := c.config()
	expectError(t, other, table, ErrSourceChanged, "cluster-a", "cluster-b")
	cfg.Topic = "u"
	expectError(t, cfg, table, ErrSourceChanged, `"t"`, `"u"`)
	table.progress.Properties[PropKind] = kindLines
	expectError(t, cfg, table, ErrSourceChanged, "lines")
	table.progress.Properties[PropKind] = kindKafka
	table.progress.Properties[PropOffsets] = `{"0":-3}`
	expectError(t, cfg, table, nil, "-3")
}

func TestKafkaLogBeginsLater(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	table, cfg := appendTable(t), b.config()
	b.fill("t", 1, 0, 10)
	runToEnd(t, cfg, table, `{"0":0,"1":10}`)
	b.fill("t", 1, 10, 20)
	if err := b.DeleteRecords("t", 1, 25); err != nil {
		t.Fatal(err)
	}
	expectError(t, cfg, table, ErrLogTruncated, `partition 1`, "offset 10 is next", "begins at 25", "15 records")
	cfg.Reset = true
	runToEnd(t, cfg, table, `{"0":0,"1":30}`)
	if n := len(table.committed()); n != 15 {
		t.Fatalf("%d rows", n)
	}
}

func TestKafkaLogEndsEarlier(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	b.fill("t", 0, 0, 10)
	runToEnd(t, cfg, table, `{"0":10}`)
	table.progress.Properties[PropOffsets] = `{"0":12}`
	expectError(t, cfg, table, ErrLogTruncated, "offset 12 is next", "ends at 10")
	table.progress.Properties[PropOffsets] = `{"0":10,"1":5}`
	expectError(t, cfg, table, ErrLogTruncated, "no partition 1")
	cfg.Reset = true
	b.fill("t", 0, 10, 1)
	runToEnd(t, cfg, table, `{"0":11}`)
}

// TestKafkaOldBroker: before Kafka 3.1 a fetch does not say which topic it is from, so the pipeline asks.
func TestKafkaOldBroker(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V3_0_0()))
	table, cfg := appendTable(t), b.config()
	cfg.RefreshInterval = time.Hour
	b.fill("t", 0, 0, 10)
	p := start(cfg, table, &list{}, Events{})
	table.until(t, "rows", func() bool { return len(table.committed()) == 10 })
	if err := errors.Join(b.DeleteTopic("t"), b.CreateTopic("t", 1, nil)); err != nil {
		t.Fatal(err)
	}
	b.p = producer(t, b.Cluster)
	b.fill("t", 0, 1000, 50)
	checkError(t, p.wait(t), ErrSourceChanged, "deleted and created again")
	if n := len(table.committed()); n != 10 {
		t.Fatalf("%d rows, 10 were in the topic that was read", n)
	}
}

// TestKafkaLogCutAndGrownAgain: an election lost records that are in the table, and the log is longer than they were by
// now. Only the leader epoch tells.
func TestKafkaLogCutAndGrownAgain(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	b.fill("t", 0, 0, 10)
	runToEnd(t, cfg, table, `{"0":10}`)
	epoch := table.property(PropEpochs)
	if err := b.MoveTopicPartition("t", 0, 1-b.LeaderFor("t", 0)); err != nil {
		t.Fatal(err)
	}
	b.fill("t", 0, 10, 10)
	runToEnd(t, cfg, table, `{"0":20}`)
	if table.property(PropEpochs) == epoch || epoch == "" {
		t.Fatalf("leader epochs %s, then %s", epoch, table.property(PropEpochs))
	}
	table.progress.Properties[PropOffsets] = `{"0":15}`
	table.progress.Properties[PropEpochs] = epoch // 15 records, the broker has 10 of that epoch
	expectError(t, cfg, table, ErrLogTruncated, "offset 15 is next", "cut back to 10", "grown to 20")
	cfg.Reset = true
	p := start(cfg, table, &list{}, Events{})
	table.until(t, "rows", func() bool { return len(table.committed()) == 40 })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
}

// TestKafkaRetentionWhileReading removes records that were not read yet under a running pipeline.
func TestKafkaRetentionWhileReading(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	cfg.FetchBytes = 1 << 10
	cfg.Client = append(cfg.Client, kgo.FetchMaxPartitionBytes(1<<10))
	table.wait = make(chan struct{})
	for i := range 40 {
		b.fill("t", 0, i*100, 100) // separate batches
	}
	p := start(cfg, table, &list{}, Events{})
	table.wait <- struct{}{} // reading has begun
	if err := b.DeleteRecords("t", 0, 4000); err != nil {
		t.Fatal(err)
	}
	b.fill("t", 0, 5000, 1)
	close(table.wait)
	checkError(t, p.wait(t), ErrLogTruncated, "begins at 4000")
	rows := table.committed()
	want := map[[2]int64]int64{}
	for i := range rows {
		want[[2]int64{0, int64(i)}] = int64(i)
	}
	checkOffsets(t, rows, want) // what was read is a prefix without a gap
	if got := table.property(PropOffsets); got != fmt.Sprintf(`{"0":%d}`, len(rows)) {
		t.Fatalf("position %s after %d rows", got, len(rows))
	}
}

func TestKafkaTransactions(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	tx := producer(t, b.Cluster, kgo.TransactionalID("tx"))
	ctx := context.Background()
	transact := func(end kgo.TransactionEndTry, from, n int) {
		t.Helper()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := tx.ProduceSync(ctx, message("t", 0, "", fmt.Sprintf(`{"v":%d}`, from+i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	transact(kgo.TryAbort, 0, 5)     // 0-4, marker 5
	transact(kgo.TryCommit, 100, 3)  // 6-8, marker 9
	transact(kgo.TryAbort, 200, 100) // 10-109, marker 110
	table, cfg := appendTable(t), b.config()
	runToEnd(t, cfg, table, `{"0":111}`)
	want := map[[2]int64]int64{{0, 6}: 100, {0, 7}: 101, {0, 8}: 102}
	checkOffsets(t, table.committed(), want)
	// All of it may expire now: the position has passed the markers.
	if err := b.DeleteRecords("t", 0, 111); err != nil {
		t.Fatal(err)
	}
	p := start(cfg, table, &list{}, Events{})
	transact(kgo.TryCommit, 300, 1)
	table.until(t, "row", func() bool { return len(table.committed()) == 4 })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if got := table.property(PropOffsets); got != `{"0":113}` {
		t.Fatalf("position %s", got)
	}
}

func TestKafkaNewPartitions(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	cfg.Start = Latest
	b.fill("t", 0, 0, 10)
	added := make(chan map[int32]int64, 1)
	p := start(cfg, table, &list{}, Events{Partitions: func(m map[int32]int64) { added <- m }})
	// The position is kept before there is a row, or a restart would skip rows.
	table.until(t, "position", func() bool { return table.property(PropOffsets) == `{"0":10}` })
	resp, err := kadm.NewClient(b.p).UpdatePartitions(context.Background(), 3, "t")
	if err != nil || resp.Error() != nil {
		t.Fatal(err, resp.Error())
	}
	b.p = producer(t, b.Cluster)
	b.fill("t", 2, 100, 5) // perhaps before the pipeline knows of the partition
	if m := <-added; !reflect.DeepEqual(m, map[int32]int64{1: 0, 2: 0}) {
		t.Fatalf("new partitions %v", m)
	}
	table.until(t, "rows", func() bool { return len(table.committed()) == 5 })
	b.fill("t", 0, 10, 1)
	table.until(t, "rows", func() bool { return len(table.committed()) == 6 })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	b.fill("t", 1, 200, 2)
	runToEnd(t, cfg, table, `{"0":11,"1":2,"2":5}`)
	checkOffsets(t, table.committed(), map[[2]int64]int64{{0, 10}: 10, {2, 0}: 100, {2, 1}: 101, {2, 2}: 102, {2, 3}: 103, {2, 4}: 104, {1, 0}: 200, {1, 1}: 201})
}

// TestKafkaStop: the end of the context commits what was read, and nothing of the pipeline is left (goleak).
func TestKafkaStop(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	cfg.Limits.CommitInterval = time.Hour
	wrote := make(chan struct{}, 100)
	table.fault = func(call string) (error, bool) {
		if call == "write" {
			wrote <- struct{}{}
		}
		return nil, false
	}
	b.fill("t", 0, 0, 10)
	p := start(cfg, table, &list{}, Events{})
	<-wrote
	if n := len(table.committed()); n != 0 {
		t.Fatalf("%d rows before the interval is over", n)
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if n := len(table.committed()); n != 10 {
		t.Fatalf("%d rows after a clean stop", n)
	}
}

// TestKafkaCommitBySize: rows start a commit before the interval is over.
func TestKafkaCommitBySize(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	cfg.Limits = Limits{CommitInterval: time.Hour, CommitRows: 100}
	cfg.Decode.BatchRows = 10
	b.fill("t", 0, 0, 1000)
	p := start(cfg, table, &list{}, Events{})
	table.until(t, "rows", func() bool { return len(table.committed()) >= 1000 })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if table.commits < 9 || table.commits > 11 {
		t.Errorf("%d commits for 1000 rows at 100 each", table.commits)
	}
}

// TestKafkaBackPressure: a table that takes nothing stops the reading, and a stop waits for it no longer than allowed.
func TestKafkaBackPressure(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	table.wait = make(chan struct{})
	cfg.Decode.BatchRows = 10
	cfg.FetchBytes = 1 << 10
	cfg.Client = append(cfg.Client, kgo.FetchMaxPartitionBytes(1<<10))
	cfg.Limits.StopTimeout = 50 * time.Millisecond
	for i := range 50 {
		b.fill("t", 0, i*20, 20)
	}
	var decoded int
	fetched := &countFetches{}
	cfg.Client = append(cfg.Client, kgo.WithHooks(fetched))
	p := start(cfg, table, &list{}, Events{})
	table.wait <- struct{}{}
	for last := -1; last != fetched.records(); time.Sleep(50 * time.Millisecond) {
		last = fetched.records()
	}
	decoded = fetched.records()
	if decoded == 0 || decoded > 300 {
		t.Errorf("%d of 1000 records were fetched while the table is blocked", decoded)
	}
	err := p.stop(t)
	if err == nil || !strings.Contains(err.Error(), "stop timeout of 50ms") {
		t.Fatalf("stopped with %v", err)
	}
	table.crash()
	table.wait = nil
	runToEnd(t, cfg, table, `{"0":1000}`)
	if n := len(table.committed()); n != 1000 {
		t.Fatalf("%d rows", n)
	}
}

// TestKafkaDeadLettersFirst: offsets of refused records are not committed before the letters are durable.
func TestKafkaDeadLettersFirst(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	b.send("t", 0, "", "bad")
	b.send("t", 0, "", `{"v":1}`)
	full := &list{err: fmt.Errorf("%w: test", ErrDeadLettersFull)}
	expectErrorWith(t, cfg, table, full, ErrDeadLettersFull)
	if table.has || len(table.committed()) > 0 {
		t.Fatalf("committed %v without dead letters", table.progress)
	}
	dead := &list{}
	table.fault = func(call string) (error, bool) {
		if call == "commit" && dead.flushed != 1 {
			t.Errorf("commit with %d letters flushed", dead.flushed)
		}
		return nil, false
	}
	table.crash()
	p := start(cfg, table, dead, Events{})
	table.until(t, "row", func() bool { return len(table.committed()) == 1 })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
}

func expectErrorWith(t *testing.T, cfg KafkaConfig, table Table, dead DeadLetter, want error) {
	t.Helper()
	checkError(t, start(cfg, table, dead, Events{}).wait(t), want)
}

func TestKafkaConfigErrors(t *testing.T) {
	good := KafkaConfig{HubConfig: HubConfig{Brokers: []string{"127.0.0.1:1"}}, Topic: "t"}
	for _, c := range []struct {
		change func(*KafkaConfig)
		want   string
	}{
		{func(c *KafkaConfig) { c.Brokers = nil }, "no brokers"},
		{func(c *KafkaConfig) { c.Topic = "" }, "no topic"},
		{func(c *KafkaConfig) { c.Start = "middle" }, `start "middle"`},
		{func(c *KafkaConfig) { c.SASL.Mechanism = "X" }, `SASL mechanism "X"`},
		{func(c *KafkaConfig) { c.Decode.Format = "xml" }, `format "xml"`},
		{func(c *KafkaConfig) { c.Client = []kgo.Opt{kgo.FetchMaxWait(-1)} }, ""},
	} {
		cfg := good
		c.change(&cfg)
		expectError(t, cfg, appendTable(t), ErrConfig, c.want)
	}
}

func TestKafkaUnreachable(t *testing.T) {
	cfg := KafkaConfig{HubConfig: HubConfig{Brokers: []string{"127.0.0.1:1"}}, Topic: "t", Patience: 300 * time.Millisecond}
	retries := 0
	err := start(cfg, appendTable(t), &list{}, Events{Retrying: func(string, error, time.Duration) { retries++ }}).wait(t)
	if err == nil || !strings.Contains(err.Error(), "gave up") || retries == 0 {
		t.Fatalf("%d retries, then %v", retries, err)
	}
	p := start(cfg, appendTable(t), &list{}, Events{})
	if err := p.stop(t); err != nil {
		t.Fatalf("a stop while connecting is an error: %v", err)
	}
}

// TestPositionRoundTrip: what is stored is what is read, and damaged properties are refused.
func TestPositionRoundTrip(t *testing.T) {
	r := schematest.Rand(t)
	p := position{cluster: "c", topic: "t", topicID: "id", next: map[int32]int64{}, epoch: map[int32]int32{}, records: 5, rejected: 2}
	for range 50 {
		p.next[r.Int32N(1000)] = r.Int64()
		p.epoch[r.Int32N(1000)] = r.Int32()
	}
	q, ok, err := parsePosition(p.properties())
	if err != nil || !ok || !reflect.DeepEqual(p, q) {
		t.Fatalf("%v\n%+v\n%+v", err, p, q)
	}
	keys := []string{PropOffsets, PropEpochs, PropRecords, PropRejected}
	for _, key := range keys {
		for _, bad := range []string{"", "null", "{", `{"a":1}`, `{"0":1.5}`, `{"99999999999":1}`, "x"} {
			props := p.properties()
			props[key] = bad
			if _, ok, err := parsePosition(props); err == nil || ok || !strings.Contains(err.Error(), key) {
				t.Errorf("%s = %q: %v", key, bad, err)
			}
		}
	}
}
