//go:build interop

package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// vectors has calve and Flink write tables with deletion vectors in turns: each upserts and deletes rows in the files of the
// other, and both must read the rows, though readers of such tables merge nothing. There are two forms of the vectors.
func (r *flinkRig) vectors(ctx context.Context) error {
	for _, wide := range []string{"false", "true"} {
		r.table = "beside.flink_vectors_" + wide
		if err := r.prepare(ctx, r.lab.Local(), map[string]string{"bucket": "2", "deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": wide}); err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(r.lab.Seed, 17))
		for turn := range 4 {
			who, write := "calve", r.calvePuts
			if turn%2 == 1 {
				who, write = "Flink", r.flinkPuts
			}
			if err := write(ctx, rng, turn); err != nil {
				return fmt.Errorf("bitmap64=%s, turn %d: %s writes: %w", wide, turn, who, err)
			}
			when := fmt.Sprintf("bitmap64=%s, after turn %d, of %s", wide, turn, who)
			if err := r.agree(ctx, when); err != nil {
				return err
			}
			if n := r.indexFiles(); n == 0 && turn > 0 {
				return fmt.Errorf("%s: no file with deletion vectors", when)
			}
		}
		if _, err := r.place.Run(ctx, nil, "compact", r.table, "--full"); err != nil {
			return err
		}
		if err := r.agree(ctx, "bitmap64="+wide+", after calve's full compaction"); err != nil {
			return err
		}
		r.report.Note("flink-vectors: bitmap64=%s: calve and Flink read %d rows alike after each of 4 turns; %d files of deletion vectors", wide, len(r.model.byKey), r.indexFiles())
	}
	return nil
}

// indexFiles counts files with deletion vectors, those that have not expired among them.
func (r *flinkRig) indexFiles() int {
	found, err := os.ReadDir(filepath.Join(r.place.folder(r.table), "index"))
	if err != nil {
		return 0
	}
	return len(found)
}

const vectorKeys = 300

// calvePuts upserts some rows and deletes others, in two commits, so that the second finds the rows of the first.
func (r *flinkRig) calvePuts(ctx context.Context, rng *rand.Rand, turn int) error {
	for part := range 2 {
		var ops []Op
		for range 120 {
			k := rng.IntN(vectorKeys)
			row := map[string]any{"k": k, "v": fmt.Sprintf("calve %d.%d", turn, part), "n": rng.IntN(1000)}
			if rng.IntN(4) == 0 {
				ops = append(ops, Del(row))
				continue
			}
			ops = append(ops, Put(row))
		}
		if err := r.place.Put(ctx, r.table, &Case{Columns: flinkColumns, Key: []string{"k"}}, ops); err != nil {
			return err
		}
		if err := r.model.Apply(ops); err != nil {
			return err
		}
	}
	return nil
}

// flinkPuts upserts some rows by INSERT and deletes one by DELETE.
func (r *flinkRig) flinkPuts(ctx context.Context, rng *rand.Rand, turn int) error {
	var ops []Op
	var values []string
	for i := range 60 {
		row := map[string]any{"k": (rng.IntN(vectorKeys/60) + i*(vectorKeys/60)), "v": fmt.Sprintf("flink %d", turn), "n": i}
		ops = append(ops, Put(row))
		values = append(values, fmt.Sprintf("(%d, '%s', %d)", row["k"], row["v"], i))
	}
	if err := r.flink.Run(ctx, r.place, "INSERT INTO "+r.table+" VALUES "+strings.Join(values, ", ")); err != nil {
		return err
	}
	gone := ops[rng.IntN(len(ops))]
	if err := r.flink.Run(ctx, r.place, fmt.Sprintf("DELETE FROM %s WHERE k = %d", r.table, gone.Row["k"])); err != nil {
		return err
	}
	return r.model.Apply(append(ops, Del(gone.Row)))
}
