//go:build interop

package interop

import (
	"fmt"
	"math/rand/v2"
)

func init() {
	RegisterCase(partitionsCase())
	RegisterCase(appendCase())
	columns := []Column{{"v", "STRING"}, {"k2", "INT NOT NULL"}, {"k1", "STRING NOT NULL"}, {"n", "BIGINT"}}
	RegisterCase(&Case{
		Name: "thin", About: "thin files (no key columns), key in another order than the columns, many small commits",
		Columns: columns, Key: []string{"k1", "k2"}, Options: map[string]string{"bucket": "4", "data-file.thin-mode": "true"},
		Steps: churn(columns, 10, 300),
	})
	RegisterCase(&Case{
		Name: "churn", About: "many small commits of updates and deletes over a large top level, compacted into the levels between, small files that roll",
		Columns: columns, Key: []string{"k1", "k2"}, Options: map[string]string{"bucket": "2", "target-file-size": "16 kb",
			"num-sorted-run.compaction-trigger": "3"},
		Steps: append(churn(columns, 6, 3000), smallChurn(columns, 12, 40)...),
	})
	RegisterCase(beyondCase())
	RegisterCase(&Case{
		Name: "append_unaware", About: "a table without key and without buckets",
		Columns: columns, Options: map[string]string{"bucket": "-1"},
		Steps: append([]Step{{Ops: churn(columns, 1, 100)[0].Ops, Export: true}, {Ops: puts(rowsOf(columns, []any{"same", 1, "a", nil}, []any{"same", 1, "a", nil})), Export: true}},
			smallPuts(columns, 8)...),
	})
	RegisterCase(&Case{
		Name: "append_tracked", About: "a table without key and without buckets whose rows have ids; compacted files have columns of their own for them",
		Columns: columns, Options: map[string]string{"bucket": "-1", "row-tracking.enabled": "true"},
		Steps: append([]Step{{Ops: churn(columns, 1, 100)[0].Ops, Export: true}}, smallPuts(columns, 8)...),
	})
}

// beyondCase has commits whose keys lie mostly beyond those of the commit before, large enough that compaction copies pages.
func beyondCase() *Case {
	columns := []Column{{"id", "BIGINT NOT NULL"}, {"text", "STRING"}, {"kind", "STRING"}, {"n", "INT"}, {"x", "DOUBLE"}, {"price", "DECIMAL(30, 4)"}, {"bytes", "BYTES"}}
	rng := rand.New(rand.NewPCG(7, 7))
	const rows, late = 30_000, 500
	steps := make([]Step, 3)
	for i := range steps {
		first := i * rows
		if i > 0 {
			first -= late
		}
		for id := first; id < (i+1)*rows; id++ {
			vals := []any{id, fmt.Sprintf("%016x%016x%016x", rng.Uint64(), rng.Uint64(), rng.Uint64()), fmt.Sprintf("kind %d", rng.IntN(50)), rng.IntN(1000), float64(rng.IntN(1000)) / 8, fmt.Sprintf("%d.%04d", rng.IntN(1000), rng.IntN(10000)), nil}
			if id%7 == 0 {
				vals[1], vals[3], vals[4] = nil, nil, nil
			}
			row := rowsOf(columns, vals)[0]
			op := Put(row)
			if i > 0 && id < first+late && id%5 == 0 {
				op = Del(row)
			}
			steps[i].Ops = append(steps[i].Ops, op)
		}
	}
	steps[2].Compact, steps[2].Export = true, true
	return &Case{
		Name: "beyond", About: "large commits whose keys lie mostly beyond those before: compaction copies pages as they are",
		Columns: columns, Key: []string{"id"}, Options: map[string]string{"bucket": "1", "num-sorted-run.compaction-trigger": "20"}, Steps: steps,
	}
}

// churn makes steps of upserts and deletes over few keys; in the middle and at the end the table is published.
func churn(columns []Column, steps, changes int) []Step {
	rng := rand.New(rand.NewPCG(1, uint64(steps))) // the same in each run: a failure is found again
	out := make([]Step, steps)
	for i := range out {
		for range changes {
			k1, k2 := rng.IntN(20), rng.IntN(100)
			row := rowsOf(columns, []any{fmt.Sprintf("value %d of step %d", rng.IntN(1000), i), k2, fmt.Sprintf("key %d", k1), rng.Int64() - 1<<62})[0]
			op := Put(row)
			if rng.IntN(4) == 0 && steps > 1 {
				op = Del(row)
			}
			out[i].Ops = append(out[i].Ops, op)
		}
		if i == steps/2 || i == steps-1 {
			out[i].Compact, out[i].Export = true, true
		}
	}
	return out
}

// smallChurn makes small steps that are compacted as the options ask. Deletes among them hide rows of the top level,
// which come back if a compaction below it drops them.
func smallChurn(columns []Column, steps, changes int) []Step {
	out := churn(columns, steps, changes)
	for i := range out {
		out[i].Pick, out[i].Compact = true, i == steps-1
		out[i].Export = i == steps-1
	}
	return out
}

// smallPuts makes small steps of inserts that are compacted as the options ask, and in the end altogether.
func smallPuts(columns []Column, steps int) []Step {
	out := make([]Step, steps)
	for i := range out {
		out[i] = Step{Ops: churn(columns, 1, 10+i)[0].Ops, Pick: true, Compact: i == steps-1, Export: i == steps-1}
	}
	return out
}

func partitionsCase() *Case {
	columns := []Column{{"day", "DATE NOT NULL"}, {"place", "STRING NOT NULL"}, {"n", "INT NOT NULL"}, {"id", "BIGINT NOT NULL"}, {"v", "STRING"}}
	places := []string{"a/b=c%d", "plain", "with space", "%2F", "..", "żółć 日本", "a:b*c?d\"e", "{x}^[y]#z", "ends with ", "'quoted'"}
	var rows []map[string]any
	for i, place := range places {
		day := []string{"2024-05-10", "1969-12-31", "1582-10-04"}[i%3]
		rows = append(rows, rowsOf(columns, []any{day, place, i - 3, i, "first"}, []any{day, place, i - 3, i + 100, nil})...)
	}
	return &Case{
		Name: "partitions", About: "partition values with / = % and more, dates before 1970, negative numbers",
		Columns: columns, Key: []string{"day", "place", "n", "id"}, Partition: []string{"day", "place", "n"}, Options: map[string]string{"bucket": "1"},
		Steps: []Step{
			{Ops: puts(rows), Compact: true, Export: true},
			{Ops: append(deletes(rows[:2]), Put(with(rows[2], "v", "second")), Del(rows[5]), Del(rows[11])), Compact: true, Export: true},
		},
	}
}

func appendCase() *Case {
	columns := []Column{{"id", "BIGINT"}, {"p", "STRING"}, {"q", "INT"}, {"v", "DOUBLE"}}
	rows := rowsOf(columns, []any{1, "x", 1, 0.5}, []any{1, "x", 1, 0.5}, []any{2, nil, 1, -0.5}, []any{3, "y", nil, nil}, []any{nil, nil, nil, 1e300})
	return &Case{
		Name: "append", About: "a table without key: repeated rows stay, partitions of nulls",
		Columns: columns, Partition: []string{"p", "q"}, Options: map[string]string{"bucket": "2", "bucket-key": "id"},
		Steps: []Step{{Ops: puts(rows), Export: true}, {Ops: puts(rows[2:]), Export: true}, {Ops: puts(rows[:1]), Compact: true, Export: true},
			{Ops: puts(rows), Export: true}},
	}
}
