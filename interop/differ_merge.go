//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/schema"
)

// mergeEngine gives the table a merge engine with random options and the columns that they need. It borrows from the
// generator of the merge scenarios.
func (g *generator) mergeEngine() {
	engine := oneOf(g.valuer, schema.Deduplicate, schema.PartialUpdate, schema.Aggregation, schema.FirstRow)
	if engine == schema.FirstRow && !g.lookupFits() { // compactions look keys up
		engine = schema.Deduplicate
	}
	g.feature("merge-" + engine)
	for i, c := range g.Columns { // taking a value back leaves null: calve refuses that in a NOT NULL column, Java does not ask
		if !slices.Contains(g.Key, c.Name) && !slices.Contains(g.Partition, c.Name) {
			g.Columns[i].Type = strings.TrimSuffix(c.Type, " NOT NULL")
			k := g.kinds[c.Name]
			k.NotNull = false
			g.kinds[c.Name] = k
		}
	}
	g.Options["merge-engine"] = engine
	m := &mergeGenerator{generator: *g}
	if engine == schema.Deduplicate || engine != schema.FirstRow && g.chance(50) {
		m.Options["sequence.field"] = strings.Join(m.sequence(), ",")
		m.Options["sequence.field.sort-order"] = oneOf(g.valuer, "ascending", "ascending", "descending")
		m.feature("merge-sequence-field")
	}
	if g.chance(25) {
		m.Options["ignore-delete"] = "true"
	}
	if g.chance(10) {
		m.Options["ignore-update-before"] = "true"
	}
	switch engine {
	case schema.PartialUpdate:
		m.partialUpdate()
	case schema.Aggregation:
		remove := g.chance(30)
		m.Options["aggregation.remove-record-on-delete"] = fmt.Sprint(remove)
		for range 1 + g.IntN(8) {
			m.aggregate(!remove)
		}
	}
	for name := range g.Options { // Java keeps distinct values, and rows by key, in the order of a hash table
		column, ok := strings.CutSuffix(name, ".distinct")
		if ok && g.Options[column+".aggregate-function"] == "collect" || strings.Contains(name, ".nested-") {
			delete(g.Options, name)
		}
	}
	*g = m.generator
}

// takeKinds finds the kinds of rows that neither side refuses to merge.
func (g *generator) takeKinds() error {
	s, err := g.schema()
	if err != nil {
		return err
	}
	o, err := s.ParseOptions()
	if err != nil || g.option("merge-engine", "") == "" {
		return err
	}
	divides := slices.ContainsFunc(s.Fields, func(f schema.Field) bool {
		a := s.Aggregate(o, f.Name)
		return a.Function == schema.AggProduct && !a.IgnoreRetract
	})
	g.rowKinds = []string{"+I", "+I", "+U"}
	for _, k := range []schema.RowKind{schema.Delete, schema.UpdateBefore} {
		removes := k == schema.Delete && o.MergeEngine == schema.Aggregation && o.Merge.RemoveOnDelete
		if len(s.Refusals(o)[k]) == 0 && (!divides || removes) {
			g.rowKinds = append(g.rowKinds, k.String())
		}
	}
	return nil
}
