package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry"
	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func init() {
	otherCaptures["avro-records"] = captureAvroRecords
	hardToo(22, "avro", hardBadAvro)
}

// serve gives a client of a registry that runs during the test.
func serve(t *testing.T, reg *registrytest.Registry) *registry.Client {
	t.Helper()
	srv := httptest.NewServer(reg)
	c, err := registry.New(registry.Settings{URLs: []string{srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); srv.Close() })
	return c
}

// createFrom makes a table of columns.
func createFrom(t *testing.T, cols []schema.Column, keys ...string) *storage.Mem {
	t.Helper()
	options := map[string]string{"bucket": "2", "file.compression": "none"}
	if len(keys) == 0 {
		options["bucket"] = "-1"
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: keys, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	mem := storage.NewMem()
	if err := engine.Create(context.Background(), mem, s); err != nil {
		t.Fatal(err)
	}
	return mem
}

// runUntil runs a pipeline into a table until the position is end.
func runUntil(t *testing.T, store storage.Store, cfg KafkaConfig, env Env, events Events, end string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	table, err := engine.Open(ctx, store, engine.Settings{Job: "kafka-t", Compaction: 1}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	dead := NewDeadLetters(storage.Sub(store, "dead"), DeadLetterSettings{Engine: engine.Settings{Job: "kafka-t"}}, testEnv())
	done := make(chan error, 1)
	go func() { done <- RunKafka(ctx, cfg, table, dead, env, events) }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		last, _, err := table.LastProgress(ctx)
		if err == nil && last.Properties[PropOffsets] == end || len(done) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("position %s, not %s, after 30 s", last.Properties[PropOffsets], end)
		}
	}
	cancel()
	if err := errors.Join(<-done, dead.Close(context.Background()), table.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
}

// jsonRows reads a table as JSON lines.
func jsonRows(t *testing.T, store storage.Store) (out []string) {
	t.Helper()
	e := testEnv()
	rd := reader.Open(store, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	for rec, err := range rd.Scan(context.Background(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		enc := rowjson.NewEncoder(rec.Schema())
		for i := range int(rec.NumRows()) {
			out = append(out, string(enc.Append(nil, rec, i)))
		}
	}
	slices.Sort(out)
	return out
}

// captureAvroRecords reads a captured topic of plain Avro, of two writers' schemas, from a broker and a registry into a table
// made from the newest schema.
func captureAvroRecords(t *testing.T) {
	reg, err := registrytest.Load(captureDir + "avro-records.registry.json")
	if err != nil {
		t.Fatal(err)
	}
	client := serve(t, reg)
	latest, err := client.Latest(context.Background(), "avro-records.orders-value")
	if err != nil {
		t.Fatal(err)
	}
	cols, err := decode.ColumnsOfAvro(latest, "")
	if err != nil {
		t.Fatal(err)
	}
	store := createFrom(t, cols, "region", "id")
	b := newBroker(t, kfake.SeedTopics(2, "avro-records.orders"))
	var rs []*kgo.Record
	next := [2]int64{}
	for line := range bytes.Lines(unpack(t, "avro-records.jsonl.zst")) {
		var r struct {
			Topic      string
			Partition  int32
			Key, Value []byte
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value})
		next[r.Partition]++
	}
	b.sendAll(rs)
	cfg := b.config()
	cfg.Topic, cfg.Registry, cfg.Decode = "avro-records.orders", client, decode.Config{Format: decode.Avro}
	runUntil(t, store, cfg, testEnv(), Events{}, encodeMap(map[int32]int64{0: next[0], 1: next[1]}))
	for _, l := range lettersIn(t, storage.Sub(store, "dead")) {
		t.Fatal(l.Reason)
	}

	text, err := os.ReadFile(captureDir + "avro-records.expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Records int
		Tables  map[string]struct {
			Columns []struct{ Name string }
			Rows    [][]any
		}
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	rows := map[string]map[string]any{}
	for _, line := range jsonRows(t, store) {
		row := map[string]any{}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		rows[row["region"].(string)+"/"+jsonText(t, row["id"])] = row
	}
	orders := want.Tables["orders"]
	if len(rows) != len(orders.Rows) || want.Records != len(rs) {
		t.Fatalf("%d rows, want %d", len(rows), len(orders.Rows))
	}
	for _, w := range orders.Rows {
		row := rows[w[0].(string)+"/"+jsonText(t, w[1])]
		for i, c := range orders.Columns {
			if got, want := row[c.Name], captureCell(w[i]); !reflect.DeepEqual(got, want) {
				t.Errorf("row %v/%v: %s is %v, want %v", w[0], w[1], c.Name, got, want)
			}
		}
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// captureCell gives an expected value in the form of rowjson. The only maps of the capture have keys k0, k1 and so on.
func captureCell(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		if s, ok := v.(string); ok && strings.HasSuffix(s, "000Z") && len(s) == len("2024-05-06T07:08:09.651000Z") {
			return s[:len(s)-4] + "Z" // the column is of milliseconds
		}
		return v
	}
	if b, ok := m["base64"]; ok {
		return b
	}
	pairs := []any{}
	for _, k := range []string{"k0", "k1", "k2", "k3"} {
		if x, ok := m[k]; ok {
			pairs = append(pairs, []any{k, x})
		}
	}
	if len(pairs) > 0 || len(m) == 0 {
		return pairs
	}
	return v
}

const badAvro = `{"type":"record","name":"T","fields":[{"name":"id","type":["null","long"]},{"name":"s","type":"string"}]}`

// leaping is an environment in which waiting takes no time, and the clock goes on by what was waited for.
func leaping() Env {
	var skew atomic.Int64
	e := testEnv()
	e.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	e.After = func(d time.Duration) <-chan time.Time {
		skew.Add(int64(d))
		return time.After(min(d, time.Millisecond))
	}
	return e
}

// hardBadAvro: records that are broken in every way, between good ones; an unknown schema is asked for again before its
// records are refused, and when it is there later they are read.
func hardBadAvro(t *testing.T) {
	reg := registrytest.New(registrytest.Schema{Subject: "t-value", Version: 1, ID: 7, Text: badAvro},
		registrytest.Schema{Subject: "t-key", Version: 1, ID: 8, Text: `"long"`})
	s, err := avro.Parse(badAvro)
	if err != nil {
		t.Fatal(err)
	}
	value := func(id any, text string) []byte {
		b, err := s.AppendEncode([]byte{0, 0, 0, 0, 7}, map[string]any{"id": id, "s": text})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := value(int64(1), "good")
	unknown := append([]byte{0, 0, 0, 0, 99}, good[5:]...)
	cols, err := schema.ParseColumns("id BIGINT, s STRING")
	if err != nil {
		t.Fatal(err)
	}
	store := createFrom(t, cols, "id")
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	bad := []struct {
		key, value []byte
		want       string
	}{
		{nil, good, ""}, {nil, value(int64(2), "\xff\xfe"), "UTF-8"}, {nil, good[:len(good)-2], "end too early"}, {nil, []byte{}, "is empty"},
		{nil, append([]byte{1}, good[1:]...), "begins with the byte 1"}, {nil, unknown, "Schema not found"}, {nil, nil, "no key"},
		{nil, value(nil, "no key"), "key column is missing or null"}, {nil, value(int64(3), strings.Repeat("x", 2000)), "record size limit"}, {[]byte("k"), nil, "of the key"},
		{nil, value(int64(9), "good"), ""},
	}
	var rs []*kgo.Record
	for _, x := range bad {
		rs = append(rs, &kgo.Record{Topic: "t", Key: x.key, Value: x.value})
	}
	b.sendAll(rs)
	var tries atomic.Int64
	cfg := b.config()
	cfg.Registry, cfg.Decode = serve(t, reg), decode.Config{Format: decode.Avro, MaxRecordBytes: 1000}
	runUntil(t, store, cfg, leaping(), Events{Retrying: func(string, error, time.Duration) { tries.Add(1) }}, `{"0":11}`)
	if got := jsonRows(t, store); !slices.Equal(got, []string{`{"id":1,"s":"good"}`, `{"id":9,"s":"good"}`}) {
		t.Errorf("rows %v", got)
	}
	if tries.Load() < 3 || reg.Asked("/schemas/ids/99") < 3 {
		t.Errorf("the unknown id was asked for %d times", reg.Asked("/schemas/ids/99"))
	}
	letters := map[int64]Letter{}
	for _, l := range lettersIn(t, storage.Sub(store, "dead")) {
		letters[l.Offset] = l
	}
	for i, x := range bad {
		l, refused := letters[int64(i)]
		if refused != (x.want != "") || !strings.Contains(l.Reason, x.want) || refused && (l.Topic != "t" || !bytes.Equal(l.Raw, x.value) && len(x.value) < 1000) {
			t.Errorf("offset %d: %q, want %q", i, l.Reason, x.want)
		}
	}
}

// TestRegistryDown: a registry that does not answer is waited for, what came before is committed meanwhile, and a pipeline
// that is told to stop does.
func TestRegistryDown(t *testing.T) {
	reg := registrytest.New(registrytest.Schema{Subject: "t-value", Version: 1, ID: 7, Text: badAvro})
	client := serve(t, reg)
	cols, err := schema.ParseColumns("id BIGINT, s STRING")
	if err != nil {
		t.Fatal(err)
	}
	store := createFrom(t, cols, "id")
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	row := func(schema byte, id byte) []byte { return []byte{0, 0, 0, 0, schema, 2, 2 * id, 2, 'x'} }
	b.sendAll([]*kgo.Record{{Topic: "t", Value: row(7, 1)}, {Topic: "t", Value: row(6, 2)}, {Topic: "t", Value: row(7, 3)}})
	down := serve(t, reg)
	cfg := b.config()
	cfg.Decode = decode.Config{Format: decode.Avro}
	cfg.Registry = failingOn{down, 6, errors.New("no route to it")}
	runUntil(t, store, cfg, leaping(), Events{}, `{"0":1}`) // and it stops
	if got := jsonRows(t, store); !slices.Equal(got, []string{`{"id":1,"s":"x"}`}) {
		t.Fatalf("rows %v", got)
	}
	reg.Add(registrytest.Schema{Subject: "t-value", Version: 2, ID: 6, Text: badAvro})
	cfg.Registry = client
	runUntil(t, store, cfg, leaping(), Events{}, `{"0":3}`)
	if got := jsonRows(t, store); len(got) != 3 {
		t.Fatalf("rows %v", got)
	}
	for _, l := range lettersIn(t, storage.Sub(store, "dead")) {
		t.Error(l.Reason)
	}
}

// failingOn is a registry that cannot be asked for one id.
type failingOn struct {
	Registry
	id  int
	err error
}

func (f failingOn) Schema(ctx context.Context, id int) (decode.WriterSchema, error) {
	if id == f.id {
		return decode.WriterSchema{}, f.err
	}
	return f.Registry.Schema(ctx, id)
}

// TestUnknownIDsOfManyKinds: records of many ids that no registry knows hold the topic once, not each for as long. After a
// minute an id is waited for again, and what is remembered of them has a bound.
func TestUnknownIDsOfManyKinds(t *testing.T) {
	env, now := testEnv(), time.Unix(1e9, 0)
	env.Now = func() time.Time { return now }
	env.After = func(d time.Duration) <-chan time.Time { now = now.Add(d); return time.After(0) }
	cfg := decode.Config{Format: decode.Avro}
	f, err := newSchemaFetcher(&cfg, knownSchemas{7: badAvro}, "t", env, Events{})
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(id int) time.Duration {
		t.Helper()
		start := now
		if err := f.fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return now.Sub(start)
	}
	if took := fetch(100); took < unknownFor {
		t.Errorf("the first id is refused after %s", took)
	}
	for id := 101; id < 200; id++ {
		if took := fetch(id); took != 0 {
			t.Fatalf("id %d holds the topic for %s", id, took)
		}
		now = now.Add(refusedFor / 200)
	}
	fetch(7)
	now = now.Add(refusedFor)
	if took := fetch(200); took < unknownFor {
		t.Errorf("a minute later an id is refused after %s", took)
	}
	for id := range mostRefused + 10 {
		fetch(1000 + id)
	}
	if n := len(f.refused); n > mostRefused {
		t.Errorf("%d ids are remembered", n)
	}
}
