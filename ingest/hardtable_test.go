package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func init() {
	hard[23] = hardManyPartitions
	hard[24] = hardExpiredPartition
	hard[25] = hardSlowReader
}

// partitionDropped commits what Paimon's expiry of partitions does: an OVERWRITE snapshot that removes the files of a
// partition.
func partitionDropped(t *testing.T, store storage.Store, day string) {
	t.Helper()
	m := metaOf(store)
	snap, err := m.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.LatestSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opts, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	c := manifest.Commit{Kind: manifest.Overwrite, User: "expiry", Identifier: 1}
	for _, e := range liveEntries(t, store) {
		dir, err := manifest.DataDir(s, opts, e.Partition, e.Bucket)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(dir, "day="+day+"/") {
			e.Kind = manifest.Remove
			c.Entries = append(c.Entries, e)
		}
	}
	if len(c.Entries) == 0 {
		t.Fatalf("snapshot %d has nothing of day %s", snap.ID, day)
	}
	if _, err := m.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// hardExpiredPartition: another engine drops a partition and its files while this process compacts it, and a late row for
// it waits in a commit. The row is kept, the compaction is given up, the stream goes on and no file is left over.
func hardExpiredPartition(t *testing.T) {
	c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id", "day"}, PartitionKeys: []string{"day"},
		Options: map[string]string{"bucket": "1", "num-sorted-run.compaction-trigger": "3"}},
		strings.Replace(ordersColumns, "day STRING", "day STRING NOT NULL", 1), decode.Config{Before: decode.BeforeFull})
	row := func(id int, st, day string) happened {
		return event(fmt.Sprintf(`{"after":{"id":%d,"st":%q,"day":%q},"op":"c"}`, id, st, day))
	}
	c.must([]happened{row(1, "a", "1"), row(7, "kept", "2")}, []happened{row(2, "b", "1")})
	mem := c.store
	var armed atomic.Bool
	var puts atomic.Int64
	dropped := make(chan struct{})
	c.store = storage.WithFaults(mem, func(op storage.Op) error {
		switch {
		case op.Kind == storage.OpOpen && strings.HasPrefix(op.Name, "day=1/") && strings.HasSuffix(op.Name, ".parquet") && armed.CompareAndSwap(true, false):
			partitionDropped(t, mem, "1") // by the time the compaction reads its first file they are all gone
			if _, err := metaOf(mem).Expire(context.Background(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			close(dropped)
		case op.Kind == storage.OpPutIfAbsent && strings.HasPrefix(op.Name, "snapshot/") && puts.Add(1) == 3:
			// After the fence and a commit that makes the compaction due: the late row is in a file by now, and its commit
			// waits until the partition is dropped.
			select {
			case <-dropped:
			case <-time.After(20 * time.Second):
				t.Error("nothing was compacted")
			}
		}
		return nil
	})
	armed.Store(true)
	c.must([]happened{row(3, "third", "1")}, []happened{row(4, "late", "1")}, []happened{row(8, "after", "2")})
	select {
	case <-dropped:
	default:
		t.Fatal("no compaction has read the partition")
	}
	c.store = mem
	ids := func() []string { return slices.Sorted(maps.Keys(c.rows())) }
	if got := ids(); !slices.Equal(got, []string{"4", "7", "8"}) {
		t.Errorf("rows %v", got)
	}
	c.must([]happened{row(5, "later", "1")}) // no restart loop
	c.compact()
	if got := ids(); !slices.Equal(got, []string{"4", "5", "7", "8"}) {
		t.Errorf("rows %v", got)
	}
	if _, err := metaOf(mem).Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	live := map[string]bool{}
	for _, e := range liveEntries(t, mem) {
		live[e.File.Name] = true
	}
	for f, err := range storage.Walk(t.Context(), mem, "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, ".parquet") && !live[path.Base(f.Name)] {
			t.Errorf("%s is left over", f.Name)
		}
	}
	if d := c.dead(); len(d) > 0 {
		t.Errorf("dead letters: %v", d)
	}
}

// hardSlowReader: a row that comes, goes and comes back, compacted each time, told to a reader that pauses over the middle
// while snapshots expire.
func hardSlowReader(t *testing.T) {
	for _, producer := range []string{"none", "lookup", "full-compaction", "input"} {
		t.Run(producer, func(t *testing.T) {
			c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1", "changelog-producer": producer}}, ordersColumns, decode.Config{})
			leased, plain := &folder{c: c, rows: map[string]string{}}, &folder{c: c, rows: map[string]string{}}
			c.must([]happened{created(9, "A")})
			c.compact()
			for _, f := range []*folder{leased, plain} {
				f.consumer = map[bool]string{true: "slow"}[f == leased]
				if err := f.read(reader.Fail); err != nil {
					t.Fatal(err)
				}
			}
			c.must([]happened{deleted(9)})
			c.compact()
			c.must([]happened{created(9, "A")})
			c.compact()
			expire := func() {
				t.Helper()
				if _, err := metaOf(c.store).Expire(t.Context(), manifest.Retention{Min: 10, Max: 10}, time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 20 { // each run has a snapshot for its epoch too
				c.must([]happened{created(100+i, "other")})
				expire()
			}
			c.compact() // which is what tells changes, with some producers
			if err := leased.read(reader.Fail); err != nil {
				t.Fatal(err)
			}
			if want := []string{"+I A", "-D", "+I A"}; !slices.Equal(leased.told, want) {
				t.Errorf("the reader with a lease was told %q, want %q", leased.told, want)
			}
			leased.check()
			expire() // nobody waits any more
			err := plain.read(reader.Fail)
			gap, ok := errors.AsType[*reader.GapError](err)
			if !ok || gap.From != plain.next || gap.To < gap.From || gap.Earliest != gap.To+1 || !errors.Is(err, manifest.ErrSnapshotExpired) {
				t.Fatalf("the reader without a lease: %#v %v", gap, err)
			}
			if err := plain.read(reader.Rescan); err != nil {
				t.Fatal(err)
			}
			if !plain.gap {
				t.Error("the gap was not told")
			}
			plain.check()
		})
	}
}

// folder reads a stream and folds it.
type folder struct {
	c        *cdcTable
	consumer string
	next     int64 // the snapshot to go on with; 0: the first
	rows     map[string]string
	told     []string // of id 9
	gap      bool
}

// read goes on to the end.
func (f *folder) read(gap reader.OnGap) error {
	e := testEnv()
	rd := reader.Open(f.c.store, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	spec := reader.TailSpec{From: reader.Start{Mode: reader.Earliest}, OnGap: gap, Consumer: f.consumer}
	if f.next > 0 {
		spec.From = reader.Start{Mode: reader.FromSnapshot, Snapshot: f.next}
	}
	for ch, err := range rd.Tail(f.c.t.Context(), spec) {
		if err != nil {
			return err
		}
		if ch.Event != nil && ch.Event.Gap != nil {
			f.gap = true
			clear(f.rows)
		}
		for i := 0; ch.Rec != nil && i < int(ch.Rec.NumRows()); i++ {
			id, st, kind := fmt.Sprint(schema.Cell(ch.Rec.Column(0), i)), fmt.Sprint(schema.Cell(ch.Rec.Column(1), i)), schema.Insert
			if ch.RowKinds != nil {
				kind = ch.RowKinds[i]
			}
			if !kind.IsAdd() {
				delete(f.rows, id)
				st = ""
			} else {
				f.rows[id] = st
			}
			if id == "9" {
				f.told = append(f.told, strings.TrimSpace(kind.String()+" "+st))
			}
		}
		if ch.Complete {
			f.next = ch.Snapshot + 1
		}
	}
	return nil
}

// check holds the fold against the table.
func (f *folder) check() {
	f.c.t.Helper()
	want := map[string]string{}
	for id, row := range f.c.rows() {
		want[id] = fmt.Sprint(row[1])
	}
	if !maps.Equal(f.rows, want) {
		f.c.t.Errorf("the stream folds to %v, the table has %v", f.rows, want)
	}
}

// hardManyPartitionsEnv has the number of days: the test runs in a process of its own, whose memory is measured. 5000 is
// what it is about.
const hardManyPartitionsEnv = "CALVE_HARD_DAYS"

// hardManyPartitions: two rows of 290 texts for each of 4 customers of very many days, each a partition, and then a value of
// 100 MiB, which is more than a record may have. The position moves all the while, a commit has one file a partition, the
// value goes to the dead letters, and the process stays below 512 MiB.
func hardManyPartitions(t *testing.T) {
	days, err := strconv.Atoi(os.Getenv(hardManyPartitionsEnv))
	if os.Getenv(hardManyPartitionsEnv+"_CHILD") != "" {
		if err != nil {
			t.Fatal(err)
		}
		manyPartitions(t, days)
		return
	}
	if err != nil {
		days = 60
	}
	if err != nil && underRace {
		days = 10
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestHard/H23$", "-test.v")
	cmd.Env = append(os.Environ(), hardManyPartitionsEnv+"="+strconv.Itoa(days), hardManyPartitionsEnv+"_CHILD=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "at most") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

const hardColumns, hardCustomers, hardMemory = 290, 4, 512 << 20

func manyPartitions(t *testing.T, days int) {
	cols, err := schema.ParseColumns("day INT NOT NULL, customer INT NOT NULL, id BIGINT NOT NULL")
	if err != nil {
		t.Fatal(err)
	}
	for i := range hardColumns {
		c, err := schema.ParseColumns(fmt.Sprintf("c%d STRING", i))
		if err != nil {
			t.Fatal(err)
		}
		cols = append(cols, c...)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"day", "customer", "id"}, PartitionKeys: []string{"day", "customer"}, Options: map[string]string{"bucket": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	store, err := storage.NewLocal(t.TempDir())
	if err == nil {
		err = engine.Create(t.Context(), store, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(hardMemory * 8 / 10))
	table, err := engine.Open(t.Context(), store, engine.Settings{Job: "j", BufferBytes: 256 << 20, Budget: engine.NewBudget(256 << 20)}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	dead := NewDeadLetters(storage.Sub(store, "dead"), DeadLetterSettings{Engine: engine.Settings{Job: "j"}}, testEnv())
	rows := 2 * days * hardCustomers
	var moved []int64
	limits := Limits{CommitInterval: time.Hour, CommitRows: int64(rows+1) / 2} // two flushes, each of a row for every partition
	res, err := RunLines(t.Context(), &manyRows{days: days, rows: rows, large: 100 << 20}, LinesConfig{Limits: limits}, table, dead, testEnv(),
		Events{Committed: func(c Committed) { moved = append(moved, c.Records) }})
	if err != nil {
		t.Fatal(err)
	}
	if res.Rows != int64(rows)+1 || res.Rejected != 1 || len(moved) < 2 || moved[0] > int64(rows)*3/4 {
		t.Errorf("%+v in commits of %v records", res, moved)
	}
	files := int64(0)
	for _, n := range table.Metrics().Files {
		files += n
	}
	if most := int64(len(moved)*days*hardCustomers + 1); files > most {
		t.Errorf("%d files, more than %d", files, most)
	}
	if err := errors.Join(table.Close(t.Context()), dead.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if l := lettersIn(t, storage.Sub(store, "dead")); len(l) != 1 || l[0].Code != decode.TooLarge || l[0].Size < 100<<20 || !l[0].Truncated {
		t.Errorf("%d dead letters", len(l))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("the memory of the process cannot be seen here")
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	kb, _ := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
	t.Logf("%d partitions, at most %d MiB", days*hardCustomers, kb>>10)
	if kb<<10 > hardMemory && !underRace {
		t.Errorf("the process had %d MiB", kb>>10)
	}
}

// manyRows gives lines: rows, each partition once before any comes again, then one whose value is large, then a last row.
type manyRows struct {
	days, rows, large int
	n, filled         int
	buf               []byte // what is left of a line
}

// Read implements io.Reader.
func (m *manyRows) Read(p []byte) (int, error) {
	if len(m.buf) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, m.buf)
	m.buf = m.buf[n:]
	return n, nil
}

func (m *manyRows) next() error {
	switch {
	case m.n < m.rows || m.n == m.rows+1:
		i := m.n
		m.buf = fmt.Appendf(m.buf[:0], `{"day":%d,"customer":%d,"id":%d`, i/hardCustomers%m.days, i%hardCustomers, i)
		for c := range hardColumns {
			m.buf = fmt.Appendf(m.buf, `,"c%d":"v%d"`, c, i+c)
		}
		m.buf = append(m.buf, "}\n"...)
		m.n++
	case m.n == m.rows && m.filled < m.large:
		if m.filled == 0 {
			m.buf = append(m.buf[:0], `{"day":0,"customer":0,"id":-1,"c0":"`...)
		}
		n := min(1<<20, m.large-m.filled)
		m.buf = append(m.buf, strings.Repeat("x", n)...)
		m.filled += n
	case m.n == m.rows:
		m.buf = append(m.buf[:0], "\"}\n"...)
		m.n++
	default:
		return io.EOF
	}
	return nil
}
