package engine_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// trackedRow is a row with its id and the snapshot it came with.
type trackedRow struct {
	seq   int64
	cells string
}

// trackedRows reads the rows of an append table with row tracking by their ids, as Paimon does: from the file, or else from
// its manifest entry.
func trackedRows(t *testing.T, st storage.Store) (map[int64]trackedRow, int64) {
	t.Helper()
	meta := readerOf(st).Meta()
	snap, err := meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	live, err := meta.Live(t.Context(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64]trackedRow{}
	for i := range live {
		eachTracked(t, st, meta, &live[i].File, func(id int64, r trackedRow) {
			if _, twice := out[id]; twice {
				t.Errorf("row id %d twice", id)
			}
			out[id] = r
		})
	}
	return out, *snap.NextRowID
}

func eachTracked(t *testing.T, st storage.Store, meta *manifest.Table, file *manifest.DataFile, row func(int64, trackedRow)) {
	t.Helper()
	s, err := meta.Schema(t.Context(), file.SchemaID)
	if err != nil {
		t.Fatal(err)
	}
	name := "bucket-0/" + file.Name
	f, err := st.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	n, all := len(s.Fields), s.WithRowTracking(true)
	cols := make([]int, n+2)
	for i := range cols {
		cols[i] = i
	}
	r, err := datafile.Open(f, name, all, datafile.ReadSpec{Schema: all, Cols: cols})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := int64(0)
	for {
		rows, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows.N {
			id, seq := file.FirstRowID, file.MaxSeq
			if ids := rows.Cols[n].(*array.Int64); ids.IsValid(i) {
				id, seq = new(int64), rows.Cols[n+1].(*array.Int64).Value(i)
				*id = ids.Value(i) - at
			}
			cells := ""
			for c := range 3 {
				cells += fmt.Sprint(schema.Cell(rows.Cols[c], i), " ")
			}
			row(*id+at, trackedRow{seq, cells})
			at++
		}
	}
}

// TestRowIDsStay: rows have the ids that their commit gave them, from one writer or another, whatever is compacted and
// through which schema.
func TestRowIDsStay(t *testing.T) {
	st, rng := storage.NewMem(), newRand(t)
	s, err := schema.New(schema.Spec{Columns: []schema.Column{column(t, "p STRING NOT NULL"), column(t, "id BIGINT NOT NULL"), column(t, "name STRING")},
		Options: map[string]string{"bucket": "-1", "row-tracking.enabled": "true", "compaction.min.file-num": "3", "target-file-size": "20 kb", "file.compression": "none"}})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, st, s)
	tabs := []*engine.Table{mustOpen(t, st, engine.Settings{}), mustOpen(t, st, engine.Settings{})}
	want, next := map[int64]trackedRow{}, int64(0)
	for round := range 30 {
		tab := tabs[rng.IntN(2)]
		rows := make([]row, 1+rng.IntN(200))
		for i := range rows {
			rows[i] = row{part: "x", id: int64(round), name: fmt.Sprint(rng.Uint64())}
		}
		if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
			t.Fatal(err)
		}
		snap, err := tab.Commit(t.Context(), progress(round))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			want[next] = trackedRow{snap.ID, fmt.Sprint(r.part, " ", r.id, " ", r.name, " ")}
			next++
		}
		if rng.IntN(4) == 0 {
			if err := tabs[rng.IntN(2)].Compact(t.Context(), rng.IntN(2) == 0); err != nil {
				t.Fatal(err)
			}
		}
		if round == 15 {
			s = alter(t, st, schema.RenameColumn{Path: []string{"name"}, To: "title"})
			for _, tab := range tabs {
				if err := tab.Follow(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, more := trackedRows(t, st)
		if !maps.Equal(got, want) || more != next {
			t.Fatalf("round %d: %d rows, want %d; next id %d, want %d", round, len(got), len(want), more, next)
		}
	}
	if files := len(liveFiles(t, st)); files > 20 {
		t.Errorf("%d files: nothing was compacted", files)
	}
	mustVerify(t, st)
	for _, tab := range tabs {
		if err := tab.Compact(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	// Compacted files have statistics of the table's columns, too.
	query, found := reader.Query{Where: "id = 7"}, 0
	splits, err := readerOf(st).Plan(t.Context(), query)
	if all := len(liveFiles(t, st)); err != nil || len(splits) >= all || all < 4 {
		t.Errorf("%d of %d files are read for one of 30 ids (%v)", len(splits), all, err)
	}
	for rec, err := range readerOf(st).Scan(t.Context(), query) {
		if err != nil {
			t.Fatal(err)
		}
		found += int(rec.NumRows())
	}
	inWant := 0
	for _, r := range want {
		if strings.HasPrefix(r.cells, "x 7 ") {
			inWant++
		}
	}
	if found != inWant || found == 0 {
		t.Errorf("%d rows found, want %d", found, inWant)
	}
}
