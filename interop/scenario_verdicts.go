//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/calve-io/calve/schema"
)

func init() { RegisterScenario(Scenario{Name: "verdicts", Run: judgeVerdicts}) }

// verdicts are sets of options on which calve and Paimon Java have to agree: a table with them can be created, or it
// cannot. "stricter" says why calve alone refuses some of them.
var verdicts = []struct{ options, stricter string }{
	{options: "merge-engine=partial-update;fields.a.sequence-group=s"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=a"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=s,s"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=a,a"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=a,s"},
	{options: "merge-engine=partial-update;fields.a,b.sequence-group=s"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=s;fields.b.sequence-group=s"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=q"},
	{options: "merge-engine=partial-update;fields.q.sequence-group=a"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=s,x;fields.s.aggregate-function=listagg"},
	{options: "merge-engine=partial-update;fields.s.aggregate-function=listagg"},
	{options: "merge-engine=partial-update;ignore-delete=true;partial-update.remove-record-on-delete=true"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=s;partial-update.remove-record-on-sequence-group=s"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=s;partial-update.remove-record-on-sequence-group=a"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=s;fields.a,b.sequence-group=x",
		stricter: "which group the column is of depends on the order of Java's hash table"},
	{options: "merge-engine=partial-update;fields.a.sequence-group=id", stricter: "a key never changes"},
	{options: "fields.a.stats-mode=none"},
	{options: "fields.q.stats-mode=none"},
	{options: "fields.d.e.stats-mode=none"},
	{options: "fields.a.b.stats-mode=none"},
	{options: "merge-engine=aggregation;fields.d.e.aggregate-function=max"},
	{options: "merge-engine=aggregation;fields.default-aggregate-function=last_value"},
	{options: "merge-engine=aggregation;fields.a.aggregate-function=avg"},
	{options: "merge-engine=aggregation;sequence.field=a;fields.a.aggregate-function=max"},
	{options: "merge-engine=aggregation;fields.n.aggregate-function=max"},
	{options: "sequence.field=a,a"},
	{options: "sequence.field=a,b"},
	{options: "sequence.field=q"},
	{options: "merge-engine=first-row;sequence.field=a"},
	{options: "rowkind.field=q"},
	{options: "record-level.expire-time=1 d;record-level.time-field=s"},
	{options: "record-level.expire-time=1 d;record-level.time-field=a"},
	{options: "row-tracking.enabled=true"},
	{options: "bucket=0"},
	{options: "bucket=-1;bucket-key=id"},
	{options: "snapshot.num-retained.min=0"},
	{options: "snapshot.num-retained.min=5;snapshot.num-retained.max=3"},
}

// verdictColumns have a name with a dot, of which no part is a column, and one of which the first part is one.
var verdictColumns = []Column{{"id", "BIGINT NOT NULL"}, {"a", "INT"}, {"b", "INT"}, {"s", "STRING"}, {"x", "DOUBLE"}, {"n", "INT NOT NULL"}, {"d.e", "INT"}, {"a.b", "INT"}}

// judgeVerdicts lets both create tables.
func judgeVerdicts(ctx context.Context, l *Lab, report *Report) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("verdicts", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			var errs []error
			for i, v := range verdicts {
				h := &History{Columns: verdictColumns, Key: []string{"id"}, Options: map[string]string{}}
				for _, option := range strings.Split(v.options, ";") {
					name, value, _ := strings.Cut(option, "=")
					h.Options[name] = value
				}
				if h.Options["bucket"] == "" && h.Options["row-tracking.enabled"] == "" {
					h.Options["bucket"] = "1"
				}
				table := PaimonTable{Warehouse: l.Local().Warehouse, Name: fmt.Sprintf("verdicts.t%d", i)}
				theirs := (&javaSide{history: h, worker: java.Worker, table: table}).create(ctx)
				ours := creatable(h)
				if agree := (ours == nil) == (theirs == nil); agree != (v.stricter == "") || !agree && ours == nil {
					errs = append(errs, fmt.Errorf("%s: calve says %v, Java says %w", v.options, ours, theirs))
				}
			}
			return errors.Join(errs...)
		})
	}
}

// creatable says why calve does not create a table.
func creatable(h *History) error {
	spec := schema.Spec{PrimaryKeys: h.Key, Options: h.Options}
	ids := len(h.Columns)
	for _, c := range h.Columns {
		t, err := calveType(c.Type, &ids)
		if err != nil {
			return err
		}
		spec.Columns = append(spec.Columns, schema.Column{Name: c.Name, Type: t})
	}
	_, err := schema.New(spec)
	return err
}
