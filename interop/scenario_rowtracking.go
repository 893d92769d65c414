//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
)

func init() { RegisterScenario(Scenario{Name: "row-tracking", Run: judgeRowTracking}) }

// judgeRowTracking takes append tables with row ids through calve and Paimon Java, which take turns in writing, in
// compacting and in changing the schema. After each step Java reads the rows with their ids: a row keeps the id and the
// sequence number that it got when it came, and new rows are numbered on.
func judgeRowTracking(ctx context.Context, l *Lab, report *Report) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("row-tracking", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			for i, creator := range []side{byCalve, byJava} {
				t := newTrackedTable(l, java, uint64(i))
				if err := t.play(ctx, creator); err != nil {
					return fmt.Errorf("%s, created by %s, after %s: %w", t.table, creator, strings.Join(t.done, ", "), err)
				}
				report.Note("row-tracking: %d rows in %d steps kept their ids", len(t.rows), len(t.done))
			}
			return nil
		})
	}
}

// trackedTable is a table with row ids and what must be in it.
type trackedTable struct {
	valuer
	place *Place
	table string
	c     *Case
	java  *javaSide
	rows  []trackedRow // by row id
	done  []string
}

type trackedRow struct {
	ID, Seq int64
	Text    string
	N       int64
}

func newTrackedTable(l *Lab, java *paimonJava, n uint64) *trackedTable {
	t := &trackedTable{valuer: valuer{rand.New(rand.NewPCG(l.Seed, n))}, place: l.Local(), table: fmt.Sprintf("tracked.t%d", n)}
	t.c = &Case{Columns: []Column{{"p", "INT"}, {"text", "STRING"}, {"n", "BIGINT NOT NULL"}}, Partition: []string{"p"},
		Options: map[string]string{"bucket": "-1", "row-tracking.enabled": "true", "compaction.min.file-num": "3"}}
	h := &History{Columns: t.c.Columns, Partition: t.c.Partition, Options: t.c.Options}
	t.java = &javaSide{history: h, worker: java.Worker, table: PaimonTable{Warehouse: t.place.Warehouse, Name: t.table}}
	return t
}

func (t *trackedTable) play(ctx context.Context, creator side) error {
	var err error
	if creator == byCalve {
		err = t.place.Create(ctx, t.table, t.c)
	} else {
		err = t.java.create(ctx)
	}
	for n := 0; n < 24 && err == nil; n++ {
		switch by := oneOf(t.valuer, byCalve, byCalve, byJava); {
		case n == 12: // the files written so far have other names and types than those to come
			t.done = append(t.done, "alter")
			_, err = t.place.Run(ctx, nil, "alter", t.table, "--rename", "text=words", "--add", "more INT")
			t.c.Columns = []Column{{"p", "INT"}, {"words", "STRING"}, {"n", "BIGINT NOT NULL"}, {"more", "INT"}}
		case t.chance(25):
			t.done = append(t.done, string(by)+" compacts")
			if by == byCalve {
				_, err = t.place.Run(ctx, nil, "compact", t.table, "--full")
			} else {
				err = t.java.ask(ctx, "compact", nil, nil)
			}
		default:
			t.done = append(t.done, string(by)+" writes")
			err = t.write(ctx, by)
		}
		if err == nil {
			err = t.check(ctx)
		}
	}
	if err == nil {
		err = t.place.Verify(ctx, t.table)
	}
	return err
}

// write appends some rows. A commit's files are numbered in any order, so that the ids of its rows are learnt.
func (t *trackedTable) write(ctx context.Context, by side) error {
	name := t.c.Columns[1].Name
	var ops []Op
	var changes []map[string]any
	for i := range 1 + t.IntN(30) {
		row := map[string]any{"p": t.IntN(2), name: fmt.Sprintf("row %d of step %d", i, len(t.done)), "n": t.Int64()}
		for _, c := range t.c.Columns[3:] {
			row[c.Name] = nil
		}
		ops = append(ops, Op{"+I", row})
		changes = append(changes, map[string]any{"kind": "+I", "row": row})
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
	latest, err := t.place.latestSnapshot(t.table)
	if err != nil {
		return err
	}
	got, err := t.read(ctx)
	if err != nil {
		return err
	}
	next := len(t.rows)
	t.rows = append(t.rows, make([]trackedRow, len(ops))...)
	for _, op := range ops {
		n := op.Row["n"].(int64)
		at := -1
		for _, r := range got {
			if r.N == n && r.Text == op.Row[name] {
				at = int(r.ID)
			}
		}
		if at < next || at >= len(t.rows) || t.rows[at].Text != "" {
			return fmt.Errorf("new row %v has id %d; new ids are %d to %d, each once", op.Row, at, next, len(t.rows)-1)
		}
		t.rows[at] = trackedRow{int64(at), latest, op.Row[name].(string), n}
	}
	return nil
}

// read asks Java for the rows with their ids.
func (t *trackedTable) read(ctx context.Context) ([]trackedRow, error) {
	var answer struct{ Rows []map[string]any }
	if err := t.java.ask(ctx, "row-ids", nil, &answer); err != nil {
		return nil, err
	}
	out := make([]trackedRow, len(answer.Rows))
	for i, row := range answer.Rows {
		var errs [3]error
		number := func(n int, name string) int64 {
			v, ok := row[name].(json.Number)
			if !ok {
				errs[n] = fmt.Errorf("Java reads %v as %s", row[name], name)
				return 0
			}
			var value int64
			value, errs[n] = v.Int64()
			return value
		}
		text, _ := row[t.c.Columns[1].Name].(string)
		out[i] = trackedRow{number(0, "_ROW_ID"), number(1, "_SEQUENCE_NUMBER"), text, number(2, "n")}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check compares all rows with the ids they have had from the beginning, and lets calve read them.
func (t *trackedTable) check(ctx context.Context) error {
	got, err := t.read(ctx)
	if err != nil {
		return err
	}
	if len(got) != len(t.rows) {
		return fmt.Errorf("Java reads %d rows, want %d", len(got), len(t.rows))
	}
	for _, r := range got {
		if r.ID < 0 || r.ID >= int64(len(t.rows)) || t.rows[r.ID] != r {
			return fmt.Errorf("Java reads %+v, want %+v", r, t.rows[min(max(r.ID, 0), int64(len(t.rows)-1))])
		}
	}
	if len(got) == 0 {
		return nil
	}
	one := t.rows[t.IntN(len(t.rows))]
	out, err := t.place.Run(ctx, nil, "scan", t.table, "--where", fmt.Sprintf("n = %d", one.N))
	if err != nil {
		return err
	}
	if !strings.Contains(string(out), fmt.Sprintf("%q", one.Text)) {
		return fmt.Errorf("calve does not find %+v, but %s", one, out)
	}
	return nil
}
