//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/calve-io/calve/manifest"
)

func init() { RegisterScenario(Scenario{Name: "leases", Run: judgeLeases}) }

// judgeLeases has calve and Paimon Java take turns in writing, compacting and expiring tables that keep the changes of more
// snapshots than they keep snapshots, while consumers of both come and go. After each step both must tell the same changes,
// those of long-lived changelogs of either among them, each snapshot's as they were told first; and expiry by either leaves
// what a consumer of the other wants.
func judgeLeases(ctx context.Context, l *Lab, report *Report) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("leases", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			for i, producer := range []string{"none", "input", "lookup"} {
				t, err := newLeasedTable(l, java, producer, uint64(i))
				if err == nil {
					err = t.play(ctx)
				}
				if err != nil {
					return fmt.Errorf("seed %d, changelog-producer %s: after %s: %w", l.Seed, producer, strings.Join(t.done, ", "), err)
				}
				report.Note("leases, %s: %d snapshots told alike %d times, %d times by long-lived changelogs that calve left and %d times by Java's; consumers held back Java's expiry %d and calve's %d times",
					producer, t.last, t.looks, t.left[byCalve], t.left[byJava], t.held[byJava], t.held[byCalve])
			}
			return nil
		})
	}
}

// Changes of 14 snapshots are kept, and 3 snapshots.
const keptChanges, keptSnapshots = 14, 3

// leasedTable is a table with what it has told.
type leasedTable struct {
	valuer
	*twin
	told  map[int64]string // changes of each snapshot, as they were told first
	done  []string
	looks int

	wants  int64          // the earliest snapshot that a consumer wants; 0: there is none
	whose  side           // who made it
	origin map[int64]side // of the long-lived changelogs: who left them
	last   int64
	left   map[side]int // snapshots told by changelogs that the side had left
	held   map[side]int // expiries of the side that a consumer of the other one held back
}

func newLeasedTable(l *Lab, java *paimonJava, producer string, n uint64) (*leasedTable, error) {
	h := &History{Seed: l.Seed, Columns: flinkColumns, Key: []string{"k"}, Options: map[string]string{
		"bucket": "2", "changelog-producer": producer, "num-sorted-run.compaction-trigger": "3",
		"snapshot.num-retained.min": "2", "snapshot.num-retained.max": fmt.Sprint(keptSnapshots), "snapshot.time-retained": "1 ms",
		"changelog.num-retained.min": fmt.Sprint(keptChanges), "changelog.num-retained.max": fmt.Sprint(keptChanges), "changelog.time-retained": "1 ms",
	}}
	t := &leasedTable{valuer: valuer{rand.New(rand.NewPCG(l.Seed, 100+n))}, told: map[int64]string{}, origin: map[int64]side{}, left: map[side]int{}, held: map[side]int{}}
	var err error
	t.twin, err = newTwin(l, java.Worker, h, oneOf(t.valuer, byCalve, byJava), "leased."+producer)
	return t, err
}

// shown reports whether expiries of both have left changelogs that were told, and were held back by a consumer.
func (t *leasedTable) shown() bool {
	return t.left[byCalve] > 0 && t.left[byJava] > 0 && t.held[byCalve] > 0 && t.held[byJava] > 0
}

func (t *leasedTable) play(ctx context.Context) error {
	if err := t.create(ctx); err != nil {
		return err
	}
	for turn := 0; turn < 70 || !t.shown() && turn < 250; turn++ {
		by := oneOf(t.valuer, byCalve, byJava)
		what, err := t.turn(ctx, by)
		t.done = append(t.done, string(by)+" "+what)
		if err == nil {
			err = t.check(ctx, by)
		}
		if err != nil {
			return err
		}
	}
	if !t.shown() {
		return fmt.Errorf("the test has shown too little: changelogs of both were told %v times, expiries of both held back %v times", t.left, t.held)
	}
	return t.calve.verify(ctx)
}

// turn does something.
func (t *leasedTable) turn(ctx context.Context, by side) (string, error) {
	do := func(s HistoryStep) error {
		if by == byJava {
			return t.java.step(ctx, &s, 0)
		}
		return t.calve.step(ctx, &s)
	}
	switch n := t.IntN(10); {
	// Java's ExpireChangelogImpl reads a changelog of a negative id where there are fewer snapshots than changelogs to keep.
	case n < 2 && t.last > 0 && (by == byCalve || t.last >= keptChanges):
		return "expires", do(HistoryStep{Do: doExpire})
	case n < 3 && t.last > 0:
		full := t.chance(50)
		return fmt.Sprint("compacts, full ", full), do(HistoryStep{Do: map[bool]action{true: doCompactFull, false: doCompact}[full]})
	case n < 5 && t.last > 0:
		return t.consumer(ctx, by)
	}
	s := HistoryStep{Do: doWrite, Wait: true}
	for range 1 + t.IntN(12) {
		k := t.IntN(20)
		s.Changes = append(s.Changes, Op{Kind: oneOf(t.valuer, "+I", "+I", "+I", "-D"), Row: map[string]any{"k": k, "v": fmt.Sprintf("%s %d", by, len(t.done)), "n": t.IntN(3)}})
	}
	return "writes", do(s)
}

// consumer makes, moves or drops the one consumer there is, which wants one of the snapshots that are left.
func (t *leasedTable) consumer(ctx context.Context, by side) (string, error) {
	const name = "judge"
	meta := t.calve.reader.Meta()
	if t.wants > 0 && t.chance(40) {
		t.wants = 0
		if by == byJava {
			return "drops the consumer", t.java.step(ctx, &HistoryStep{Do: doNoConsumer, Name: name}, 0)
		}
		return "drops the consumer", meta.DropConsumer(ctx, name)
	}
	first, err := meta.Earliest(ctx)
	if err != nil {
		return "makes a consumer", err
	}
	next := first.ID + t.Int64N(t.last-first.ID+2)
	t.wants, t.whose = next, by
	if by == byJava {
		return fmt.Sprint("makes a consumer of ", next), t.java.step(ctx, &HistoryStep{Do: doConsumer, Name: name}, next)
	}
	if next > first.ID && t.chance(50) { // as a tail with rows before changes does
		t.wants = next - 1
		return fmt.Sprintf("makes a consumer of %d that needs %d", next, t.wants), meta.PutConsumerKeeping(ctx, name, next, t.wants)
	}
	return fmt.Sprint("makes a consumer of ", next), meta.PutConsumer(ctx, name, next)
}

// check compares what both tell, and looks at what is left after a turn of a side.
func (t *leasedTable) check(ctx context.Context, by side) error {
	meta := manifest.Open(t.calve.store, manifest.Env{Now: t.calve.env.Now, NewID: t.calve.env.NewID, Rand: t.calve.env.Rand})
	latest, err := meta.Latest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return nil
	}
	if err != nil {
		return err
	}
	first, err := meta.Earliest(ctx)
	if err != nil {
		return err
	}
	from, err := meta.EarliestTold(ctx)
	if err != nil {
		return err
	}
	t.last = latest.ID
	for id := from.ID; id < first.ID; id++ {
		if _, known := t.origin[id]; !known {
			t.origin[id] = by
		}
	}
	if t.wants > 0 && first.ID > t.wants {
		return fmt.Errorf("expiry took what the consumer of %s wants: the earliest snapshot is %d, wanted is %d", t.whose, first.ID, t.wants)
	}
	if t.wants > 0 && first.ID == t.wants && latest.ID-first.ID >= keptSnapshots && by != t.whose {
		t.held[by]++
	}
	if t.wants == 0 && from.ID > 1 && latest.ID-from.ID+1 < keptChanges {
		return fmt.Errorf("changes from snapshot %d on are left, of %d; %d must be kept", from.ID, latest.ID, keptChanges)
	}
	return t.compare(ctx, from.ID, first.ID)
}

// compare has both tell all changes from a snapshot on; those before first are in long-lived changelogs.
func (t *leasedTable) compare(ctx context.Context, from, first int64) error {
	_, look, d := readBoth(ctx, t.calve, t.java, from)
	if d != nil {
		return d
	}
	columns := look.Changes.Columns
	changes, err := t.calve.changes(ctx, from, columns)
	if err != nil {
		return fmt.Errorf("calve's change stream from snapshot %d: %w", from, err)
	}
	mine, err := byKey(t.History, columns, changes)
	theirs, jerr := byKey(t.History, columns, look.Changes.Rows)
	if err := errors.Join(err, jerr); err != nil {
		return err
	}
	for id := from; id <= t.last; id++ {
		a, b := mine.of(id), theirs.of(id)
		if _, known := t.told[id]; !known {
			t.told[id] = a
		}
		if want := t.told[id]; a != b || a != want {
			return fmt.Errorf("changes of snapshot %d (snapshots from %d on):\ncalve tells\n%s\nJava tells\n%s\ntold first\n%s", id, first, a, b, want)
		}
		if id < first && a != "" {
			t.left[t.origin[id]]++
		}
	}
	t.looks++
	if slices.ContainsFunc(changes, func(c Change) bool { return c.Snapshot < from || c.Snapshot > t.last }) {
		return errors.New("changes of other snapshots than were asked for")
	}
	return nil
}
