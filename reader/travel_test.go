package reader_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// at gives p/id → name as a query finds it.
func (x *table) at(q reader.Query) map[string]string {
	x.t.Helper()
	m := map[string]string{}
	for rec, err := range x.reader().Scan(x.t.Context(), q) {
		if err != nil {
			x.t.Fatal(err)
		}
		add(m, rec, nil)
	}
	return m
}

// TestDiffModel: the state at one snapshot and the diff to another give the state there, and nothing more is told.
func TestDiffModel(t *testing.T) {
	const seed = 11
	rnd := rand.New(rand.NewPCG(seed, seed))
	x := newTable(t, true)
	var commits [][]change
	for i := range 12 {
		if i%5 == 4 {
			commits = append(commits, nil) // a full compaction
			continue
		}
		var c []change
		for range 1 + rnd.IntN(20) {
			kind := schema.Insert
			if rnd.IntN(4) == 0 {
				kind = schema.Delete
			}
			c = append(c, change{kind, []string{"a", "b"}[rnd.IntN(2)], int64(rnd.IntN(25)), fmt.Sprint("v", rnd.IntN(3))})
		}
		commits = append(commits, c)
	}
	x.write(commits...)
	last, err := x.reader().Meta().Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for from := int64(0); from <= last.ID; from++ {
		for to := max(1, from); to <= last.ID; to++ {
			state := map[string]string{}
			if from > 0 {
				state = x.at(reader.Query{Snapshot: from})
			}
			want := x.at(reader.Query{Snapshot: to})
			n := 0
			for c, err := range x.reader().Changes(t.Context(), reader.Between{Start: fmt.Sprint(from), End: fmt.Sprint(to), Mode: reader.Diff}) {
				if err != nil {
					t.Fatal(err)
				}
				n += int(c.Rec.NumRows())
				add(state, c.Rec, c.RowKinds)
			}
			if !maps.Equal(state, want) {
				t.Fatalf("seed %d: diff %d to %d gives %v, want %v", seed, from, to, state, want)
			}
			if from > 0 {
				old := x.at(reader.Query{Snapshot: from})
				differ := 0
				for k, v := range old {
					if want[k] != v {
						differ++
					}
				}
				for k := range want {
					if _, ok := old[k]; !ok {
						differ++
					}
				}
				if n != differ {
					t.Fatalf("seed %d: diff %d to %d tells %d rows, %d differ", seed, from, to, n, differ)
				}
			}
		}
	}
	// Delta: what the tail tells, compactions excluded.
	var told []string
	for c, err := range x.reader().Changes(t.Context(), reader.Between{Start: "2", End: "7", Mode: reader.Auto}) {
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, fmt.Sprint(c.Snapshot, c.Rec, c.RowKinds))
	}
	var tailed []string
	for c, err := range x.reader().Tail(t.Context(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 3}}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec != nil && c.Snapshot <= 7 {
			tailed = append(tailed, fmt.Sprint(c.Snapshot, c.Rec, c.RowKinds))
		}
	}
	if !slices.Equal(told, tailed) || len(told) == 0 {
		t.Errorf("delta tells %v, the tail %v", told, tailed)
	}
}

func TestBetweenErrors(t *testing.T) {
	x := newTable(t, true)
	x.write(some(3, "a"), some(3, "b"), some(3, "c"))
	for _, c := range []struct{ start, end, want string }{
		{"3", "1", "after"}, {"1", "9", "snapshots 1 to 3"}, {"x", "2", "neither"}, {"x", "y", "no such tag"}, {"-1", "2", "neither"},
	} {
		var got error
		for _, err := range x.reader().Changes(t.Context(), reader.Between{Start: c.start, End: c.end, Mode: reader.Delta}) {
			got = err
		}
		if got == nil || !strings.Contains(got.Error(), c.want) {
			t.Errorf("%s to %s: %v, want %q", c.start, c.end, got, c.want)
		}
	}
	for _, err := range x.reader().Changes(t.Context(), reader.Between{Start: "1", End: "2", Mode: "odd"}) {
		if !errors.Is(err, reader.ErrQuery) {
			t.Error(err)
		}
	}
	if _, err := reader.ParseBetween("1"); !errors.Is(err, reader.ErrQuery) {
		t.Error(err)
	}
	x.expire(1)
	for _, mode := range []reader.BetweenMode{reader.Delta, reader.Diff} {
		for _, err := range x.reader().Changes(t.Context(), reader.Between{Start: "1", End: "3", Mode: mode}) {
			if err == nil || !strings.Contains(err.Error(), "3") {
				t.Errorf("%s over expired snapshots: %v", mode, err)
			}
		}
	}
}

// TestTravel finds snapshots by time, watermark and tag.
func TestTravel(t *testing.T) {
	x := newTable(t, true)
	x.write(some(2, "a"), some(4, "b"), some(6, "c"))
	meta := x.reader().Meta()
	w := int64(5000)
	if _, err := meta.Commit(t.Context(), manifest.Commit{Kind: manifest.Append, User: "w", Identifier: 1, Watermark: &w}); err != nil {
		t.Fatal(err)
	}
	var times []time.Time
	for s, err := range meta.EachSnapshot(t.Context(), 1, 4) {
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, time.UnixMilli(s.TimeMillis))
	}
	find := func(q reader.Query) int64 {
		s, err := x.reader().Snapshot(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	for i, at := range times {
		want := int64(i + 1)
		for want < 4 && !times[want].After(at) { // made in the same millisecond
			want++
		}
		if got := find(reader.Query{At: at}); got != want {
			t.Errorf("at the time of snapshot %d: %d", i+1, got)
		}
	}
	if got := find(reader.Query{At: times[3].Add(time.Hour)}); got != 4 {
		t.Error("in the future:", got)
	}
	low, high := int64(1), int64(5001)
	if got := find(reader.Query{Watermark: &low}); got != 4 {
		t.Error("watermark:", got)
	}
	for name, c := range map[string]struct {
		q    reader.Query
		want string
	}{
		"early":    {reader.Query{At: times[0].Add(-time.Hour)}, "earliest snapshot"},
		"late":     {reader.Query{Watermark: &high}, "is 5000"},
		"no tag":   {reader.Query{Tag: "t"}, "has no tags"},
		"twice":    {reader.Query{Tag: "t", Snapshot: 1}, "only one"},
		"snapshot": {reader.Query{Snapshot: 12}, "snapshots 1 to 4"},
	} {
		if _, err := x.reader().Plan(t.Context(), c.q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	var since []int64
	for c, err := range x.reader().Tail(t.Context(), reader.TailSpec{From: reader.Start{Mode: reader.FromTime, Time: times[0].Add(-time.Hour)}}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Complete {
			since = append(since, c.Snapshot)
		}
	}
	if !slices.Equal(since, []int64{1, 2, 3, 4}) {
		t.Error("tail from a time:", since)
	}
}

// TestTagLife: a tag outlives its snapshot, keeps its files, and takes them along when it is deleted.
func TestTagLife(t *testing.T) {
	x := newTable(t, true)
	x.write(some(20, "old"), nil)
	meta := x.reader().Meta()
	s, err := meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := x.at(reader.Query{})
	if err := meta.CreateTag(t.Context(), "keep", s, 36*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := meta.CreateTag(t.Context(), "keep", s, 0); !errors.Is(err, manifest.ErrTagExists) {
		t.Error("second creation:", err)
	}
	for _, bad := range []string{"", " ", "12", "a/b", "a,b"} {
		if err := meta.CreateTag(t.Context(), bad, s, 0); err == nil {
			t.Errorf("a tag of the name %q", bad)
		}
	}
	x.write(some(20, "new"), nil, some(2, "newer"))
	x.expire(1)
	if _, err := meta.Snapshot(t.Context(), s.ID); !errors.Is(err, manifest.ErrSnapshotExpired) {
		t.Fatal("the snapshot is still there:", err)
	}
	if got := x.at(reader.Query{Tag: "keep"}); !maps.Equal(got, want) {
		t.Errorf("by tag: %v, want %v", got, want)
	}
	if err := meta.CreateTag(t.Context(), "late", s, 0); !errors.Is(err, manifest.ErrSnapshotExpired) {
		t.Error("a tag of an expired snapshot:", err)
	}
	tags, err := meta.AllTags(t.Context())
	if err != nil || len(tags) != 1 || tags[0].Retained != 36*time.Hour || tags[0].Created.IsZero() || tags[0].Snapshot.ID != s.ID {
		t.Fatal(tags, err)
	}
	done, err := meta.DeleteTag(t.Context(), "keep")
	if err != nil || done.DataFiles == 0 || done.Metadata == 0 {
		t.Errorf("deletion: %+v %v", done, err)
	}
	if _, err := meta.DeleteTag(t.Context(), "keep"); !errors.Is(err, manifest.ErrNoTag) {
		t.Error("second deletion:", err)
	}
	rep, err := x.reader().Verify(t.Context(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil || !rep.OK() {
		t.Error(rep, err)
	}
	// Nothing is left but what snapshots name.
	live := map[string]bool{}
	last, err := meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := meta.Live(t.Context(), last, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		live[e.File.Name] = true
	}
	for info, err := range storage.Walk(t.Context(), x, "") {
		if err != nil {
			t.Fatal(err)
		}
		if base := info.Name[strings.LastIndex(info.Name, "/")+1:]; strings.HasSuffix(base, ".parquet") && !live[base] {
			t.Error("left behind:", info.Name)
		}
	}
}
