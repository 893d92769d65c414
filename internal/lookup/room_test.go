package lookup

import (
	"fmt"
	"testing"

	"github.com/calve-io/calve/storage"
)

// TestRoom: what files hold that are asked at once is counted and given back, and where there is no room for it the rows are
// the same.
func TestRoom(t *testing.T) {
	mem := storage.NewMem()
	b := newBucket(t, newRand(t), mem, []string{"k1"}, nil, "k1 BIGINT", "a INT", "b STRING")
	const files, rows = 6, 500
	var ask []int
	for f := range files {
		var keys []int
		for i := range rows {
			keys = append(keys, f*rows+i)
		}
		b.flush(keys, adds)
		b.lift(2)
		ask = append(ask, f*rows+7, f*rows+400)
	}
	b.flush([]int{7, 8, 2*rows + 7}, adds) // what these files have is known when all have been asked
	read := []int{0, 1, 2}
	find := func(bytes int64) string {
		st := &farMem{Store: mem}
		tab := b.table(nil)
		tab.Store = st
		bk, err := tab.Bucket(b.part, b.levels.Runs(), nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := newAsked(bk.keys, b.keyColumns(ask), len(ask))
		if err != nil {
			t.Fatal(err)
		}
		ahead := newRoom(bytes)
		runs, err := bk.hitsAtOnce(t.Context(), bk.asking(q), q, read, ahead)
		if err != nil {
			t.Fatal(err)
		}
		if left := ahead.left.Load(); left != bytes {
			t.Errorf("of room for %d bytes %d are left", bytes, left)
		}
		merged, err := bk.merge(t.Context(), runs, read)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(merged.N, merged.Cols, merged.Seq)
	}
	want := find(mostAhead)
	for _, bytes := range []int64{0, 2000} {
		if got := find(bytes); got != want {
			t.Errorf("with room for %d bytes: got %s, want %s", bytes, got, want)
		}
	}
	r := newRoom(10)
	if !r.take(6) || r.take(5) || !r.take(4) || r.take(1) {
		t.Error("room for 10 bytes does not hold 6 and 4, or more")
	}
}

// farMem is a store that is far by its name alone.
type farMem struct{ storage.Store }

func (farMem) URL(name string) string { return "s3://test/" + name }
