package reader_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// cells gives rows of a stream as text, with what the n-th of them resumes at.
func cells(t *testing.T, r *reader.Reader, spec reader.TailSpec) (rows []string, at []reader.Position) {
	t.Helper()
	for c, err := range r.Tail(t.Context(), spec) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec == nil {
			continue
		}
		for i := range int(c.Rec.NumRows()) {
			kind := schema.Insert
			if c.RowKinds != nil {
				kind = c.RowKinds[i]
			}
			rows = append(rows, fmt.Sprint(c.Snapshot, " ", kind, " ", c.Rec.Column(0).ValueStr(i), "/", c.Rec.Column(1).ValueStr(i), " ", c.Rec.Column(2).ValueStr(i)))
			at = append(at, c.After(int64(i+1)))
		}
	}
	return rows, at
}

// arriving commits changes at random, several batches a commit, over buckets, partitions and handles, and says in which order
// they came.
func arriving(t *testing.T, x *table, seed uint64, commits, most int) (want []string) {
	r := rand.New(rand.NewPCG(seed, 1))
	e := env()
	set := engine.Settings{BufferBytes: 1500} // so that a commit has several flushes
	for n := 1; n <= commits; {
		tab, err := engine.Open(t.Context(), x, set, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(3) {
			seen := map[string]bool{}
			for range 1 + r.IntN(4) {
				b := array.NewRecordBuilder(memory.DefaultAllocator, x.schema.Arrow())
				var kinds []schema.RowKind
				for range 1 + r.IntN(most) {
					p, id := fmt.Sprint("p", r.IntN(3)), r.Int64N(10_000)
					if key := fmt.Sprint(p, "/", id); seen[key] {
						continue
					} else {
						seen[key] = true
					}
					// An update comes as two rows.
					some := []schema.RowKind{schema.RowKind(r.IntN(2) * 3)}
					if x.schema.Options["changelog-producer"] == "input" {
						some = [][]schema.RowKind{some, {schema.UpdateBefore, schema.UpdateAfter}}[r.IntN(2)]
					}
					for _, k := range some {
						b.Field(0).(*array.StringBuilder).Append(p)
						b.Field(1).(*array.Int64Builder).Append(id)
						b.Field(2).(*array.StringBuilder).Append(fmt.Sprint("n", r.Uint32()))
						kinds = append(kinds, k)
					}
				}
				rec := b.NewRecordBatch()
				for i, k := range kinds {
					want = append(want, fmt.Sprint(n, " ", k, " ", rec.Column(0).ValueStr(i), "/", rec.Column(1).ValueStr(i), " ", rec.Column(2).ValueStr(i)))
				}
				if err := tab.Write(t.Context(), schema.Batch{Rec: rec, Kinds: kinds}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if err := tab.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return want
}

// arrivalSeed is printed; CALVE_SEED repeats another one.
func arrivalSeed(t *testing.T) uint64 {
	n := uint64(1)
	if s := os.Getenv("CALVE_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (set CALVE_SEED to change it)", n)
	return n
}

// TestArrival: changes come as they were written, across keys, buckets and partitions, and a reader resumes at any of them;
// also where few rows are sorted at once.
func TestArrival(t *testing.T) {
	seed := arrivalSeed(t)
	for _, options := range [][]string{{"bucket", "4"}, {"bucket", "3", "changelog-producer", "input"}, {"bucket", "-1", "dynamic-bucket.target-row-num", "50"}} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			x := newTable(t, true, options...)
			want := arriving(t, x, seed, 6, 40)
			spec := reader.TailSpec{Order: reader.Arrival}
			got, at := cells(t, x.reader(), spec)
			if !slices.Equal(got, want) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if stored, _ := cells(t, x.reader(), reader.TailSpec{}); slices.Equal(stored, want) {
				t.Fatal("the table keeps rows as they came: nothing is tested")
			}
			if got, _ := cells(t, x.reader(), reader.SortAtOnce(spec, 4<<10)); !slices.Equal(got, want) {
				t.Fatalf("few at once: got\n%s", strings.Join(got, "\n"))
			}
			for i := 0; i < len(at); i += 1 + len(at)/20 {
				from := spec
				p, err := reader.ParsePosition(at[i].String())
				if err != nil || p != at[i] {
					t.Fatal(p, at[i], err)
				}
				from.From = reader.Start{Mode: reader.FromPosition, At: p}
				if got, _ := cells(t, x.reader(), from); !slices.Equal(got, want[i+1:]) {
					t.Fatalf("from %s: got\n%s", p, strings.Join(got, "\n"))
				}
			}
			where := spec
			where.Where = "name < 'n3'"
			got, _ = cells(t, x.reader(), where)
			var fit []string
			for _, w := range want {
				if w[strings.LastIndexByte(w, ' '):] < " n3" {
					fit = append(fit, w)
				}
			}
			got = slices.DeleteFunc(got, func(g string) bool { return g[strings.LastIndexByte(g, ' '):] >= " n3" }) // deletes of keys
			if !slices.Equal(kindless(got), kindless(fit)) {
				t.Fatalf("with a condition: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(fit, "\n"))
			}
		})
	}
}

// kindless takes the kinds away, which a condition may change.
func kindless(rows []string) []string {
	var out []string
	for _, r := range rows {
		f := strings.Fields(r)
		out = append(out, strings.Join([]string{f[0], f[2], f[3]}, " "))
	}
	return out
}

// unmarked is a table whose snapshots do not say that their rows were numbered together, as those of other writers.
func unmarked(t *testing.T, x *table) {
	t.Helper()
	for info, err := range storage.Walk(t.Context(), x, "snapshot") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Name, "snapshot-") {
			x.replace(info.Name, `"`+manifest.PropOrder+`"`, `"other"`)
		}
	}
}

// replace edits a file.
func (x *table) replace(name, old, by string) {
	x.t.Helper()
	b, err := storage.ReadAll(x.t.Context(), x, name, 1<<20)
	if err == nil {
		err = x.Delete(x.t.Context(), name)
	}
	if err == nil {
		err = x.PutIfAbsent(x.t.Context(), name, []byte(strings.ReplaceAll(string(b), old, by)))
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// TestArrivalRefused: where the order of arrival is not known it is not told.
func TestArrivalRefused(t *testing.T) {
	fails := func(what string, x *table, spec reader.TailSpec, want string) {
		t.Helper()
		spec.Order = reader.Arrival
		var last error
		for _, err := range x.reader().Tail(t.Context(), spec) {
			last = err
		}
		if !errors.Is(last, reader.ErrQuery) || !strings.Contains(last.Error(), want) {
			t.Errorf("%s: %v", what, last)
		}
	}
	x := newTable(t, true)
	x.write(some(4, "one"), []change{{schema.Insert, "a", 9, "x"}, {schema.Insert, "a", 1, "y"}})
	fails("with images", x, reader.TailSpec{BeforeImage: true}, "computed by key")
	if got, _ := cells(t, x.reader(), reader.TailSpec{Order: reader.Arrival}); len(got) != 6 {
		t.Error(got)
	}
	unmarked(t, x)
	fails("of another writer", x, reader.TailSpec{}, "numbered the rows of each bucket for itself")
	one := reader.TailSpec{Order: reader.Arrival, From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 2}}
	if got, _ := cells(t, x.reader(), one); !slices.Equal(got, []string{"2 +I a/9 x", "2 +I a/1 y"}) {
		t.Errorf("one bucket of another writer: %v", got)
	}
	one.From = reader.Start{Mode: reader.FromPosition, At: reader.Position{Snapshot: 2, Rows: 1}}
	fails("a position of another order", x, one, "in another order")
	for _, p := range []string{"lookup", "full-compaction"} {
		x := newTable(t, true, "changelog-producer", p)
		fails(p, x, reader.TailSpec{}, "find them by key")
	}
	plain := newTable(t, false, "bucket", "2", "bucket-key", "id")
	plain.write(some(9, "x"))
	fails("several buckets without keys", plain, reader.TailSpec{}, "rows of a table without a primary key have no numbers")
	plain = newTable(t, false)
	plain.write(some(9, "x"), some(2, "y"))
	if got, at := cells(t, plain.reader(), reader.TailSpec{Order: reader.Arrival}); len(got) != 11 || at[0].String() != "1.1.arrival" {
		t.Error(got, at)
	}
	if _, err := reader.ParsePosition("1.1.state.arrival"); !errors.Is(err, reader.ErrQuery) {
		t.Error(err)
	}
	if _, err := reader.ParseOrder("key"); !errors.Is(err, reader.ErrQuery) {
		t.Error(err)
	}
}

// twice is a table of one bucket with a file and a copy of it, so that each sequence number is that of two rows.
func twice(t *testing.T, rows int) *reader.Reader {
	t.Helper()
	x := newTable(t, true, "bucket", "1")
	var one []change
	for i := range rows {
		one = append(one, change{schema.Insert, "a", int64(rows - i), "one"})
	}
	x.write(one)
	for info, err := range storage.Walk(t.Context(), x, "p=a") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := storage.ReadAll(t.Context(), x, info.Name, 1<<20)
		if err == nil {
			err = x.Put(t.Context(), path.Join(path.Dir(info.Name), "copy-"+path.Base(info.Name)), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return x.forged(func(es []manifest.Entry) []manifest.Entry {
		if len(es) != 1 {
			t.Fatal(es)
		}
		es = append(es, es[0])
		es[1].File.Name = "copy-" + es[0].File.Name
		return es
	})
}

// widest tells how many rows a stream has, and how many come at once at the most.
func widest(t *testing.T, r *reader.Reader, spec reader.TailSpec) (all, most int64) {
	t.Helper()
	for c, err := range r.Tail(t.Context(), spec) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec != nil {
			all, most = all+c.Rec.NumRows(), max(most, c.Rec.NumRows())
		}
	}
	return all, most
}

// TestArrivalBound: what rows need beside their columns counts, and rows of one number that are too many come as they are stored.
func TestArrivalBound(t *testing.T) {
	x := newTable(t, true)
	x.write(some(1000, "one"))
	const bound = 4 << 10
	spec := reader.TailSpec{Order: reader.Arrival, Columns: []string{}} // rows without columns
	if all, most := widest(t, x.reader(), reader.SortAtOnce(spec, bound)); all != 1000 || most*reader.SortedRow > bound {
		t.Errorf("%d of 1000 rows; %d are sorted at once, which need %d bytes", all, most, most*reader.SortedRow)
	}
	r := twice(t, 20)
	var want []string
	for id := 20; id > 0; id-- {
		row := fmt.Sprint("1 +I a/", id, " one")
		want = append(want, row, row)
	}
	for _, bound := range []int64{1 << 20, 1} {
		if got, _ := cells(t, r, reader.SortAtOnce(reader.TailSpec{Order: reader.Arrival}, bound)); !slices.Equal(got, want) {
			t.Errorf("%d bytes at once: got %v", bound, got)
		}
	}
	if all, most := widest(t, r, reader.SortAtOnce(spec, 1)); all != 40 || most != 1 {
		t.Errorf("%d of 40 rows; %d of one number are held at once", all, most)
	}
}

// TestArrivalMemory: streams that share memory hold no more than there is, wait as long as they are asked to, and tell what they
// would tell alone; one that was given too little reads again, with more.
func TestArrivalMemory(t *testing.T) {
	x := newTable(t, true)
	x.write(some(300, strings.Repeat("wide", 100)), some(10, "two"))
	want, _ := cells(t, x.reader(), reader.TailSpec{Order: reader.Arrival})
	const least = 64 << 10
	// In the order of their keys, too: of the batches of a file only what is to be sorted is held.
	if all, most := widest(t, x.reader(), reader.SortAtOnce(reader.TailSpec{Order: reader.Arrival}, 4<<10)); all != 310 || most < 5 {
		t.Errorf("%d of 310 rows; at most %d are sorted at once in 4 KiB", all, most)
	}
	for _, size := range []int64{4 << 10, least, 3 * least / 2, 1 << 20} {
		m := reader.NewSortMemory(size)
		spec := reader.TailSpec{Order: reader.Arrival, SortMemory: m}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for c, err := range x.reader().Tail(t.Context(), spec) {
					if err != nil {
						t.Error(err)
					}
					if c.Rec != nil && c.Rec.NumRows() > 1 && m.Free() == size { // a single row is told as it is read
						t.Error("rows are told whose memory is not taken")
					}
				}
			})
		}
		all.Wait()
		if got, _ := cells(t, x.reader(), spec); !slices.Equal(got, want) {
			t.Errorf("memory of %d bytes: %d rows, expected %d", size, len(got), len(want))
		}
		if m.Free() != size {
			t.Errorf("%d bytes of %d are not given back", size-m.Free(), size)
		}
	}
	m := reader.NewSortMemory(least)
	spec := reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 2}, Order: reader.Arrival, SortMemory: m}
	free := m.Hold(least)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for c, err := range x.reader().Tail(ctx, spec) {
		if !errors.Is(err, context.DeadlineExceeded) || c.Rec != nil {
			t.Error("a stream tells rows while another holds all memory", err)
		}
	}
	free()
	if m.Free() != least {
		t.Errorf("%d bytes are free of %d", m.Free(), least)
	}
}

// TestArrivalWaits: streams whose readers take their time leave memory to others; one that waits for memory tells that it lives, at
// the position that it has reached, and goes on when there is some.
func TestArrivalWaits(t *testing.T) {
	x := newTable(t, true)
	x.write(some(300, "one"))
	all, at := cells(t, x.reader(), reader.TailSpec{Order: reader.Arrival})
	m := reader.NewSortMemory(64 << 10)
	spec := reader.TailSpec{Order: reader.Arrival, SortMemory: m, Follow: true, Beat: 5 * time.Millisecond}
	for range 10 { // each holds a part
		next, stop := iter.Pull2(x.reader().Tail(t.Context(), spec))
		defer stop()
		for {
			c, err, ok := next()
			if err != nil || !ok {
				t.Fatal("it ends", err)
			}
			if c.Rec != nil && c.Rec.NumRows() > 0 {
				break
			}
			if c.Idle {
				t.Fatal("it waits")
			}
		}
	}
	for _, from := range []reader.Position{{Snapshot: 1}, at[99]} {
		spec.From = reader.Start{Mode: reader.FromPosition, At: from}
		spec.SortMemory = reader.NewSortMemory(64 << 10)
		free := spec.SortMemory.Hold(64 << 10)
		beats, rows := 0, int64(0)
		for c, err := range x.reader().Tail(t.Context(), spec) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Complete {
				break
			}
			if rows += c.Rec.NumRows(); !c.Idle {
				continue
			}
			if got := c.After(0); rows == 0 && (got.Snapshot != 1 || got.Rows != from.Rows) {
				t.Errorf("a heartbeat at %s, the stream began at %s", got, from)
			}
			if beats++; beats == 3 {
				free()
			}
		}
		if want := int64(len(all)) - from.Rows; beats < 3 || rows != want {
			t.Errorf("from %s: %d heartbeats, %d rows of %d", from, beats, rows, want)
		}
		if got := spec.SortMemory.Free(); got != 64<<10 {
			t.Errorf("%d bytes are not given back", 64<<10-got)
		}
	}
	spec.SortMemory = reader.NewSortMemory(1 << 10) // a reader that leaves while it waits
	free := spec.SortMemory.Hold(1 << 10)
	for range x.reader().Tail(t.Context(), spec) {
		break
	}
	free()
	if got := spec.SortMemory.Free(); got != 1<<10 {
		t.Errorf("%d bytes are free of 1024", got)
	}
}

// TestArrivalResumeCost: who goes on within a snapshot does not have all of it sorted again: flushes that were told are not read, and
// rows before the position are counted by their numbers; where these are not unique, all is read and the position is kept.
func TestArrivalResumeCost(t *testing.T) {
	x := newTable(t, true)
	wide := some(2000, "")
	for i := range wide {
		wide[i].name = fmt.Sprintf("%0200d", i)
	}
	x.write(wide)
	read := func(from reader.Position) (rows []string, at []reader.Position, bytes int64) {
		counted := storage.WithCounter(x)
		spec := reader.TailSpec{From: reader.Start{Mode: reader.FromPosition, At: from}, Order: reader.Arrival}
		rows, at = cells(t, reader.Open(counted, env()), spec)
		for _, op := range []storage.OpKind{storage.OpRead, storage.OpReadAll} {
			bytes += counted.Counts().Of(op).Bytes
		}
		return rows, at, bytes
	}
	all, at, whole := read(reader.Position{Snapshot: 1})
	for _, n := range []int{1, 1000, 1999, 2000} {
		rows, _, bytes := read(at[n-1])
		if !slices.Equal(rows, all[n:]) {
			t.Errorf("behind row %d: %d rows", n, len(rows))
		}
		if n == 2000 && bytes > whole/3 { // the ends of the files, which say how many rows they have
			t.Errorf("behind row %d: %d bytes are read, %d from the start", n, bytes, whole)
		}
	}
	r := twice(t, 20)
	all, at = cells(t, r, reader.TailSpec{Order: reader.Arrival})
	for n := range all {
		spec := reader.TailSpec{From: reader.Start{Mode: reader.FromPosition, At: at[n]}, Order: reader.Arrival}
		if rows, _ := cells(t, r, spec); !slices.Equal(rows, all[n+1:]) {
			t.Errorf("behind row %d of %d: %v", n+1, len(all), rows)
		}
	}
}

// TestArrivalForeignRows: a file that does not have as many rows as its manifest says is refused, by a whole stream and by one that
// goes on within or behind it: none leaves rows out or tells them twice.
func TestArrivalForeignRows(t *testing.T) {
	for _, by := range []int64{-9, -5, 5} {
		x := newTable(t, true, "bucket", "1")
		a, b := some(10, "one"), some(10, "two")
		for i := range a {
			a[i].p, b[i].p, b[i].id = "a", "a", b[i].id+1000
		}
		x.write(a, b)
		r := x.forged(func(es []manifest.Entry) []manifest.Entry {
			slices.SortFunc(es, func(a, b manifest.Entry) int { return cmp.Compare(a.File.MinSeq, b.File.MinSeq) })
			es[0].File.Rows += by
			return es
		})
		for n := range int64(12) {
			spec := reader.TailSpec{From: reader.Start{Mode: reader.FromPosition, At: reader.Position{Snapshot: 1, Rows: n, Arrival: true}}, Order: reader.Arrival}
			rows, last := int64(0), error(nil)
			for c, err := range r.Tail(t.Context(), spec) {
				if last = err; err == nil && c.Rec != nil {
					rows += c.Rec.NumRows()
				}
			}
			if _, ok := errors.AsType[*manifest.CorruptError](last); !ok || rows > 0 {
				t.Errorf("rows%+d: behind row %d: %d rows, then %v", by, n, rows, last)
			}
		}
	}
}
