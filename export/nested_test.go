package export

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestNestedSchema: nested types keep the ids that their parts have in Parquet, hostile names included.
func TestNestedSchema(t *testing.T) {
	mem := storage.NewMem()
	w := newWorld(t, mem, schema.Spec{Columns: columns(t,
		"k INT, a ARRAY<ARRAY<INT NOT NULL>>, m MAP<STRING, ROW<x INT, `y \"é.%` ARRAY<DATE>>>, c MULTISET<STRING>, `r.s` ROW<z ROW<deep TIMESTAMP(6)> NOT NULL>")})
	e := w.exporter()
	const row = `{"k":1,"a":[[1],[],null],"m":[{"key":"x","value":{"x":7,"y \"é.%":["2024-05-14",null]}}],"c":[{"key":"y","value":2}],"r.s":{"z":{"deep":"1969-12-31T23:59:59.999999"}}}`
	w.commit(manifest.Append, w.write(w.part(0), 0, row, `{"k":2}`))
	w.publish(e, 0)
	tab := w.check()
	s := tab.Metadata().CurrentSchema()
	if got := scanned(t, mem, ScanSpec{}); len(got) != 2 || !strings.Contains(got[0], "2024-05-14") {
		t.Errorf("rows %q", got)
	}
	const base = 536870911
	ids := map[string]int{"a": 2, "a.element": base + 2*1024 + 1, "a.element.element": base + 2*1024 + 2, "m": 3, "m.key": base - 3*1024 - 1,
		"m.value": base + 3*1024 + 1, "m.value.x": 4, "m.value.y \"é.%": 5, "m.value.y \"é.%.element": base + 5*1024 + 1,
		"c.key": base - 6*1024 - 1, "c.value": base + 6*1024 + 1, "r.s": 7, "r.s.z": 9, "r.s.z.deep": 8}
	for name, id := range ids {
		f, ok := s.FindFieldByName(name)
		if !ok || f.ID != id {
			t.Errorf("%s has id %d, want %d", name, f.ID, id)
		}
	}
	if last := tab.Metadata().LastColumnID(); last != base+6*1024+1 && last != base+5*1024+1 {
		t.Errorf("last column id %d", last)
	}
}

// TestNestedRefusals: what Iceberg cannot hold is refused with the place named.
func TestNestedRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"c ARRAY<TIME(3)>": "element", "c ROW<x ROW<y TIMESTAMP(9)>>": `field "y"`, "c MAP<TIMESTAMP(3), INT>": "key",
		"c MULTISET<VARIANT>": "key", "c VARIANT": "VARIANT", "c MAP<INT, ROW<v VARIANT>>": `value: field "v"`,
	} {
		s, err := schema.New(schema.Spec{Columns: columns(t, "k INT, "+text)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = icebergSchema(s)
		if err == nil || !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"c"`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestNestedEvolution: files of an older schema can stay if their nested types can be read as the new ones.
func TestNestedEvolution(t *testing.T) {
	field := func(id int, name string, t iceberg.Type) iceberg.NestedField {
		return iceberg.NestedField{ID: id, Name: name, Type: t}
	}
	row := func(fields ...iceberg.NestedField) iceberg.Type { return &iceberg.StructType{FieldList: fields} }
	list := func(id int, t iceberg.Type) iceberg.Type { return &iceberg.ListType{ElementID: id, Element: t} }
	small, big, text := iceberg.PrimitiveTypes.Int32, iceberg.PrimitiveTypes.Int64, iceberg.PrimitiveTypes.String
	must := field(9, "n", small)
	must.Required = true
	for i, c := range []struct {
		old, now iceberg.Type
		ok       bool
	}{
		{row(field(1, "a", small)), row(field(2, "new", text), field(1, "b", big)), true},
		{row(field(1, "a", big)), row(field(1, "a", small)), false}, {row(field(1, "a", big)), row(must), false},
		{list(1, row(field(2, "a", small))), list(1, row(field(2, "a", big))), true}, {list(1, small), list(3, small), false},
		{list(1, small), small, false}, {row(field(1, "a", list(5, text))), row(field(1, "a", list(5, small))), false},
		{&iceberg.MapType{KeyID: 1, KeyType: text, ValueID: 2, ValueType: small}, &iceberg.MapType{KeyID: 1, KeyType: text, ValueID: 2, ValueType: big}, true},
	} {
		if got := promotable(c.old, c.now); got != c.ok {
			t.Errorf("case %d: %s to %s: %v", i, c.old, c.now, got)
		}
	}
}
