//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"

	"github.com/calve-io/calve/manifest"
)

func init() { RegisterScenario(Scenario{Name: "avro", Run: judgeAvro}) }

// avroColumns are of every type that Paimon can keep in Avro files, timestamps and decimals of each form among them.
func avroColumns() []Column {
	out := []Column{{"k", "INT NOT NULL"}, {"b", "BOOLEAN"}, {"t", "TINYINT"}, {"h", "SMALLINT"}, {"i", "INT NOT NULL"}, {"l", "BIGINT"}, {"f", "FLOAT"}, {"d", "DOUBLE"},
		{"c", "CHAR(5)"}, {"s", "STRING"}, {"v", "VARCHAR(30)"}, {"x", "BINARY(4)"}, {"y", "BYTES"}, {"w", "VARBINARY(9)"}, {"day", "DATE"}, {"tod", "TIME(3)"},
		{"a", "ARRAY<INT>"}, {"as", "ARRAY<STRING NOT NULL> NOT NULL"}, {"m", "MAP<STRING NOT NULL, DOUBLE>"}, {"mi", "MAP<INT NOT NULL, DECIMAL(20, 3)>"},
		{"ms", "MULTISET<STRING NOT NULL>"}, {"r", "ROW<`x` INT, `y` STRING NOT NULL>"}, {"deep", "ROW<`l` ARRAY<ROW<`p` MAP<STRING NOT NULL, ARRAY<BIGINT>>, `q` TIMESTAMP(3)>>>"}}
	for _, p := range []int{1, 9, 10, 18, 19, 38} {
		out = append(out, Column{fmt.Sprintf("d%d", p), fmt.Sprintf("DECIMAL(%d, %d)", p, p/2)})
	}
	for p := range 7 {
		out = append(out, Column{fmt.Sprintf("ts%d", p), fmt.Sprintf("TIMESTAMP(%d)", p)}, Column{fmt.Sprintf("z%d", p), fmt.Sprintf("TIMESTAMP(%d) WITH LOCAL TIME ZONE", p)})
	}
	return out
}

// judgeAvro lets calve read tables whose data files Paimon Java has written as Avro: with and without key, before and
// after a compaction, and with files of both formats.
func judgeAvro(ctx context.Context, l *Lab, report *Report) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("avro", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			var errs []error
			for i, t := range []struct {
				key     []string
				options map[string]string
			}{
				{nil, map[string]string{"bucket": "-1", "file.format": "avro"}},
				{[]string{"k"}, map[string]string{"bucket": "2", "file.format": "avro"}},
				{[]string{"k"}, map[string]string{"bucket": "1", "file.format": "avro", "file.compression": "snappy"}},
				{[]string{"k"}, map[string]string{"bucket": "1", "file.format": "parquet", "file.format.per.level": "0:avro"}},
			} {
				if err := readAvro(ctx, l, java, t.key, t.options, fmt.Sprintf("avro.t%d", i)); err != nil {
					errs = append(errs, fmt.Errorf("key %v, options %v: %w", t.key, t.options, err))
				}
			}
			return errors.Join(errs...)
		})
	}
}

func readAvro(ctx context.Context, l *Lab, java *paimonJava, key []string, options map[string]string, table string) error {
	h := &History{Columns: avroColumns(), Key: key, Options: options}
	place := l.Local()
	theirs := &javaSide{history: h, worker: java.Worker, table: PaimonTable{Warehouse: place.Warehouse, Name: table}}
	if err := theirs.create(ctx); err != nil {
		return err
	}
	ours, err := newCalveSide(h, place.folder(table))
	if err != nil {
		return err
	}
	r := valuer{rand.New(rand.NewPCG(l.Seed, 5))}
	for n := range 4 {
		s := &HistoryStep{By: byJava, Do: doWrite}
		if n == 2 {
			s.Do = doCompactFull
		}
		for i := range 200 {
			op := Op{"+I", map[string]any{}}
			for _, c := range h.Columns {
				k, err := ParseKind(c.Type)
				if err != nil {
					return err
				}
				op.Row[c.Name] = r.inner(k)
			}
			if op.Row["k"] = n*100 + i; key != nil && r.chance(20) {
				op.Kind = "-D"
			}
			s.Changes = append(s.Changes, op)
		}
		if err := theirs.step(ctx, s, 0); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
		if _, _, d := readBoth(ctx, ours, theirs, 1); d != nil {
			return fmt.Errorf("after step %d: %w", n+1, d)
		}
	}
	meta := ours.reader.Meta()
	snap, err := meta.Latest(ctx)
	if err != nil {
		return err
	}
	live, err := meta.Live(ctx, snap, func(e *manifest.Entry) bool { return path.Ext(e.File.Name) == ".avro" })
	if err == nil && len(live) == 0 {
		err = errors.New("no data file is Avro")
	}
	return err
}
