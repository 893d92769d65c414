//go:build interop

package interop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/schema"
)

// mergeGenerator makes histories of tables with a merge engine and random options of it.
type mergeGenerator struct {
	generator
	kindsTaken []string // of rows, that the merge can take
}

// generateMerge makes the history of a seed for a merge engine.
func generateMerge(engine string, seed uint64) (*History, error) {
	g := &mergeGenerator{generator: generator{valuer: valuer{rand.New(rand.NewPCG(seed, 0x6d65726765))}, kinds: map[string]Kind{}}}
	g.History = &History{Seed: seed, Options: map[string]string{"merge-engine": engine}, Creator: oneOf(g.valuer, byCalve, byJava)}
	g.Options["bucket"] = strconv.Itoa(1 + g.IntN(2))
	g.Options["num-sorted-run.compaction-trigger"] = oneOf(g.valuer, "2", "3", "5")
	if g.chance(40) {
		g.Options["num-levels"] = oneOf(g.valuer, "2", "3", "4")
	}
	if g.chance(30) {
		g.Buffer = int64(1 + g.IntN(4096)) // a commit of several files
	}
	for i := range oneOf(g.valuer, 1, 1, 2) {
		g.Key = append(g.Key, g.column(fmt.Sprintf("k%d", i), g.keyType(), true))
	}
	for range g.IntN(3) {
		g.add(g.anyType())
	}
	if engine != schema.FirstRow && g.chance(50) {
		g.Options["sequence.field"] = strings.Join(g.sequence(), ",")
		g.Options["sequence.field.sort-order"] = oneOf(g.valuer, "ascending", "ascending", "descending")
	}
	if g.chance(25) {
		g.Options["ignore-delete"] = "true"
	}
	if g.chance(10) {
		g.Options["ignore-update-before"] = "true"
	}
	switch engine {
	case schema.PartialUpdate:
		g.partialUpdate()
	case schema.Aggregation:
		remove := g.chance(30)
		g.Options["aggregation.remove-record-on-delete"] = fmt.Sprint(remove)
		for range 1 + g.IntN(12) {
			g.aggregate(!remove)
		}
	}
	if err := g.takeKinds(); err != nil {
		return nil, err
	}
	g.makeKeys()
	g.now = g.Columns
	g.steps()
	return g.History, nil
}

func (g *mergeGenerator) add(columnType string) string {
	return g.column(fmt.Sprintf("c%d", len(g.Columns)), columnType, false)
}

// sequence makes one or two columns that order rows. NaN has no place in an order of Java's.
func (g *mergeGenerator) sequence() []string {
	one := func() string { return g.add(oneOf(g.valuer, "INT", "BIGINT", "TINYINT", "DATE", g.partitionType())) }
	names := []string{one()}
	if g.chance(30) {
		names = append(names, one())
	}
	return names
}

func (g *mergeGenerator) partialUpdate() {
	groups := g.IntN(4)
	if groups == 0 && g.Options["ignore-delete"] == "" {
		g.Options["partial-update.remove-record-on-delete"] = fmt.Sprint(g.chance(60))
	}
	for range groups {
		by := g.sequence()
		var fields []string
		for range 1 + g.IntN(4) {
			if g.chance(50) {
				fields = append(fields, g.add(g.anyType()))
			} else {
				fields = append(fields, g.aggregate(true))
			}
		}
		g.Options["fields."+strings.Join(by, ",")+".sequence-group"] = strings.Join(fields, ",")
		if g.Options["ignore-delete"] == "" && g.chance(30) {
			g.Options["partial-update.remove-record-on-sequence-group"] = oneOf(g.valuer, by...)
		}
	}
}

// aggregate makes a column with an aggregate function.
func (g *mergeGenerator) aggregate(ignore bool) string {
	f := oneOf(g.valuer, "sum", "sum", "product", "max", "min", "last_value", "last_non_null_value", "first_value",
		"first_non_null_value", "first_not_null_value", "listagg", "bool_and", "bool_or", "collect", "collect", "merge_map", "nested_update")
	var t string
	switch f {
	case "sum", "product":
		p := 1 + g.IntN(38)
		t = oneOf(g.valuer, "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", fmt.Sprintf("DECIMAL(%d, %d)", p, g.IntN(p+1)), "DECIMAL(18, 3)")
	case "max", "min":
		for t = "BOOLEAN"; t == "BOOLEAN"; {
			t = g.anyType()
		}
	case "listagg":
		t = "STRING"
	case "bool_and", "bool_or":
		t = "BOOLEAN"
	case "collect": // Java 1.4 finds no two binaries equal and no two arrays with nulls, and fails at null rows
		t = fmt.Sprintf("ARRAY<%s>", oneOf(g.valuer, "INT", "STRING", "BOOLEAN", "DATE", "DECIMAL(20, 3)", "ROW<`a` INT, `b` STRING> NOT NULL"))
	case "merge_map":
		t = fmt.Sprintf("MAP<%s, %s>", g.mapKeyType(), oneOf(g.valuer, "INT", "STRING", "ARRAY<STRING>"))
	case "nested_update":
		t = "ARRAY<ROW<`a` BOOLEAN, `b` STRING, `c` INT>>"
	default:
		t = g.anyType()
	}
	name := g.add(t)
	g.Options["fields."+name+".aggregate-function"] = f
	// What is taken out of a product must divide it; Java cannot compare nested values to take them out of a collection.
	if ignore && (f == "product" || f == "collect" && strings.Count(t, "<") > 1 || g.chance(50)) {
		g.Options["fields."+name+".ignore-retract"] = "true"
	}
	switch {
	case f == "collect":
		g.Options["fields."+name+".distinct"] = fmt.Sprint(g.chance(50))
	case f == "nested_update" && g.chance(60):
		g.Options["fields."+name+".nested-key"] = oneOf(g.valuer, "a", "b", "a,b")
	case f == "nested_update" && g.chance(50):
		g.Options["fields."+name+".count-limit"] = strconv.Itoa(1 + g.IntN(8))
	}
	if f == "listagg" {
		g.Options["fields."+name+".list-agg-delimiter"] = oneOf(g.valuer, ",", "a", "--")
		g.Options["fields."+name+".distinct"] = fmt.Sprint(g.chance(30))
	}
	return name
}

// takeKinds finds the kinds of rows that neither side refuses to merge.
func (g *mergeGenerator) takeKinds() error {
	spec := schema.Spec{PrimaryKeys: g.Key, Options: g.Options}
	ids := len(g.Columns)
	for _, c := range g.Columns {
		t, err := calveType(c.Type, &ids)
		if err != nil {
			return err
		}
		spec.Columns = append(spec.Columns, schema.Column{Name: c.Name, Type: t})
	}
	s, err := schema.New(spec)
	if err != nil {
		return fmt.Errorf("seed %d: options %v: %w", g.Seed, g.Options, err)
	}
	o, err := s.ParseOptions()
	if err != nil {
		return err
	}
	divides := slices.ContainsFunc(s.Fields, func(f schema.Field) bool {
		a := s.Aggregate(o, f.Name)
		return !a.IgnoreRetract && (a.Function == schema.AggProduct || a.Function == schema.AggCollect && !f.Type.Element.Primitive())
	})
	g.kindsTaken = []string{"+I", "+I", "+U"}
	for _, k := range []schema.RowKind{schema.Delete, schema.UpdateBefore} {
		removes := k == schema.Delete && o.MergeEngine == schema.Aggregation && o.Merge.RemoveOnDelete
		if len(s.Refusals(o)[k]) == 0 && (!divides || removes) {
			g.kindsTaken = append(g.kindsTaken, k.String())
		}
	}
	return nil
}

// steps makes commits of both sides, with compactions of both between and behind them.
func (g *mergeGenerator) steps() {
	write := func() {
		s := HistoryStep{By: oneOf(g.valuer, byCalve, byCalve, byJava), Do: doWrite}
		for range 1 + g.IntN(25) {
			s.Changes = append(s.Changes, Op{oneOf(g.valuer, g.kindsTaken...), g.row()})
		}
		if s.By == byJava {
			s.Wait = g.chance(50)
			if g.chance(50) {
				s.Dynamic = map[string]string{"write-only": "true"}
			}
		}
		g.Steps = append(g.Steps, s)
	}
	for range 2 + g.IntN(6) {
		write()
		if g.chance(30) {
			g.Steps = append(g.Steps, HistoryStep{By: oneOf(g.valuer, byCalve, byCalve, byJava), Do: oneOf(g.valuer, doCompact, doCompact, doCompactFull)})
		}
	}
	last := []HistoryStep{{By: byCalve, Do: doCompactFull}, {By: byJava, Do: doCompactFull}}
	if g.chance(50) {
		slices.Reverse(last)
	}
	g.Steps = append(g.Steps, last[0])
	write()
	g.Steps = append(g.Steps, last[1])
}

// sets are the columns whose elements have no order of their own: Java keeps them in hash tables.
func sets(h *History) []string {
	var out []string
	for name, value := range h.Options {
		column, distinct := strings.CutSuffix(name, ".distinct")
		column, keyed := strings.CutSuffix(column, ".nested-key")
		if keyed || distinct && value == "true" {
			out = append(out, strings.TrimPrefix(column, "fields."))
		}
	}
	return out
}

// unordered sorts the elements of such columns.
func unordered(row map[string]any, columns []string) map[string]any {
	for _, c := range columns {
		list, ok := row[c].([]any)
		if !ok {
			continue
		}
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		row = with(row, c, list)
	}
	return row
}
