//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

func init() {
	for _, engine := range []string{schema.Deduplicate, schema.PartialUpdate, schema.Aggregation, schema.FirstRow} {
		RegisterScenario(Scenario{Name: "merge-" + engine, Run: func(ctx context.Context, l *Lab, report *Report) {
			judgeMerge(ctx, l, report, engine)
		}})
	}
}

// judgeMerge takes tables of a merge engine, with random options of it, through calve and Paimon Java: after every
// commit and compaction of either both must read the same rows, and a full compaction must not change them.
func judgeMerge(ctx context.Context, l *Lab, report *Report, engine string) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("merge-"+engine, j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			worker, err := java.launch("paimon-java-merge-"+engine, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
			if err != nil {
				return err
			}
			return mergeHistories(ctx, l, worker, report, engine)
		})
	}
}

// mergeHistories plays a quarter of the run's histories with each engine.
func mergeHistories(ctx context.Context, l *Lab, worker *Worker, report *Report, engine string) error {
	start := time.Now()
	var failures []error
	n := 0
	for ; n < max(1, l.Histories/4) && ctx.Err() == nil; n++ {
		h, err := generateMerge(engine, l.Seed+uint64(n))
		if err != nil {
			return err
		}
		plays := 0
		try := func(h *History) *disagreement {
			plays++
			return playMerge(ctx, l, worker, h, fmt.Sprintf("merge.%s_%d_%d", strings.ReplaceAll(engine, "-", "_"), h.Seed, plays))
		}
		found := try(h)
		if found == nil || ctx.Err() != nil {
			continue
		}
		l.Log("merge-%s: seed %d disagrees %v", engine, h.Seed, found)
		small, left := shrink(ctx, h, found, try)
		failures = append(failures, fmt.Errorf("seed %d (alone: make interop ARGS=\"-run merge-%s/paimon-java -seed %d -histories 4\"), shrunk in %d plays:\n%s\n%w",
			h.Seed, engine, h.Seed, plays, small.Script(), left))
	}
	report.Note("merge-%s: histories=%d disagree=%d in %.0fs, seeds %d to %d", engine, n, len(failures),
		time.Since(start).Seconds(), l.Seed, l.Seed+uint64(max(n, 1)-1))
	return errors.Join(append(failures, ctx.Err())...)
}

// playMerge plays a history as a table of its own.
func playMerge(ctx context.Context, l *Lab, worker *Worker, h *History, table string) (found *disagreement) {
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the history took too long"))
	defer cancel()
	place := l.Local()
	folder := place.folder(table)
	java := &javaSide{history: h, worker: worker, table: PaimonTable{Warehouse: place.Warehouse, Name: table}}
	calve, err := newCalveSide(h, folder)
	if err != nil {
		return &disagreement{0, "calve opens the folder", err}
	}
	defer func() {
		if found == nil {
			_ = os.RemoveAll(folder)
		}
	}()
	if h.Creator == byCalve {
		err = calve.create(ctx)
	} else {
		err = java.create(ctx)
	}
	if err != nil {
		return failed(string(h.Creator)+" creates", err)
	}
	var before *Rows
	for i := range h.Steps {
		s := &h.Steps[i]
		if s.By == byCalve {
			err = calve.step(ctx, s)
		} else {
			err = java.step(ctx, s, 0)
		}
		if err != nil {
			d := failed(fmt.Sprintf("%s does %q", s.By, s.Do), err)
			d.Step = i + 1
			return d
		}
		now, _, d := readBoth(ctx, calve, java, 1)
		if d == nil && s.Do == doCompactFull && before != nil && h.Options["merge-engine"] != schema.FirstRow {
			if err := before.Compare(now); err != nil {
				d = &disagreement{What: fmt.Sprintf("rows before and after a full compaction by %s", s.By), Detail: err}
			}
		}
		if d != nil {
			d.Step = i + 1
			return d
		}
		before = now
	}
	if err := calve.verify(ctx); err != nil {
		return &disagreement{len(h.Steps), "calve verifies", err}
	}
	return nil
}

// readBoth lets both sides read the table, and Java its changes from a snapshot on.
func readBoth(ctx context.Context, calve *calveSide, java *javaSide, from int64) (*Rows, *javaLook, *disagreement) {
	look, err := java.look(ctx, lookRequest{from: from})
	if err != nil {
		return nil, nil, failed("Java reads", err)
	}
	columns, free := look.Rows.Columns, sets(java.history)
	want, err := NewRows(columns)
	if err != nil {
		return nil, nil, &disagreement{What: "columns that Java reads", Detail: err}
	}
	for _, row := range look.Rows.Rows {
		if err := want.Add(unordered(row, free)); err != nil {
			return nil, nil, &disagreement{What: "rows that Java reads", Detail: err}
		}
	}
	got, _ := NewRows(columns)
	for rec, err := range calve.reader.Scan(ctx, reader.Query{}) {
		if err == nil {
			err = eachCalveRow(rec, columns, func(_ int, row map[string]any) error { return got.Add(unordered(row, free)) })
		}
		if err != nil {
			return nil, nil, failed("calve reads", err)
		}
	}
	if err := want.Compare(got); err != nil {
		return nil, nil, &disagreement{What: "rows that calve reads, against Java's", Detail: err}
	}
	return want, look, nil
}
