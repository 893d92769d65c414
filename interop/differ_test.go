//go:build interop

package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestHistoriesAreRepeatable(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(300) {
		h, refused := generate(seed)
		if again, _ := generate(seed); !reflect.DeepEqual(h, again) {
			t.Fatalf("seed %d makes two histories:\n%s\n%s", seed, h.Script(), again.Script())
		}
		if len(h.Steps) < 3 || len(h.Steps[0].Changes) == 0 {
			t.Fatalf("seed %d makes a dull history:\n%s", seed, h.Script())
		}
		m, err := newDifferModel(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range h.Steps {
			if err := m.apply(s.Changes); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, h.Script())
			}
		}
		if _, err := m.table(); err != nil && !slices.Contains(h.Features, "schema-changes") { // which need a table to follow
			t.Fatalf("seed %d: %v", seed, err)
		}
		if h.Refusal != nil {
			t.Errorf("seed %d: %v", seed, h.Refusal)
		}
		for _, f := range append(h.Features, refused...) {
			seen[f] = true
		}
	}
	for _, d := range dimensions {
		if !seen[d.name] {
			t.Errorf("no history of 300 has %s", d.name)
		}
	}
}

func TestNestedKinds(t *testing.T) {
	const words = "ROW<`a` ARRAY<DECIMAL(10, 2) NOT NULL> NOT NULL, `b` MAP<STRING NOT NULL, ROW<`x` BYTES, `y` TIME(3)>>>"
	k, err := ParseKind(words + " NOT NULL")
	if err != nil || !k.NotNull || len(k.Fields) != 2 || !k.Fields[0].NotNull || k.Fields[1].Fields[1].Fields[1].Word != "TIME" {
		t.Fatalf("%+v, %v", k, err)
	}
	ids := 0
	text, err := json.Marshal(k.json(&ids))
	if err != nil || ids != 4 || !strings.Contains(string(text), `"element":"DECIMAL(10, 2) NOT NULL"`) {
		t.Errorf("%s, %d ids, %v", text, ids, err)
	}
	value := func(m1, m2 string) map[string]any {
		row, err := decodeObject([]byte(`{"v": {"a": ["1.50", "0"], "b": [` + m1 + `, ` + m2 + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	java := value(`["x", {"x": "ff00", "y": 1500}]`, `["null", null]`)
	calve := fromCalve(value(`["null", null]`, `["x", {"x": "/wA=", "y": "00:00:01.500"}]`), []Column{{"v", words}})
	a, err := k.Cell(java["v"])
	if err != nil {
		t.Fatal(err)
	}
	b, err := k.Cell(calve["v"])
	if err != nil || a != b {
		t.Errorf("%s, %v, want %s", b.Text, err, a.Text)
	}
	put, err := k.toCalve(java["v"])
	if err != nil || !strings.Contains(fmt.Sprint(put), "/wA=") || !strings.Contains(fmt.Sprint(java["v"]), "ff00") {
		t.Errorf("%v, %v", put, err)
	}
	for _, wrong := range []string{"ARRAY<INT", "MAP<INT>", "ROW<a INT>", "ARRAY<INT> x", "ARRAY<>"} {
		if _, err := ParseKind(wrong); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}

func TestNestedValuesOfTrino(t *testing.T) {
	k, err := ParseKind("ROW<`a` ARRAY<BYTES>, `b` MAP<INT NOT NULL, ROW<`x` BIGINT>>, `c` MULTISET<STRING NOT NULL>>")
	if err != nil {
		t.Fatal(err)
	}
	row, err := decodeObject([]byte(`{"v": [["/wA=", null], {"7": [1], "-1": null}, {"z": 2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.fromTrino(row["v"])
	if err != nil {
		t.Fatal(err)
	}
	c, err := k.Cell(got)
	want, err2 := k.Cell(map[string]any{"a": []any{"ff00", nil}, "b": []any{[]any{-1, nil}, []any{7, map[string]any{"x": 1}}}, "c": []any{[]any{"z", 2}}})
	if err != nil || err2 != nil || c != want {
		t.Errorf("%s %v, want %s %v", c.Text, err, want.Text, err2)
	}
	for _, wrong := range []any{"x", []any{1}, []any{[]any{}, []any{}, nil}} {
		if got, err := k.fromTrino(wrong); err == nil {
			t.Errorf("%v gives %v", wrong, got)
		}
	}
	if got, err := k.fromTrino(nil); got != nil || err != nil {
		t.Error(got, err)
	}
}

func TestModelOfHistories(t *testing.T) {
	h := &History{Columns: []Column{{"k", "INT NOT NULL"}, {"p", "STRING NOT NULL"}, {"v", "INT"}}, Key: []string{"k", "p"}}
	row := func(k int, p string, v any) map[string]any { return map[string]any{"k": k, "p": p, "v": v} }
	m, err := newDifferModel(h)
	if err != nil {
		t.Fatal(err)
	}
	err = m.apply([]Op{{"+I", row(1, "a", 1)}, {"+I", row(2, "a", 1)}, {"+U", row(1, "a", nil)}, {"-U", row(2, "a", 1)},
		{"+I", row(3, "b", 3)}, {"-D", row(4, "b", 3)}})
	if err == nil {
		err = m.overwrite(&HistoryStep{Spec: map[string]string{"p": "b"}, Changes: []Op{{"+I", row(5, "b", 5)}}}, []string{"p"})
	}
	if err == nil {
		err = m.overwrite(&HistoryStep{Touched: true, Changes: []Op{{"+I", row(6, "b", 6)}}}, []string{"p"})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.table()
	if err != nil {
		t.Fatal(err)
	}
	want, err := NewRows(h.Columns)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []map[string]any{row(1, "a", nil), row(6, "b", 6)} {
		if err := want.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := want.Compare(got); err != nil {
		t.Error(err)
	}
}

// The shrinker gets histories that fail when a step by Java follows a write with a certain value.
func TestShrink(t *testing.T) {
	shrunk := 0
	for seed := uint64(0); shrunk < 5; seed++ {
		h, _ := generate(seed)
		var needle string
		for _, c := range h.Columns {
			if c.Type == "STRING" {
				needle = c.Name
			}
		}
		plays := 0
		try := func(h *History) *disagreement {
			plays++
			met := false
			for i, s := range h.Steps {
				if met && s.By == byJava {
					return &disagreement{i + 1, "rows", errors.New("differ")}
				}
				for _, op := range s.Changes {
					text, _ := op.Row[needle].(string)
					met = met || strings.Contains(text, "a")
				}
			}
			return nil
		}
		found := try(h)
		if needle == "" || found == nil {
			continue
		}
		shrunk++
		small, left := shrink(t.Context(), h, found, try)
		if left.What != "rows" || len(small.Steps) != 2 || len(small.Steps[0].Changes) != 1 || len(small.Options) != 0 ||
			len(small.Steps[1].Changes) > 1 {
			t.Errorf("seed %d is still large after %d plays:\n%s", seed, plays, small.Script())
		}
		if again, _ := generate(seed); !reflect.DeepEqual(h, again) {
			t.Errorf("seed %d: the shrinker changed the history that it was given", seed)
		}
	}
}
