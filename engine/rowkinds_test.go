package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestKindsAreObeyed writes rows of all kinds into tables whose options drop some of them, or name them in a column.
func TestKindsAreObeyed(t *testing.T) {
	all := []row{
		{kind: schema.Insert, part: "+I", id: 1, name: "a"}, {kind: schema.UpdateBefore, part: "-U", id: 2, name: "b"},
		{kind: schema.UpdateAfter, part: "+U", id: 3, name: "c"}, {kind: schema.Delete, part: "-D", id: 4, name: "d"},
	}
	inserts := slices.Clone(all)
	for i := range inserts {
		inserts[i].kind = schema.Insert
	}
	cases := []struct {
		name    string
		options map[string]string
		rows    []row
		want    string // what the stream tells
	}{
		{"all", nil, all, "+I1 -U2 +U3 -D4"},
		{"ignore-delete", map[string]string{"ignore-delete": "true"}, all, "+I1 +U3"},
		{"ignore-update-before", map[string]string{"ignore-update-before": "true"}, all, "+I1 +U3 -D4"},
		{"rowkind.field", map[string]string{"rowkind.field": "p"}, inserts, "+I1 -U2 +U3 -D4"},
		{"both", map[string]string{"rowkind.field": "p", "ignore-delete": "true"}, inserts, "+I1 +U3"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			st := storage.NewMem()
			s := keyedSchema(t, false, c.options)
			mustCreate(t, st, s)
			tab := mustOpen(t, st, engine.Settings{})
			if err := tab.Write(t.Context(), batchOf(s, c.rows)); err != nil {
				t.Fatal(err)
			}
			if _, err := tab.Commit(t.Context(), progress(1)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for ch, err := range readerOf(st).Tail(t.Context(), reader.TailSpec{From: reader.Start{Mode: reader.Earliest}}) {
				if err != nil {
					t.Fatal(err)
				}
				if ch.Complete {
					break
				}
				for i := range int(ch.Rec.NumRows()) {
					kind := schema.Insert
					if ch.RowKinds != nil {
						kind = ch.RowKinds[i]
					}
					got = append(got, fmt.Sprintf("%s%v", kind, schema.Cell(ch.Rec.Column(1), i)))
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// TestKindsThatCannotBeMerged are refused when they are written, not when a compaction meets them.
func TestKindsThatCannotBeMerged(t *testing.T) {
	cases := []struct {
		options map[string]string
		row     row
		want    string
	}{
		{map[string]string{"merge-engine": "first-row"}, row{kind: schema.Delete, id: 1}, `"ignore-delete"`},
		{map[string]string{"merge-engine": "partial-update"}, row{kind: schema.UpdateBefore, id: 1}, `"ignore-delete"`},
		{map[string]string{"merge-engine": "aggregation", "fields.p.aggregate-function": "max"}, row{kind: schema.Delete, id: 1}, `"fields.p.ignore-retract"`},
		{map[string]string{"merge-engine": "aggregation"}, row{kind: schema.Delete, id: 1}, `"p" is NOT NULL`},
		{map[string]string{"merge-engine": "aggregation", "fields.p.aggregate-function": "max", "fields.p.ignore-retract": "true"}, row{kind: schema.UpdateBefore, id: 1}, `"p" is NOT NULL`},
		{map[string]string{"rowkind.field": "p"}, row{part: "I", id: 1}, `"I"`},
	}
	for _, c := range cases {
		s := keyedSchema(t, false, c.options)
		st := storage.NewMem()
		mustCreate(t, st, s)
		tab := mustOpen(t, st, engine.Settings{})
		err := tab.Write(t.Context(), batchOf(s, []row{c.row}))
		if !errors.Is(err, engine.ErrRows) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %s", c.options, err, c.want)
		}
	}
}
