//go:build interop

package interop

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/calve-io/calve/reader"
)

// Branches and consumers are Java's: calve reads the ones and lets the others hold back its expiry.
const (
	doBranch       action = "branch" // of a tag, or an empty one
	doBranchWrite  action = "write to branch"
	doDeleteBranch action = "delete branch"
	doConsumer     action = "consumer" // goes to one of the snapshots
	doNoConsumer   action = "delete consumer"
)

// tableShape is how the generator sees the columns.
type tableShape struct {
	columns []Column
	kinds   map[string]Kind
}

func (g *generator) shapeNow() tableShape {
	return tableShape{slices.Clone(g.now), maps.Clone(g.kinds)}
}

// beside chooses a step on branches or consumers.
func (g *generator) beside() (HistoryStep, bool) {
	s := HistoryStep{By: byJava}
	branches := slices.Sorted(maps.Keys(g.branches))
	switch x := g.IntN(100); {
	case g.has("consumers") && x < 12:
		s.Do, s.Name = doConsumer, fmt.Sprintf("c%d", g.IntN(2))
		if x < 2 {
			s.Do = doNoConsumer
		}
	case g.has("branches") && x < 20:
		g.made++
		s.Do, s.Name = doBranch, fmt.Sprintf("b%d", g.made)
		shape := g.shapeNow()
		if tags := slices.Sorted(maps.Keys(g.tagShapes)); len(tags) > 0 && g.chance(80) {
			s.Tag = oneOf(g.valuer, tags...)
			shape = g.tagShapes[s.Tag]
			// Deleting a tag takes files along that only its branches still need (`utils.TagManager.deleteTag`).
			g.tags = slices.DeleteFunc(g.tags, func(tag string) bool { return tag == s.Tag })
		}
		g.branches[s.Name] = shape
	case g.has("branches") && x < 38 && len(branches) > 0:
		s.Do, s.Name = doBranchWrite, oneOf(g.valuer, branches...)
		s.Wait = g.lookup()
		now := g.shapeNow()
		g.now, g.kinds = g.branches[s.Name].columns, g.branches[s.Name].kinds
		s.Changes = g.changes()
		g.now, g.kinds = now.columns, now.kinds
	case g.has("branches") && x < 41 && len(branches) > 0:
		s.Do, s.Name = doDeleteBranch, oneOf(g.valuer, branches...)
		delete(g.branches, s.Name)
	default:
		return s, false
	}
	return s, true
}

// isPossible reports whether a step on branches can be done: Java makes no branch of a tag whose snapshot has expired
// (`FileSystemBranchManager.createBranch` copies its file), and so there may be none to write to.
func (p *player) isPossible(s *HistoryStep) bool {
	_, known := p.branches[s.Name]
	switch s.Do {
	case doBranch:
		return s.Tag == "" || len(p.ids) > 0 && p.tagged[s.Tag] >= p.ids[0]
	case doBranchWrite, doDeleteBranch:
		return known
	}
	return true
}

// besides lets the player remember what a step did to branches and consumers. next is where a consumer was put.
func (p *player) besides(s *HistoryStep, next int64) {
	switch s.Do {
	case doBranch:
		p.branches[s.Name] = p.tags[s.Tag]
	case doBranchWrite:
		p.branches[s.Name] = nil // not known
	case doDeleteBranch:
		delete(p.branches, s.Name)
	case doConsumer:
		p.consumers[s.Name] = next
	case doNoConsumer:
		delete(p.consumers, s.Name)
	}
}

// nextOf chooses the snapshot that a consumer reads next: one that is there, or the one that comes next.
func (p *player) nextOf(s *HistoryStep, ids []int64) int64 {
	all := append(slices.Clone(ids), p.next)
	return all[s.Look%uint64(len(all))]
}

// compareBranches compares the branches that were asked for, as both read them and as they were.
func (p *player) compareBranches(ctx context.Context, names []string, java []javaRows) *disagreement {
	for i, name := range names {
		r, err := reader.OpenBranch(p.calve.store, name, reader.Env(p.calve.env))
		if err != nil {
			return failed("calve opens a branch", err)
		}
		got, err := java[i].table()
		if was := p.branches[name]; err == nil && was != nil {
			err = was.Compare(got)
		}
		if err != nil {
			return &disagreement{What: "branch that Java reads", Detail: fmt.Errorf("%s: %w", name, err)}
		}
		calve, err := scanRows(ctx, r, reader.Query{}, java[i].Columns)
		if err != nil {
			return failed("calve reads a branch", err)
		}
		if err := got.Compare(calve); err != nil {
			return &disagreement{What: "branch that calve reads", Detail: fmt.Errorf("%s: %w", name, err)}
		}
		p.branches[name] = got
		p.meet("branch-read")
	}
	return nil
}

// checkConsumers holds the snapshots that are left against those that consumers and expiry ask for. before are those
// before the step.
func (p *player) checkConsumers(s *HistoryStep, before, ids []int64) *disagreement {
	for _, name := range slices.Sorted(maps.Keys(p.consumers)) {
		if next := p.consumers[name]; len(ids) > 0 && ids[0] > next && (len(before) == 0 || before[0] <= next) {
			return &disagreement{What: fmt.Sprintf("consumer and expiry by %s", s.By), Detail: fmt.Errorf("consumer %s has yet to read snapshot %d, but the first one is %d", name, next, ids[0])}
		}
	}
	if s.Do == doExpire && len(before) > 0 {
		if want := p.expectExpired(before); len(ids) == 0 || ids[0] != want {
			return &disagreement{What: fmt.Sprintf("what an expiry by %s leaves", s.By), Detail: fmt.Errorf("snapshots %v of %v, expected those from %d on", ids, before, want)}
		}
		if ids[0] > before[0] {
			p.meet("expired")
		}
		for _, next := range p.consumers {
			if next == ids[0] {
				p.meet("consumer-held-expiry")
			}
		}
	}
	return nil
}

// pickBranches chooses a branch to read.
func (p *player) pickBranches(rng *rand.Rand) []string {
	return pickSome(rng, slices.Sorted(maps.Keys(p.branches)), 1)
}
