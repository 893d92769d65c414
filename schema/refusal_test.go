package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRefusals: which rows a table cannot take, by kind and by their values.
func TestRefusals(t *testing.T) {
	const group = "merge-engine=partial-update,fields.s.sequence-group=n|a"
	cases := []struct {
		options             string
		add, before, delete string // what the reasons say, and for which rows; "": nothing is refused
	}{
		{"", "", "", ""},
		{"merge-engine=first-row", "", `"ignore-delete"`, `"ignore-delete"`},
		{"merge-engine=first-row,ignore-delete=true", "", "", ""},
		{"merge-engine=partial-update", "", `"ignore-delete"`, `"ignore-delete"`},
		{"merge-engine=partial-update,ignore-update-before=true", "", "", `"ignore-delete"`},
		{"merge-engine=partial-update,partial-update.remove-record-on-delete=true", "", "", ""},
		{"merge-engine=partial-update,fields.s.sequence-group=a", "", "", ""},
		{"merge-engine=partial-update,fields.s.sequence-group=a,fields.a.aggregate-function=max", "", `set[3] column "a" is merged with max`, `set[3] column "a" is merged with max`},
		{"merge-engine=partial-update,fields.s.sequence-group=a,fields.a.aggregate-function=product", "", `zero[1]`, `zero[1]`},
		// A NOT NULL member of a group: the group is left out while its sequence is null, and emptied by a retract.
		{group, `null[3] column "n" is NOT NULL`, `set[3] column "n" is NOT NULL`, `set[3] column "n" is NOT NULL`},
		{group + ",partial-update.remove-record-on-sequence-group=s", `null[3]`, `set[3]`, ""},
		{group + ",partial-update.remove-record-on-sequence-group=s,fields.n.aggregate-function=last_value", `null[3]`, `set[3]`, `set[3]`},
		{group + ",fields.n.aggregate-function=sum", `null[3]`, "", ""},
		{"merge-engine=partial-update,fields.m|s.sequence-group=n", "", `set[4 3]`, `set[4 3]`},
		// Aggregation: of what takes values back, sum alone always has one.
		{"merge-engine=aggregation", "", `"n" is NOT NULL`, `"n" is NOT NULL`},
		{"merge-engine=aggregation,aggregation.remove-record-on-delete=true", "", `"n" is NOT NULL`, ""},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum", "", "", ""},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum,fields.n.ignore-retract=true", "", `"n" is NOT NULL`, `"n" is NOT NULL`},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum,fields.a.ignore-retract=true", "", "", ""},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum,fields.n.aggregate-function=product", "", `"n" is NOT NULL`, `"n" is NOT NULL`},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum,fields.a.aggregate-function=product", "", "zero[1]", "zero[1]"},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum,fields.a.aggregate-function=max", "", `"fields.a.ignore-retract"`, `"fields.a.ignore-retract"`},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum,fields.a.aggregate-function=max,fields.a.ignore-retract=true", "", "", ""},
	}
	for _, c := range cases {
		s, err := New(Spec{Columns: columns(t, "id BIGINT, a INT, n INT NOT NULL, s INT, m INT NOT NULL"), PrimaryKeys: []string{"id"}, Options: optionMap(c.options)})
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.ParseOptions()
		if err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[RowKind]string{Insert: c.add, UpdateAfter: c.add, UpdateBefore: c.before, Delete: c.delete} {
			got := s.Refusals(o)[kind]
			if (want == "") != (len(got) == 0) || !slices.ContainsFunc(got, func(f Refusal) bool { return strings.Contains(told(f), want) }) && want != "" {
				t.Errorf("%s, %s: %v, want %q", c.options, kind, got, want)
			}
		}
	}
}

func told(f Refusal) string {
	if f.When == RefuseAlways {
		return f.Why
	}
	return []string{"", "null", "set", "zero"}[f.When] + fmt.Sprint(f.Columns) + " " + f.Why
}
