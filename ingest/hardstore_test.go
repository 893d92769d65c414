package ingest

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

func init() {
	hard[7] = hardKills
	hard[8] = hardConditionalPuts
}

// hardKills: 10,000 records of one partition into a table without key. The process ends at 200 random calls to the storage,
// a third of them between the put of a snapshot and its reply, half of the others with what a power cut leaves on a disk.
func hardKills(t *testing.T) {
	total, kills := int64(10_000), 200
	if testing.Short() || underRace {
		total, kills = 2000, 40
	}
	r := schematest.Rand(t)
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	c := &crashing{mem: createTable(t, nil, "part INT", "off BIGINT", "v BIGINT")}
	cfg := b.config()
	cfg.Decode.BatchRows, cfg.Limits.CommitRows = 25, 25
	model, next := map[string][]any{}, int64(0)
	for killed := 0; killed < kills; {
		var rs []*kgo.Record
		for ; next < total && len(rs) < int(total)/kills; next++ {
			model[fmt.Sprint(int32(0), next)] = []any{int32(0), next, 7 * next}
			rs = append(rs, message("t", 0, "", fmt.Sprintf(`{"v":%d}`, 7*next)))
		}
		b.sendAll(rs)
		if c.only = ""; killed%3 == 0 {
			c.only = "snapshot/"
			c.left.Store(1 + r.Int64N(4))
		} else {
			c.left.Store(1 + r.Int64N(30))
		}
		if runUntilCrash(t, c, cfg, fmt.Sprintf(`{"0":%d}`, next)) {
			if killed++; killed%2 == 0 {
				c.mem = c.mem.CrashClone(r)
			}
		}
	}
	if next < total {
		t.Fatalf("%d kills, and only %d records", kills, next)
	}
	c.only = ""
	c.left.Store(1 << 40)
	if runUntilCrash(t, c, cfg, fmt.Sprintf(`{"0":%d}`, total)) {
		t.Fatal("a crash that was not asked for")
	}
	if got := scan(t, c.mem, 2); !reflect.DeepEqual(got, model) { // scan refuses what is there twice
		t.Errorf("%d rows in the table, %d were sent", len(got), total)
	}
	seen := map[string]bool{}
	for _, e := range liveEntries(t, c.mem) {
		if seen[e.File.Name] {
			t.Errorf("file %s is in the live manifests twice", e.File.Name)
		}
		seen[e.File.Name] = true
	}
	if letters := lettersIn(t, storage.Sub(c.mem, "dead")); len(seen) == 0 || len(letters) > 0 {
		t.Errorf("%d files, %d dead letters", len(seen), len(letters))
	}
}

func metaOf(store storage.Store) *manifest.Table {
	e := testEnv()
	return manifest.Open(store, manifest.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
}

// liveEntries are the files of the newest snapshot.
func liveEntries(t *testing.T, store storage.Store) []manifest.Entry {
	t.Helper()
	m := metaOf(store)
	snap, err := m.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := m.Live(t.Context(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// snapshotPuts makes a hook that does something at the first request for each snapshot, before or after its effect.
func snapshotPuts(at func(w http.ResponseWriter, name string) bool) storagetest.S3Hook {
	var seen sync.Map
	return func(w http.ResponseWriter, r *http.Request) bool {
		_, name, ok := strings.Cut(r.URL.Path, "/snapshot/snapshot-")
		if r.Method != http.MethodPut || !ok {
			return false
		}
		if _, again := seen.LoadOrStore(name, true); again {
			return false
		}
		return at(w, name)
	}
}

// hardConditionalPuts: what an S3 server may answer to the put of a snapshot. No row is lost or doubled, and all files that
// the table names are there (cdcTable.rows verifies it).
func hardConditionalPuts(t *testing.T) {
	events := []happened{created(1, "a"), created(2, "b"), updated(1, "c")}
	want := [][]any{{int64(1), "c", nil, nil}, {int64(2), "b", nil, nil}}
	onFake := func(t *testing.T) (*cdcTable, *storagetest.FakeS3) {
		f := storagetest.NewFakeS3(t)
		c := orders(t)
		s, err := metaOf(c.store).LatestSchema(t.Context())
		if err == nil {
			c.store = f.Open("lake/orders")
			err = engine.Create(t.Context(), c.store, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c, f
	}
	for _, v := range []struct {
		name   string
		before bool // the answer comes instead of the effect
		answer func(w http.ResponseWriter)
	}{
		{"the reply is lost and the retry gets 412", false, storagetest.HangUp},
		{"500 after the effect", false, func(w http.ResponseWriter) { storagetest.RefuseS3(w, http.StatusInternalServerError, "InternalError") }},
		{"409", true, func(w http.ResponseWriter) {
			storagetest.RefuseS3(w, http.StatusConflict, "ConditionalRequestConflict")
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, f := onFake(t)
			var puts atomic.Int64
			h := snapshotPuts(func(w http.ResponseWriter, _ string) bool {
				puts.Add(1)
				v.answer(w)
				return true
			})
			if v.before {
				f.Arm(h, nil)
			} else {
				f.Arm(nil, h)
			}
			c.must(events[:1], events[1:])
			c.want(want...)
			last, err := metaOf(c.store).Latest(t.Context())
			if err != nil || puts.Load() < 3 || last.ID != puts.Load() {
				t.Errorf("%d snapshots, %d puts of one for the first time: %v", last.ID, puts.Load(), err)
			}
		})
	}
	t.Run("412 with the snapshot of another writer", func(t *testing.T) {
		c, f := onFake(t)
		var lost atomic.Value
		f.Arm(snapshotPuts(func(_ http.ResponseWriter, name string) bool {
			if name != "2" { // 1 is the fence
				return false
			}
			f.Arm(nil, nil)
			other := &cdcTable{t: t, store: c.store, cfg: c.cfg, job: "other"}
			if err := other.run([]happened{created(9, "other")}); err != nil {
				lost.Store(err)
			}
			return false // and now the put meets what is there
		}), nil)
		c.must(events)
		if err := lost.Load(); err != nil {
			t.Fatal(err)
		}
		c.want(append(want, []any{int64(9), "other", nil, nil})...)
		last, err := metaOf(c.store).Latest(t.Context())
		if err != nil || last.ID != 4 || last.CommitUser != "calve-job-cdc" {
			t.Errorf("the last snapshot is %d of %s (%v)", last.ID, last.CommitUser, err)
		}
	})
	t.Run("If-None-Match is ignored", func(t *testing.T) {
		f := storagetest.NewFakeS3(t)
		f.IgnoreConditions = true
		if _, err := storage.OpenURL(t.Context(), "s3://bucket/lake", f.Options()); !errors.Is(err, storage.ErrUnsafe) {
			t.Errorf("it was opened: %v", err)
		}
	})
}
