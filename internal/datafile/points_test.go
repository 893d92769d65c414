package datafile

import (
	"path/filepath"
	"testing"

	"github.com/calve-io/calve/storage"
)

// TestPlacesAreOfTheirChunk: a damaged file may have two chunks name one OffsetIndex; what is right for the one is not taken
// for the other.
func TestPlacesAreOfTheirChunk(t *testing.T) {
	names, err := filepath.Glob("../testdata/golden/golden.db/append_bloom/bucket-0/*.parquet")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	st, err := storage.NewLocal(filepath.Dir(names[0]))
	if err != nil {
		t.Fatal(err)
	}
	f, err := st.Open(t.Context(), filepath.Base(names[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	foot, err := readFooter(f, tailBytes)
	if err != nil {
		t.Fatal(err)
	}
	foot.tail.known = &placeCache{m: map[placeKey][]pagePlace{}}
	g := &foot.groups[0]
	c := g.chunks[0]
	for range 2 {
		if p, err := readPlaces(&foot.tail, f, &c, g.rows); err != nil || len(p) == 0 {
			t.Fatalf("%v %v", p, err)
		}
	}
	short := c
	short.size /= 2
	for _, wrong := range []struct {
		c    *chunk
		rows int64
	}{{&c, 0}, {&short, g.rows}} {
		if p, err := readPlaces(&foot.tail, f, wrong.c, wrong.rows); p != nil || err != nil {
			t.Errorf("places of another chunk: %v %v", p, err)
		}
	}
}
