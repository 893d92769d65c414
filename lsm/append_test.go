package lsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// TestCompactAppend: random flushes and compactions of an append bucket leave its rows in their order, and no small
// neighbours in the end. What a full compaction makes of other files is as the manifest says.
func TestCompactAppend(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, nil, map[string]string{"target-file-size": "4 kb", "bucket": "1", "bucket-key": "n", "compaction.min.file-num": "3"}, "v STRING", "n INT")
	b := newBucket(t, r, storage.NewMem(), s)
	b.files.leastCopy, b.files.cutRows = 1300, 8
	var want []string
	copied, rewritten := int64(0), int64(0)
	compact := func(j Job) {
		before := sumRows(j.Files)
		c, err := b.files.Compact(t.Context(), b.part, j)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Added) != 1 || c.Added[0].Rows != before || *c.Added[0].Source != manifest.FromCompact || c.Added[0].Level != 0 {
			t.Fatalf("%d files with %d rows became %+v", len(j.Files), before, c.Added)
		}
		if err := b.levels.Apply(c); err != nil {
			t.Fatal(err)
		}
		copied, rewritten = copied+c.Copied, rewritten+before
	}
	for i := range 60 {
		rows := make([]row, 1+r.IntN(30))
		for k := range rows {
			rows[k].vals = []any{fmt.Sprintf("%x", r.Uint64()), int32(i*100 + k)}
			want = append(want, fmt.Sprint(rows[k].vals))
		}
		b.flush(rows)
		for {
			j, ok := Pick(b.levels, b.policy)
			if !ok {
				break
			}
			compact(j)
		}
	}
	n := len(b.levels.Files())
	for {
		j, ok := PickFull(b.levels, b.policy)
		if !ok {
			break
		}
		compact(j)
	}
	files := b.levels.Files()
	if n >= 60 || len(files) >= n || len(files) < 2 {
		t.Errorf("60 flushes became %d files, in the end %d", n, len(files))
	}
	slices.SortFunc(files, func(x, y manifest.DataFile) int { return inOrder(&x, &y) })
	var got []string
	for _, row := range b.readAll(files) {
		got = append(got, fmt.Sprint(row.vals))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d rows came back, want %d in their order", len(got), len(want))
	}
	if copied == 0 || copied == rewritten {
		t.Errorf("%d of %d rows were copied", copied, rewritten)
	}
	for i := 1; i < len(files); i++ {
		if files[i].MinSeq != files[i-1].MaxSeq+1 {
			t.Errorf("sequence numbers %d after %d", files[i].MinSeq, files[i-1].MaxSeq)
		}
	}
}

// TestAppendStatsHaveNoLevel: metadata.stats-mode.per.level is for the levels of tables with a key.
func TestAppendStatsHaveNoLevel(t *testing.T) {
	for _, key := range [][]string{nil, {"n"}} {
		options := map[string]string{"bucket": "1", "metadata.stats-mode.per.level": "0:none"}
		if key == nil {
			options["bucket-key"] = "n"
		}
		b := newBucket(t, newRand(t), storage.NewMem(), newSchema(t, key, options, "n INT"))
		made := b.flush([]row{{vals: []any{int32(1)}}})
		if got := made[0].ValueStatsAll; got != (key == nil) {
			t.Errorf("key %v: statistics of all columns: %v", key, got)
		}
	}
}

func sumRows(files []manifest.DataFile) (n int64) {
	for i := range files {
		n += files[i].Rows
	}
	return n
}

// TestCompactAppendFails: a compaction that finds another file than it was told of leaves nothing behind.
func TestCompactAppendFails(t *testing.T) {
	r := newRand(t)
	b := newBucket(t, r, storage.NewMem(), newSchema(t, nil, map[string]string{"bucket": "-1"}, "n INT"))
	for i := range 3 {
		b.flush([]row{{vals: []any{int32(i)}}})
	}
	before := objects(t, b.files.Store)
	j, ok := PickFull(b.levels, b.policy)
	if !ok {
		t.Fatal("nothing to compact")
	}
	j.Files = slices.Clone(j.Files)
	j.Files[0].Rows++
	if _, err := b.files.Compact(t.Context(), b.part, j); err == nil || !strings.Contains(err.Error(), "rows") {
		t.Errorf("error %v", err)
	}
	if !maps.Equal(before, objects(t, b.files.Store)) {
		t.Error("the failed compaction left something")
	}
}
