//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() { RegisterScenario(Scenario{Name: "tail-kafka", Run: judgeTailKafka}) }

const tailKills, tailPartitions, tailKeys = 25, 3, 400

// judgeTailKafka writes the changes of a table into a topic of a real broker by `calve tail --to`, which is killed again and
// again at random moments while others write the table. Readers of committed records must see every change once, those of a
// key in their order.
func judgeTailKafka(ctx context.Context, l *Lab, report *Report) {
	report.Check("tail-kafka", "kafka", func() error {
		for _, format := range []string{"json", "debezium"} {
			t := &tailed{lab: l, place: l.Local(), rng: rand.New(rand.NewPCG(l.Seed, 23)), format: format, topic: "tail-" + format}
			if err := t.run(ctx, report); err != nil {
				return fmt.Errorf("seed %d, %s: %w", l.Seed, format, err)
			}
		}
		return nil
	})
}

type tailed struct {
	lab           *Lab
	place         *Place
	rng           *rand.Rand
	format, topic string
	kafka         *Kafka
	client        *kgo.Client // of readers of committed records
	progress      int         // kills after which the topic had grown
}

func (t *tailed) table() string { return "tailed." + t.format }

func (t *tailed) run(ctx context.Context, report *Report) (err error) {
	if t.kafka, err = t.lab.Kafka(ctx); err != nil {
		return err
	}
	t.client, err = kgo.NewClient(kgo.SeedBrokers(t.kafka.Address), kgo.ConsumeTopics(t.topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer t.client.Close()
	topics, err := kadm.NewClient(t.client).CreateTopics(ctx, tailPartitions, 1, nil, t.topic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	k := &Case{Name: t.format, Columns: flinkColumns, Key: []string{"k"}, Options: map[string]string{"bucket": "2", "changelog-producer": "lookup"}}
	if err := t.place.Create(ctx, t.table(), k); err != nil {
		return err
	}
	writing, stop := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() { written <- t.write(writing, k, rand.New(rand.NewPCG(t.lab.Seed, 29))) }()
	err = t.killAll(ctx)
	stop()
	if err = errors.Join(err, <-written); err != nil {
		return err
	}
	if _, err := t.place.Run(ctx, nil, t.args()...); err != nil { // the rest
		return err
	}
	n, err := t.compare(ctx)
	if err != nil {
		return err
	}
	report.Note("tail-kafka, %s: %d records, each once, after %d kills, %d of which came after progress", t.format, n, tailKills, t.progress)
	if t.progress < tailKills/5 {
		return fmt.Errorf("only %d of %d lives wrote something: the test has shown too little", t.progress, tailKills)
	}
	return nil
}

func (t *tailed) args(more ...string) []string {
	return append([]string{"tail", t.table(), "--from", "earliest", "--format", t.format, "--consumer", "out",
		"--to", "kafka://" + t.kafka.Address + "/" + t.topic + "?id=" + t.topic}, more...)
}

// write puts rows until it is stopped. It ends between two commits, so that nobody asks what became of one.
func (t *tailed) write(ctx context.Context, k *Case, rng *rand.Rand) error {
	for n := 0; ctx.Err() == nil; n++ {
		var ops []Op
		for i := range 100 + rng.IntN(3000) {
			op := Put(map[string]any{"k": rng.IntN(tailKeys), "v": fmt.Sprintf("%d.%d", n, i), "n": i})
			if rng.IntN(5) == 0 {
				op.Kind = "D"
			}
			ops = append(ops, op)
		}
		if err := t.place.Put(context.WithoutCancel(ctx), t.table(), k, ops); err != nil {
			return err
		}
	}
	return nil
}

// killAll gives the tail many short lives.
func (t *tailed) killAll(ctx context.Context) error {
	before := int64(0)
	for i := range tailKills {
		args := append(t.args("--follow", "--poll", "20ms"), "--warehouse", t.place.Warehouse)
		p, err := t.lab.Start("tail-kafka", exec.Command(t.lab.Binary, args...))
		if err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(200+t.rng.IntN(2300)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.Alive(); err != nil {
			return fmt.Errorf("life %d of %d: %w", i+1, tailKills, err)
		}
		p.Kill()
		ends, err := kadm.NewClient(t.client).ListEndOffsets(ctx, t.topic)
		if err != nil {
			return err
		}
		now := int64(0)
		ends.Each(func(o kadm.ListedOffset) { now += o.Offset })
		if now > before {
			t.progress++
		}
		before = now
	}
	return nil
}

// compare holds what readers of committed records see against what the table tells, key by key, and gives their number.
func (t *tailed) compare(ctx context.Context) (int, error) {
	out, err := t.place.Run(ctx, nil, "tail", t.table(), "--from", "earliest", "--format", t.format)
	if err != nil {
		return 0, err
	}
	want := map[string][]string{}
	n := 0
	err = EachLine(bytes.NewReader(out), func(line []byte) error {
		key, value, err := t.expected(line)
		if err == nil && key != "" {
			n++
			want[key] = append(want[key], value)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	got, err := t.committed(ctx, n)
	if err != nil {
		return 0, err
	}
	for key, values := range want {
		if !slices.Equal(values, got[key]) {
			return 0, fmt.Errorf("key %s: the topic has %d records\n%s\nthe table tells %d\n%s", key, len(got[key]), clip(fmt.Sprint(got[key])), len(values), clip(fmt.Sprint(values)))
		}
	}
	if len(got) != len(want) {
		return 0, fmt.Errorf("%d keys in the topic, %d in the stream", len(got), len(want))
	}
	return n, nil
}

// expected gives the record of a line of calve tail; no key: there is none.
func (t *tailed) expected(line []byte) (key, value string, err error) {
	var c struct {
		Kind          string
		Row           json.RawMessage
		Before, After *struct{ K int64 }
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return "", "", err
	}
	if t.format == "debezium" {
		row := c.After
		if row == nil {
			row = c.Before
		}
		if row == nil {
			return "", "", fmt.Errorf("an envelope without rows: %s", clip(string(line)))
		}
		return fmt.Sprintf(`{"k":%d}`, row.K), string(line), nil
	}
	var row struct{ K int64 }
	if err := json.Unmarshal(c.Row, &row); err != nil {
		return "", "", err
	}
	key = fmt.Sprintf(`{"k":%d}`, row.K)
	switch c.Kind {
	case "-U":
		return "", "", nil // its +U follows
	case "-D":
		return key, "null", nil
	}
	return key, string(c.Row), nil
}

// committed reads the topic: at least so many records, and a while longer for what must not be there.
func (t *tailed) committed(ctx context.Context, n int) (map[string][]string, error) {
	got := map[string][]string{}
	for have, quiet := 0, 0; have < n || quiet < 5; quiet++ {
		if quiet > 100 {
			break
		}
		pctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		fetches := t.client.PollFetches(pctx)
		cancel()
		if err := fetches.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			value := "null"
			if r.Value != nil {
				value = string(r.Value)
			}
			got[string(r.Key)] = append(got[string(r.Key)], value)
			have++
			quiet = 0
		})
	}
	return got, ctx.Err()
}
