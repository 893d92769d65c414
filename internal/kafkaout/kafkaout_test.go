package kafkaout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/changes"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// lab is a table with rows (id, n), with or without a key, and a broker with the topic t.
type lab struct {
	t     *testing.T
	store *storage.Mem
	kafka *kfake.Cluster
	s     *schema.Schema
}

func newLab(t *testing.T, keyed bool) *lab {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cols, err := schema.ParseColumns("id BIGINT NOT NULL, n BIGINT")
	if err != nil {
		t.Fatal(err)
	}
	spec := schema.Spec{Columns: cols}
	if keyed {
		spec.PrimaryKeys = []string{"id"}
	}
	x := &lab{t: t, store: storage.NewMem(), kafka: c}
	if x.s, err = schema.New(spec); err == nil {
		err = engine.Create(t.Context(), x.store, x.s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func env() reader.Env {
	return reader.Env{Now: time.Now, After: func(d time.Duration) <-chan time.Time { return time.After(min(d, 5*time.Millisecond)) }, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}
}

type row struct {
	kind  schema.RowKind
	id, n int64
}

// write makes a commit of each list of rows.
func (x *lab) write(commits ...[]row) {
	x.t.Helper()
	e := env()
	tab, err := engine.Open(x.t.Context(), x.store, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, rows := range commits {
		b := array.NewRecordBuilder(memory.DefaultAllocator, x.s.Arrow())
		var kinds []schema.RowKind
		for _, r := range rows {
			b.Field(0).(*array.Int64Builder).Append(r.id)
			b.Field(1).(*array.Int64Builder).Append(r.n)
			kinds = append(kinds, r.kind)
		}
		if err := tab.Write(x.t.Context(), schema.Batch{Rec: b.NewRecordBatch(), Kinds: kinds}); err != nil {
			x.t.Fatal(err)
		}
		if _, err := tab.Commit(x.t.Context(), engine.Progress{}); err != nil {
			x.t.Fatal(err)
		}
	}
	if err := tab.Close(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

func (x *lab) config(format string) Config {
	return Config{Brokers: x.kafka.ListenAddrs(), Topic: "t", ID: "out", Format: format, Source: changes.Source{Database: "d", Table: "x"}}
}

// committed reads what readers of committed records see, as key=value in the order of the partitions.
func (x *lab) committed(n int) (all []string) {
	x.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(x.kafka.ListenAddrs()...), kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		x.t.Fatal(err)
	}
	defer c.Close()
	quiet := 0
	for len(all) < n || quiet < 2 { // a little longer, for what must not be there
		ctx, cancel := context.WithTimeout(x.t.Context(), 300*time.Millisecond)
		got := c.PollFetches(ctx)
		cancel()
		if quiet++; quiet > 100 {
			break
		}
		got.EachRecord(func(r *kgo.Record) {
			value := "gone"
			if r.Value != nil {
				value = string(r.Value)
			}
			all = append(all, string(r.Key)+"="+value)
			quiet = 0
		})
	}
	return all
}

// TestOnce: however often a stream is cut, by storage, by brokers or by its context, every change is in the topic once, in
// the order of its key.
func TestOnce(t *testing.T) {
	for _, cut := range []string{"storage", "context", "broker"} {
		t.Run(cut, func(t *testing.T) {
			x := newLab(t, true)
			r := rand.New(rand.NewPCG(7, 7))
			want := map[string][]string{}
			total := 0
			for range 8 {
				var rows []row
				for id := range int64(40) {
					if r.IntN(2) == 0 {
						continue
					}
					one := row{schema.Insert, id, r.Int64N(1000)}
					value := fmt.Sprintf(`{"id":%d,"n":%d}`, one.id, one.n)
					if r.IntN(4) == 0 {
						one.kind, value = schema.Delete, "gone"
					}
					rows = append(rows, one)
					key := fmt.Sprintf(`{"id":%d}`, id)
					want[key] = append(want[key], value)
					total++
				}
				x.write(rows)
			}
			cfg := x.config(changes.JSON)
			cfg.Records = 7
			ended := false
			for try := 1; !ended; try++ {
				if try > 300 {
					t.Fatal("the stream does not come to its end")
				}
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				st := storage.WithFaults(x.store, func(op storage.Op) error {
					if n++; n >= try && try%5 != 0 {
						switch cut {
						case "storage":
							return errors.New("cut")
						case "context":
							cancel()
						}
					}
					return nil
				})
				if cut == "broker" && try < 20 {
					asked := 0
					x.kafka.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
						if asked++; asked == 3+try {
							cancel()
						}
						return nil, nil, false
					})
				}
				err := Run(ctx, reader.Open(st, env()), reader.TailSpec{}, cfg, Env{Log: slog.New(slog.DiscardHandler)})
				ended = err == nil && ctx.Err() == nil
				cancel()
			}
			got := map[string][]string{}
			all := x.committed(total)
			for _, rec := range all {
				key, value, _ := strings.Cut(rec, "=")
				got[key] = append(got[key], value)
			}
			if len(all) != total {
				t.Errorf("%d records, want %d", len(all), total)
			}
			for key := range want {
				if !slices.Equal(got[key], want[key]) {
					t.Fatalf("key %s: %v, want %v", key, got[key], want[key])
				}
			}
		})
	}
}

// TestFenced: of two processes with one id the later one goes on, and nothing of the earlier one comes after it.
func TestFenced(t *testing.T) {
	x := newLab(t, true)
	x.write([]row{{schema.Insert, 1, 1}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func() chan error {
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, reader.Open(x.store, env()), reader.TailSpec{Follow: true, Poll: time.Millisecond}, x.config(changes.JSON), Env{Log: slog.New(slog.DiscardHandler)})
		}()
		return done
	}
	first := run()
	x.committed(1)
	second := run()
	x.committed(1)
	for n := int64(2); ; n++ { // until the earlier one has tried to write
		x.write([]row{{schema.Insert, 1, n}})
		select {
		case err := <-first:
			if !errors.Is(err, ErrFenced) {
				t.Fatal(err)
			}
			got := x.committed(int(n))
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf(`{"id":1}={"id":1,"n":%d}`, i+1))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			cancel()
			if err := <-second; err != nil {
				t.Error(err)
			}
			return
		case err := <-second:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestEnvelopes: Debezium envelopes, of a table without key too; and what cannot be told by rows and tombstones.
func TestEnvelopes(t *testing.T) {
	x := newLab(t, false)
	x.write([]row{{schema.Insert, 1, 1}, {schema.Insert, 1, 2}})
	if err := Run(t.Context(), reader.Open(x.store, env()), reader.TailSpec{}, x.config(changes.Debezium), Env{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	for _, rec := range x.committed(2) {
		key, value, _ := strings.Cut(rec, "=")
		var e struct {
			Op    string
			After struct{ ID, N int64 }
		}
		if err := json.Unmarshal([]byte(value), &e); err != nil || key != "" || e.Op != "c" || e.After.ID != 1 || e.After.N == 0 {
			t.Error(rec, err)
		}
	}
	y := newLab(t, true)
	y.write([]row{{schema.Insert, 1, 1}})
	err := Run(t.Context(), reader.Open(y.store, env()), reader.TailSpec{Columns: []string{"n"}}, y.config(changes.JSON), Env{Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, changes.ErrRecords) || !strings.Contains(err.Error(), "[id] of the primary key") {
		t.Error(err)
	}
	if err := Run(t.Context(), reader.Open(y.store, env()), reader.TailSpec{}, y.config(changes.CSV), Env{Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("CSV records")
	}
}

// TestConsumerIsFurther: snapshots without records move the consumer and not the position; the stream goes on where the
// consumer is, though what the position names has expired.
func TestConsumerIsFurther(t *testing.T) {
	x := newLab(t, true)
	x.write([]row{{schema.Insert, 1, 1}})
	run := func() {
		t.Helper()
		if err := Run(t.Context(), reader.Open(x.store, env()), reader.TailSpec{Consumer: "out"}, x.config(changes.JSON), Env{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	}
	run()
	e := env()
	meta := manifest.Open(x.store, manifest.Env{Now: e.Now, NewID: e.NewID, Rand: e.Rand})
	for i := range int64(3) {
		if _, err := meta.Commit(t.Context(), manifest.Commit{Kind: manifest.Append, User: "idle", Identifier: i + 1, Entries: []manifest.Entry{}}); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if _, err := meta.Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	x.write([]row{{schema.Insert, 2, 2}})
	run()
	if got := x.committed(2); len(got) != 2 {
		t.Error(got)
	}
}
