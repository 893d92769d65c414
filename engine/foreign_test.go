package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// pair is a table with two writers in different partitions, "a" for the one under test and "b" for the foreign one.
type pair struct {
	st    storage.Store
	s     *schema.Schema
	model map[string]string
	n     int64
}

func newPair(t *testing.T, options map[string]string) *pair {
	t.Helper()
	p := &pair{st: storage.NewMem(), s: keyedSchema(t, true, options), model: map[string]string{}}
	mustCreate(t, p.st, p.s)
	return p
}

// write commits one row into a partition.
func (p *pair) write(t *testing.T, tab *engine.Table, part string) {
	t.Helper()
	p.n++
	rows := []row{{part: part, id: p.n % 7, name: fmt.Sprint("n", p.n)}}
	if err := tab.Write(t.Context(), batchOf(p.s, rows)); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), progress(int(p.n))); err != nil {
		t.Fatal(err)
	}
	apply(p.model, rows)
}

func (p *pair) check(t *testing.T) {
	t.Helper()
	if got := contents(t, p.st); !maps.Equal(got, p.model) {
		t.Fatalf("the table has %v, expected %v", got, p.model)
	}
}

func expireAllButLast(t *testing.T, tab *engine.Table) {
	t.Helper()
	if _, err := tab.Meta().Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

// TestForeignSnapshotsExpired lets another writer commit, compact and expire so fast that snapshots are gone before this
// one has seen them: it goes on with the same handle.
func TestForeignSnapshotsExpired(t *testing.T) {
	p := newPair(t, nil)
	tab := mustOpen(t, p.st, engine.Settings{Job: "j"})
	foreign := mustOpen(t, p.st, engine.Settings{})
	for round := range 3 {
		p.write(t, tab, "a")
		for range 6 {
			p.write(t, foreign, "b")
		}
		if err := foreign.Compact(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if round > 0 { // the first round follows snapshot by snapshot
			expireAllButLast(t, foreign)
		}
	}
	p.write(t, tab, "a")
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	p.write(t, tab, "a")
	p.check(t)
	if m := tab.Metrics(); m.Races == 0 || m.Conflicts != 0 {
		t.Fatalf("%d lost races and %d conflicts are counted", m.Races, m.Conflicts)
	}
}

// TestFenceExpired: the snapshot that fences a job has expired, and the one that follows it is not of the job.
func TestFenceExpired(t *testing.T) {
	p := newPair(t, nil)
	old := mustOpen(t, p.st, engine.Settings{Job: "j"})
	p.write(t, old, "a")
	mustOpen(t, p.st, engine.Settings{Job: "j"}) // the newer epoch, which writes nothing
	foreign := mustOpen(t, p.st, engine.Settings{})
	p.write(t, foreign, "b")
	expireAllButLast(t, foreign)
	if err := old.Write(t.Context(), batchOf(p.s, []row{{part: "a", id: 99}})); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Commit(t.Context(), progress(99)); !errors.Is(err, engine.ErrFenced) {
		t.Fatalf("a commit of the older epoch gives %v", err)
	}
	p.check(t)
}

// TestFenceBeforeRefresh: looking at other writers' snapshots must not step over the one that fences the job.
func TestFenceBeforeRefresh(t *testing.T) {
	p := newPair(t, nil)
	old := mustOpen(t, p.st, engine.Settings{Job: "j"})
	p.write(t, old, "a")
	mustOpen(t, p.st, engine.Settings{Job: "j"})
	if err := old.Compact(t.Context(), true); !errors.Is(err, engine.ErrFenced) {
		t.Fatalf("a compaction of the older epoch gives %v", err)
	}
	err := old.Write(t.Context(), batchOf(p.s, []row{{part: "a", id: 99}}))
	if err == nil {
		_, err = old.Commit(t.Context(), progress(99))
	}
	if !errors.Is(err, engine.ErrFenced) {
		t.Fatalf("a commit of the older epoch gives %v", err)
	}
	p.check(t)
}

// TestCompactsForeignFiles lets only another writer write: the idle one compacts what it wrote.
func TestCompactsForeignFiles(t *testing.T) {
	p := newPair(t, map[string]string{"num-sorted-run.compaction-trigger": "3"})
	compacted := make(chan engine.CompactInfo, 100)
	tab, err := engine.Open(t.Context(), p.st, engine.Settings{Job: "j", Compaction: 1, FollowEvery: time.Second,
		Events: engine.Events{Compacted: func(c engine.CompactInfo) { compacted <- c }}}, hasty())
	if err != nil {
		t.Fatal(err)
	}
	foreign := mustOpen(t, p.st, engine.Settings{})
	for range 6 {
		p.write(t, foreign, "b")
	}
	select {
	case c := <-compacted:
		if !strings.Contains(c.Bucket, "p=b") {
			t.Fatalf("%+v", c)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was compacted")
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.check(t)
	mustVerify(t, p.st)
}

// TestIdleWriterKeepsProgress: a table that others compact and expire keeps a snapshot of an idle job.
func TestIdleWriterKeepsProgress(t *testing.T) {
	p := newPair(t, map[string]string{"write-only": "true", "snapshot.num-retained.min": "4", "snapshot.num-retained.max": "8"})
	tab, err := engine.Open(t.Context(), p.st, engine.Settings{Job: "j", FollowEvery: time.Second}, hasty())
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, tab, "a")
	want := fmt.Sprint(p.n)
	foreign := mustOpen(t, p.st, engine.Settings{})
	deadline := time.Now().Add(30 * time.Second)
	for kept := false; !kept; {
		p.write(t, foreign, "b")
		last, err := foreign.Meta().LastOfUser(t.Context(), "calve-job-j")
		if err != nil {
			t.Fatal(err)
		}
		kept = last.ID > 4 && last.Properties["calve.test"] == want
		if time.Now().After(deadline) {
			t.Fatal("the progress was not published again")
		}
		time.Sleep(time.Millisecond)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.check(t)
}

// TestCompactionInputsGone: while a compaction runs, another writer compacts the same bucket and expires the inputs.
func TestCompactionInputsGone(t *testing.T) {
	p := newPair(t, nil)
	foreign := mustOpen(t, p.st, engine.Settings{})
	for range 4 {
		p.write(t, foreign, "b")
	}
	var begun atomic.Bool
	st := storage.WithFaults(p.st, func(op storage.Op) error {
		if op.Kind == storage.OpOpen && strings.HasSuffix(op.Name, ".parquet") && begun.CompareAndSwap(false, true) {
			if err := foreign.Compact(context.Background(), true); err != nil {
				t.Error(err)
			}
			expireAllButLast(t, foreign)
		}
		return nil
	})
	tab, err := engine.Open(t.Context(), st, engine.Settings{}, hasty())
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if m := tab.Metrics(); m.Conflicts != 1 {
		t.Fatalf("%d conflicts are counted", m.Conflicts)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.check(t)
	mustVerify(t, p.st)
}

// exhaust puts a copy in place of a file of a partition that says that it has used up the sequence numbers, as another writer's may.
func exhaust(t *testing.T, st storage.Store, part string) {
	t.Helper()
	m := readerOf(st).Meta()
	snap, err := m.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	live, err := m.Live(t.Context(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range live {
		e := &live[i]
		if !strings.Contains(string(e.Partition), part) {
			continue
		}
		from := *e
		from.Kind = manifest.Remove
		e.Kind, e.File.Name, e.File.MaxSeq = manifest.Add, "foreign-"+from.File.Name, math.MaxInt64
		data, err := storage.ReadAll(t.Context(), st, "p="+part+"/bucket-0/"+from.File.Name, 1<<20)
		if err == nil {
			err = st.Put(t.Context(), "p="+part+"/bucket-0/"+e.File.Name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Commit(t.Context(), manifest.Commit{Kind: manifest.Compact, User: "foreign", Identifier: 1, Entries: []manifest.Entry{from, *e}}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal(part, live)
}

// TestNumbersUsedUp: where a file has the last sequence number no rows are written that would have to be numbered above it: with a
// primary key none, else none of its bucket, while others go on.
func TestNumbersUsedUp(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			spec := schema.Spec{Columns: []schema.Column{column(t, "p STRING NOT NULL"), column(t, "id BIGINT NOT NULL"), column(t, "name STRING")},
				PartitionKeys: []string{"p"}, Options: map[string]string{"file.compression": "none"}}
			if keyed {
				spec.PrimaryKeys = []string{"p", "id"}
			}
			s, err := schema.New(spec)
			if err != nil {
				t.Fatal(err)
			}
			p := &pair{st: storage.NewMem(), s: s, model: map[string]string{}}
			mustCreate(t, p.st, p.s)
			tab := mustOpen(t, p.st, engine.Settings{Job: "j"})
			for _, part := range []string{"used", "other"} {
				p.write(t, tab, part)
			}
			exhaust(t, p.st, "used")
			refused := func(part, of string) {
				t.Helper()
				err := tab.Write(t.Context(), batchOf(p.s, []row{{part: "other", id: 50}, {part: part, id: 51}}))
				if err == nil || !strings.Contains(err.Error(), "the sequence numbers of "+of+" are used up to 9223372036854775806 or more") {
					t.Fatal(err)
				}
			}
			if keyed {
				tab = mustOpen(t, p.st, engine.Settings{Job: "j"})
				refused("other", "the table")
				return
			}
			for range 2 {
				p.write(t, tab, "other")
				refused("used", "p=used/bucket-0")
				tab = mustOpen(t, p.st, engine.Settings{Job: "j"})
			}
			p.check(t)
		})
	}
}
