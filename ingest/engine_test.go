package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// crashing is a store whose power goes after a number of writing calls.
type crashing struct {
	left atomic.Int64
	only string // calls of files with this prefix count
	mem  *storage.Mem
}

func (c *crashing) store() storage.Store {
	return storage.WithFaults(c.mem, func(op storage.Op) error {
		switch op.Kind {
		case storage.OpCommit, storage.OpPutIfAbsent, storage.OpPut, storage.OpCreate:
			if strings.HasPrefix(op.Name, c.only) && c.left.Add(-1) == 0 {
				if c.only != "" {
					c.left.Store(-1) // it cannot be read back either
				}
				return storage.LoseReply(errCrash) // the last call may have reached the disk
			}
		}
		if c.left.Load() < 0 {
			return errCrash
		}
		return nil
	})
}

// hasty is an environment in which nobody waits long: a dead store is given up soon.
func hasty() Env {
	e := testEnv()
	e.After = func(d time.Duration) <-chan time.Time { return time.After(min(d, 2*time.Millisecond)) }
	return e
}

func createTable(t *testing.T, keys []string, cols ...string) *storage.Mem {
	t.Helper()
	spec := schema.Spec{PrimaryKeys: keys, Options: map[string]string{"bucket": "2", "file.compression": "none"}}
	if keys == nil {
		spec.Options["bucket-key"] = "off"
	}
	for _, f := range schematest.Table(t, "", cols...).Fields {
		spec.Columns = append(spec.Columns, schema.Column{Name: f.Name, Type: f.Type})
	}
	s, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	mem := storage.NewMem()
	if err := engine.Create(context.Background(), mem, s); err != nil {
		t.Fatal(err)
	}
	return mem
}

// scan reads the table: its cells by the text of the first column(s) that make a row unique.
func scan(t *testing.T, store storage.Store, unique int) map[string][]any {
	t.Helper()
	e := testEnv()
	rd := reader.Open(store, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	rep, err := rd.Verify(context.Background(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil || len(rep.Problems) > 0 {
		t.Fatalf("verify: %v %+v", err, rep)
	}
	out := map[string][]any{}
	for rec, err := range rd.Scan(context.Background(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		for r := range int(rec.NumRows()) {
			var row []any
			for c := range int(rec.NumCols()) {
				row = append(row, schema.Cell(rec.Column(c), r))
			}
			id := fmt.Sprint(row[:unique]...)
			if out[id] != nil {
				t.Fatalf("row %s is in the table twice", id)
			}
			out[id] = row
		}
	}
	return out
}

// runUntilCrash opens the table as a new process does and runs the pipeline until the store dies or the position is end.
func runUntilCrash(t *testing.T, c *crashing, cfg KafkaConfig, end string) (crashed bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := c.store()
	table, err := engine.Open(ctx, store, engine.Settings{Job: "kafka-t", Compaction: 1}, hasty())
	if err != nil {
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		return true
	}
	dead := NewDeadLetters(storage.Sub(store, "dead"), DeadLetterSettings{Engine: engine.Settings{Job: "kafka-t"}}, hasty())
	p := start(cfg, table, dead, Events{})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		// The table's own view: storage may be ahead of it when a reply was lost.
		last, _, _ := table.LastProgress(ctx)
		if len(p.done) > 0 || last.Properties[PropOffsets] == end {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("position %s, not %s after 30 s", last.Properties[PropOffsets], end)
		}
	}
	err = p.stop(t)
	cerr := errors.Join(dead.Close(ctx), table.Close(ctx))
	if c.left.Load() <= 0 {
		return true
	}
	if err := errors.Join(err, cerr); err != nil {
		t.Fatal(err)
	}
	return false
}

// TestKafkaIntoEngine cuts the power at random storage calls, in an append table and in a keyed one.
func TestKafkaIntoEngine(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprintf("keyed=%v", keyed), func(t *testing.T) {
			r := schematest.Rand(t)
			b := newBroker(t, kfake.SeedTopics(2, "t"))
			var keys []string
			if keyed {
				keys = []string{"id"}
			}
			c := &crashing{mem: createTable(t, keys, "id BIGINT", "v STRING", "part INT", "off BIGINT")}
			cfg, next := b.config(), [2]int64{}
			model := map[string][]any{}
			rounds, crashes, poison := 25, 0, 0
			if testing.Short() {
				rounds = 8
			}
			for round := range rounds {
				poison += produceEvents(b, r, keyed, &next, model)
				c.left.Store(1 + r.Int64N(40))
				if round == rounds-1 {
					c.left.Store(1 << 40)
				}
				if runUntilCrash(t, c, cfg, fmt.Sprintf(`{"0":%d,"1":%d}`, next[0], next[1])) {
					crashes++
					c.mem = c.mem.CrashClone(r)
				}
			}
			unique := 4
			if keyed {
				unique = 1
			}
			if got := scan(t, c.mem, unique); !reflect.DeepEqual(got, model) {
				t.Fatalf("%d rows in the table, %d in the model", len(got), len(model))
			}
			letters := len(lettersIn(t, storage.Sub(c.mem, "dead")))
			if letters != poison || crashes < rounds/3 {
				t.Errorf("%d dead letters for %d bad records; %d crashes", letters, poison, crashes)
			}
		})
	}
}

// produceEvents sends random events and applies them to the model. A key is always in the same partition.
func produceEvents(b *broker, r *rand.Rand, keyed bool, next *[2]int64, model map[string][]any) (poison int) {
	var rs []*kgo.Record
	for range 20 + r.IntN(60) {
		id := r.Int64N(50)
		part := int32(id & 1)
		off := next[part]
		next[part]++
		v := fmt.Sprintf("value %d", r.IntN(1000))
		unique := fmt.Sprint(id)
		if !keyed {
			unique = fmt.Sprint(id, v, part, off)
		}
		switch n := r.IntN(20); {
		case n == 0:
			poison++
			rs = append(rs, message("t", part, "", `{"id":"`))
		case n < 5 && keyed:
			delete(model, unique)
			rs = append(rs, message("t", part, fmt.Sprintf(`{"id":%d}`, id), "-"))
		default:
			model[unique] = []any{id, v, part, off}
			rs = append(rs, message("t", part, "", fmt.Sprintf(`{"id":%d,"v":%q}`, id, v)))
		}
	}
	b.sendAll(rs)
	return poison
}
