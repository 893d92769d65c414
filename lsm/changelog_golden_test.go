package lsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// goldenTable is a table of one bucket that Paimon wrote, copied to a store where files can be added.
type goldenTable struct {
	t     *testing.T
	meta  *manifest.Table
	s     *schema.Schema
	files Files
	part  Part
}

func openGoldenTable(t *testing.T, name string) *goldenTable {
	t.Helper()
	disk, err := storage.NewLocal(path.Join("../internal/testdata/golden/golden.db", name))
	if err != nil {
		t.Fatal(err)
	}
	st := storage.NewMem()
	for info, err := range storage.Walk(t.Context(), disk, "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := storage.ReadAll(t.Context(), disk, info.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.PutIfAbsent(t.Context(), info.Name, data); err != nil {
			t.Fatal(err)
		}
	}
	g := &goldenTable{t: t, meta: manifest.Open(st, manifest.Env{Now: time.Now, NewID: func() string { return "x" }, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)})}
	if g.s, err = g.meta.LatestSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err := g.s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	next := func() string { n++; return fmt.Sprintf("ours-%d.parquet", n) }
	g.files = Files{Store: st, Schema: g.s, Options: o, Now: fixedNow, NewName: next, NewChangelogName: next}
	g.part = Part{Dir: "bucket-0", Partition: binrow.EmptyRow, TotalBuckets: 1}
	return g
}

// rows reads files one after the other.
func (g *goldenTable) rows(files []manifest.DataFile) []datafile.Rows {
	g.t.Helper()
	var out []datafile.Rows
	run := g.files.OpenRun(g.t.Context(), g.part, files, g.s, allColumns(g.s))
	for {
		rows, err := run.Next(g.t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			g.t.Fatal(err)
		}
		out = append(out, rows)
	}
}

// text gives the rows of files, a line each.
func (g *goldenTable) text(files []manifest.DataFile) []string {
	g.t.Helper()
	var out []string
	for _, rows := range g.rows(files) {
		for i := range rows.N {
			line := fmt.Sprintf("seq %d %s", rows.Seq[i], schema.RowKind(rows.Kinds[i]))
			for _, c := range rows.Cols {
				line += " " + c.ValueStr(i)
			}
			out = append(out, line)
		}
	}
	return out
}

// same compares rows of files, and what their metadata says.
func (g *goldenTable) same(what string, got, want []manifest.DataFile) {
	g.t.Helper()
	if a, b := g.text(got), g.text(want); !slices.Equal(a, b) {
		g.t.Errorf("%s: got\n%q\nPaimon has\n%q", what, a, b)
		return
	}
	for i := range min(len(got), len(want)) {
		a, b := got[i], want[i]
		if a.Rows != b.Rows || a.MinSeq != b.MinSeq || a.MaxSeq != b.MaxSeq || a.Level != b.Level || !slices.Equal(a.MinKey, b.MinKey) ||
			!slices.Equal(a.MaxKey, b.MaxKey) || *a.DeleteRows != *b.DeleteRows || *a.Source != *b.Source {
			g.t.Errorf("%s: file described as %+v, Paimon says %+v", what, a, b)
		}
	}
	if len(got) != len(want) {
		g.t.Errorf("%s: %d files, Paimon has %d", what, len(got), len(want))
	}
}

// entries of a list, those of one kind.
func (g *goldenTable) entries(list func(context.Context, *manifest.Snapshot) ([]manifest.Entry, error), s *manifest.Snapshot, kind manifest.EntryKind) []manifest.DataFile {
	g.t.Helper()
	all, err := list(g.t.Context(), s)
	if err != nil {
		g.t.Fatal(err)
	}
	var out []manifest.DataFile
	for _, e := range all {
		if e.Kind == kind {
			out = append(out, e.File)
		}
	}
	return out
}

// snapshots are all of the table.
func (g *goldenTable) snapshots() []*manifest.Snapshot {
	g.t.Helper()
	last, err := g.meta.Latest(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	var out []*manifest.Snapshot
	for s, err := range g.meta.EachSnapshot(g.t.Context(), 1, last.ID) {
		if err != nil {
			g.t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// TestGoldenInputChangelog writes again what was written to Paimon's table: the files of rows and of changes are the same.
func TestGoldenInputChangelog(t *testing.T) {
	g := openGoldenTable(t, "pk_changelog_input")
	told := 0
	for _, s := range g.snapshots() {
		want := g.entries(g.meta.Changelog, s, manifest.Add)
		if len(want) == 0 {
			continue
		}
		told++
		all := g.rows(want)
		if len(all) != 1 {
			t.Fatalf("%d batches", len(all))
		}
		in := all[0]
		order := make([]int32, in.N)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(in.Seq[a], in.Seq[b]) })
		arrived := datafile.Rows{N: in.N}
		for i, o := range order {
			arrived.Kinds = append(arrived.Kinds, in.Kinds[o])
			if in.Seq[o] != want[0].MinSeq+int64(i) {
				t.Fatalf("snapshot %d: sequence numbers %v", s.ID, in.Seq)
			}
		}
		for _, c := range in.Cols {
			col, err := Take(c, order)
			if err != nil {
				t.Fatal(err)
			}
			arrived.Cols = append(arrived.Cols, col)
		}
		data, changes, err := g.files.FlushInput(t.Context(), g.part, []datafile.Rows{arrived}, nil, want[0].MinSeq)
		if err != nil {
			t.Fatal(err)
		}
		g.same(fmt.Sprintf("snapshot %d: changelog", s.ID), changes, want)
		g.same(fmt.Sprintf("snapshot %d: data", s.ID), data, g.entries(g.meta.Delta, s, manifest.Add))
	}
	if told != 4 {
		t.Fatalf("%d snapshots tell changes", told)
	}
}

// TestGoldenCompactionChangelog does Paimon's compactions again: what they tell is the same, and what they make.
func TestGoldenCompactionChangelog(t *testing.T) {
	for _, c := range []struct {
		table string
		tell  int // snapshots that do
	}{{"pk_changelog_full_compaction", 2}, {"pk_changelog_lookup", 5}, {"pk_first_row", 3}} {
		t.Run(c.table, func(t *testing.T) {
			g := openGoldenTable(t, c.table)
			o := g.files.Options
			levels, err := NewLevels(NewKeys(g.s), o.NumLevels, nil)
			if err != nil {
				t.Fatal(err)
			}
			told := 0
			for _, s := range g.snapshots() {
				removed, added := g.entries(g.meta.Delta, s, manifest.Remove), g.entries(g.meta.Delta, s, manifest.Add)
				want := g.entries(g.meta.Changelog, s, manifest.Add)
				if s.CommitKind == manifest.Compact && len(removed) > 0 {
					job := Job{Files: removed, Output: o.MaxLevel(), Full: true}
					for _, f := range slices.Concat(added, want) {
						job.Output = f.Level
					}
					job.DropDeletes = job.Output >= levels.highest()
					job.Older = g.olderThan(levels, job)
					change, err := g.files.Compact(t.Context(), g.part, job)
					if err != nil {
						t.Fatal(err)
					}
					g.same(fmt.Sprintf("snapshot %d: changelog", s.ID), change.Changelog, want)
					if a, b := g.text(change.Added), g.text(added); !slices.Equal(a, b) {
						t.Errorf("snapshot %d: makes\n%q\nPaimon made\n%q", s.ID, a, b)
					}
					if len(want) > 0 {
						told++
					}
				}
				if err := levels.Apply(Change{Removed: removed, Added: added}); err != nil {
					t.Fatal(err)
				}
			}
			if told != c.tell {
				t.Fatalf("%d snapshots tell changes", told)
			}
		})
	}
}

// olderThan looks rows up in the files above a job's output, by reading them.
func (g *goldenTable) olderThan(l *Levels, job Job) Older {
	return func(_ context.Context, keys []arrow.Array, n int) (Olds, error) {
		at := make([]int32, n)
		var found datafile.Rows
		for i := range at {
			at[i] = -1
		}
		for _, run := range l.Runs() {
			if run.Level <= job.Output {
				continue
			}
			for _, rows := range g.rows(run.Files) {
				if found.N > 0 {
					g.t.Fatal("this test looks in one batch of rows")
				}
				for i := range at {
					for j := range rows.N {
						if rows.Cols[g.s.KeyColumns()[0]].ValueStr(j) == keys[0].ValueStr(i) {
							at[i] = int32(j)
						}
					}
				}
				found = rows
			}
		}
		return Olds{Rows: found, At: at}, nil
	}
}
