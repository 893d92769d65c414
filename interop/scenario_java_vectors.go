//go:build interop

package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

func init() { RegisterScenario(Scenario{Name: "java-vectors", Run: judgeJavaVectors}) }

// judgeJavaVectors has calve and Paimon Java write tables with deletion vectors in turns: each upserts and deletes rows in the files
// of the other, and compacts them. After each turn both read the rows, though readers of such tables merge nothing.
// Java creates one table and calve the other; there are two forms of the vectors.
func judgeJavaVectors(ctx context.Context, l *Lab, report *Report) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("java-vectors", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			for i, wide := range []string{"false", "true"} {
				t, err := newVectorTable(l, java, wide, uint64(i))
				if err == nil {
					err = t.play(ctx, []side{byCalve, byJava}[i], report)
				}
				if err != nil {
					return fmt.Errorf("bitmap64=%s: %w", wide, err)
				}
			}
			return nil
		})
	}
}

// vectorTable is a table with deletion vectors and what must be in it.
type vectorTable struct {
	valuer
	place *Place
	table string
	c     *Case
	java  *javaSide
	model *Model
}

func newVectorTable(l *Lab, java *paimonJava, wide string, n uint64) (*vectorTable, error) {
	t := &vectorTable{valuer: valuer{rand.New(rand.NewPCG(l.Seed, 0x7665637400+n))}, place: l.Local(), table: "beside.java_vectors_" + wide}
	t.c = &Case{Columns: flinkColumns, Key: []string{"k"}, Options: map[string]string{"bucket": "2", "deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": wide}}
	h := &History{Columns: t.c.Columns, Key: t.c.Key, Options: t.c.Options}
	t.java = &javaSide{history: h, worker: java.Worker, table: PaimonTable{Warehouse: t.place.Warehouse, Name: t.table}}
	var err error
	t.model, err = NewModel(t.c.Columns, t.c.Key)
	return t, err
}

func (t *vectorTable) play(ctx context.Context, creator side, report *Report) error {
	var err error
	if creator == byCalve {
		err = t.place.Create(ctx, t.table, t.c)
	} else {
		err = t.java.create(ctx)
	}
	const turns = 8
	vectors := 0
	for turn := 0; turn < turns && err == nil; turn++ {
		by := []side{byCalve, byJava}[turn%2]
		if turn == turns-2 {
			by = byJava // so that each writes twice in a row, too
		}
		for range 2 {
			if err = t.write(ctx, by, turn); err == nil {
				err = t.agree(ctx)
			}
			if err != nil {
				return fmt.Errorf("turn %d, of %s: %w", turn, by, err)
			}
		}
		if n := t.indexFiles(); n == 0 && turn > 0 {
			return fmt.Errorf("turn %d, of %s: there is no file with deletion vectors", turn, by)
		} else {
			vectors = max(vectors, n)
		}
	}
	if err != nil {
		return err
	}
	for _, by := range []side{byJava, byCalve} {
		if by == byCalve {
			if err = t.write(ctx, byJava, turns); err == nil { // something for calve to do
				_, err = t.place.Run(ctx, nil, "compact", t.table, "--full")
			}
		} else {
			err = t.java.ask(ctx, "compact", map[string]any{"full": true}, nil)
		}
		if err == nil {
			err = t.agree(ctx)
		}
		if err != nil {
			return fmt.Errorf("full compaction of %s: %w", by, err)
		}
	}
	report.Note("java-vectors: bitmap64=%s: calve and Paimon Java read %d rows alike after each of %d writes; %d files of deletion vectors at most", t.c.Options["deletion-vectors.bitmap64"], len(t.model.byKey), 2*turns+1, vectors)
	return nil
}

// write upserts some rows and deletes others.
func (t *vectorTable) write(ctx context.Context, by side, turn int) error {
	var ops []Op
	var changes []map[string]any
	for range 100 {
		row := map[string]any{"k": t.IntN(vectorKeys), "v": fmt.Sprintf("%s %d", by, turn), "n": t.IntN(1000)}
		op, kind := Put(row), "+I"
		if t.chance(25) {
			op, kind = Del(row), "-D"
		}
		ops = append(ops, op)
		changes = append(changes, map[string]any{"kind": kind, "row": row})
	}
	var err error
	if by == byCalve {
		err = t.place.Put(ctx, t.table, t.c, ops)
	} else {
		err = t.java.ask(ctx, "write", map[string]any{"changes": changes, "wait": true}, nil)
	}
	if err != nil {
		return err
	}
	return t.model.Apply(ops)
}

// agree has both read the table.
func (t *vectorTable) agree(ctx context.Context) error {
	want, err := t.model.Rows()
	if err != nil {
		return err
	}
	got, err := t.place.Scan(ctx, t.table, 0, t.c.Columns)
	if err == nil {
		err = want.Compare(got)
	}
	if err != nil {
		return fmt.Errorf("read by calve: %w", err)
	}
	look, err := t.java.look(ctx, lookRequest{})
	if err == nil {
		got, err = look.Rows.table()
	}
	if err == nil {
		err = want.Compare(got)
	}
	if err != nil {
		return fmt.Errorf("read by Java: %w", err)
	}
	return t.place.Verify(ctx, t.table)
}

// indexFiles counts files with deletion vectors.
func (t *vectorTable) indexFiles() int {
	found, err := os.ReadDir(filepath.Join(t.place.folder(t.table), "index"))
	if err != nil {
		return 0
	}
	return len(found)
}
