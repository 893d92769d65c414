package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(out io.Writer, st storage.Store, flights int) Options {
	return Options{Warehouse: st, Out: out, Flights: flights, Interval: 20 * time.Millisecond,
		Env: engine.Env{Now: time.Now, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler),
			After: func(d time.Duration) <-chan time.Time { return time.After(min(d, 20*time.Millisecond)) }}}
}

// TestDemo plays a few flights as fast as it goes and must come out verified; then the tables it left are damaged in
// several ways, each of which its own check must find.
func TestDemo(t *testing.T) {
	var out bytes.Buffer
	mem := storage.NewMem()
	d := newDemo(options(&out, mem, 2000))
	res, err := d.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// 500 flights are history; of the 1500 others every fiftieth is cancelled.
	if !res.Verified || res.Rows != 2000-30 || len(res.Problems) > 0 || res.Snapshots < 4 || res.IcebergSnapshot < 4 || res.Changes < res.Rows {
		t.Errorf("%+v", res)
	}
	if want := fmt.Sprintf("demo: verified=true rows=1970 changes=%d snapshots=%d iceberg_snapshot=%d", res.Changes, res.Snapshots, res.IcebergSnapshot); res.String() != want {
		t.Errorf("%s, want %s", res, want)
	}
	for _, want := range []string{"500 past flights are loaded as a batch: snapshot 1\n", "1500 flights", "tail: snapshot ", " +I {\"id\":", "into level 2", "moved by metadata",
		"checked: input 1970 rows, table 1970, Iceberg table 1970, folded change stream 1970;\n  files per level [0 0 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not say %q:\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "tail lag") && utf8.RuneCountInString(line) > 74 {
			t.Errorf("too long to be redrawn: %s", line)
		}
	}
	checkDamage(t, d, mem)
}

func checkDamage(t *testing.T, d *demo, mem *storage.Mem) {
	t.Helper()
	damaged := func(want string) {
		t.Helper()
		res, err := d.check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if res.Verified || !strings.Contains(strings.Join(res.Problems, "\n"), want) {
			t.Errorf("verified %t, problems %q, want %q", res.Verified, res.Problems, want)
		}
	}
	// A truth that is another in one delay, one flight more and one less.
	original := maps.Clone(d.truth)
	ids := slices.Sorted(maps.Keys(original))
	f := original[ids[0]]
	delay := 12345
	f.Delay = &delay
	d.truth[ids[0]] = f
	damaged("table: 0 rows missing, 0 too many, 1 other than in the input; for example {")
	delete(d.truth, ids[0])
	damaged("Iceberg table: 0 rows missing, 1 too many, 0 other")
	d.truth = maps.Clone(original)
	d.truth[-1] = f
	damaged("folded change stream: 1 rows missing, 0 too many, 0 other")
	d.truth = original
	if res, err := d.check(t.Context()); err != nil || !res.Verified {
		t.Fatalf("%+v %v", res, err)
	}

	// A row that comes in behind the demo's back: the table has it, the Iceberg table and the stream have not.
	tab, err := engine.Open(t.Context(), d.store, engine.Settings{}, d.Env)
	if err != nil {
		t.Fatal(err)
	}
	dead := ingest.NewDeadLetters(d.dead, ingest.DeadLetterSettings{}, d.Env)
	if _, err := ingest.RunLines(t.Context(), strings.NewReader(`{"id":-5,"distance":1}`), ingest.LinesConfig{}, tab, dead, d.Env, ingest.Events{}); err != nil {
		t.Fatal(err)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	damaged("table: 0 rows missing, 1 too many, 0 other")

	// A data file that both the table and the Iceberg table need.
	entries, err := d.reader().Meta().Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	live, err := d.reader().Meta().Live(t.Context(), entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range live {
		if e.File.Level == 2 {
			if err := mem.Delete(t.Context(), fmt.Sprintf("%s/bucket-%d/%s", tableAt, e.Bucket, e.File.Name)); err != nil {
				t.Fatal(err)
			}
			damaged(e.File.Name)
			break
		}
	}
}

// TestStory folds the change stream by itself and must come to the truth that story tells.
func TestStory(t *testing.T) {
	flights, err := loadFlights(3000)
	if err != nil {
		t.Fatal(err)
	}
	if len(flights) != 3000 {
		t.Fatalf("%d flights", len(flights))
	}
	flights[10].Delay = nil // corrected, though nobody knows its delay
	folded, ops := map[int64]flight{}, map[string]int{}
	truth, err := story(flights, func(e event) error {
		var f flight
		if err := json.Unmarshal(e.value, &f); err != nil {
			return err
		}
		if f.ID != e.key {
			t.Errorf("the key of %s is %d", e.value, e.key)
		}
		ops[f.Op]++
		op := f.Op
		if f.Op = ""; op == "D" {
			delete(folded, f.ID)
		} else {
			folded[f.ID] = f
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := (map[string]int{"I": 3000, "U": 3000 + 2*300, "D": 60}); !maps.Equal(ops, want) {
		t.Errorf("operations %v, want %v", ops, want)
	}
	if d := diff("folded", truthState(folded), truthState(truth)); d != "" || len(truth) != 2940 {
		t.Errorf("%d rows, %s", len(truth), d)
	}
	broken := errors.New("broken")
	if _, err := story(flights, func(event) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// TestCancel: a demo that is told to stop does so, and leaves nothing running.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	o := options(io.Discard, storage.NewMem(), 4000)
	o.Rate = 1000
	if res, err := Run(ctx, o); !errors.Is(err, context.Canceled) || res.Verified {
		t.Fatalf("%+v %v", res, err)
	}
}
