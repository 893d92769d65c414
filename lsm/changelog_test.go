package lsm

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// leveledRow is a row and the level it was on.
type leveledRow struct {
	row
	level int
}

// tells is the oracle of changelogs: key by key, as Paimon's wrappers of merge functions do (§12). above are the rows of
// levels above the output.
func (x *oracle) tells(t *testing.T, in, above []leveledRow, output int) (result, changes []row) {
	t.Helper()
	full := x.o.ChangelogProducer == schema.ProducerFullCompaction
	older := map[string]leveledRow{}
	keyOf := func(r row) string { return fmt.Sprintf("%#v", canon(row{vals: r.key(x.s)}).vals) }
	for _, r := range above {
		if old, ok := older[keyOf(r.row)]; !ok || r.level < old.level {
			older[keyOf(r.row)] = r
		}
	}
	byKey := map[string][]leveledRow{}
	for _, r := range in {
		byKey[keyOf(r.row)] = append(byKey[keyOf(r.row)], r)
	}
	for k, rows := range byKey {
		var res, ch []row
		if full {
			res, ch = x.tellsFull(t, rows, output)
		} else {
			old, ok := older[k]
			res, ch = x.tellsLookup(t, rows, old, ok)
		}
		result, changes = append(result, res...), append(changes, ch...)
	}
	byRow := func(a, b row) int { return compareKeys(a.key(x.s), b.key(x.s)) }
	slices.SortStableFunc(result, byRow)
	slices.SortStableFunc(changes, byRow)
	return result, changes
}

func (x *oracle) must(t *testing.T, rows []row) (row, bool) {
	t.Helper()
	out, ok, err := x.merge(rows)
	if err != nil {
		t.Fatal(err)
	}
	return out, ok
}

func (x *oracle) tellsFull(t *testing.T, in []leveledRow, top int) (result, changes []row) {
	var rows []row
	var old *row
	for i := range in {
		if rows = append(rows, in[i].row); in[i].level == top {
			old = &in[i].row
		}
	}
	merged, ok := x.must(t, rows)
	is := ok && isAdd(merged.kind)
	if is {
		result = []row{merged}
	}
	if len(rows) == 1 && old != nil {
		return result, nil
	}
	return result, x.change(old, merged, is)
}

func (x *oracle) change(old *row, merged row, is bool) []row {
	kind := func(r row, k schema.RowKind) row { r.kind = int8(k); return r }
	was := old != nil && isAdd(old.kind)
	switch {
	case is && was:
		if x.o.Changelog.RowDeduplicate && x.unchanged(old.vals, merged.vals) {
			return nil
		}
		return []row{kind(*old, schema.UpdateBefore), kind(merged, schema.UpdateAfter)}
	case is:
		return []row{kind(merged, schema.Insert)}
	case was:
		return []row{kind(*old, schema.Delete)}
	}
	return nil
}

func (x *oracle) unchanged(a, b []any) bool {
	for i, f := range x.s.Fields {
		if slices.Contains(x.o.Changelog.IgnoreFields, f.Name) {
			continue
		}
		if fmt.Sprintf("%#v", canon(row{vals: a[i : i+1]})) != fmt.Sprintf("%#v", canon(row{vals: b[i : i+1]})) {
			return false
		}
	}
	return true
}

func (x *oracle) tellsLookup(t *testing.T, in []leveledRow, found leveledRow, ok bool) (result, changes []row) {
	var high *leveledRow
	young := false
	for i := range in {
		young = young || in[i].level == 0
		if in[i].level > 0 && (high == nil || in[i].level < high.level) {
			high = &in[i]
		}
	}
	first := x.o.MergeEngine == schema.FirstRow
	contained := high != nil
	if high == nil && ok {
		high = &found
	}
	var rows []row
	for i := range in {
		if in[i].level == 0 {
			rows = append(rows, in[i].row)
		}
	}
	if high != nil && !(first && !contained) {
		rows = append(rows, high.row)
	}
	merged, is := x.must(t, rows)
	if first {
		switch {
		case contained:
			return []row{merged}, nil
		case high != nil || !is:
			return nil, nil
		}
		return []row{merged}, []row{merged}
	}
	if is {
		result = []row{merged}
	}
	if !young || x.o.ChangelogProducer != schema.ProducerLookup {
		return result, nil
	}
	var old *row
	if high != nil {
		old = &high.row
	}
	return result, x.change(old, merged, is && isAdd(merged.kind))
}

// leveled reads files with the levels of their rows.
func (b *bucket) leveled(files []manifest.DataFile) []leveledRow {
	var out []leveledRow
	for _, f := range files {
		for _, r := range b.rows([]manifest.DataFile{f}) {
			out = append(out, leveledRow{r, f.Level})
		}
	}
	return out
}

// TestChangelogRules plays random histories of random tables with a changelog: every compaction is held against the oracle,
// what it makes and what it tells, and the stream of changes gives the table.
func TestChangelogRules(t *testing.T) {
	r := newRand(t)
	for n := range 80 {
		s := ruleTable(t, r)
		producer := []string{schema.ProducerFullCompaction, schema.ProducerLookup, schema.ProducerLookup}[r.IntN(3)]
		if s.Options["merge-engine"] == schema.FirstRow {
			producer = schema.ProducerLookup
		}
		ok := t.Run(fmt.Sprintf("%d/%s/%s", n, s.Options["merge-engine"], producer), func(t *testing.T) {
			b := newBucket(t, r, storage.NewMem(), s)
			o := &b.files.Options
			o.ChangelogProducer, o.Changelog.RowDeduplicate = producer, r.IntN(2) == 0
			if r.IntN(3) == 0 {
				o.Changelog.IgnoreFields = []string{s.Fields[r.IntN(len(s.Fields))].Name}
			}
			b.files.Parallel = 1 + r.IntN(2)
			if producer == schema.ProducerLookup && o.MergeEngine != schema.FirstRow && r.IntN(2) == 0 {
				o.DeletionVectors, b.files.Vectors = true, map[string]*indexfile.Vector{}
				if r.IntN(2) == 0 {
					o.ChangelogProducer, o.Changelog.RowDeduplicate = schema.ProducerNone, false
				}
			}
			b.policy = PolicyOf(*o, true)
			b.policy.WholeTree = false
			if r.IntN(2) == 0 {
				b.files.leastCopy, b.files.cutRows = 1, 1+r.IntN(20)
			}
			playChangelog(t, r, b)
		})
		if !ok {
			t.Fatalf("options %v, columns %v", s.Options, s.Fields)
		}
	}
}

func playChangelog(t *testing.T, r *rand.Rand, b *bucket) {
	o := b.files.Options
	write := &oracle{s: b.s, o: o, store: true, every: o.Lookup()}
	if o.DeletionVectors { // what would be told
		write.o.ChangelogProducer = schema.ProducerLookup
	}
	pool, kinds := randPool(r, b.s, 1+r.IntN(60)), kindsFor(b.s, o)
	if o.Merge.IgnoreDelete {
		kinds = []int8{0, 2} // the others are dropped before they come here
	}
	state := map[string]string{}
	for range 2 + r.IntN(8) {
		rows := randRows(r, b.s, pool[:1+r.IntN(len(pool))], 1+r.IntN(60))
		for i := range rows {
			if rows[i].kind = kinds[r.IntN(len(kinds))]; i > 0 && r.IntN(4) == 0 {
				copy(rows[i].vals, rows[i-1].vals) // the same row again
			}
		}
		if rows = taken(b.s, o, rows); len(rows) == 0 {
			continue
		}
		b.flush(rows)
		for r.IntN(4) > 0 {
			pick := Pick
			if r.IntN(5) == 0 || o.ChangelogProducer == schema.ProducerFullCompaction && r.IntN(3) == 0 {
				pick = PickFull
			}
			job, ok := pick(b.levels, b.policy)
			if !ok {
				break
			}
			b.tellJob(t, write, job, state)
		}
	}
	for range 10 { // one job may leave what came beside it
		if job, ok := PickFull(b.levels, b.policy); ok {
			b.tellJob(t, write, job, state)
		}
	}
	live := b.above(t)
	if !o.Changelog.RowDeduplicate && fmt.Sprint(live) != fmt.Sprint(state) {
		t.Fatalf("the stream folds to\n%v\nthe table has\n%v", state, live)
	}
}

// above is what levels above 0 have: all of it after a compaction. With vectors no key is there twice, and no delete.
func (b *bucket) above(t *testing.T) map[string]string {
	t.Helper()
	live := map[string]string{}
	for _, f := range b.levels.Files() {
		if f.Level == 0 {
			continue
		}
		for _, row := range b.rows([]manifest.DataFile{f}) {
			k := keyText(b.s, row)
			if _, twice := live[k]; b.files.Options.DeletionVectors && (twice || !isAdd(row.kind)) {
				t.Fatalf("level %d has %v (twice: %v)", f.Level, row, twice)
			}
			live[k] = rowText(row)
		}
	}
	return live
}

func keyText(s *schema.Schema, r row) string { return fmt.Sprint(canon(row{vals: r.key(s)}).vals) }
func rowText(r row) string                   { return fmt.Sprint(canon(r).vals) }

// tellJob does a job, holds it against the oracle and folds what it tells.
func (b *bucket) tellJob(t *testing.T, x *oracle, job Job, state map[string]string) {
	t.Helper()
	var above []manifest.DataFile
	in := map[string]bool{}
	for _, f := range job.Files {
		in[f.Name] = true
	}
	for _, f := range b.levels.Files() {
		if !in[f.Name] && f.Level > job.Output {
			above = append(above, f)
		}
	}
	if job.Older = nil; len(above) > 0 {
		job.Older, job.Above = b.older(above), above
	}
	before, upper := b.leveled(job.Files), b.leveled(above)
	tells := x.o.ChangelogProducer == schema.ProducerLookup || job.Output == b.policy.NumLevels-1
	change := b.compact(job)
	if b.files.Vectors != nil {
		b.mark(change)
	}
	got := b.rows(change.Changelog)
	for _, f := range change.Changelog {
		if !strings.HasPrefix(f.Name, "changelog-") || f.Level != job.Output || *f.Source != manifest.FromAppend {
			t.Fatalf("a changelog file is described as %+v", f)
		}
		if err := b.files.Store.Delete(t.Context(), b.part.Dir+"/"+f.Name); err != nil {
			t.Fatal(err)
		}
	}
	if !tells {
		if len(got) > 0 {
			t.Fatalf("a compaction to level %d tells %v", job.Output, got)
		}
		return
	}
	result, changes := x.tells(t, before, upper, job.Output)
	if b.files.Options.ChangelogProducer == schema.ProducerNone {
		if len(got) > 0 {
			t.Fatalf("a table without changelog tells %v", got)
		}
		got = changes
	}
	if diff := diffRows(canonAll(got), canonAll(changes)); diff != "" {
		for _, r := range before {
			t.Logf("level %d: %v", r.level, canon(r.row))
		}
		for _, r := range upper {
			t.Logf("above %d: %v", r.level, canon(r.row))
		}
		t.Fatalf("changelog of %d files to level %d: %s", len(job.Files), job.Output, diff)
	}
	moved := map[string]bool{}
	for _, f := range change.Removed {
		moved[f.Name] = true
	}
	whole := true // no file was moved as it was
	for _, f := range change.Added {
		whole = whole && !moved[f.Name]
	}
	if whole && len(change.Removed) == len(job.Files) {
		same(t, "compaction", inserts(b.rows(change.Added)), inserts(adds(result, job.DropDeletes)))
	}
	for _, r := range got {
		k := keyText(b.s, r)
		if r.kind == int8(schema.Insert) || r.kind == int8(schema.UpdateAfter) {
			state[k] = rowText(r)
			continue
		}
		if !x.o.Changelog.RowDeduplicate && state[k] != rowText(r) {
			t.Fatalf("row before is %q, the stream has %q", rowText(r), state[k])
		}
		delete(state, k)
	}
	if live := b.above(t); b.files.Vectors != nil && !x.o.Changelog.RowDeduplicate && fmt.Sprint(live) != fmt.Sprint(state) {
		t.Fatalf("above level 0 there is\n%v\nthe stream has\n%v", live, state)
	}
}

// mark takes the vectors of a compaction over.
func (b *bucket) mark(change Change) {
	b.t.Helper()
	live := b.live()
	vectors := map[string]*indexfile.Vector{}
	for name, v := range b.files.Vectors {
		if _, ok := live[name]; ok {
			vectors[name] = v.Clone()
		}
	}
	for _, p := range change.Marks {
		f, ok := live[p.File]
		if !ok || p.Row >= f.Rows {
			b.t.Fatalf("row %d of %s is deleted, which is no live file", p.Row, p.File)
		}
		if vectors[p.File] == nil {
			vectors[p.File] = indexfile.NewVector()
		}
		if has, err := vectors[p.File].Has(p.Row); has || err != nil {
			b.t.Fatalf("row %d of %s is deleted twice (%v)", p.Row, p.File, err)
		}
		if err := vectors[p.File].Add(p.Row); err != nil {
			b.t.Fatal(err)
		}
	}
	b.files.Vectors = vectors
}

// placesIn finds the rows of files that no vector deletes, by key.
func (b *bucket) placesIn(files []manifest.DataFile) map[string]Place {
	b.t.Helper()
	all := *b
	all.files.Vectors = nil
	out := map[string]Place{}
	for _, f := range files {
		for i, r := range all.rows([]manifest.DataFile{f}) {
			if v := b.files.Vectors[f.Name]; v != nil {
				if dead, err := v.Has(int64(i)); dead || err != nil {
					continue
				}
			}
			out[keyText(b.s, r)] = Place{f.Name, int64(i)}
		}
	}
	return out
}

// inserts makes +I of +U: rows that were merged before and meet no other keep their kind, which nobody sees.
func inserts(rows []row) []row {
	for i := range rows {
		if rows[i].kind == int8(schema.UpdateAfter) {
			rows[i].kind = int8(schema.Insert)
		}
	}
	return rows
}

func canonAll(rows []row) []row {
	out := make([]row, len(rows))
	for i := range rows {
		out[i] = canon(rows[i])
	}
	return out
}

// older looks rows up by reading all files.
func (b *bucket) older(files []manifest.DataFile) Older {
	return func(_ context.Context, keys []arrow.Array, n int) (Olds, error) {
		lowest := map[string]leveledRow{}
		for _, r := range b.leveled(files) {
			k := keyText(b.s, r.row)
			if old, ok := lowest[k]; !ok || r.level < old.level {
				lowest[k] = r
			}
		}
		v, err := NewKeys(b.s).Encode(keys, n)
		if err != nil {
			return Olds{}, err
		}
		if v.ascending() >= 0 {
			return Olds{}, fmt.Errorf("keys that are looked up do not ascend")
		}
		at, rows := make([]int32, n), []row{}
		var places []Place
		if b.files.Vectors != nil {
			places = make([]Place, n)
		}
		where := b.placesIn(files)
		asked := modelRows(datafile.Rows{N: n, Seq: make([]int64, n), Kinds: make([]int8, n), Cols: keys})
		for i := range n {
			at[i] = -1
			if places != nil {
				places[i] = where[fmt.Sprint(canon(asked[i]).vals)]
			}
			if r, ok := lowest[fmt.Sprint(canon(asked[i]).vals)]; ok {
				at[i] = int32(len(rows))
				rows = append(rows, r.row)
			}
		}
		if len(rows) == 0 {
			return Olds{At: at, Places: places}, nil
		}
		return Olds{Rows: rowsOf(b.t, b.r, b.s, rows), At: at, Places: places}, nil
	}
}

// TestLookupBatches: the larger the rows that may be found, the fewer are looked up at once.
func TestLookupBatches(t *testing.T) {
	files := func(row int64) []manifest.DataFile { return []manifest.DataFile{{Size: 1000 * row, Rows: 1000}} }
	older := func(context.Context, []arrow.Array, int) (Olds, error) { return Olds{}, nil }
	for _, c := range []struct {
		job  Job
		want int
	}{
		{Job{}, 0}, {Job{Older: older, Above: files(1)}, DefaultBatchRows}, {Job{Older: older, Above: files(1 << 10)}, 1 << 10},
		{Job{Older: older, Above: files(1 << 30)}, minLookupRows}, {Job{Older: older, Above: []manifest.DataFile{{}}}, DefaultBatchRows},
	} {
		if got := c.job.lookupRows(); got != c.want {
			t.Errorf("%d rows at once, want %d", got, c.want)
		}
	}
}

// TestKeepEqual: which cells count as unchanged.
func TestKeepEqual(t *testing.T) {
	r := newRand(t)
	nan, zero := math.NaN(), 0.0
	for _, c := range []struct {
		typ  string
		a, b []any
		want []bool
	}{
		{"DOUBLE", []any{nan, zero, 1.5, nil, nil}, []any{nan, zero, 1.5, nil, 2.0}, []bool{true, true, true, true, false}},
		{"DOUBLE", []any{zero}, []any{math.Copysign(0, -1)}, []bool{false}},
		{"FLOAT", []any{float32(nan), float32(1)}, []any{float32(nan), float32(2)}, []bool{true, false}},
		{"BIGINT", []any{int64(1), int64(2), nil}, []any{int64(1), int64(3), int64(0)}, []bool{true, false, false}},
		{"STRING", []any{"a", "", "ab", nil}, []any{"a", nil, "abc", nil}, []bool{true, false, false, true}},
		{"BOOLEAN", []any{true, false, nil}, []any{true, true, nil}, []bool{true, false, true}},
		{"DECIMAL(38, 3)", []any{decimal128.FromI64(7), decimal128.FromI64(-7)}, []any{decimal128.FromI64(7), decimal128.FromI64(7)}, []bool{true, false}},
		{"TINYINT", []any{int8(1), int8(2)}, []any{int8(1), int8(1)}, []bool{true, false}},
	} {
		typ := mustType(t, c.typ)
		got := make([]bool, len(c.a))
		for i := range got {
			got[i] = true
		}
		keepEqual(got, sliced(t, r, typ, c.a), sliced(t, r, typ, c.b))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v and %v: %v, want %v", c.typ, c.a, c.b, got, c.want)
		}
	}
}
