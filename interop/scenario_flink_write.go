//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// patience is what a committer needs beside one that commits more often than it can: each attempt of Flink on S3 takes
// some hundred milliseconds, and Paimon gives up after 10 lost races.
const patience = "'commit.max-retries'='100', 'commit.timeout'='5 min'"

// insertJob is a streaming job that writes rows 0 … rows-1, at a rate, with a commit at each checkpoint. The query names
// the row i; options are for the table it writes to.
func (r *flinkRig) insertJob(rows, rate int, query, options string) FlinkSQL {
	return FlinkSQL{Name: r.name,
		Before: []string{fmt.Sprintf("CREATE TEMPORARY TABLE src (i BIGINT) WITH ('connector'='datagen', 'rows-per-second'='%d', "+
			"'fields.i.kind'='sequence', 'fields.i.start'='0', 'fields.i.end'='%d')", rate, rows-1)},
		SQL: fmt.Sprintf("INSERT INTO %s /*+ OPTIONS(%s) */ %s FROM src", r.table, options, query),
		// A failure ends the job: a loop of restarts must not look like a slow success.
		Config: map[string]string{"execution.checkpointing.interval": "700 ms", "restart-strategy.type": "none"},
	}
}

// ingestUntil sends changes to calve, at least some and at a moderate rate, until f, which runs beside it, has ended.
func (r *flinkRig) ingestUntil(ctx context.Context, f func() error, change func(i int) Op) error {
	const least = 500
	done := make(chan error, 1)
	go func() { done <- f() }()
	for i := 0; ; i++ {
		if i >= least && len(done) > 0 {
			return <-done
		}
		if err := r.send(ctx, change(i)); err != nil {
			return errors.Join(err, <-done)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// inserts lets a streaming job of Flink write (and compact) the buckets 2 and 3 while calve ingests into 0 and 1: the
// table's bucket function is the key modulo 4.
func (r *flinkRig) inserts(ctx context.Context) error {
	const rows, rate, keys = 2000, 100, 400
	err := r.prepare(ctx, nil, map[string]string{"bucket": "4", "bucket-function.type": "mod", "num-sorted-run.compaction-trigger": "3"})
	if err != nil {
		return err
	}
	r.guard.held.Store(1) // the moment in which Flink would overwrite a commit, made to happen
	if err := r.startServe(ctx, 0); err != nil {
		return err
	}
	if err := r.flink.StartJob(ctx, r.place, r.insertJob(rows, rate,
		fmt.Sprintf("SELECT MOD(i, %d) * 4 + 2 + MOD(i, 2), CONCAT('flink ', CAST(i AS STRING)), i", keys), patience)); err != nil {
		return err
	}
	if err := r.ingestUntil(ctx, func() error { return r.flink.Wait(ctx, r.name) }, func(i int) Op {
		op := Put(map[string]any{"k": i%keys*4 + i%2, "v": "calve " + strconv.Itoa(i), "n": i})
		if i%7 == 6 {
			op.Kind = "D"
		}
		return op
	}); err != nil {
		return err
	}
	for i := range rows {
		row := map[string]any{"k": i%keys*4 + 2 + i%2, "v": "flink " + strconv.Itoa(i), "n": i}
		if err := r.model.Apply([]Op{Put(row)}); err != nil {
			return err
		}
	}
	s, err := r.finishServe(ctx)
	if err != nil {
		return err
	}
	h, err := r.history()
	if err != nil {
		return err
	}
	r.report.Note("flink-inserts: snapshots %+v; calve lost and repeated %d races, the guard stopped %d overwrites by Flink", h, s.CommitRaces, r.guard.refused.Load())
	if h.flink < 3 || h.turns < 4 || s.CommitRaces == 0 || r.guard.refused.Load() == 0 {
		return fmt.Errorf("the two hardly met: snapshots %+v, calve's status %+v", h, s)
	}
	return r.agree(ctx, "after both wrote at once")
}

// turns needs neither lock nor guard: each writer commits only while the other does not run, on the bare S3 server.
func (r *flinkRig) turns(ctx context.Context) error {
	remote, err := r.lab.Remote(ctx)
	if err != nil {
		return err
	}
	if err := r.prepare(ctx, remote.sub("turns"), map[string]string{"bucket": "2"}); err != nil {
		return err
	}
	row := func(k int, v string) map[string]any { return map[string]any{"k": k, "v": v, "n": k} }
	for i := range 2 {
		ops := []Op{Put(row(1, "calve "+strconv.Itoa(i))), Put(row(2, "calve")), Put(row(3+i, "calve")), Del(row(2, ""))}
		if err := r.place.Put(ctx, r.table, &Case{Columns: flinkColumns, Key: []string{"k"}}, ops); err != nil {
			return err
		}
		sql := fmt.Sprintf("INSERT INTO %s VALUES (2, 'flink', 2), (%d, 'flink', %d)", r.table, 3+i, 3+i)
		if err := r.flink.Run(ctx, r.place, sql); err != nil {
			return err
		}
		ops = append(ops, Put(row(2, "flink")), Put(row(3+i, "flink")))
		if err := r.model.Apply(ops); err != nil {
			return err
		}
		if i == 0 {
			if err := r.flink.Run(ctx, r.place, "CALL sys.compact(`table` => '"+r.table+"')"); err != nil {
				return err
			}
		}
	}
	if _, err := r.place.Run(ctx, nil, "compact", r.table, "--full"); err != nil {
		return err
	}
	if _, err := r.history(); err != nil {
		return err
	}
	return r.agree(ctx, "after turns of both")
}
