package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// change reads the changes of tests: "add c INT after x", "drop c", "rename a=b", "move c first", "type c BIGINT",
// "null c", "notnull c", "comment c=text", "set k=v", "unset k", "table text".
func change(t testing.TB, text string) Change {
	t.Helper()
	word, rest, _ := strings.Cut(text, " ")
	var c Change
	var path []string
	var right string
	var err error
	switch word {
	case "add":
		c, err = ParseAddColumn(rest)
	case "type":
		c, err = ParseChangeType(rest)
	case "move":
		c, err = ParseMove(rest)
	case "drop":
		path, err = ParsePath(rest)
		c = DropColumn{path}
	case "null", "notnull":
		path, err = ParsePath(rest)
		c = ChangeNullability{path, word == "notnull"}
	case "rename":
		path, right, err = ParseAssign(rest)
		c = RenameColumn{path, right}
	case "comment":
		path, right, err = ParseAssign(rest)
		c = ChangeComment{path, right}
	case "set":
		k, v, _ := strings.Cut(rest, "=")
		c = SetOption{k, v}
	case "unset":
		c = RemoveOption{rest}
	case "table":
		c = SetTableComment{rest}
	default:
		t.Fatalf("no change %q", text)
	}
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return c
}

func changes(t testing.TB, text string) []Change {
	t.Helper()
	var out []Change
	for _, one := range strings.Split(text, "; ") {
		out = append(out, change(t, one))
	}
	return out
}

// shape writes columns as "name#id TYPE, …".
func shape(s *Schema) string {
	var out []string
	for _, f := range s.Fields {
		out = append(out, fmt.Sprintf("%s#%d %s", f.Name, f.ID, f.Type))
	}
	return strings.Join(out, ", ")
}

func keyedTable(t testing.TB, options string) *Schema {
	t.Helper()
	s, err := New(Spec{Columns: columns(t, "id BIGINT, dt DATE, a INT COMMENT 'x', s STRING, n DOUBLE NOT NULL"),
		PrimaryKeys: []string{"id", "dt"}, PartitionKeys: []string{"dt"}, Options: optionMap(options)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAlterColumns(t *testing.T) {
	const same = ""
	for _, c := range []struct{ do, want string }{
		{"add b INT", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 DOUBLE NOT NULL, b#6 INT"},
		{"add b INT first", "b#6 INT, id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 DOUBLE NOT NULL"},
		{"add b INT after id", "id#1 BIGINT NOT NULL, b#6 INT, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 DOUBLE NOT NULL"},
		{"add b INT comment 'y' before n", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, b#6 INT, n#5 DOUBLE NOT NULL"},
		{"set add-column-before-partition=true; add b INT", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 DOUBLE NOT NULL, b#6 INT"},
		{"add a INT", same}, {"add a INT last", same}, {"add a INT comment 'x'", same},
		{"drop a", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, s#4 STRING, n#5 DOUBLE NOT NULL"},
		{"drop a; add a INT", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, s#4 STRING, n#5 DOUBLE NOT NULL, a#6 INT"},
		{"rename a=b; rename s=a; type a BYTES; add s DATE first",
			"s#6 DATE, id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, b#3 INT, a#4 BYTES, n#5 DOUBLE NOT NULL"},
		{"rename id=key", "key#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 DOUBLE NOT NULL"},
		{"rename a=a", same},
		{"move n first", "n#5 DOUBLE NOT NULL, id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING"},
		{"move id after a", "dt#2 DATE NOT NULL, a#3 INT, id#1 BIGINT NOT NULL, s#4 STRING, n#5 DOUBLE NOT NULL"},
		{"move s before dt", "id#1 BIGINT NOT NULL, s#4 STRING, dt#2 DATE NOT NULL, a#3 INT, n#5 DOUBLE NOT NULL"},
		{"move a after dt", same}, {"move n last", same}, {"move id first", same},
		{"type a BIGINT", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 BIGINT, s#4 STRING, n#5 DOUBLE NOT NULL"},
		{"type n DECIMAL(10,2)", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 DECIMAL(10, 2) NOT NULL"},
		{"type n STRING NULL", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 STRING"},
		{"type id BIGINT", same}, {"type a INT", same},
		{"null n", "id#1 BIGINT NOT NULL, dt#2 DATE NOT NULL, a#3 INT, s#4 STRING, n#5 DOUBLE"},
		{"null a", same}, {"notnull n", same}, {"comment a=x", same}, {"unset nothing", same}, {"set bucket=1", same},
		{"table ", same},
	} {
		old := keyedTable(t, "")
		before := shape(old)
		got, err := old.Alter(changes(t, c.do), Past{Snapshots: true}, 77)
		if err != nil {
			t.Errorf("%s: %v", c.do, err)
			continue
		}
		if shape(old) != before {
			t.Errorf("%s changed the old schema", c.do)
		}
		if c.want == same {
			if got != old {
				t.Errorf("%s: schema %d: %s", c.do, got.ID, shape(got))
			}
			continue
		}
		if shape(got) != c.want || got.ID != 1 || got.TimeMillis != 77 {
			t.Errorf("%s: schema %d: %s", c.do, got.ID, shape(got))
		}
		if !strings.Contains(c.do, "drop") && !strings.Contains(c.do, "rename a=b") {
			again, err := got.Alter(changes(t, c.do), Past{Snapshots: true, Older: func() ([]*Schema, error) { return []*Schema{old}, nil }}, 88)
			if err != nil || again != got {
				t.Errorf("%s twice: %v, not what it was", c.do, err)
			}
		}
	}
}

// TestAlterAgain: what is done already is told from what never was by the earlier schemas.
func TestAlterAgain(t *testing.T) {
	first := keyedTable(t, "")
	second, err := first.Alter(changes(t, "drop a; rename s=t"), Past{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	past := Past{Older: func() ([]*Schema, error) { return []*Schema{first}, nil }}
	if got, err := second.Alter(changes(t, "drop a; rename s=t"), past, 2); err != nil || got != second {
		t.Errorf("the same again: %v", err)
	}
	_, err = second.Alter(changes(t, "rename s=u"), past, 2)
	wantError(t, "another rename of what is gone", err, `there is no column "s"`)
	_, err = second.Alter(changes(t, "drop zz"), past, 2)
	wantError(t, "drop of what never was", err, `there is no column "zz"; the table has id, dt, t, n`)
	broken := errors.New("broken")
	_, err = second.Alter(changes(t, "drop zz"), Past{Older: func() ([]*Schema, error) { return nil, broken }}, 2)
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestAlterRefusals(t *testing.T) {
	for _, c := range []struct{ options, do, want string }{
		{"", "add b INT NOT NULL", "must allow nulls"},
		{"", "add a BIGINT", `there is a column "a" already, of type INT`},
		{"", "add b INT after zz", `no column "zz" to stand beside`},
		{"", "add _KEY_x INT", "_KEY_"}, {"", "add rowkind STRING", "rowkind"},
		{"", "add a.b INT", "no members"}, {"", "add zz.b INT", `no column "zz"`},
		{"", "drop id", "primary key column"}, {"", "drop dt", "partition key column"}, {"", "drop zz", "no column"},
		{"", "rename dt=d", "partition column"}, {"", "rename a=s", `there is a column "s" already`}, {"", "rename a=_LEVEL", "_LEVEL"},
		{"", "rename zz=a", "no column"}, {"", "move zz first", "no column"}, {"", "move a after a", "beside itself"}, {"", "move a before zz", "no column"},
		{"", "type id INT", "primary key column"}, {"", "type dt STRING", "partition key column"}, {"", "type a BYTES", "INT cannot be read as BYTES"},
		{"", "type s INT NOT NULL", "nulls were allowed"}, {"", "type zz INT", "no column"}, {"", "type a.b INT", `has no "b"`},
		{"disable-explicit-type-casting=true", "type s INT", "disable-explicit-type-casting"},
		{"", "notnull a", "alter-column-null-to-not-null.disabled"}, {"", "null id", "never null"}, {"", "notnull zz", "no column"},
		{"", "comment zz=x", "no column"},
		{"", "set bucket=-1", "between fixed numbers"}, {"", "set bucket=x", "not a number"}, {"", "set bucket=0", "must not be 0"},
		{"", "set merge-engine=aggregation", `"merge-engine" cannot change once`}, {"", "set primary-key=a", "when it is created"},
		{"", "set path=x", "cannot be moved"}, {"", "set buckets=3", "none that calve or Paimon knows"},
		{"", "set partition.legacy-name=true", "folders of the partitions"}, {"", "unset partition.legacy-name", "folders of the partitions"},
		{"", "set deletion-vectors.enabled=true", "deletion-vectors.modifiable"},
		{"", "unset bucket", "left open"}, {"data-file.path-directory=d", "unset data-file.path-directory", "cannot change once"},
		{"", "set changelog-producer=diff", "changelog"}, {"", "set file.compression=lzo", "lzo"}, {"", "set num-levels=x", "num-levels"},
		{"fields.s.stats-mode=none", "drop s", `speaks of the column "s"`},
	} {
		_, err := keyedTable(t, c.options).Alter(changes(t, c.do), Past{Snapshots: true}, 0)
		wantError(t, c.do, err, c.want)
		if err != nil && !errors.Is(err, ErrAlter) {
			t.Errorf("%s: %v is no ErrAlter", c.do, err)
		}
	}
	bucketed, err := New(Spec{Columns: columns(t, "a INT, b INT"), Options: optionMap("bucket=2,bucket-key=a")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bucketed.Alter(changes(t, "type a BIGINT"), Past{}, 0)
	wantError(t, "type of a bucket key", err, "bucket key column")
	_, err = bucketed.Alter(changes(t, "drop a"), Past{}, 0)
	wantError(t, "drop of a bucket key", err, "bucket key")
	_, err = bucketed.Alter(changes(t, "drop a; drop b"), Past{}, 0)
	wantError(t, "drop of all", err, "it is the last one")
}

// TestAlterBeforeData: before there is a snapshot, fixed options may change.
func TestAlterBeforeData(t *testing.T) {
	s := keyedTable(t, "")
	got, err := s.Alter(changes(t, "set bucket=4; set data-file.path-directory=d; set partition.legacy-name=true; table hello; set alter-column-null-to-not-null.disabled=false"), Past{}, 0)
	if err != nil || got.Options["bucket"] != "4" || got.Comment != "hello" {
		t.Fatalf("%v %+v", err, got)
	}
	if got, err = got.Alter(changes(t, "unset data-file.path-directory; notnull a"), Past{}, 0); err != nil || !got.Fields[2].Type.NotNull {
		t.Fatalf("%v %+v", err, got)
	}
}

// TestAlterRenamesInOptions: every option that mentions a column follows its name.
func TestAlterRenamesInOptions(t *testing.T) {
	s := keyedTable(t, "")
	s.Options = map[string]string{"bucket": "2", "bucket-key": "id", "sequence.field": "a, n", "fields.a.stats-mode": "none",
		"fields.a,n.sequence-group": "s,a", "fields.ab.aggregate-function": "sum", "fields.a.aggregate-function": "max",
		"file-index.bloom-filter.columns": "a,s", "file-index.bloom-filter.a.fpp": "0.1", "record-level.time-field": "a"}
	a := &alteration{old: s, fields: s.Fields, primary: s.PrimaryKeys, options: maps.Clone(s.Options)}
	if err := change(t, "rename a=x").apply(a); err != nil {
		t.Fatal(err)
	}
	if err := change(t, "rename id=key").apply(a); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"bucket": "2", "bucket-key": "key", "sequence.field": "x,n", "fields.x.stats-mode": "none",
		"fields.x,n.sequence-group": "s,x", "fields.ab.aggregate-function": "sum", "fields.x.aggregate-function": "max",
		"file-index.bloom-filter.columns": "x,s", "file-index.bloom-filter.x.fpp": "0.1", "record-level.time-field": "x"}
	if !maps.Equal(a.options, want) {
		t.Errorf("options %v", a.options)
	}
	if !slices.Equal(a.primary, []string{"key", "dt"}) {
		t.Errorf("primary key %v", a.primary)
	}
}

// TestAlterNested: members of nested types have paths, and ids of their own; new ids go to inner members first.
func TestAlterNested(t *testing.T) {
	old, err := Parse([]byte(`{"version":3,"id":4,"highestFieldId":9,"partitionKeys":[],"primaryKeys":["id"],"options":{"bucket":"1"},"fields":[
		{"id":1,"name":"id","type":"INT NOT NULL"},
		{"id":2,"name":"r","type":{"type":"ROW","fields":[{"id":3,"name":"x","type":"INT"},{"id":4,"name":"y","type":"STRING"}]}},
		{"id":5,"name":"l","type":{"type":"ARRAY","element":{"type":"ROW NOT NULL","fields":[{"id":6,"name":"z","type":"INT"}]}}},
		{"id":7,"name":"m","type":{"type":"MAP","key":"STRING NOT NULL","value":"INT"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	row := Type{Root: Row, Fields: []Field{{Name: "p", Type: Type{Root: Int}}, {Name: "q", Type: Type{Root: Row, Fields: []Field{{Name: "d", Type: Type{Root: Int}}}}}}}
	do := append(changes(t, "add r.w DATE after x; drop r.y; rename r.x=xx; type m.value BIGINT; add l.element.k INT first; null l.element; comment r.xx=hi"),
		AddColumn{Path: []string{"new"}, Type: row})
	got, err := old.Alter(do, Past{Snapshots: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := "id#1 INT NOT NULL, r#2 ROW<`xx` INT, `w` DATE>, l#5 ARRAY<ROW<`k` INT, `z` INT>>, m#7 MAP<STRING NOT NULL, BIGINT>, new#12 ROW<`p` INT, `q` ROW<`d` INT>>"
	if shape(got) != want || got.HighestFieldID != 15 || got.ID != 5 {
		t.Errorf("highest %d: %s", got.HighestFieldID, shape(got))
	}
	r, l, n := got.Fields[1].Type.Fields, got.Fields[2].Type.Element.Fields, got.Fields[4].Type.Fields
	if ids := []int{r[0].ID, r[1].ID, l[0].ID, l[1].ID, n[0].ID, n[1].Type.Fields[0].ID, n[1].ID}; !slices.Equal(ids, []int{3, 10, 11, 6, 13, 14, 15}) {
		t.Errorf("ids %v", ids)
	}
	if r[0].Description != "hi" || old.Fields[1].Type.Fields[0].Name != "x" {
		t.Errorf("comment %q, old %s", r[0].Description, shape(old))
	}
	again, err := got.Alter(do, Past{Snapshots: true, Older: func() ([]*Schema, error) { return []*Schema{old}, nil }}, 0)
	if err == nil && again != got {
		t.Errorf("again: %s", shape(again))
	}
	for _, bad := range []string{"drop r.zz", "type m.key BIGINT", "add m.value.x INT", "type r STRING", "drop l.element", "rename m.value=x", "drop r.x; drop r.y"} {
		if _, err := old.Alter(changes(t, bad), Past{}, 0); err == nil || !errors.Is(err, ErrAlter) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestAlterOldVersion: what older tables mean by leaving options out is written down.
func TestAlterOldVersion(t *testing.T) {
	old, err := Parse([]byte(`{"id":0,"highestFieldId":1,"partitionKeys":[],"primaryKeys":["id"],"options":{},"fields":[{"id":0,"name":"id","type":"INT NOT NULL"},{"id":1,"name":"v","type":"INT"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := old.Alter(changes(t, "add w INT"), Past{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != 3 || got.Options["bucket"] != "1" || got.Options["file.format"] != "orc" {
		t.Errorf("%+v", got)
	}
}

func TestParseChangeErrors(t *testing.T) {
	for _, f := range []func(string) error{
		func(s string) error { _, err := ParseAddColumn(s); return err },
		func(s string) error { _, err := ParseChangeType(s); return err },
	} {
		for _, s := range []string{"", "a", "(a INT", "a INT after", "a INT x", "a NOPE", "a..b INT", "`a INT", "a INT comment x"} {
			if f(s) == nil {
				t.Errorf("%q is read", s)
			}
		}
	}
	for _, s := range []string{"a", "a.b first", "a after", "", "a first b"} {
		if _, err := ParseMove(s); err == nil {
			t.Errorf("move %q is read", s)
		}
	}
	for text, want := range map[string]string{"a": "a", "a.b": "a|b", "`a.b`": "a.b", "`a b`.c": "a b|c", `a."b.c".d`: "a|b.c|d", "`x`.`y`": "x|y"} {
		if got, err := ParsePath(text); err != nil || strings.Join(got, "|") != want {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
	if path, right, err := ParseAssign("`a=b`=c=d"); err != nil || path[0] != "a=b" || right != "c=d" {
		t.Errorf("%q %q %v", path, right, err)
	}
}
