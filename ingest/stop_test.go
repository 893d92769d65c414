package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// TestStopWhileFull: a pipeline is told to stop while a unit waits for the committer. That unit is given up, and nothing
// behind it may be written, or the position would pass its records.
func TestStopWhileFull(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	b.fill("t", 0, 0, 5000)
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, "{\"v\":%d}\n", i)
	}
	for range 6 {
		for name, run := range map[string]func(ctx context.Context, table *fakeTable) (position string, err error){
			"lines": func(ctx context.Context, table *fakeTable) (string, error) {
				cfg := lineConfig()
				cfg.Decode.BatchRows = 10
				_, err := RunLines(ctx, strings.NewReader(lines.String()), cfg, table, &list{}, testEnv(), Events{})
				return fmt.Sprint(len(table.committed())) + " is " + table.property(PropLine), err
			},
			"kafka": func(ctx context.Context, table *fakeTable) (string, error) {
				cfg := b.config()
				cfg.Decode.BatchRows = 10
				err := RunKafka(ctx, cfg, table, &list{}, testEnv(), Events{})
				return fmt.Sprintf(`{"0":%d} is %s`, len(table.committed()), table.property(PropOffsets)), err
			},
		} {
			table := appendTable(t)
			if name == "lines" {
				table = lineTable(t)
			}
			ctx, stop := context.WithCancel(t.Context())
			writes := 0
			table.fault = func(call string) (error, bool) {
				if call != "write" {
					return nil, false
				}
				if writes++; writes == 3 {
					time.Sleep(10 * time.Millisecond) // one unit is in the channel by now, and another waits
					stop()
					time.Sleep(2 * time.Millisecond)
				}
				return nil, false
			}
			got, err := run(ctx, table)
			stop()
			if err != nil {
				t.Fatal(err)
			}
			if at, is, _ := strings.Cut(got, " is "); at != is {
				t.Fatalf("%s: position %s, rows up to %s", name, is, at)
			}
			for i, row := range table.committed() {
				if row[1] != int64(i) {
					t.Fatalf("%s: row %d is %v", name, i, row)
				}
			}
		}
	}
}

// knownSchemas is a registry of Avro schemas without subjects.
type knownSchemas map[int]string

// Schema implements Registry.
func (r knownSchemas) Schema(_ context.Context, id int) (decode.WriterSchema, error) {
	if r[id] == "" {
		return decode.WriterSchema{}, decode.ErrNoSchema
	}
	return decode.WriterSchema{Kind: decode.AvroSchema, Text: r[id]}, nil
}

// Latest implements Registry.
func (r knownSchemas) Latest(context.Context, string) (decode.WriterSchema, error) {
	return decode.WriterSchema{}, decode.ErrNoSchema
}

// placeOf is a source that counts nothing.
type placeOf struct{ b *batcher }

func (p placeOf) emitBefore(ctx context.Context) bool { return p.b.emit(ctx, true, 0, noAdvance) }

func noAdvance() func() { return func() {} }

// TestMovedToUnknownSchema: a row's key changes, and the insert under the new key is of a schema that is asked for first.
// All records are rows; and where nothing can be handed over any more, the record is not taken as done.
func TestMovedToUnknownSchema(t *testing.T) {
	text := func(extra string) string {
		return `{"type":"record","name":"E","fields":[{"name":"before","type":["null",{"type":"record","name":"V","fields":[{"name":"id","type":"long"}` + extra + `]}]},{"name":"after","type":["null","V"]},{"name":"op","type":"string"}]}`
	}
	schemas := knownSchemas{1: text(""), 2: text(`,{"name":"x","type":["null","int"],"default":null}`)}
	record := func(id int, op, header string, before, after any) *decode.Record {
		v := binary.BigEndian.AppendUint32([]byte{0}, uint32(id))
		v, err := avro.MustParse(schemas[id]).AppendEncode(v, map[string]any{"before": before, "after": after, "op": op})
		if err != nil {
			t.Fatal(err)
		}
		r := &decode.Record{Topic: "t", Value: v}
		if header != "" {
			r.Headers = []decode.Header{{Name: header, Value: []byte(`{"id":1}`)}}
		}
		return r
	}
	for _, ended := range []bool{false, true} {
		ctx, stop := context.WithCancel(t.Context())
		table := newFakeTable(schematest.Table(t, "id", "id BIGINT"))
		cfg := decode.Config{Schema: table.schema, Format: decode.DebeziumAvro}
		f, err := newSchemaFetcher(&cfg, schemas, "t", testEnv(), Events{})
		if err != nil {
			t.Fatal(err)
		}
		dec, err := decode.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		out := make(chan unit, 10)
		b := &batcher{dec: dec, schema: table.schema, follower: newFollower(table, cfg, testEnv(), Events{}, Limits{}), schemas: f, out: out, pairs: true}
		b.place = placeOf{b}
		for i, r := range []*decode.Record{
			record(1, "c", "", nil, map[string]any{"id": int64(1)}),
			record(1, "d", headerNewKey, map[string]any{"id": int64(1)}, nil),
			record(2, "c", headerOldKey, nil, map[string]any{"id": int64(2), "x": nil}),
		} {
			if i == 2 && ended {
				stop()
			}
			if err := b.add(ctx, r); (err != nil) != (i == 2 && ended) {
				t.Fatalf("record %d, ended %v: %v", i, ended, err)
			}
		}
		stop()
		rows := b.dec.Rows()
		for len(out) > 0 {
			u := <-out
			rows += u.batch.Len()
		}
		if want := map[bool]int{false: 3, true: 2}[ended]; rows != want || len(b.rejects) > 0 {
			t.Errorf("ended %v: %d rows, not %d, and %d refused", ended, rows, want, len(b.rejects))
		}
	}
}

// cannotFollow is a table whose process ends when it is to go on with a newer schema.
type cannotFollow struct{ *engine.Table }

// Follow implements Table.
func (cannotFollow) Follow(context.Context, *schema.Schema) error { return errCrash }

// TestEpochBeforeChange: the partition has a new leader, and a record asks for a change of the table's schema. The position
// before that record has the new leader's epoch: with the old one the log would seem to have been cut back.
func TestEpochBeforeChange(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(2))
	mem := createTable(t, []string{"id"}, "id BIGINT")
	cfg := b.config()
	cfg.Decode = decode.Config{Evolution: decode.AddOnly}
	rows := func(from, n int) (out []*kgo.Record) {
		for i := range n {
			out = append(out, message("t", 0, "", fmt.Sprintf(`{"id":%d}`, from+i)))
		}
		return out
	}
	b.sendAll(rows(0, 10))
	runUntil(t, mem, cfg, testEnv(), Events{}, `{"0":10}`)
	if err := b.MoveTopicPartition("t", 0, (b.LeaderFor("t", 0)+1)%2); err != nil {
		t.Fatal(err)
	}
	b.sendAll(append(rows(10, 10), message("t", 0, "", `{"id":20,"x":1}`), message("t", 0, "", `{"id":21,"x":1}`)))
	table, err := engine.Open(t.Context(), mem, engine.Settings{Job: "kafka-t"}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	crashing := cfg
	crashing.Limits.CommitRows = 1
	err = start(crashing, cannotFollow{table}, &list{}, Events{}).wait(t)
	last, _, perr := table.LastProgress(t.Context())
	if cerr := table.Close(t.Context()); err == nil || perr != nil || cerr != nil {
		t.Fatal(err, perr, cerr)
	}
	if at := last.Properties[PropOffsets]; at != `{"0":20}` {
		t.Fatalf("the position before the record is %s", at)
	}
	runUntil(t, mem, cfg, testEnv(), Events{}, `{"0":22}`)
	if got := scan(t, mem, 1); len(got) != 22 {
		t.Errorf("%d rows", len(got))
	}
}
