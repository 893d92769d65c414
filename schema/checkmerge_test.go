package schema

import "testing"

// TestMergeOptionErrors holds that what Paimon refuses about merging is refused, with the option named.
func TestMergeOptionErrors(t *testing.T) {
	const cols = "id BIGINT, a INT, b INT, s STRING, x BOOLEAN, y BYTES, z TIMESTAMP"
	cases := []struct{ options, want string }{
		{"merge-engine=newest", `"merge-engine" = "newest"`},
		{"sequence.field=a|a", `"sequence.field"`},
		{"sequence.field=a,merge-engine=first-row", `"sequence.field"`},
		{"sequence.field=a,sequence.field.sort-order=up", `"sequence.field.sort-order" = "up"`},
		{"sequence.field=a,merge-engine=aggregation,fields.a.aggregate-function=sum", `"fields.a.aggregate-function"`},
		{"rowkind.field=q", `"rowkind.field" = "q"`},
		{"rowkind.field=a", `"rowkind.field"`},
		{"ignore-delete=maybe", `"ignore-delete"`},
		{"record-level.expire-time=1 d", `"record-level.time-field"`},
		{"record-level.expire-time=0,record-level.time-field=a", `"record-level.expire-time"`},
		{"record-level.time-field=s", `"record-level.time-field"`},
		{"merge-engine=aggregation,fields.q.aggregate-function=sum", `"fields.q.aggregate-function"`},
		{"merge-engine=aggregation,fields.a.aggregate-function=avg", `"fields.a.aggregate-function" = "avg"`},
		{"merge-engine=aggregation,fields.default-aggregate-function=sum", `"fields.default-aggregate-function" = "sum"`},
		{"merge-engine=aggregation,fields.s.aggregate-function=sum", "sum is for numbers"},
		{"merge-engine=aggregation,fields.a.aggregate-function=listagg", "listagg is for STRING"},
		{"merge-engine=aggregation,fields.x.aggregate-function=max", "max cannot compare"},
		{"merge-engine=aggregation,fields.a.aggregate-function=bool_or", "bool_or is for BOOLEAN"},
		{"merge-engine=aggregation,fields.y.aggregate-function=rbm32", "does not know rbm32"},
		{"merge-engine=aggregation,fields.y.aggregate-function=hll_sketch", "does not know hll_sketch"},
		{"merge-engine=aggregation,aggregation.remove-record-on-delete=true,fields.a.ignore-retract=true", `"fields.a.ignore-retract"`},
		{"merge-engine=partial-update,fields.a.sequence-group=q", `"fields.a.sequence-group"`},
		{"merge-engine=partial-update,fields.q.sequence-group=a", `"fields.q.sequence-group"`},
		{"merge-engine=partial-update,fields.a.sequence-group=id", "part of the primary key"},
		{"merge-engine=partial-update,fields.a.sequence-group=s,fields.b.sequence-group=s", "a column is in one group"},
		{"merge-engine=partial-update,fields.a.sequence-group=s|s", `"s" is in option`},
		{"merge-engine=partial-update,fields.a.sequence-group=a|a", "twice"},
		{"merge-engine=partial-update,fields.a.sequence-group=a|s", ""},
		{"merge-engine=partial-update,fields.a.sequence-group=s,fields.a|b.sequence-group=x", "a column is in one group"},
		{"merge-engine=partial-update,fields.a.sequence-group=b,fields.b.sequence-group=x", "a column is in one group"},
		{"merge-engine=partial-update,fields.a.sequence-group=s,fields.a.aggregate-function=max", `"fields.a.aggregate-function"`},
		{"merge-engine=partial-update,fields.a.aggregate-function=sum", "no sequence group"},
		{"merge-engine=partial-update,ignore-delete=true,partial-update.remove-record-on-delete=true", `"partial-update.remove-record-on-delete"`},
		{"merge-engine=partial-update,fields.a.sequence-group=s,partial-update.remove-record-on-delete=true", `"partial-update.remove-record-on-delete"`},
		{"merge-engine=partial-update,fields.a.sequence-group=s,partial-update.remove-record-on-sequence-group=s", `"partial-update.remove-record-on-sequence-group"`},
		{"merge-engine=partial-update,ignore-delete=true,fields.a.sequence-group=s,partial-update.remove-record-on-sequence-group=a", `"partial-update.remove-record-on-sequence-group"`},
		{"merge-engine=first-row,changelog-producer=input", `"changelog-producer"`},
		{"merge-engine=aggregation,fields.a.aggregate-function=sum,fields.s.aggregate-function=listagg,fields.s.distinct=true", ""},
		{"merge-engine=partial-update,fields.a|b.sequence-group=s|x,fields.s.aggregate-function=last_value,partial-update.remove-record-on-sequence-group=b", ""},
		{"merge-engine=partial-update,fields.a.aggregate-function=last_non_null_value", ""},
		{"merge-engine=first-row,first-row.ignore-delete=true", ""},
		{"record-level.expire-time=1 d,record-level.time-field=z,sequence.field=z|a,rowkind.field=s", ""},
	}
	for _, c := range cases {
		_, err := New(Spec{Columns: columns(t, cols), PrimaryKeys: []string{"id"}, Options: optionMap(c.options)})
		wantError(t, c.options, err, c.want)
	}
}

// TestIgnoreRetractNeedsAFunction: without a function of its own, a column of a sequence group is emptied by a delete,
// whatever its ignore-retract says, as in Paimon.
func TestIgnoreRetractNeedsAFunction(t *testing.T) {
	cols, err := ParseColumns("k INT NOT NULL, s INT, a INT, b INT")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Spec{Columns: cols, PrimaryKeys: []string{"k"}, Options: map[string]string{"merge-engine": "partial-update",
		"fields.s.sequence-group": "a,b", "fields.a.ignore-retract": "true", "fields.b.ignore-retract": "true", "fields.b.aggregate-function": "sum"}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := s.Aggregate(o, "a"), s.Aggregate(o, "b"); a.IgnoreRetract || a.Function != "" || !b.IgnoreRetract || b.Function != "sum" {
		t.Errorf("a: %+v, b: %+v", a, b)
	}
}
