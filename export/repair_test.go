package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// errInjected is the fault of these tests.
var errInjected = errors.New("injected fault")

// TestFaultAtEveryCall makes each storage call of a Publish fail, or lose its reply, or be the last before a power
// cut. After each, the table must be readable and show the old or the new state, and the next Publish must end in the
// new state with nothing left over.
func TestFaultAtEveryCall(t *testing.T) {
	faults := map[string]error{
		"fails":       errInjected,
		"lost reply":  storage.LoseReply(errInjected),
		"half a file": storage.Partial(7, errInjected),
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, first := range []bool{false, true} {
				at := 1
				for faultAt(t, at, first, fault) {
					at++
				}
				t.Logf("first %v: %d calls", first, at-1)
				if at < 10 {
					t.Errorf("only %d calls were hit", at-1)
				}
			}
		})
	}
}

// faultAt lets the at-th storage call of a Publish, the first of the table or a later one, fail. It reports false when
// there are not so many calls.
func faultAt(t *testing.T, at int, first bool, fault error) bool {
	t.Helper()
	mem := storage.NewMem()
	var calls atomic.Int64 // until the fault; far from it while it is not armed
	calls.Store(1 << 40)
	store := storage.WithFaults(mem, func(storage.Op) error {
		if calls.Add(-1) == 0 {
			return fault
		}
		return nil
	})
	w := newWorld(t, store, keyed(t))
	var files []manifest.Entry
	for b := range 4 {
		files = append(files, w.write(w.part(b), 2, fmt.Sprintf(`{"id":%d,"name":"x","amount":"1.00"}`, b)))
	}
	w.commit(manifest.Append, files...)
	before := []string{"not exported"}
	if !first {
		w.publish(w.exporter(), 0)
		before = scanned(t, mem, ScanSpec{})
	}
	w.commit(manifest.Compact, removal(files[0]), removal(files[1]), w.write(w.part(0), 2, `{"id":0,"name":"new","amount":"2.00"}`))
	after := []string{`{"amount":"1","id":2,"name":"x"}`, `{"amount":"1","id":3,"name":"x"}`, `{"amount":"2","id":0,"name":"new"}`}

	e := w.exporter()
	calls.Store(int64(at))
	_, err := e.Publish(context.Background(), 0)
	hit := calls.Load() <= 0
	calls.Store(1 << 40)
	if err != nil && (!hit || !errors.Is(err, errInjected)) {
		t.Fatalf("call %d: %v", at, err)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(at)))
	clone := mem.CrashClone(rng)
	for _, crashed := range []bool{false, true} {
		left := mem
		if crashed {
			left = clone
		}
		got := []string{"not exported"}
		if _, err := OpenTable(context.Background(), left); !errors.Is(err, ErrNotExported) {
			got = scanned(t, left, ScanSpec{})
		}
		if !slices.Equal(got, after) && (err == nil || !slices.Equal(got, before)) {
			t.Fatalf("call %d, crashed %v: rows %v are neither the old nor the new ones (error of Publish: %v)", at, crashed, got, err)
		}
		again := w.on(left)
		ex := again.exporter()
		if !crashed {
			ex = e // the same process goes on
		}
		ex.set.OrphanAge = time.Nanosecond // everything that nothing names goes at the first sweep
		again.publish(ex, 0)
		again.check()
		if got := scanned(t, left, ScanSpec{}); !slices.Equal(got, after) {
			t.Fatalf("call %d, crashed %v: rows after the repair %v, want %v", at, crashed, got, after)
		}
		again.commit(manifest.Append, again.write(again.part(3), 2, `{"id":9,"name":"y","amount":"1.00"}`))
		ex = again.exporter()
		ex.set.OrphanAge = time.Nanosecond
		again.publish(ex, 0)
		again.check()
		again.checkNoOrphans()
	}
	return hit
}

// on is the same table as another process sees it in another store.
func (w *world) on(store storage.Store) *world {
	n := openWorld(w.t, store, w.schema)
	n.now, n.rng, n.seq, n.ident = w.now, w.rng, w.seq, w.ident
	for k, v := range w.live {
		n.live[k] = v
	}
	return n
}

// checkNoOrphans checks that the metadata folder holds exactly what the current version names.
func (w *world) checkNoOrphans() {
	w.t.Helper()
	ctx := context.Background()
	tab, err := OpenTable(ctx, w.store)
	if err != nil {
		w.t.Fatal(err)
	}
	want := []string{"version-hint.text"}
	add := func(location string) {
		name := location[strings.LastIndex(location, "/")+1:]
		if !slices.Contains(want, name) {
			want = append(want, name)
		}
	}
	add(tab.MetadataLocation())
	for old := range tab.Metadata().PreviousFiles() {
		add(old.MetadataFile)
	}
	fsys, err := tab.FS(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range tab.Metadata().Snapshots() {
		add(s.ManifestList)
		list, err := s.Manifests(fsys)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range list {
			add(m.FilePath())
		}
	}
	got := w.names()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Fatalf("metadata folder\n has %v\nwant %v", got, want)
	}
}

// TestTwoExporters publishes from two processes in turn and at once.
func TestTwoExporters(t *testing.T) {
	mem := storage.NewMem()
	w := newWorld(t, mem, keyed(t))
	a, b := w.exporter(), w.exporter()
	for i := range 6 {
		w.commit(manifest.Append, w.fake(w.part(i%4), 2, 10))
		w.publish([]*Exporter{a, b}[i%2], 0)
		w.check()
	}
	// Between a's look at the current version and its commit, b is faster.
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	raced := false
	slow := New(manifest.Open(storage.WithFaults(mem, func(op storage.Op) error {
		if op.Kind == storage.OpPutIfAbsent && !raced {
			raced = true
			w.publish(b, 0)
		}
		return nil
	}), manifest.Env{Now: w.clock, NewID: w.id}), nil, Settings{Env: w.env()})
	slow.target = NewDirTarget(slow.src.Store())
	r := w.publish(slow, 0)
	if !raced || r.Published {
		t.Errorf("raced %v; the slower exporter: %+v", raced, r)
	}
	w.check()
	slow.swept = false
	slow.set.OrphanAge = time.Nanosecond
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	w.publish(slow, 0)
	w.check()
	w.checkNoOrphans()
}

func TestHintRepair(t *testing.T) {
	ctx := context.Background()
	for name, content := range map[string]string{"missing": "", "empty": "-", "stale": "1", "garbage": "x\n", "ahead": "99", "old version is gone": "2"} {
		t.Run(name, func(t *testing.T) {
			mem := storage.NewMem()
			w := newWorld(t, mem, keyed(t))
			e := w.exporter()
			e.set.MaxMetadata = 2
			for range 6 {
				w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
				w.publish(e, 0)
			}
			var err error
			switch content {
			case "":
				err = mem.Delete(ctx, hintName)
			case "-":
				err = mem.Put(ctx, hintName, nil)
			default:
				err = mem.Put(ctx, hintName, []byte(content))
			}
			if err != nil {
				t.Fatal(err)
			}
			w.check()
			if r := w.publish(w.exporter(), 0); r.Published {
				t.Errorf("published again: %+v", r)
			}
			if data, err := storage.ReadAll(ctx, mem, hintName, 10); err != nil || string(data) != "6" {
				t.Errorf("hint %q, error %v, want 6", data, err)
			}
		})
	}
}

// TestDamage loses or corrupts each kind of metadata file. Manifests are written anew; a metadata file is refused.
func TestDamage(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"snap-", "-m"} {
		for _, how := range []string{"lost", "truncated", "garbage", "bit flip"} {
			for _, what := range []string{"add", "remove"} {
				t.Run(kind+" "+how+" "+what, func(t *testing.T) {
					mem := storage.NewMem()
					w := newWorld(t, mem, keyed(t))
					f := w.fake(w.part(0), 2, 10)
					w.commit(manifest.Append, f)
					w.publish(w.exporter(), 0)
					for i := range 10 { // enough small manifests to have them merged
						w.commit(manifest.Append, w.fake(w.part(i%4), 2, 10))
						w.publish(w.exporter(), 0)
					}
					for _, name := range w.names() {
						if strings.Contains(name, kind) {
							damage(t, mem, metadataDir+"/"+name, how)
						}
					}
					if what == "add" {
						for range 8 {
							w.commit(manifest.Append, w.fake(w.part(1), 2, 10))
						}
					} else {
						w.commit(manifest.Compact, removal(f))
					}
					e := w.exporter()
					for range 9 {
						w.commit(manifest.Append, w.fake(w.part(1), 2, 10))
						w.publish(e, 0)
					}
					if how == "bit flip" {
						return // where nothing was read nothing was noticed
					}
					w.check()
				})
			}
		}
	}
	mem := storage.NewMem()
	w := newWorld(t, mem, keyed(t))
	w.publish(w.exporter(), 0)
	damage(t, mem, versionName(1), "truncated")
	if _, err := w.exporter().Publish(ctx, 0); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "v1.metadata.json") {
		t.Errorf("error %v, want one that names the damaged file", err)
	}
}

func damage(t *testing.T, mem *storage.Mem, name, how string) {
	t.Helper()
	ctx := context.Background()
	data, err := storage.ReadAll(ctx, mem, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Clone(data)
	switch how {
	case "lost":
		err = mem.Delete(ctx, name)
	case "truncated":
		err = mem.Put(ctx, name, data[:len(data)*2/3])
	case "garbage":
		err = mem.Put(ctx, name, []byte("Obj\x01 this is not Avro"))
	case "bit flip":
		data[len(data)/2] ^= 0x10
		err = mem.Put(ctx, name, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestForeignMetadata(t *testing.T) {
	ctx := context.Background()
	mem := storage.NewMem()
	w := newWorld(t, mem, keyed(t))
	if err := mem.Put(ctx, versionName(7), []byte(`{"format-version":2,"table-uuid":"7a1d3bd6-6bd0-4a4b-9a34-0f2d6f6d2a01","properties":{}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.exporter().Publish(ctx, 0); !errors.Is(err, ErrForeign) {
		t.Errorf("metadata of another exporter: error %v", err)
	}
	if err := mem.Delete(ctx, versionName(7)); err != nil {
		t.Fatal(err)
	}
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	w.publish(w.exporter(), 0)
	data, err := storage.ReadAll(ctx, mem, versionName(1), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	foreign := bytes.Replace(data, []byte(PropSnapshot+`":"1","total`), []byte(`x":"1","total`), 1)
	foreign = bytes.ReplaceAll(foreign, []byte(`"`+PropSnapshot+`":"1","changed`), []byte(`"changed`))
	if i := bytes.Index(data, []byte(`"summary":{`)); i > 0 {
		foreign = append(bytes.Clone(data[:i]), bytes.Replace(data[i:], []byte(PropSnapshot), []byte("engine-name"), 1)...)
	}
	if err := mem.Put(ctx, versionName(2), foreign); err != nil {
		t.Fatal(err)
	}
	if _, err := w.exporter().Publish(ctx, 0); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "another Iceberg writer") {
		t.Errorf("a commit of another Iceberg writer: error %v", err)
	}
}

// TestMoved copies a table to another place: the locations in its metadata are of no use there.
func TestMoved(t *testing.T) {
	ctx := context.Background()
	mem := storage.NewMem()
	w := newWorld(t, storage.Sub(mem, "db.db/a"), keyed(t))
	for range 3 {
		w.commit(manifest.Append, w.write(w.part(0), 2, fmt.Sprintf(`{"id":%d,"name":"x","amount":"1.00"}`, w.seq)))
		w.publish(w.exporter(), 0)
	}
	for info, err := range storage.Walk(ctx, mem, "db.db/a") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := storage.ReadAll(ctx, mem, info.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := mem.Put(ctx, strings.Replace(info.Name, "/a/", "/b/", 1), data); err != nil {
			t.Fatal(err)
		}
		if err := mem.Delete(ctx, info.Name); err != nil {
			t.Fatal(err)
		}
	}
	moved := openWorld(t, storage.Sub(mem, "db.db/b"), w.schema)
	moved.now = w.now.Add(time.Hour)
	for loc, e := range w.live {
		moved.live[strings.Replace(loc, "/a/", "/b/", 1)] = e
	}
	e := moved.exporter()
	e.set.OrphanAge, e.set.MaxMetadata = time.Nanosecond, 0
	r := moved.publish(e, 0)
	if !r.Published || r.Rows != 3 {
		t.Fatalf("publish of the moved table: %+v", r)
	}
	tab := moved.check()
	if got := len(tab.Metadata().Snapshots()); got != 1 {
		t.Errorf("%d snapshots, want 1", got)
	}
	if got := scanned(t, moved.store, ScanSpec{}); len(got) != 3 {
		t.Errorf("rows %v", got)
	}
}

// TestRollback deletes the newest Paimon snapshots, as Paimon's rollback does, and commits others under their ids.
func TestRollback(t *testing.T) {
	ctx := context.Background()
	for _, extra := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint(extra), func(t *testing.T) {
			mem := storage.NewMem()
			w := newWorld(t, mem, keyed(t))
			e := w.exporter()
			a, b, c := w.fake(w.part(0), 2, 10), w.fake(w.part(1), 2, 10), w.fake(w.part(2), 2, 10)
			for _, f := range []manifest.Entry{a, b, c} {
				w.commit(manifest.Append, f)
				w.publish(e, 0)
			}
			for _, id := range []int{3, 2} {
				if err := mem.Delete(ctx, fmt.Sprintf("snapshot/snapshot-%d", id)); err != nil {
					t.Fatal(err)
				}
			}
			if err := mem.Put(ctx, "snapshot/LATEST", []byte("1")); err != nil {
				t.Fatal(err)
			}
			back := w.on(mem)
			back.track([]manifest.Entry{removal(b), removal(c)})
			for range extra {
				back.commit(manifest.Append, back.fake(back.part(3), 2, 7))
			}
			r := back.publish(back.exporter(), 0)
			if !r.Published || r.IcebergSnapshot != int64(1+extra) {
				t.Fatalf("publish after the rollback: %+v", r)
			}
			tab := back.check()
			if n := len(tab.Metadata().Snapshots()); n != 1 {
				t.Errorf("%d snapshots, want 1: the others are not in the table's history", n)
			}
			back.commit(manifest.Append, back.fake(back.part(3), 2, 7))
			back.publish(back.exporter(), 0)
			back.check()
		})
	}
}

// TestExpiry drops Iceberg snapshots whose files Paimon has deleted, and only those.
func TestExpiry(t *testing.T) {
	ctx := context.Background()
	mem := storage.NewMem()
	w := newWorld(t, mem, schema.Spec{Columns: keyed(t).Columns, PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}})
	e := w.exporter()
	var last manifest.Entry
	for i := range 10 {
		f := w.write(w.part(0), 2, fmt.Sprintf(`{"id":%d,"name":"x","amount":"1.00"}`, i))
		if i == 0 {
			w.commit(manifest.Append, f)
		} else {
			w.commit(manifest.Compact, removal(last), f)
		}
		last = f
		w.publish(e, 0)
		// A snapshot that changes nothing at the exported level.
		w.commit(manifest.Append, w.write(w.part(0), 0, `{"id":99,"name":"x","amount":"1.00"}`))
	}
	if _, err := w.table.Expire(ctx, manifest.Retention{Min: 5, Max: 5}, w.now); err != nil {
		t.Fatal(err)
	}
	first, err := w.table.Earliest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID != 16 {
		t.Fatalf("earliest snapshot is %d", first.ID)
	}
	r := w.publish(e, 0)
	if !r.Published || r.Added+r.Removed != 0 {
		t.Errorf("publish after the expiry: %+v", r)
	}
	tab := w.check()
	var ids []int64
	for _, s := range tab.Metadata().Snapshots() {
		ids = append(ids, s.SnapshotID)
		if got := scanned(t, mem, ScanSpec{Snapshot: s.SnapshotID}); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf(`"id":%d,`, (s.SnapshotID-1)/2)) {
			t.Errorf("rows of snapshot %d: %v", s.SnapshotID, got)
		}
	}
	if want := []int64{15, 17, 19}; !slices.Equal(ids, want) {
		t.Errorf("Iceberg snapshots %v, want %v: those readable from Paimon snapshot 16 on", ids, want)
	}
	if r := w.publish(e, 0); r.Published {
		t.Errorf("published again: %+v", r)
	}
	w.checkNoOrphans()
}

// TestBounded keeps snapshots, metadata files and manifests few over many changes.
func TestBounded(t *testing.T) {
	mem := storage.NewMem()
	w := newWorld(t, mem, keyed(t))
	e := w.exporter()
	e.set.MaxSnapshots, e.set.MaxMetadata = 5, 3
	var files []manifest.Entry
	for i := range 100 {
		f := w.fake(w.part(i%4), 2, 10)
		if i%3 == 2 {
			w.commit(manifest.Compact, removal(files[0]), f)
			files = files[1:]
		} else {
			w.commit(manifest.Append, f)
		}
		files = append(files, f)
		w.publish(e, 0)
		if n := len(e.state.list); n > 2*mergeSmall {
			t.Fatalf("%d manifests after %d changes", n, i+1)
		}
	}
	tab := w.check()
	if n := len(tab.Metadata().Snapshots()); n != 5 {
		t.Errorf("%d snapshots, want 5", n)
	}
	w.checkNoOrphans()
	seen := int64(0)
	for _, s := range tab.Metadata().Snapshots() {
		planned(t, tab, s.SnapshotID)
		if s.SequenceNumber <= seen {
			t.Errorf("snapshot %d has sequence number %d after %d", s.SnapshotID, s.SequenceNumber, seen)
		}
		seen = s.SequenceNumber
	}
}
