package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// checkFilled checks that rows 0 to n-1 are there once, that those from the given one on fill the column at, and that
// no data file lies about that the table does not name.
func checkFilled(t *testing.T, st storage.Store, n, from, at int) {
	t.Helper()
	rows := scan(t, st, 1)
	if len(rows) != n {
		t.Errorf("%d rows, not %d", len(rows), n)
	}
	for i := from; i < n; i++ {
		if row := rows[fmt.Sprint(i)]; len(row) <= at || row[at] != fmt.Sprint("w", i) {
			t.Errorf("row %d, made after the change, is %v", i, row)
		}
	}
	checkNoOrphans(t, st)
}

func checkNoOrphans(t *testing.T, st storage.Store) {
	t.Helper()
	e := testEnv()
	meta := manifest.Open(st, manifest.Env{Now: e.Now, NewID: e.NewID, Rand: e.Rand})
	snap, err := meta.Latest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	live, err := meta.Live(context.Background(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range live {
		names[f.File.Name] = true
	}
	for info, err := range storage.Walk(context.Background(), st, "") {
		if err != nil {
			t.Fatal(err)
		}
		if base := info.Name[strings.LastIndexByte(info.Name, '/')+1:]; strings.HasSuffix(base, ".parquet") && !names[base] {
			t.Errorf("file %s is left behind", info.Name)
		}
	}
}

// fakeSource reads a slice of records from the position that is committed.
type fakeSource struct {
	records   []string
	before    func(i int) // called before record i is decoded
	committed int
	passes    int
}

func (f *fakeSource) run(table Table, events Events) error {
	return passes(context.Background(), table, &list{}, events, func(again bool) error {
		f.passes++
		cfg := decode.Config{Schema: table.Schema()}
		dec, err := decode.New(cfg)
		if err != nil {
			return err
		}
		follow := newFollower(table, cfg, testEnv(), events, Limits{CommitInterval: time.Hour})
		b := batcher{dec: dec, schema: cfg.Schema, follower: follow}
		read, done := f.committed, f.committed
		return pump(context.Background(), func(ctx context.Context, out chan<- unit) error {
			b.out = out
			for ; read < len(f.records); read++ {
				f.before(read)
				if err := b.add(ctx, &decode.Record{Topic: "fake", Offset: int64(read), Value: []byte(f.records[read])}); err != nil {
					return err
				}
				at := read + 1
				b.emit(ctx, true, 0, func() func() { return func() { done = at } })
			}
			return nil
		}, &committer{table: table, follower: follow, dead: &list{}, env: testEnv(), events: events, eager: again,
			limits:   Limits{CommitInterval: time.Hour}.withDefaults(),
			progress: func() Progress { return Progress{Properties: map[string]string{"calve.test": fmt.Sprint(done)}} },
			// What a pass begins with is what the last snapshot says.
			published: func() { f.committed = done },
		})
	})
}

func wide(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(`{"id":%d,"v":"v","w":"w%d","x":1}`, i, i))
	}
	return out
}

// TestReread: records that are made after a change of the schema has returned have the values of the new column, though
// they are decoded before anybody notices the change; some of them are in files by then. Changes that follow at once do
// not keep them from being published.
func TestReread(t *testing.T) {
	for name, opts := range map[string]map[string]string{"fixed buckets": {"bucket": "2"}, "dynamic buckets": {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}} {
		t.Run(name, func(t *testing.T) {
			st := tableWith(t, opts, "id BIGINT", "v STRING")
			table, err := engine.Open(context.Background(), st, engine.Settings{Job: "fake", BufferBytes: 1}, testEnv())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := table.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			altered := false
			src := &fakeSource{records: wide(20), before: func(i int) {
				if i == 8 && !altered {
					altered = true
					alterTable(t, st, addColumn("w"))
				}
			}}
			var ids []int64
			err = src.run(table, Events{Reread: func(s *schema.Schema, n int64) {
				if ids = append(ids, s.ID); len(ids) <= 3 {
					alterTable(t, st, addColumn(fmt.Sprint("more", len(ids))))
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ids, []int64{1, 2, 3, 4}) || src.passes != 5 {
				t.Errorf("%d passes, for the schemas %v", src.passes, ids)
			}
			checkFilled(t, st, 20, 8, 2)
		})
	}
}

func tableWith(t *testing.T, options map[string]string, cols ...string) *storage.Mem {
	t.Helper()
	spec := schema.Spec{PrimaryKeys: []string{"id"}, Options: options}
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

// TestCoveredIsFinished: what was decoded before a column was dropped, or an option changed, has all that is asked for:
// it is published as it is.
func TestCoveredIsFinished(t *testing.T) {
	for name, change := range map[string]schema.Change{"drop": schema.DropColumn{Path: []string{"w"}}, "option": schema.SetOption{Name: "snapshot.num-retained.max", Value: "77"}} {
		t.Run(name, func(t *testing.T) {
			st := tableWith(t, map[string]string{"bucket": "1"}, "id BIGINT", "v STRING", "w STRING")
			table := openTable(t, st, "fake")
			src := &fakeSource{records: wide(6), before: func(i int) {
				if i == 3 {
					alterTable(t, st, change)
				}
			}}
			if err := src.run(table, Events{}); err != nil {
				t.Fatal(err)
			}
			if rows := scan(t, st, 1); src.passes != 1 || len(rows) != 6 {
				t.Errorf("%d passes, rows %v", src.passes, rows)
			}
		})
	}
}

// TestRereadRejects: a record that an older schema refuses and the newest takes is a row, not a dead letter.
func TestRereadRejects(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	mem := createTable(t, []string{"id"}, "id BIGINT", "v INT", "part INT", "off BIGINT")
	table := openTable(t, mem, "kafka")
	cfg := b.config()
	cfg.Limits.CommitInterval, cfg.Limits.CommitBytes = time.Hour, 200
	dead := &list{}
	rereads := make(chan int64, 10)
	p := start(cfg, table, dead, Events{Reread: func(_ *schema.Schema, n int64) { rereads <- n }})
	b.send("t", 0, "", `{"id":1,"v":1}`)
	alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}})
	b.send("t", 0, "", fmt.Sprintf(`{"id":2,"v":5000000000,"more":%q}`, strings.Repeat("x", 200)))
	awaitRows(t, mem, 2)
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if rows := scan(t, mem, 1); rows["2"][1] != int64(5000000000) || len(dead.all()) > 0 || len(rereads) > 1 {
		t.Errorf("rows %v, dead letters %v, %d rereads", rows, dead.all(), len(rereads))
	}
}

// awaitRows waits until the table has some rows.
func awaitRows(t *testing.T, st storage.Store, n int64) {
	t.Helper()
	e := testEnv()
	meta := manifest.Open(st, manifest.Env{Now: e.Now, NewID: e.NewID, Rand: e.Rand})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if snap, err := meta.Latest(context.Background()); err == nil && snap.TotalRecordCount >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %d rows", n)
		}
	}
}

// TestKafkaRereads: a stream that decoded records of the new column by the old schema reads them again.
func TestKafkaRereads(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING", "part INT", "off BIGINT")
	table := openTable(t, mem, "kafka")
	cfg := b.config()
	cfg.Limits.CommitInterval, cfg.Limits.CommitRows = time.Hour, 20 // no gap is long enough for a look
	rereads := make(chan int64, 10)
	p := start(cfg, table, &list{}, Events{Reread: func(_ *schema.Schema, n int64) { rereads <- n }})
	for i, r := range wide(30) {
		if i == 15 {
			for end := time.Now().Add(30 * time.Second); table.Metrics().BufferedRows < 15; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the records are not read")
				}
			}
			alterTable(t, mem, addColumn("w"))
		}
		b.send("t", int32(i%2), "", r)
	}
	if n := <-rereads; n < 20 {
		t.Errorf("%d records were read again", n)
	}
	for i := 30; i < 50; i++ { // enough for another commit after the first of the new schema, however little that has
		b.send("t", 0, "", fmt.Sprintf(`{"id":%d,"v":"v","w":"w%d"}`, i, i))
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if m := table.Metrics(); m.RowsCommitted+m.BufferedRows >= 50 { // the rest is committed at the end
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the records are not read: %+v", table.Metrics())
		}
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	checkFilled(t, mem, 50, 15, 4)
}

// TestLinesReread: lines cannot be asked for twice; what is not committed is kept.
func TestLinesReread(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING")
	table := openTable(t, mem, "lines")
	in, out := io.Pipe()
	type result struct {
		LinesResult
		err error
	}
	done, rereads := make(chan result, 1), 0
	go func() {
		res, err := RunLines(context.Background(), in, LinesConfig{Limits: Limits{CommitInterval: time.Hour, CommitRows: 12}}, table, &list{}, testEnv(),
			Events{Reread: func(*schema.Schema, int64) { rereads++ }})
		done <- result{res, err}
	}()
	for i, line := range wide(30) {
		if i == 15 { // some rows are committed, some wait
			alterTable(t, mem, addColumn("w"))
		}
		end := "\n"
		if i == 29 {
			end = ""
		}
		if _, err := io.WriteString(out, line+end); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.Rows != 30 || r.Lines != 30 || rereads != 1 {
		t.Errorf("%+v, %d rereads", r, rereads)
	}
	checkFilled(t, mem, 30, 15, 2)
}

// TestKept holds the bytes that are kept against a model.
func TestKept(t *testing.T) {
	r := schematest.Rand(t)
	const most = 3 * keptBlock
	k := newKept(7, most)
	var all []byte // from position 7 on
	commit := 0
	for range 150 {
		data := make([]byte, r.IntN(1+r.IntN(keptBlock*2)))
		fill(r, data)
		k.add(data)
		all = append(all, data...)
		if r.IntN(2) == 0 || len(all)-commit > 2*most-keptBlock {
			commit += r.IntN(len(all) - commit + 1)
			k.release(int64(7 + commit))
		}
		if lost := !k.rewindable(); lost {
			t.Fatalf("%d bytes are kept, and lost", len(all)-commit)
		}
		if got := slices.Concat(k.pieces()...); !slices.Equal(got, all[commit:]) {
			t.Fatalf("%d bytes are kept, %d follow the commit", len(got), len(all)-commit)
		}
	}
	k.add(make([]byte, 3*most+1))
	if k.rewindable() || len(k.pieces()) > 0 {
		t.Error("more is kept than is allowed")
	}
	k.add([]byte("abc"))
	if k.rewindable() {
		t.Error("there is a gap")
	}
	k.release(k.end - 2)
	if got := slices.Concat(k.pieces()...); !k.rewindable() || string(got) != "bc" {
		t.Errorf("%q", got)
	}
}

func fill(r *rand.Rand, data []byte) {
	for i := range data {
		data[i] = byte(r.Uint32())
	}
}

// TestFollowedBeforeCommit: rows and rejects that were decoded before the table followed a new column, but are published
// after it, are decoded again.
func TestFollowedBeforeCommit(t *testing.T) {
	for _, reject := range []bool{false, true} {
		mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING")
		table := openTable(t, mem, "followed")
		c := &committer{table: table, dead: &list{}, env: testEnv(), limits: Limits{}.withDefaults(),
			progress: func() Progress { return Progress{Properties: map[string]string{"calve.test": "1"}} }}
		c.follower = newFollower(table, decode.Config{Schema: table.Schema()}, testEnv(), Events{}, c.limits)
		c.pace = newPace(c.limits, c.env.Now())
		u := unit{advance: func() {}, tally: Committed{Records: 1}}
		if reject {
			u.rejects, u.tally.Rejected = []Letter{{Topic: "t", Reason: "no w"}}, 1
		} else {
			b := array.NewRecordBuilder(memory.DefaultAllocator, table.Schema().Arrow())
			b.Field(0).(*array.Int64Builder).Append(1)
			b.Field(1).(*array.StringBuilder).Append("v")
			u.batch, u.tally.Rows = decode.Batch{Batch: schema.Batch{Rec: b.NewRecordBatch()}}, 1
		}
		if err := c.take(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		alterTable(t, mem, addColumn("w"))
		s, err := table.LookForSchema(t.Context())
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		if err := c.take(t.Context(), unit{follow: s}); err != nil {
			t.Fatal(err)
		}
		var old *outdated
		if err := c.commit(t.Context()); !errors.As(err, &old) || old.schema.ID != s.ID {
			t.Errorf("reject %t: the commit gives %v", reject, err)
		}
	}
}
