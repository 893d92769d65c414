//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/calve-io/calve/reader"
)

// disagreement is what a history shows when not everybody says the same.
type disagreement struct {
	Step   int    // from 1; 0: the creation
	What   string // which comparison failed: a shrunk history must fail in the same one
	Detail error
}

func (d *disagreement) Error() string {
	if d.Step == 0 {
		return fmt.Sprintf("at the creation: %s: %v", d.What, d.Detail)
	}
	return fmt.Sprintf("after step %d: %s: %v", d.Step, d.What, d.Detail)
}

// failed makes the disagreement of a call that should not fail. Its first words without numbers and names are part of
// what failed.
func failed(what string, err error) *disagreement {
	const enough = 60
	line, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.LastIndex(line, ": "); i >= 0 {
		line = line[i+2:]
	}
	words := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, line)
	return &disagreement{What: what + ": " + words[:min(len(words), enough)], Detail: err}
}

// player takes one history through both engines and compares after every step.
type player struct {
	*History
	calve *calveSide
	java  *javaSide
	place *Place
	model *differModel // without meaning when the history is not plain
	fold  *differModel // of the change stream

	next   int64            // the first snapshot that the stream has not told yet
	states map[int64]*Rows  // what was agreed about a snapshot when it was the latest
	tags   map[string]*Rows // the same for tags
	tagged map[string]int64 // the snapshots of the tags
	// branches holds what was agreed about each branch, nil when it was written to since.
	branches    map[string]*Rows
	consumers   map[string]int64 // the snapshot that each reads next
	ids         []int64          // the snapshots after the last step
	now         *Rows            // the latest rows
	latest      []map[string]any // the same as Java gave them
	lost        bool             // the stream did not tell everything: the fold begins anew
	overwritten bool             // the table, or a part of it, was overwritten
	resync      bool             // the schema has changed: the model begins anew with what Java reads
	step        int
}

// play plays a history as a table of its own and returns how the sides disagree; nil when they agree. The table is
// removed unless they disagree.
func play(ctx context.Context, l *Lab, worker *Worker, h *History, table string) (found *disagreement) {
	const limit = 2 * time.Minute // a hang is a disagreement, too
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the history took too long"))
	defer cancel()
	place := l.Local()
	p := &player{History: h, place: place, next: 1, states: map[int64]*Rows{}, tags: map[string]*Rows{},
		tagged: map[string]int64{}, branches: map[string]*Rows{}, consumers: map[string]int64{}}
	h.Met = nil
	p.java = &javaSide{history: h, worker: worker, table: PaimonTable{Warehouse: place.Warehouse, Name: table}}
	var err error
	if p.model, err = newDifferModel(h); err != nil {
		return &disagreement{0, "history", err}
	}
	p.fold, _ = newDifferModel(h)
	folder := place.folder(table)
	if p.calve, err = newCalveSide(h, folder); err != nil {
		return &disagreement{0, "calve opens the folder", err}
	}
	defer func() {
		if err := p.calve.close(context.WithoutCancel(ctx)); err != nil && found == nil {
			found = &disagreement{p.step, "calve closes", err}
		}
		if found == nil {
			_ = os.RemoveAll(folder) // the folder of the run is removed later anyway
		}
	}()
	if err := p.create(ctx); err != nil {
		return failed(string(h.Creator)+" creates", err)
	}
	for i := range h.Steps {
		p.step = i + 1
		if d := p.play(ctx, &h.Steps[i], table); d != nil {
			d.Step = p.step
			return d
		}
	}
	if err := p.calve.verify(ctx); err != nil {
		return &disagreement{p.step, "calve verifies", err}
	}
	plain, images, err := p.calve.verifyStream(ctx)
	if err != nil {
		return &disagreement{p.step, "calve verifies the stream", err}
	}
	if plain > 0 {
		p.meet("folded")
	}
	if images > 0 {
		p.meet("folded-images")
	}
	return nil
}

func (p *player) create(ctx context.Context) error {
	if p.Creator == byCalve {
		return p.calve.create(ctx)
	}
	return p.java.create(ctx)
}

func (p *player) play(ctx context.Context, s *HistoryStep, table string) *disagreement {
	if s.Do == doAlter {
		if d := p.alter(ctx, s); d != nil {
			return d
		}
	} else if s.By == byCalve {
		if err := p.calve.step(ctx, s); err != nil {
			return failed(fmt.Sprintf("calve does %q", s.Do), err)
		}
	} else {
		if err := p.calve.close(ctx); err != nil {
			return &disagreement{What: "calve closes", Detail: err}
		}
		next := p.nextOf(s, p.ids)
		if p.isPossible(s) {
			if err := p.java.step(ctx, s, next); err != nil {
				return failed(fmt.Sprintf("Java does %q", s.Do), err)
			}
			p.besides(s, next)
		}
	}
	before := p.now
	if err := p.follow(s); err != nil {
		return &disagreement{What: "model", Detail: err}
	}
	ids, err := p.place.snapshots(table)
	if err != nil {
		return &disagreement{What: "list of snapshots", Detail: err}
	}
	if d := p.checkConsumers(s, p.ids, ids); d != nil {
		return d
	}
	p.ids = ids
	if d := p.compare(ctx, table, ids, rand.New(rand.NewPCG(s.Look, 1))); d != nil {
		return d
	}
	// A first-row table may show other rows: those that had no compaction yet are not seen.
	if (s.Do == doCompact || s.Do == doCompactFull) && before != nil && p.option("merge-engine", "") != "first-row" && !p.expires() {
		if err := before.Compare(p.now); err != nil {
			return &disagreement{What: fmt.Sprintf("rows before and after a compaction by %s", s.By), Detail: err}
		}
	}
	return nil
}

// follow lets the model do what the step does.
func (p *player) follow(s *HistoryStep) (err error) {
	switch s.Do {
	case doWrite:
		err = p.model.apply(s.Changes)
	case doOverwrite:
		p.lost, p.overwritten = true, true // streams pass over it
		err = p.model.overwrite(s, p.Partition)
	case doTag:
		p.tagged[s.Tag] = p.next - 1
		p.tags[s.Tag] = p.states[p.next-1] // the stream has been told up to the latest snapshot
	case doDeleteTag:
		delete(p.tags, s.Tag)
	}
	if err == nil && p.plain() {
		p.now, err = p.model.table()
	}
	return err
}

// compare lets both sides read and compares everything.
func (p *player) compare(ctx context.Context, table string, ids []int64, rng *rand.Rand) *disagreement {
	if len(ids) > 0 && ids[0] > p.next { // a writer expired what it had just made
		p.next, p.lost = ids[0], true
	}
	q := lookRequest{branches: p.pickBranches(rng), from: p.next}
	var err error
	if q.travels, err = p.travels(rng, table, ids); err == nil {
		q.betweens, err = p.between(rng, table, ids)
	}
	if err != nil {
		return &disagreement{What: "list of snapshots", Detail: err}
	}
	look, err := p.java.look(ctx, q)
	if err != nil {
		return failed("Java reads", err)
	}
	if latest := append([]int64{0}, ids...); look.Latest != latest[len(latest)-1] {
		return &disagreement{What: "latest snapshot", Detail: fmt.Errorf("%d to Java, but the files are %v", look.Latest, ids)}
	}
	if d := p.compareLatest(ctx, look); d != nil {
		return d
	}
	if d := p.compareWhere(ctx, valuer{rng}, 0, p.now); d != nil {
		return d
	}
	for i := range q.travels {
		if d := p.compareState(ctx, &q.travels[i], &look.Travels[i]); d != nil {
			return d
		}
	}
	for i := range q.betweens {
		if d := p.compareBetween(ctx, rng, q.betweens[i], &look.Betweens[i]); d != nil {
			return d
		}
	}
	if d := p.compareBranches(ctx, q.branches, look.Branches); d != nil {
		return d
	}
	d := p.compareChanges(ctx, look)
	p.next = look.Latest + 1
	return d
}

func (p *player) compareLatest(ctx context.Context, look *javaLook) *disagreement {
	java, err := look.Rows.table()
	if err == nil && p.resync {
		p.resync, p.lost, p.calve.columns = false, true, look.Rows.Columns
		if err = p.model.restart(look.Rows.Columns, look.Rows.Rows); err == nil {
			err = p.fold.restart(look.Rows.Columns, nil)
		}
	} else if err == nil && p.plain() {
		err = p.now.Compare(java)
	}
	if err != nil {
		return &disagreement{What: "rows that Java reads", Detail: err}
	}
	p.now, p.latest = java, look.Rows.Rows
	calve, err := p.calve.scan(ctx, reader.Query{}, look.Rows.Columns)
	if err != nil {
		return failed("calve reads", err)
	}
	if err := p.now.Compare(calve); err != nil {
		return &disagreement{What: "rows that calve reads", Detail: err}
	}
	if _, known := p.states[look.Latest]; look.Latest > 0 && !known { // a change of the schema makes no snapshot
		p.states[look.Latest] = p.now
	}
	return nil
}

// compareState compares an older state as both read it, and with what it was when it was the latest.
func (p *player) compareState(ctx context.Context, t *travel, java *javaRows) *disagreement {
	got, err := java.table()
	if err == nil && t.was != nil {
		err = t.was.Compare(got)
	}
	if err != nil {
		return &disagreement{What: "time travel of Java", Detail: fmt.Errorf("%s %v: %w", t.how, t.java, err)}
	}
	calve, err := p.calve.scan(ctx, t.calve, java.Columns)
	if err != nil {
		return failed("calve reads a "+t.how, err)
	}
	if err := got.Compare(calve); err != nil {
		return &disagreement{What: "time travel of calve", Detail: fmt.Errorf("%s %v: %w", t.how, t.java, err)}
	}
	p.meet("travel-" + t.how)
	return nil
}

// meet notes that a kind of read was compared.
func (p *player) meet(what string) { p.Met = append(p.Met, what) }

// compareChanges compares the change stream since the last step, snapshot by snapshot, and folds it.
func (p *player) compareChanges(ctx context.Context, look *javaLook) *disagreement {
	if look.Latest < p.next {
		return nil
	}
	calve, err := p.calve.changes(ctx, p.next, look.Changes.Columns)
	if err != nil {
		return failed("calve's change stream", err)
	}
	for id := p.next; id <= look.Latest; id++ {
		java, err := changeRows(look.Changes.Rows, id, look.Changes.Columns)
		if err != nil {
			return &disagreement{What: "change streams", Detail: err}
		}
		got, err := changeRows(calve, id, look.Changes.Columns)
		if err == nil {
			err = java.Compare(got)
		}
		if err != nil {
			return &disagreement{What: "change streams", Detail: fmt.Errorf("snapshot %d, calve against Java: %w", id, err)}
		}
	}
	return p.foldChanges(calve)
}

// foldChanges applies the changes to the rows that the stream has told so far: that must give the table.
func (p *player) foldChanges(changes []Change) *disagreement {
	if !p.told() {
		return nil
	}
	if p.lost {
		p.lost = false
		p.fold.rows = map[string]map[string]any{}
		for _, row := range p.latest {
			if err := p.fold.apply([]Op{{Kind: "+I", Row: row}}); err != nil {
				return &disagreement{What: "fold of the change stream", Detail: err}
			}
		}
		return nil
	}
	for _, ch := range changes {
		if err := p.fold.apply([]Op{{Kind: ch.Kind, Row: ch.Row}}); err != nil {
			return &disagreement{What: "fold of the change stream", Detail: err}
		}
	}
	folded, err := p.fold.table()
	if err == nil {
		err = p.now.Compare(folded)
	}
	if err != nil {
		return &disagreement{What: "fold of the change stream", Detail: err}
	}
	return nil
}

// changeRows makes a row set of the changes of a snapshot: their kind is a column of its own.
func changeRows(changes []Change, snapshot int64, columns []Column) (*Rows, error) {
	const kind = "the kind of the change"
	rows, err := NewRows(append([]Column{{kind, "STRING"}}, columns...))
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if c.Snapshot == snapshot {
			if err := rows.Add(with(c.Row, kind, c.Kind)); err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}

func pickSome[T any](rng *rand.Rand, from []T, most int) []T {
	var out []T
	for range min(most, len(from)) {
		out = append(out, from[rng.IntN(len(from))])
	}
	return out
}
