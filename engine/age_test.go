package engine_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// aging is a table whose clock and compactor move when the test says so.
type aging struct {
	t     *testing.T
	mem   *storage.Mem
	s     *schema.Schema
	tab   *engine.Table
	clock atomic.Int64
	tick  chan time.Time
}

func newAging(t *testing.T, s *schema.Schema, sweepAfter time.Duration) *aging {
	a := &aging{t: t, mem: storage.NewMem(), s: s, tick: make(chan time.Time)}
	mustCreate(t, a.mem, s)
	env := testEnv()
	began := time.Now()
	env.Now = func() time.Time { return began.Add(time.Duration(a.clock.Load())) }
	short := env.After
	env.After = func(d time.Duration) <-chan time.Time {
		if d == time.Second {
			return a.tick
		}
		return short(d)
	}
	c := engine.NewCompactor(engine.CompactorSettings{SweepAfter: sweepAfter}, env)
	t.Cleanup(c.Close)
	var err error
	if a.tab, err = engine.Open(t.Context(), a.mem, engine.Settings{Compaction: 1, Compactor: c}, env); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.tab.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// after lets time go by and the compactor look; it gives the levels of the files when everything it asked for is done.
func (a *aging) after(d time.Duration) []int {
	a.t.Helper()
	a.clock.Add(int64(d))
	for range 11 { // one of ten looks is for cold buckets, and the last is taken when the one before has ended
		a.tick <- time.Now()
	}
	for end := time.Now().Add(30 * time.Second); a.tab.Metrics().CompactionDebt > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatal("a compaction does not end")
		}
	}
	m := readerOf(a.mem).Meta()
	snap, err := m.Latest(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	live, err := m.Live(a.t.Context(), snap, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	var levels []int
	for _, f := range live {
		levels = append(levels, f.File.Level)
	}
	slices.Sort(levels)
	return levels
}

func (a *aging) put(from, to int) {
	a.t.Helper()
	write(a.t, a.tab, batchOf(a.s, plainRows(from, to)))
	commit(a.t, a.tab)
}

func (a *aging) expect(d time.Duration, want ...int) {
	a.t.Helper()
	if got := a.after(d); !slices.Equal(got, want) {
		a.t.Errorf("after %s more, %s: levels of files %v, not %v", d, time.Duration(a.clock.Load()), got, want)
	}
}

// TestSweep: a bucket that nobody has written to for a while goes to the highest level, once.
func TestSweep(t *testing.T) {
	a := newAging(t, keyedSchema(t, false, nil), 10*time.Minute)
	a.put(0, 5)
	a.expect(9*time.Minute, 0)
	a.put(3, 8)
	a.expect(9*time.Minute, 0, 0)
	a.expect(2*time.Minute, 2)
	if m := a.tab.Metrics(); m.TopAge != 0 || m.Compactions != 1 {
		t.Errorf("%+v", m)
	}
	a.expect(time.Hour, 2)
	a.put(100, 101)
	a.expect(time.Minute, 0, 2)
	if m := a.tab.Metrics(); m.TopAge != time.Minute || m.SpaceAmplification() <= 1 {
		t.Errorf("%+v", m)
	}
	a.expect(10*time.Minute, 2)
	if m := a.tab.Metrics(); m.Compactions != 2 {
		t.Errorf("%+v", m)
	}
	if rows := table(t, a.mem); len(rows) != 9 {
		t.Errorf("rows %q", rows)
	}
}

// TestSweepAppend: small files of a table without key become one.
func TestSweepAppend(t *testing.T) {
	a := newAging(t, appendSchema(t), time.Minute)
	a.put(0, 5)
	a.put(5, 10)
	a.expect(30*time.Second, 0, 0)
	a.expect(time.Minute, 0)
	a.expect(time.Hour, 0)
	if m := a.tab.Metrics(); m.Compactions != 1 {
		t.Errorf("%+v", m)
	}
}

// TestFresh: rows reach the highest level within the time that the table says, and no sooner than they have to.
func TestFresh(t *testing.T) {
	a := newAging(t, keyedSchema(t, false, map[string]string{"compaction.optimization-interval": "60 s"}), 0)
	for i := range 4 { // 20 seconds apart, all with the first
		a.put(i, i+5)
		if i < 3 {
			a.expect(15*time.Second, make([]int, i+1)...)
		}
	}
	a.expect(10*time.Second, 2)
	a.put(50, 55)
	a.expect(50*time.Second, 0, 2)
	a.expect(8*time.Second, 2)
	if m := a.tab.Metrics(); m.Compactions != 2 {
		t.Errorf("%+v", m)
	}
}

// TestFreshAfterOpening: the age of what is there when the table is opened is that of its files.
func TestFreshAfterOpening(t *testing.T) {
	s := keyedSchema(t, false, map[string]string{"compaction.optimization-interval": "60 s"})
	a := newAging(t, s, 0)
	other := mustOpen(t, a.mem, engine.Settings{})
	write(t, other, batchOf(s, plainRows(0, 3)))
	commit(t, other)
	b := &aging{t: t, mem: a.mem, s: s, tick: make(chan time.Time)}
	b.clock.Store(int64(58 * time.Second))
	env := testEnv()
	env.Now = func() time.Time { return time.Now().Add(time.Duration(b.clock.Load())) }
	short := env.After
	env.After = func(d time.Duration) <-chan time.Time {
		if d == time.Second {
			return b.tick
		}
		return short(d)
	}
	tab, err := engine.Open(t.Context(), b.mem, engine.Settings{Compaction: 1}, env)
	if err != nil {
		t.Fatal(err)
	}
	b.tab = tab
	defer func() {
		if err := tab.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if got := fmt.Sprint(b.after(0)); got != "[2]" {
		t.Errorf("levels of files %s", got)
	}
}
