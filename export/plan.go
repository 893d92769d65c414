package export

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/manifest"
)

// plan is what a Publish has found out and decided, before it writes anything.
type plan struct {
	needed bool
	snap   *manifest.Snapshot // nil: the table has none
	view   *view
	change *change
	rolled bool  // the shown Paimon snapshot is not in the table's history: it was rolled back
	first  int64 // the earliest Paimon snapshot, 0: not asked
}

// plan finds out what has to be published. Nil: the snapshot is shown already, or a newer one.
func (e *Exporter) plan(ctx context.Context, id int64) (*plan, error) {
	snap, err := e.newest(ctx, id)
	if err != nil {
		return nil, err
	}
	st, p := e.state, &plan{snap: snap, change: newChange()}
	verified, done := false, false
	if st.meta != nil && !st.lost {
		if verified, done, err = e.lineage(ctx, p); err != nil {
			return nil, err
		}
		if done && (len(st.meta.Snapshots) < 2 || snap.ID != st.seen) {
			return nil, nil
		}
	}
	if err := e.earliest(ctx, p); err != nil {
		return nil, err
	}
	if done && len(e.dead(p, st.meta.Snapshots)) == 0 {
		return nil, nil
	}
	s, err := e.schemaOf(ctx, snap)
	if err != nil {
		return nil, err
	}
	if p.view, err = newView(s, e.src.Store()); err != nil {
		return nil, err
	}
	if !done {
		if err := e.diff(ctx, p, verified); err != nil {
			return nil, err
		}
	}
	p.needed = done || st.meta == nil || st.lost || p.rolled || !p.change.empty() ||
		st.meta.Properties[PropSchema] != strconv.FormatInt(s.ID, 10) || len(e.dead(p, st.meta.Snapshots)) > 0
	return p, nil
}

// lineage checks that the shown Paimon snapshot is part of the history that leads to p.snap. verified: it is. done:
// nothing newer than the shown one is asked for. A snapshot that has expired is neither.
func (e *Exporter) lineage(ctx context.Context, p *plan) (verified, done bool, err error) {
	st := e.state
	switch {
	case st.seen == 0:
		return true, p.snap == nil, nil
	case p.snap == nil:
		p.rolled = true
		return false, false, nil
	case st.seen == p.snap.ID:
		p.rolled = st.mark != commitOf(p.snap)
		return !p.rolled, !p.rolled, nil
	}
	s, err := e.src.Snapshot(ctx, st.seen)
	switch {
	case gone(err):
		// A snapshot newer than an existing one cannot have expired.
		p.rolled = st.seen > p.snap.ID
		return false, false, nil
	case err != nil:
		return false, false, err
	}
	p.rolled = st.mark != commitOf(s)
	return !p.rolled, !p.rolled && st.seen > p.snap.ID, nil
}

// earliest asks for the earliest Paimon snapshot if there are old Iceberg snapshots that depend on it.
func (e *Exporter) earliest(ctx context.Context, p *plan) error {
	if e.state.meta == nil || len(e.state.meta.Snapshots) == 0 {
		return nil
	}
	s, err := e.src.Earliest(ctx)
	switch {
	case gone(err):
	case err != nil:
		return err
	default:
		p.first = s.ID
	}
	return nil
}

// dead gives the ids of the snapshots that lost files to Paimon's expiry: the files that a Paimon snapshot removed are
// deleted once no older snapshot is left.
func (e *Exporter) dead(p *plan, snapshots []snapshot) map[int64]bool {
	out := map[int64]bool{}
	for i := 1; i < len(snapshots); i++ {
		before := snapshots[i-1].SnapshotID
		changed := before + 1 // unless it is known better
		if s := snapshots[i].Summary; s != nil {
			changed = max(changed, number(s.Properties[PropChanged]))
		}
		if changed <= p.first {
			out[before] = true
		}
	}
	return out
}

// diff fills in p.change: from Paimon's deltas if they lead from the shown snapshot to the new one, otherwise from a
// comparison of all files.
func (e *Exporter) diff(ctx context.Context, p *plan, verified bool) error {
	st := e.state
	if st.meta == nil || st.lost {
		c, err := compare(ctx, e.src, p.view, nil, p.snap)
		p.change = c
		return err
	}
	same := st.meta.Properties[PropSchema] == strconv.FormatInt(p.view.schema.ID, 10)
	if verified && same && p.snap != nil && p.snap.ID-st.seen <= maxWalk {
		c, ok, err := walk(ctx, e.src, p.view, st.seen, p.snap)
		if err != nil {
			return err
		}
		if ok {
			ok, err = e.fits(ctx, c)
			if err != nil {
				return err
			}
		}
		if ok {
			p.change = c
			return nil
		}
	}
	if err := e.index(ctx); err != nil {
		return err
	}
	c, err := compare(ctx, e.src, p.view, e.state.at, p.snap)
	p.change = c
	return err
}

// fits checks a change against the exported files: what it removes must be there, what it adds must not. The second is
// checked only if the files are known already, so that append tables need not read their manifests.
func (e *Exporter) fits(ctx context.Context, c *change) (bool, error) {
	if len(c.removed) > 0 {
		if err := e.index(ctx); err != nil {
			return false, err
		}
	}
	if e.state.at == nil {
		return true, nil
	}
	for loc := range c.removed {
		if e.state.at[loc] == "" {
			e.set.Env.Log.Warn("a removed file was not exported; all files are compared", "file", loc)
			return false, nil
		}
	}
	for loc := range c.added {
		if e.state.at[loc] != "" {
			e.set.Env.Log.Warn("an added file was exported before; all files are compared", "file", loc)
			return false, nil
		}
	}
	return true, nil
}

// readers bounds how many manifests are read at once.
const readers = 8

// index reads which manifest holds which file. Damage is met by writing everything anew.
func (e *Exporter) index(ctx context.Context) error {
	st := e.state
	if st.at != nil {
		return nil
	}
	found := make([][]string, len(st.list))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, m := range st.list {
		if live(m) == 0 {
			continue
		}
		g.Go(func() error {
			entries, err := e.files.readManifest(gctx, m)
			for _, en := range entries {
				found[i] = append(found[i], location(en))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return e.tolerate(st, err)
	}
	st.at = map[string]string{}
	for i, m := range st.list {
		for _, loc := range found[i] {
			if at, twice := st.at[loc]; twice {
				return e.tolerate(st, fmt.Errorf("%w: %s is in both %s and %s", ErrDamaged, loc, at, m.FilePath()))
			}
			st.at[loc] = m.FilePath()
		}
	}
	return nil
}
