//go:build interop

package interop

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// between is a read of the changes between two states, in the words of both sides.
type between struct {
	java       map[string]string
	calve      reader.Between
	start, end *Rows // the states as they were agreed; nil: not known
	// column, when not empty, and value: a condition for both sides.
	column string
	value  any
}

// between chooses two snapshots, tags or times and a mode; nothing in most cases, for it costs time.
func (p *player) between(rng *rand.Rand, table string, ids []int64) ([]between, error) {
	if len(ids) == 0 || rng.IntN(5) > 1 {
		return nil, nil
	}
	modes := []reader.BetweenMode{reader.Auto, reader.Delta, reader.Changelog, reader.Diff}
	b := reader.Between{Mode: modes[rng.IntN(len(modes))]}
	option := "incremental-between"
	var start, end *Rows
	switch tags := slices.Sorted(maps.Keys(p.tags)); {
	case len(tags) > 1 && rng.IntN(2) == 0: // always a diff to Java
		b.Start, b.End, b.Mode = tags[rng.IntN(len(tags))], tags[rng.IntN(len(tags))], reader.Auto
		start, end = p.tags[b.Start], p.tags[b.End]
	case rng.IntN(4) == 0:
		have := map[int64]int{}
		times := make([]int64, len(ids))
		for i, id := range ids {
			f, err := p.place.snapshotFile(table, id)
			if err != nil {
				return nil, err
			}
			times[i] = f.TimeMillis
			have[f.TimeMillis]++
		}
		var at [2]int64
		for i := range at {
			if at[i] = times[rng.IntN(len(ids))] - int64(rng.IntN(2)); have[at[i]] > 1 {
				return nil, nil // see timeTravel
			}
		}
		b.Start, b.End, b.Times = fmt.Sprint(min(at[0], at[1])), fmt.Sprint(max(at[0], at[1])), true
		if b.Mode == reader.Diff && min(at[0], at[1]) < times[0] {
			return nil, nil // Java compares with the first snapshot that is left (`IncrementalDiffStartingScanner.betweenTimestamps`)
		}
		option += "-timestamp"
	default:
		from := rng.IntN(len(ids))
		since := ids[from] - int64(rng.IntN(2))
		if b.Mode == reader.Diff {
			since = ids[from] // Java has no state before the first one to compare with
		}
		until := ids[from+rng.IntN(len(ids)-from)]
		b.Start, b.End = fmt.Sprint(since), fmt.Sprint(until)
		start, end = p.states[since], p.states[until]
	}
	out := between{java: map[string]string{option: b.Start + "," + b.End, "incremental-between-scan-mode": string(b.Mode)}, calve: b, start: start, end: end}
	out.column, out.value = p.equals(rng)
	return []between{out}, nil
}

// equals chooses a column and a value of it that a row has; "" if there is none.
func (p *player) equals(rng *rand.Rand) (string, any) {
	if len(p.latest) == 0 || p.resync {
		return "", nil
	}
	c := rng.IntN(len(p.now.Columns))
	name, k := p.now.Columns[c].Name, p.now.Kinds[c]
	value := p.latest[rng.IntN(len(p.latest))][name]
	if value == nil || len(k.Fields) > 0 || k.Word == "FLOAT" || k.Word == "DOUBLE" { // to Java the zeros differ
		return "", nil
	}
	// Java's Parquet filters take a name with a dot for that of a column inside of another one (`ParquetFilters`,
	// `FilterApi.longColumn` and its siblings), which no file has.
	if k.isBeyondLiterals(fmt.Sprint(value)) || strings.Contains(name, ".") {
		return "", nil
	}
	return name, value
}

// javaBetween are changes as Java reads them.
type javaBetween struct {
	Error   string
	Columns []Column
	Rows    []Change
	Chosen  []Change // those of the condition
}

// compareBetween compares the changes between two states. What one side refuses, the other must refuse.
func (p *player) compareBetween(ctx context.Context, rng *rand.Rand, b between, java *javaBetween) *disagreement {
	got, err := p.calve.between(ctx, b.calve, java.Columns)
	text := fmt.Sprintf("changes from %s to %s, %s", b.calve.Start, b.calve.End, b.calve.Mode)
	switch {
	case err != nil && java.Error != "":
		p.meet("between-refused-by-both")
		return nil
	case err != nil && len(p.Key) == 0 && strings.Contains(err.Error(), "use the mode delta"):
		p.meet("between-refused-by-calve")
		return nil
	case err != nil:
		return failed("calve reads changes between", fmt.Errorf("%s: %w", text, err))
	case java.Error != "":
		return failed("Java reads changes between", fmt.Errorf("%s: %s", text, java.Error))
	}
	want, err := changeRows(java.Rows, 0, java.Columns)
	var have *Rows
	if err == nil {
		have, err = changeRows(got, 0, java.Columns)
	}
	isDiff := b.calve.Mode == reader.Diff || b.calve.Mode == reader.Auto && !b.hasNumbers()
	switch {
	case err == nil && isDiff:
		err = p.checkDiff(b, want, have)
	case err == nil:
		err = want.Compare(have)
	}
	if err != nil {
		return &disagreement{What: "changes between two snapshots", Detail: fmt.Errorf("%s, calve against Java: %w", text, err)}
	}
	word := string(b.calve.Mode)
	if b.calve.Times {
		word += "-times"
	}
	p.meet("between-" + word)
	return p.compareBetweenWhere(ctx, rng, b, java, have, isDiff)
}

// compareBetweenWhere reads the changes with conditions: they ask the row of each change. Java's predicates are pushed
// down to files and rows of delta and changelog scans alike, and mean the same there; of a diff it tells more rows.
func (p *player) compareBetweenWhere(ctx context.Context, rng *rand.Rand, b between, java *javaBetween, all *Rows, isDiff bool) *disagreement {
	rows := &Rows{Columns: java.Columns, Kinds: all.Kinds[1:]}
	for _, row := range all.Cells {
		rows.Cells = append(rows.Cells, row[1:])
	}
	conditions := []*condition{valuer{rng}.condition(rows, 1)}
	if c := slices.IndexFunc(java.Columns, func(c Column) bool { return c.Name == b.column }); c >= 0 && !isDiff {
		cell, err := rows.Kinds[c].Cell(b.value)
		if err != nil {
			return &disagreement{What: "changes of a condition", Detail: err}
		}
		conditions = append(conditions, &condition{column: c, op: "=", values: []string{cell.Text}})
	}
	for i, c := range conditions {
		b.calve.Where = c.sql(rows)
		got, err := p.calve.between(ctx, b.calve, java.Columns)
		if err != nil {
			return failed("calve reads changes where", fmt.Errorf("%s: %w", b.calve.Where, err))
		}
		have, err := changeRows(got, 0, java.Columns)
		want := &Rows{Columns: all.Columns, Kinds: all.Kinds}
		for _, row := range all.Cells {
			if c.holds(rows, row[1:]) {
				want.Cells = append(want.Cells, row)
			}
		}
		if err == nil {
			err = want.Compare(have)
		}
		if err == nil && i == 1 {
			if want, err = changeRows(java.Chosen, 0, java.Columns); err == nil {
				err = want.Compare(have)
			}
			p.meet("between-where-by-both")
		}
		if err != nil {
			return &disagreement{What: "changes of a condition", Detail: fmt.Errorf("%s to %s, %s, where %s: %w", b.calve.Start, b.calve.End, b.calve.Mode, b.calve.Where, err)}
		}
	}
	p.meet("between-where")
	return nil
}

// hasNumbers reports whether the two ends are snapshots or times, not tags.
func (b *between) hasNumbers() bool {
	_, err := strconv.ParseInt(b.calve.Start, 10, 64)
	return err == nil
}

// checkDiff holds the difference of two states against these states: calve tells the rows of the end that the start has
// not, and as -D those of the start whose key the end has not. Java compares only files that not both ends have
// (`SnapshotReaderImpl.toIncrementalPlan`): it may tell rows that are the same at both ends, and makes parts of rows when
// a merge engine needs files of both. It tells no -D unless it is asked to, with whatever values it meets
// (`IncrementalDiffSplitRead`), and nothing of keys whose sequence numbers began anew with an overwrite (its DiffMerger
// takes the rows in their order). So its rows are compared where the last change wins and nothing was overwritten.
func (p *player) checkDiff(b between, java, calve *Rows) error {
	var start, end map[string]int
	if b.start != nil && b.end != nil && slices.Equal(b.start.Columns, calve.Columns[1:]) && slices.Equal(b.end.Columns, calve.Columns[1:]) {
		start, end = b.start.lines(), b.end.lines()
		keys := b.end.keys(p.Key)
		want := map[string]int{}
		for line, n := range end {
			if start[line] < n {
				want["+ "+line] = n - start[line]
			}
		}
		for i, row := range b.start.Cells {
			if len(p.Key) > 0 && !keys[b.start.keyAt(i, p.Key)] {
				want["- "+fmt.Sprint(row)]++
			}
		}
		got := map[string]int{}
		for _, row := range calve.Cells {
			got[strings.TrimRight(row[0].Text, "IUD")+" "+fmt.Sprint(row[1:])]++
		}
		if !maps.Equal(want, got) {
			return fmt.Errorf("the states differ by %v, calve tells %v", want, got)
		}
		p.meet("diff-of-known-states")
	}
	if !p.plain() || p.expires() || p.overwritten {
		return nil
	}
	left := map[string]int{}
	for _, row := range java.Cells {
		if strings.HasPrefix(row[0].Text, "+") {
			left[fmt.Sprint(row)]++
		}
	}
	for _, row := range calve.Cells {
		if !strings.HasPrefix(row[0].Text, "+") {
			continue
		}
		if left[fmt.Sprint(row)]--; left[fmt.Sprint(row)] < 0 {
			return fmt.Errorf("calve tells %v, Java does not", row)
		}
	}
	for i := range java.Cells {
		if text := fmt.Sprint(java.Cells[i]); left[text] > 0 && start != nil && start[fmt.Sprint(java.Cells[i][1:])] == 0 {
			return fmt.Errorf("not told by calve, but by Java, though the start does not have it: %s", text)
		}
	}
	return nil
}

// lines counts the rows by their text.
func (r *Rows) lines() map[string]int {
	out := map[string]int{}
	for _, row := range r.Cells {
		out[fmt.Sprint(row)]++
	}
	return out
}

// keyAt is the text of the key of row i.
func (r *Rows) keyAt(i int, key []string) string {
	var cells []Cell
	for c, column := range r.Columns {
		if slices.Contains(key, column.Name) {
			cells = append(cells, r.Kinds[c].plainZero(r.Cells[i][c]))
		}
	}
	return fmt.Sprint(cells)
}

// keys are the texts of the keys of all rows.
func (r *Rows) keys(key []string) map[string]bool {
	out := map[string]bool{}
	for i := range r.Cells {
		out[r.keyAt(i, key)] = true
	}
	return out
}

// between reads changes; their snapshot is 0.
func (c *calveSide) between(ctx context.Context, b reader.Between, columns []Column) ([]Change, error) {
	var out []Change
	for ch, err := range c.reader.Changes(ctx, b) {
		if err != nil {
			return nil, err
		}
		err := eachCalveRow(ch.Rec, columns, func(i int, row map[string]any) error {
			kind := schema.Insert
			if ch.RowKinds != nil {
				kind = ch.RowKinds[i]
			}
			out = append(out, Change{Kind: kind.String(), Row: row})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
