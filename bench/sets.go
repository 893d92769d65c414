package main

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/bench/dataset"
	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// setGroups measure tables of other shapes, a group for each.
func setGroups() []group {
	var out []group
	for _, s := range dataset.Sets {
		out = append(out, group{name: "set-" + s.Name, open: func(k *kit, r *run) ([]*benchmark, func() error, error) {
			b, err := openSet(r.ctx, s, max(1, s.Rows*k.runRows/whole.runRows))
			return b, nil, err
		}})
	}
	return out
}

// openSet measures flush and full compaction of a data set in memory on one core, and beside the compaction the
// decoding of the same files and the encoding of the same rows alone, which no compaction can do without.
func openSet(ctx context.Context, set dataset.Set, n int) ([]*benchmark, error) {
	s, err := set.Schema(map[string]string{"data-file.thin-mode": "true", "bucket": "1"})
	if err != nil {
		return nil, err
	}
	f, err := filesOf(storage.NewMem(), s, 1)
	if err != nil {
		return nil, err
	}
	c := &compaction{files: f, job: lsm.Job{Output: topLevel, DropDeletes: true, Full: true}}
	var first []datafile.Rows
	found := map[int64]bool{}
	for commit := range dataset.Commits {
		rows, err := setRows(set, s, commit, n)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			for _, k := range r.Cols[0].(*array.Int64).Int64Values() {
				found[k] = true
			}
		}
		made, err := f.Flush(ctx, bucket0(), rows, nil, int64(commit*n))
		if err != nil {
			return nil, err
		}
		c.job.Files = append(made, c.job.Files...) // newest first
		c.in += int64(n)
		if commit == 0 {
			first = rows
		}
	}
	c.out = int64(len(found))
	flush := &benchmark{name: "Flush/" + set.Name, procs: 1, rows: int64(n), op: func(ctx context.Context, c *clock) error {
		c.start()
		made, err := f.Flush(ctx, bucket0(), first, nil, 0)
		c.stop()
		return errors.Join(err, drop(ctx, f, bucket0(), made))
	}}
	flush.shown = &shown{title: "flush, " + set.Name + ": " + set.About, unit: rate(1), noLimit: "compared with Paimon Java in PEERS.md"}
	codec, err := c.codec(ctx, "Codec/"+set.Name)
	if err != nil {
		return nil, err
	}
	b := c.bench("Compact/"+set.Name, 1)
	b.shown = &shown{title: "full compaction of 8 runs, " + set.Name, unit: rate(1), limit: func(med lookup) (float64, string) {
		return med(codec.name, 1, rate(1)), "decoding the same files and encoding the same rows"
	}}
	return []*benchmark{flush, codec, b}, nil
}

// setRows are the rows of a commit as a flush takes them.
func setRows(set dataset.Set, s *schema.Schema, commit, n int) (out []datafile.Rows, err error) {
	batches, err := set.Batches(s.Arrow(), commit, n)
	seq := int64(commit * n)
	for _, b := range batches {
		r := datafile.Rows{N: int(b.NumRows()), Cols: b.Columns(), Kinds: make([]int8, b.NumRows()), Seq: make([]int64, b.NumRows())}
		for i := range r.Seq {
			r.Seq[i] = seq
			seq++
		}
		out = append(out, r)
	}
	return out, err
}

// codec decodes the files a compaction takes in and encodes the rows it makes.
func (p *compaction) codec(ctx context.Context, name string) (*benchmark, error) {
	change, err := p.files.Compact(ctx, bucket0(), p.job)
	if err != nil {
		return nil, err
	}
	var rows []datafile.Rows
	if err := eachFile(ctx, p.files, change.Added, func(r datafile.Rows) error { rows = append(rows, r); return nil }); err != nil {
		return nil, err
	}
	return &benchmark{name: name, procs: 1, rows: p.in, op: func(ctx context.Context, c *clock) error {
		in, out := int64(0), int64(0)
		c.start()
		err := eachFile(ctx, p.files, p.job.Files, func(r datafile.Rows) error { in += int64(r.N); return nil })
		if err == nil {
			out, err = lab.Encode(p.files.Schema, rows)
		}
		c.stop()
		if err == nil && (in != p.in || out != p.out) {
			err = fmt.Errorf("%d rows decoded and %d encoded, want %d and %d", in, out, p.in, p.out)
		}
		return err
	}}, drop(ctx, p.files, bucket0(), change.Added)
}

func eachFile(ctx context.Context, f lsm.Files, files []manifest.DataFile, do func(datafile.Rows) error) error {
	for _, m := range files {
		if err := lab.EachRows(ctx, f.Store, f.Schema, path.Join(bucket0().Dir, m.Name), do); err != nil {
			return err
		}
	}
	return nil
}
