//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// compacts runs Flink's dedicated compaction again and again while calve ingests into the same buckets. The table is
// write-only, so nobody else compacts it.
func (r *flinkRig) compacts(ctx context.Context) error {
	const keys, compactions = 500, 4
	err := r.prepare(ctx, nil, map[string]string{"bucket": "2", "write-only": "true"})
	if err != nil {
		return err
	}
	r.guard.held.Store(1)
	if err := r.startServe(ctx, 1); err != nil { // a worker that has nothing to say in a write-only table
		return err
	}
	err = r.ingestUntil(ctx, func() error {
		for range compactions {
			if err := r.flink.Run(ctx, r.place, "CALL sys.compact(`table` => '"+r.table+"', options => 'commit.max-retries=100,commit.timeout=5 min')"); err != nil {
				return err
			}
		}
		return nil
	}, func(i int) Op {
		op := Put(map[string]any{"k": i * 7 % keys, "v": "calve " + strconv.Itoa(i), "n": i})
		if i%5 == 4 {
			op.Kind = "D"
		}
		return op
	})
	if err != nil {
		return err
	}
	s, err := r.finishServe(ctx)
	if err != nil {
		return err
	}
	h, err := r.history()
	if err != nil {
		return err
	}
	r.report.Note("flink-compacts: snapshots %+v; calve lost and repeated %d races, the guard stopped %d overwrites by Flink", h, s.CommitRaces, r.guard.refused.Load())
	if h.flinkCompact < 2 || h.turns < 3 || s.CommitRaces == 0 || r.guard.refused.Load() == 0 || s.Compactions != 0 {
		return fmt.Errorf("the two hardly met: snapshots %+v, calve's status %+v", h, s)
	}
	return r.agree(ctx, "after compactions beside the ingest")
}

// feeds lets Flink write as a write-only job what calve compacts: first calve's background workers, which have nothing
// else to do, then a full compaction.
func (r *flinkRig) feeds(ctx context.Context) error {
	const rows, rate, keys = 2000, 150, 300
	err := r.prepare(ctx, nil, map[string]string{"bucket": "2", "num-sorted-run.compaction-trigger": "3"})
	if err != nil {
		return err
	}
	if err := r.startServe(ctx, 1); err != nil {
		return err
	}
	query := fmt.Sprintf("SELECT MOD(i * 11, %d), CONCAT('flink ', CAST(i AS STRING)), i", keys)
	if err := r.flink.StartJob(ctx, r.place, r.insertJob(rows, rate, query, "'write-only'='true', "+patience)); err != nil {
		return err
	}
	if err := r.flink.Wait(ctx, r.name); err != nil {
		return err
	}
	for i := range rows {
		row := map[string]any{"k": i * 11 % keys, "v": "flink " + strconv.Itoa(i), "n": i}
		if err := r.model.Apply([]Op{Put(row)}); err != nil {
			return err
		}
	}
	err = r.until(ctx, "calve compacts what Flink wrote", time.Minute, func() (bool, error) {
		s, err := r.status(ctx)
		return s.Compactions > 0, err
	})
	if err != nil {
		return err
	}
	s, err := r.finishServe(ctx)
	if err != nil {
		return err
	}
	h, err := r.history()
	if err != nil {
		return err
	}
	r.report.Note("flink-feeds: snapshots %+v; %d compactions by calve, %d repeated races, %d conflicts, the guard stopped %d overwrites by Flink",
		h, s.Compactions, s.CommitRaces, s.Conflicts, r.guard.refused.Load())
	if h.flink < 3 || h.flinkCompact != 0 {
		return fmt.Errorf("Flink must write without compacting: snapshots %+v", h)
	}
	if err := r.agree(ctx, "after calve's background compactions"); err != nil {
		return err
	}
	if _, err := r.place.Run(ctx, nil, "compact", r.table, "--full"); err != nil {
		return err
	}
	text, err := r.place.Run(ctx, nil, "describe", r.table, "--json")
	if err != nil {
		return err
	}
	var d struct{ FilesPerLevel []int }
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	for level, files := range d.FilesPerLevel {
		if files > 0 && level < len(d.FilesPerLevel)-1 {
			return fmt.Errorf("after calve's full compaction, files are on levels %v", d.FilesPerLevel)
		}
	}
	return r.agree(ctx, "after calve's full compaction")
}
