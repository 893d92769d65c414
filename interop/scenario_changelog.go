//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/schema"
)

func init() {
	for _, engine := range []string{schema.Deduplicate, schema.PartialUpdate, schema.Aggregation, schema.FirstRow} {
		RegisterScenario(Scenario{Name: "changelog-" + engine, Run: func(ctx context.Context, l *Lab, report *Report) {
			judgeChangelog(ctx, l, report, engine)
		}})
	}
}

// judgeChangelog writes random histories of tables with a changelog twice, one table by calve, its twin by Paimon Java: what
// the streams of both tell is the same, whoever reads them, and folding calve's gives its table.
func judgeChangelog(ctx context.Context, l *Lab, report *Report, engine string) {
	name := "changelog-" + engine
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check(name, j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			worker, err := java.launch("paimon-java-"+name, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
			if err != nil {
				return err
			}
			return changelogHistories(ctx, l, worker, report, engine)
		})
	}
}

func changelogHistories(ctx context.Context, l *Lab, worker *Worker, report *Report, engine string) error {
	start := time.Now()
	var failures []error
	n, changes := 0, 0
	for ; n < max(1, l.Histories/4) && ctx.Err() == nil; n++ {
		h, err := generateChangelog(engine, l.Seed+uint64(n))
		if err != nil {
			return err
		}
		plays := 0
		try := func(h *History) *disagreement {
			plays++
			found, told := playTwins(ctx, l, worker, h, fmt.Sprintf("changelog.%s_%d_%d", strings.ReplaceAll(engine, "-", "_"), h.Seed, plays))
			changes += told
			return found
		}
		found := try(h)
		if found == nil || ctx.Err() != nil {
			continue
		}
		l.Log("changelog-%s: seed %d disagrees %v", engine, h.Seed, found)
		small, left := shrink(ctx, h, found, try)
		failures = append(failures, fmt.Errorf("seed %d (alone: make interop ARGS=\"-run changelog-%s/paimon-java -seed %d -histories 4\"), shrunk in %d plays:\n%s\n%w",
			h.Seed, engine, h.Seed, plays, small.Script(), left))
	}
	report.Note("changelog-%s: histories=%d disagree=%d changes=%d in %.0fs, seeds %d to %d", engine, n, len(failures), changes,
		time.Since(start).Seconds(), l.Seed, l.Seed+uint64(max(n, 1)-1))
	return errors.Join(append(failures, ctx.Err())...)
}

// generateChangelog makes the history of a seed: a table of a merge engine with random options, its producer, and writes
// and compactions that both sides do.
func generateChangelog(engine string, seed uint64) (*History, error) {
	h, err := generateMerge(engine, seed)
	if err != nil {
		return nil, err
	}
	rng := valuer{rand.New(rand.NewPCG(seed, 0x6368616e676573))}
	producer := oneOf(rng, "input", "lookup", "lookup", "full-compaction")
	binary := func(c Column) bool {
		return slices.Contains(h.Key, c.Name) && strings.Contains(c.Type, "B") && c.Type != "BIGINT NOT NULL"
	}
	if slices.ContainsFunc(h.Columns, binary) { // Java cannot look such keys up
		producer = oneOf(rng, "input", "full-compaction")
	}
	if engine == schema.FirstRow {
		if producer != "lookup" && slices.ContainsFunc(h.Columns, binary) {
			return generateChangelog(engine, seed+1_000_000)
		}
		producer = "lookup"
	}
	lookup := producer == "lookup"
	if lookup && engine != schema.FirstRow && rng.chance(50) {
		h.Options["deletion-vectors.enabled"], h.Options["deletion-vectors.bitmap64"] = "true", fmt.Sprint(rng.chance(50))
		producer = oneOf(rng, "none", "input", "lookup", "lookup")
	}
	h.Options["changelog-producer"] = producer
	if producer == "lookup" || producer == "full-compaction" {
		h.Options["changelog-producer.row-deduplicate"] = fmt.Sprint(rng.chance(50))
		if rng.chance(30) {
			h.Options["changelog-producer.row-deduplicate-ignore-fields"] = oneOf(rng, h.Columns...).Name
		}
	}
	odd := func(c Column) bool {
		return strings.Contains(c.Type, "<") || strings.HasPrefix(c.Type, "FLOAT") || strings.HasPrefix(c.Type, "DOUBLE")
	}
	if slices.ContainsFunc(h.Columns, odd) { // Java 1.4 finds no two NaN equal, nor two arrays with nulls
		delete(h.Options, "changelog-producer.row-deduplicate")
	}
	if lookup && (engine == schema.PartialUpdate || engine == schema.Aggregation) {
		// Else Java moves files to the highest level as they are and tells other rows than those in them.
		h.Options["compaction.force-rewrite-all-files"] = "true"
	}
	if h.Options["sequence.field.sort-order"] != "" { // which Java's write buffer does not know
		h.Options["sequence.field.sort-order"] = "ascending"
	}
	h.Buffer = 0 // rows of a commit are merged at once by both
	var steps []HistoryStep
	for _, s := range h.Steps {
		if s.Do != doWrite {
			continue
		}
		if lookup && remembersDeletes(h) {
			s.Changes = slices.DeleteFunc(s.Changes, func(op Op) bool { return op.Kind == "-U" || op.Kind == "-D" })
		}
		if len(s.Changes) == 0 {
			continue
		}
		if s.By = byJava; rng.chance(30) && len(s.Changes) > 2 { // rows that change nothing
			s.Changes = append(s.Changes, s.Changes[:2]...)
		}
		switch s.Wait, s.Dynamic = lookup, nil; lookup {
		case true:
			steps = append(steps, s)
			if rng.chance(20) {
				steps = append(steps, HistoryStep{By: byJava, Do: doCompactFull})
			}
			continue
		default:
			s.Dynamic = map[string]string{"write-only": "true"}
		}
		if steps = append(steps, s); rng.chance(40) {
			steps = append(steps, HistoryStep{By: byJava, Do: doCompactFull})
		}
	}
	h.Steps = append(steps, HistoryStep{By: byJava, Do: doCompactFull})
	return h, nil
}

// remembersDeletes tells tables where a delete of a missing key has an effect on later rows, until a compaction drops it: when
// that is depends on the sizes of files.
func remembersDeletes(h *History) bool {
	for name := range h.Options {
		if name == "sequence.field" || strings.Contains(name, "remove-record") || strings.HasSuffix(name, ".sequence-group") {
			return true
		}
	}
	return false
}

// twin is a table of the pair, as both sides read it.
type twin struct {
	*History
	writes side
	folder string
	calve  *calveSide
	java   *javaSide
	next   int64 // first snapshot that was not compared
}

func newTwin(l *Lab, worker *Worker, h *History, writes side, table string) (*twin, error) {
	own := h.clone()
	own.Creator = writes
	place := l.Local()
	table += "_by_" + string(writes)
	w := &twin{History: own, writes: writes, folder: place.folder(table), next: 1}
	w.java = &javaSide{history: own, worker: worker, table: PaimonTable{Warehouse: place.Warehouse, Name: table}}
	var err error
	w.calve, err = newCalveSide(own, w.folder)
	return w, err
}

func (w *twin) create(ctx context.Context) error {
	if w.writes == byCalve {
		return w.calve.create(ctx)
	}
	return w.java.create(ctx)
}

func (w *twin) step(ctx context.Context, s *HistoryStep) error {
	if w.writes == byJava {
		return w.java.step(ctx, s, 0)
	}
	return w.calve.step(ctx, s)
}

// look reads the table and what it tells since the last look, by both sides, which must agree.
func (w *twin) look(ctx context.Context) (*Rows, toldChanges, *disagreement) {
	rows, look, d := readBoth(ctx, w.calve, w.java, w.next)
	if d != nil {
		return nil, nil, d
	}
	if look.Latest < w.next {
		return rows, nil, nil
	}
	columns := look.Changes.Columns
	calve, err := w.calve.changes(ctx, w.next, columns)
	if err != nil {
		return nil, nil, failed("calve's change stream", err)
	}
	mine, err := byKey(w.History, columns, calve)
	theirs, jerr := byKey(w.History, columns, look.Changes.Rows)
	if err := errors.Join(err, jerr); err != nil {
		return nil, nil, &disagreement{What: "rows of a change stream", Detail: err}
	}
	for id := w.next; id <= look.Latest; id++ {
		if a, b := mine.of(id), theirs.of(id); a != b {
			return nil, nil, &disagreement{What: "readers of a change stream", Detail: fmt.Errorf("table of %s, snapshot %d:\ncalve reads\n%s\nJava reads\n%s", w.writes, id, a, b)}
		}
	}
	w.next = look.Latest + 1
	return rows, mine, nil
}

// toldChange is a change in the normal form.
type toldChange struct {
	snapshot       int64
	kind, key, row string
	was            map[string]any // the row as it was read
}

// toldChanges are changes by key; those of one key are in their order.
type toldChanges []toldChange

func byKey(h *History, columns []Column, changes []Change) (toldChanges, error) {
	rows, err := NewRows(columns)
	if err != nil {
		return nil, err
	}
	var keyed []Column
	for _, c := range columns {
		if slices.Contains(h.Key, c.Name) {
			keyed = append(keyed, c)
		}
	}
	keys, err := NewRows(keyed)
	if err != nil {
		return nil, err
	}
	out, free := make(toldChanges, len(changes)), sets(h)
	for i, c := range changes {
		key := map[string]any{}
		for _, k := range keyed {
			key[k.Name] = c.Row[k.Name]
		}
		row := unordered(c.Row, free)
		if err := errors.Join(rows.Add(row), keys.Add(key)); err != nil {
			return nil, err
		}
		out[i] = toldChange{c.Snapshot, c.Kind, keys.line(i), rows.line(i), row}
	}
	slices.SortStableFunc(out, func(a, b toldChange) int { return strings.Compare(a.key, b.key) })
	return out, nil
}

// of gives the changes of a snapshot as text; 0: of all.
func (t toldChanges) of(snapshot int64) string {
	var b strings.Builder
	for _, c := range t {
		if snapshot == 0 || c.snapshot == snapshot {
			b.WriteString(c.kind + " " + c.row + "\n")
		}
	}
	return b.String()
}

// playTwins plays a history in both tables and says how many changes they told.
func playTwins(ctx context.Context, l *Lab, worker *Worker, h *History, table string) (found *disagreement, told int) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("the history took too long"))
	defer cancel()
	var twins []*twin
	for _, by := range []side{byCalve, byJava} {
		w, err := newTwin(l, worker, h, by, table)
		if err == nil {
			err = w.create(ctx)
		}
		if err != nil {
			return failed(string(by)+" creates", err), 0
		}
		twins = append(twins, w)
	}
	defer func() {
		for _, w := range twins {
			if found == nil {
				_ = os.RemoveAll(w.folder)
			}
		}
	}()
	state := map[string]toldChange{}
	for i := range h.Steps {
		s := &h.Steps[i]
		fail := func(d *disagreement) (*disagreement, int) { d.Step = i + 1; return d, told }
		var rows [2]*Rows
		var texts [2]string
		for j, w := range twins {
			if err := w.step(ctx, s); err != nil {
				return fail(failed(fmt.Sprintf("%s does %q", w.writes, s.Do), err))
			}
			var changes toldChanges
			var d *disagreement
			if rows[j], changes, d = w.look(ctx); d != nil {
				return fail(d)
			}
			texts[j] = changes.of(0)
			if told += len(changes); w.writes == byCalve {
				if err := foldStrictly(h, state, changes); err != nil {
					return fail(&disagreement{What: "fold of calve's stream", Detail: err})
				}
			}
		}
		if texts[0] != texts[1] {
			return fail(&disagreement{What: "change streams of the twins", Detail: fmt.Errorf("calve's tells\n%s\nJava's tells\n%s", texts[0], texts[1])})
		}
		if err := rows[1].Compare(rows[0]); err != nil {
			return fail(&disagreement{What: "rows of the twins", Detail: err})
		}
		if !folds(h, s) {
			continue
		}
		folded, _ := NewRows(rows[0].Columns)
		for _, c := range state {
			if err := folded.Add(c.was); err != nil {
				return fail(&disagreement{What: "fold of calve's stream", Detail: err})
			}
		}
		if err := rows[0].Compare(folded); err != nil {
			return fail(&disagreement{What: "fold of calve's stream", Detail: err})
		}
	}
	for _, w := range twins {
		if _, _, err := w.calve.verifyStream(ctx); err != nil {
			return &disagreement{Step: len(h.Steps), What: "calve verifies the stream of " + string(w.writes) + "'s table", Detail: err}, told
		}
	}
	return nil, told
}

// folds reports whether the stream has told all of the table after a step. With ignored columns it tells older values.
func folds(h *History, s *HistoryStep) bool {
	return h.option("changelog-producer", "") == "lookup" && h.Options["changelog-producer.row-deduplicate-ignore-fields"] == "" ||
		h.option("changelog-producer", "") == "full-compaction" && s.Do == doCompactFull && h.Options["changelog-producer.row-deduplicate-ignore-fields"] == ""
}

// foldStrictly applies changes that tell rows before and after: each must fit what the stream has told before.
func foldStrictly(h *History, state map[string]toldChange, changes toldChanges) error {
	if p := h.option("changelog-producer", ""); p == "input" || p == "none" {
		return nil
	}
	ignores := h.Options["changelog-producer.row-deduplicate-ignore-fields"] != ""
	for _, c := range changes {
		old, there := state[c.key]
		switch {
		case c.kind == "+I" && there, (c.kind == "-U" || c.kind == "-D") && !there:
			return fmt.Errorf("%s %s does not fit: the stream has %q (%v)", c.kind, c.row, old.row, there)
		case (c.kind == "-U" || c.kind == "-D") && old.row != c.row && !ignores:
			return fmt.Errorf("%s %s takes another row back than the stream has: %s", c.kind, c.row, old.row)
		case c.kind == "-U" || c.kind == "-D":
			delete(state, c.key)
		default:
			state[c.key] = c
		}
	}
	return nil
}
