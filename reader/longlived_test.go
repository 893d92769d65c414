package reader_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// TestLongLived: the changes of snapshots that have expired are told from their long-lived changelogs, wherever a stream
// begins, as long as these are kept; what a consumer wants of them stays.
func TestLongLived(t *testing.T) {
	for _, producer := range []string{"none", "input", "lookup", "full-compaction"} {
		t.Run(producer, func(t *testing.T) {
			x := newTable(t, true, "changelog-producer", producer, "changelog.num-retained.min", "50", "changelog.num-retained.max", "50", "snapshot.num-retained.max", "10", "num-sorted-run.compaction-trigger", "2")
			var commits [][]change
			for i := range 6 {
				commits = append(commits, some(6, fmt.Sprint("name ", i)), []change{{schema.Delete, "a", int64(i % 3), ""}}, nil)
			}
			x.write(commits...)
			meta := x.reader().Meta()
			latest, err := meta.Latest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first := reader.Start{Mode: reader.FromSnapshot, Snapshot: 1}
			before := map[string]string{}
			want, err := x.stream(x.reader(), reader.TailSpec{From: first}, 0, before)
			if err != nil || !maps.Equal(before, x.model) {
				t.Fatal(want, err, before)
			}
			changesBefore := x.between("0", fmt.Sprint(latest.ID))
			made, err := meta.Snapshot(t.Context(), 4)
			if err != nil {
				t.Fatal(err)
			}
			x.expire(2)
			if e, err := meta.Earliest(t.Context()); err != nil || e.ID != latest.ID-1 {
				t.Fatal(e, err)
			}
			if rep := sound(t, producer, x.reader(), reader.StreamSpec{}); rep.Expired != latest.ID-2 || rep.Compared != 2 || rep.From != 0 {
				t.Errorf("%+v", rep)
			}
			for _, from := range []reader.Start{first, {}, {Mode: reader.FromTime, Time: time.UnixMilli(0)}} {
				after := map[string]string{}
				got, err := x.stream(x.reader(), reader.TailSpec{From: from}, 0, after)
				if err != nil || !slices.Equal(got, want) || !maps.Equal(after, x.model) {
					t.Fatalf("from %v: %v %v\nwant %v", from, got, err, want)
				}
			}
			got, err := x.stream(x.reader(), reader.TailSpec{From: reader.Start{Mode: reader.FromTime, Time: time.UnixMilli(made.TimeMillis)}}, 0, map[string]string{})
			if i := slices.Index(want, got[0]); err != nil || i < 0 || i > 3 || !slices.Equal(got, want[i:]) {
				t.Fatal(got, err)
			}
			if changes := x.between("0", fmt.Sprint(latest.ID)); !slices.Equal(changes, changesBefore) {
				t.Errorf("%d changes, %d before", len(changes), len(changesBefore))
			}
			if changes := x.between("1", "3"); len(changes) == 0 && producer != "full-compaction" {
				t.Error("no changes between long-lived changelogs")
			}
			x.tells(producer, want)
		})
	}
}

// between gives the changes between two snapshots.
func (x *table) between(start, end string) []string {
	x.t.Helper()
	var out []string
	for c, err := range x.reader().Changes(x.t.Context(), reader.Between{Start: start, End: end}) {
		if err != nil {
			x.t.Fatal(err)
		}
		for i := range int(c.Rec.NumRows()) {
			out = append(out, fmt.Sprint(c.Snapshot, kindOf(c, i), c.Rec.Column(0).ValueStr(i), c.Rec.Column(1).ValueStr(i), c.Rec.Column(2).ValueStr(i)))
		}
	}
	return out
}

// tells checks consumers, gaps and verification of a table whose changes are all in long-lived changelogs.
func (x *table) tells(producer string, want []string) {
	t := x.t
	meta := x.reader().Meta()
	earliest, err := meta.Earliest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if producer == "none" || producer == "input" {
		// Rows before changes are in snapshots.
		_, err := x.stream(x.reader(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 3}, BeforeImage: true}, 0, map[string]string{})
		if gap, ok := errors.AsType[*reader.GapError](err); !ok || gap.From != 3 || gap.To != earliest.ID-1 {
			t.Errorf("rows before the changes of snapshots that are gone: %v", err)
		}
	}
	folded := map[string]string{}
	spec := reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 1}, Consumer: "job"}
	if told, err := x.stream(x.reader(), spec, 3, folded); err != nil || !slices.Equal(told, want[:3]) {
		t.Fatal(told, err)
	}
	// From now on changes are kept no longer than snapshots are, but for the consumer.
	if _, _, err := meta.AlterSchema(t.Context(), []schema.Change{schema.SetOption{Name: "changelog.num-retained.min", Value: "5"}, schema.SetOption{Name: "changelog.num-retained.max", Value: "11"}}); err != nil {
		t.Fatal(err)
	}
	x.expire(2)
	rep, err := x.reader().Verify(t.Context(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil || !rep.OK() {
		t.Fatal(rep, err)
	}
	told, err := x.stream(x.reader(), spec, 0, folded)
	if err != nil || len(told) == 0 || told[0] != want[2] || !maps.Equal(folded, x.model) {
		t.Fatal(told, err)
	}
	if err := meta.DropConsumer(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	x.expire(2)
	left, err := meta.EarliestTold(t.Context())
	if err != nil || left.ID < 4 || left.ID >= earliest.ID {
		t.Fatal(left, err)
	}
	_, err = x.stream(x.reader(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 2}}, 0, folded)
	gap, ok := errors.AsType[*reader.GapError](err)
	if !ok || !errors.Is(err, manifest.ErrSnapshotExpired) || gap.From != 2 || gap.To != left.ID-1 || gap.Earliest != earliest.ID {
		t.Fatalf("%#v %v", gap, err)
	}
	if producer == "full-compaction" {
		return
	}
	// A file of a long-lived changelog that is lost is a problem that is named, and a gap.
	c, err := meta.LongLived(t.Context(), left.ID)
	for err == nil && (producer != "none" && c.ChangelogManifestList == nil || producer == "none" && c.CommitKind != manifest.Append) {
		c, err = meta.LongLived(t.Context(), c.ID+1)
	}
	if err != nil {
		t.Fatal(err)
	}
	read := meta.Changelog
	if producer == "none" {
		read = meta.Delta
	}
	entries, err := read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"a", "b"} {
		for i := range entries {
			if err := x.Delete(t.Context(), "p="+p+"/bucket-0/"+entries[i].File.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if rep, err = x.reader().Verify(t.Context(), reader.VerifySpec{Data: true}); err != nil || rep.OK() || !strings.Contains(rep.Problems[0], fmt.Sprintf("changelog %d", c.ID)) {
		t.Error(rep, err)
	}
	_, err = x.stream(x.reader(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: c.ID}}, 0, folded)
	if gap, ok := errors.AsType[*reader.GapError](err); !ok || gap.From != c.ID {
		t.Error(err)
	}
}
