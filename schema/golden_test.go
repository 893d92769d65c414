package schema

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// goldenSchemas reads testdata/paimon: the schema files of tables made by Paimon 1.3.1, named TABLE-schema-N.json.
func goldenSchemas(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/paimon/*.json")
	if err != nil || len(files) < 30 {
		t.Fatalf("golden schemas: %d files, %v", len(files), err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".json")] = data
	}
	return out
}

func TestGoldenRoundTrip(t *testing.T) {
	for name, data := range goldenSchemas(t) {
		s, err := Parse(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		encoded, err := s.Encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want, got any
		if json.Unmarshal(data, &want) != nil || json.Unmarshal(encoded, &got) != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s: encoded again it differs:\n%s", name, encoded)
		}
		if w, g := keyOrder(t, data), keyOrder(t, encoded); !slices.Equal(w, g) {
			t.Errorf("%s: keys\n%v\nnot in Paimon's order\n%v", name, g, w)
		}
		again, err := Parse(encoded)
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%s: parsed again it differs (%v)", name, err)
		}
	}
}

// keyOrder lists all object keys in their order, without those of the options, which Paimon writes in no order.
func keyOrder(t *testing.T, data []byte) []string {
	t.Helper()
	var out []string
	d := json.NewDecoder(bytes.NewReader(data))
	type level struct{ object, key bool }
	stack := []level{}
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		isKey := len(stack) > 0 && stack[len(stack)-1].object && stack[len(stack)-1].key
		if s, ok := tok.(string); ok && isKey {
			out = append(out, s)
			stack[len(stack)-1].key = false
			if s == "options" {
				var skip map[string]string
				if err := d.Decode(&skip); err != nil {
					t.Fatal(err)
				}
				stack[len(stack)-1].key = true
			}
			continue
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			stack = append(stack, level{object: tok == json.Delim('{'), key: true})
			continue
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 {
			stack[len(stack)-1].key = true
		}
	}
}

// TestGoldenChecks says for every golden table what calve may do with it, and what the refusal must name.
func TestGoldenChecks(t *testing.T) {
	cases := map[string]struct{ read, write string }{
		"append_all_types-schema-0":             {"", ""},
		"append_bloom-schema-0":                 {"", ""},
		"append_only-schema-0":                  {"", ""},
		"append_row_tracking-schema-0":          {"", ""},
		"append_unaware-schema-0":               {"", ""},
		"pk_aggregation-schema-0":               {"", ""},
		"pk_all_types-schema-0":                 {"", ""},
		"pk_changelog_full_compaction-schema-0": {"", ""},
		"pk_changelog_input-schema-0":           {"", ""},
		"pk_changelog_lookup-schema-0":          {"", ""},
		"pk_deletion_vectors-schema-0":          {"", ""},
		"pk_deletion_vectors64-schema-0":        {"", ""},
		"pk_dynamic_bucket-schema-0":            {"", ""},
		"pk_first_row-schema-0":                 {"", ""},
		"pk_fixed-schema-0":                     {"", ""},
		"pk_iceberg-schema-0":                   {"", `"metadata.iceberg.storage"`},
		"pk_iceberg_dv3-schema-0":               {"", `"metadata.iceberg.storage"`},
		"pk_overwrite-schema-0":                 {"", ""},
		"pk_partial_update-schema-0":            {"", ""},
		"pk_partial_update_seqgroup-schema-0":   {"", ""},
		"pk_partitioned-schema-0":               {"", ""},
		"pk_postpone-schema-0":                  {"", `"bucket"`},
		"pk_schema_evolution-schema-0":          {"", ""},
		"pk_schema_evolution-schema-1":          {"", ""},
		"pk_schema_evolution-schema-2":          {"", ""},
		"pk_schema_evolution-schema-3":          {"", ""},
		"pk_schema_evolution-schema-4":          {"", ""},
		"pk_schema_evolution-schema-5":          {"", ""},
		"pk_sequence_field-schema-0":            {"", ""},
		"pk_tag_branch_consumer-schema-0":       {"", ""},
		"pk_thin-schema-0":                      {"", ""},
	}
	all := goldenSchemas(t)
	if len(all) != len(cases) {
		t.Errorf("%d golden schemas, %d cases", len(all), len(cases))
	}
	for name, c := range cases {
		s, err := Parse(all[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantError(t, name+" read", s.CheckReadable(), c.read)
		wantError(t, name+" write", s.CheckWritable(), c.write)
	}
}

// wantError checks that the error holds the text; "" means that there must be none.
func wantError(t *testing.T, what string, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case text != "" && err == nil:
		t.Errorf("%s: no error, one about %s is expected", what, text)
	case text != "" && !strings.Contains(err.Error(), text):
		t.Errorf("%s: error %q does not say %s", what, err, text)
	}
}

func TestGoldenKeys(t *testing.T) {
	thin, err := Parse(goldenSchemas(t)["pk_thin-schema-0"])
	if err != nil {
		t.Fatal(err)
	}
	if got := thin.Names(thin.KeyColumns()); !slices.Equal(got, []string{"k", "k2"}) {
		t.Errorf("key of pk_thin is %v", got)
	}
	part, err := Parse(goldenSchemas(t)["pk_partitioned-schema-0"])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range part.Names(part.KeyColumns()) {
		if slices.Contains(part.PartitionKeys, n) {
			t.Errorf("partition column %q is in the trimmed primary key", n)
		}
	}
	if got := part.Names(part.PartitionColumns()); !slices.Equal(got, part.PartitionKeys) {
		t.Errorf("partition columns are %v, not %v", got, part.PartitionKeys)
	}
	if got := part.Types(part.PartitionColumns()); len(got) != len(part.PartitionKeys) || got[0].Root != Date || !part.Partitioned() {
		t.Errorf("partition types %v, partitioned %v", got, part.Partitioned())
	}
	for i, f := range part.Fields {
		if at, ok := part.FieldByID(f.ID); at != i || !ok {
			t.Errorf("id %d is found at %d, %v", f.ID, at, ok)
		}
	}
	if at, ok := part.FieldByID(999); ok {
		t.Errorf("id 999 is found at %d", at)
	}
	app, err := Parse(goldenSchemas(t)["append_only-schema-0"])
	if err != nil {
		t.Fatal(err)
	}
	if got := app.Names(app.BucketColumns()); !slices.Equal(got, []string{"k"}) || app.Keyed() || len(app.KeyColumns()) != 0 {
		t.Errorf("append_only: bucket columns %v, keyed %v, key %v", got, app.Keyed(), app.KeyColumns())
	}
}
