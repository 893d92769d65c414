//go:build interop

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// follows lets Flink read the table as a stream, from its first snapshot on, while calve writes and compacts it. The
// changes of each key must be those of calve's own tail, kinds included, in the same order. Flink's own completion of
// changes (its normalize node) is left out, for it would hide what the table says. Only calve commits, so a local disk
// is safe.
func (r *flinkRig) follows(ctx context.Context) error {
	if err := r.prepare(ctx, r.lab.Local().sub("flink"), map[string]string{"bucket": "2", "num-sorted-run.compaction-trigger": "3"}); err != nil {
		return err
	}
	out := filepath.Join(r.lab.Scratch, r.name+"-changes.jsonl")
	for round := range 12 {
		if err := r.step(ctx, round); err != nil {
			return err
		}
		if round == 1 {
			err := r.flink.Follow(ctx, r.place, FlinkSQL{Name: r.name, SQL: "SELECT * FROM " + r.table +
				" /*+ OPTIONS('scan.mode'='from-snapshot', 'scan.snapshot-id'='1', 'continuous.discovery-interval'='200 ms', 'scan.remove-normalize'='true') */"}, out)
			if err != nil {
				return err
			}
		}
	}
	tail, err := r.place.Run(ctx, nil, "tail", r.table, "--from", "earliest")
	if err != nil {
		return err
	}
	want, err := changesByKey(tail)
	if err != nil {
		return err
	}
	total := bytes.Count(tail, []byte("\n"))
	err = r.until(ctx, "Flink reads all changes", 2*time.Minute, func() (bool, error) {
		n, err := countLines(out)
		return n >= total, err
	})
	if err = errors.Join(err, r.flink.StopJob(ctx, r.name)); err != nil {
		return err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	got, err := changesByKey(text)
	if err != nil {
		return err
	}
	if err := sameChanges(want, got); err != nil {
		return err
	}
	h, err := r.history()
	if err != nil {
		return err
	}
	r.report.Note("flink-follows: %d changes of %d keys over %d snapshots, the same in Flink and in calve's tail", total, len(want), h.calve)
	return r.agree(ctx, "after the stream")
}

// step puts some changes, and compacts now and then.
func (r *flinkRig) step(ctx context.Context, round int) error {
	const keys = 150
	var ops []Op
	for i := range 100 {
		n := round*100 + i
		op := Put(map[string]any{"k": n * 13 % keys, "v": "calve " + strconv.Itoa(n), "n": n})
		if n%6 == 5 {
			op.Kind = "D"
		}
		ops = append(ops, op)
	}
	if err := r.place.Put(ctx, r.table, &Case{Columns: flinkColumns, Key: []string{"k"}}, ops); err != nil {
		return err
	}
	if err := r.model.Apply(ops); err != nil {
		return err
	}
	var err error
	switch {
	case round%5 == 4:
		_, err = r.place.Run(ctx, nil, "compact", r.table, "--full")
	case round%2 == 1:
		_, err = r.place.Run(ctx, nil, "compact", r.table)
	}
	return err
}

// changesByKey gives each key's changes in order, as text.
func changesByKey(lines []byte) (map[string][]string, error) {
	out := map[string][]string{}
	err := EachLine(bytes.NewReader(lines), func(line []byte) error {
		object, err := decodeObject(line)
		if err != nil {
			return err
		}
		kind, row, err := changeOf(object)
		if err != nil {
			return err
		}
		key := fmt.Sprint(row["k"])
		out[key] = append(out[key], fmt.Sprintf("%s %v %v %v", kind, row["k"], row["v"], row["n"]))
		return nil
	})
	return out, err
}

func sameChanges(want, got map[string][]string) error {
	for key, changes := range want {
		if !slices.Equal(changes, got[key]) {
			return fmt.Errorf("key %s: calve's tail has\n  %q, Flink's stream has\n  %q", key, changes, got[key])
		}
	}
	for key, changes := range got {
		if want[key] == nil {
			return fmt.Errorf("key %s: calve's tail has nothing, Flink's stream has %q", key, changes)
		}
	}
	return nil
}
