package indexfile

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestGoldenVectorFiles: the vectors of Paimon's files, written again, make the same files, but for bitmaps of which the
// libraries' two forms are equally long.
func TestGoldenVectorFiles(t *testing.T) {
	n, same := 0, 0
	for table, wide := range map[string]bool{"pk_deletion_vectors": false, "pk_deletion_vectors64": true} {
		files, err := filepath.Glob("../testdata/golden/golden.db/" + table + "/index/index-*")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var all []*Vector
			for at := 1; at < len(data); {
				size := int64(binary.BigEndian.Uint32(data[at:]))
				stated := size
				if wide {
					stated += frame
				}
				v, err := DecodeVector(data[at:], stated)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, v)
				at += int(size) + frame
				n++
			}
			again, places, err := EncodeVectors(all, wide)
			if err != nil || !bytes.Equal(again[:1], data[:1]) || !bytes.Equal(again[5:9], data[5:9]) {
				t.Fatalf("%s: %v\n%x\nPaimon wrote\n%x", name, err, again, data)
			}
			if bytes.Equal(again, data) {
				same++
			}
			for i, p := range places {
				v, err := DecodeVector(again[p.Offset:], p.Length)
				if err != nil || !slices.Equal(v.high, all[i].high) {
					t.Fatal(v, err)
				}
				for j := range v.low {
					if !v.low[j].Equals(all[i].low[j]) {
						t.Errorf("%s: rows %v, Paimon has %v", name, v.low[j], all[i].low[j])
					}
				}
			}
		}
	}
	if n < 4 || same < 4 {
		t.Fatalf("only %d vectors, %d files that are the same", n, same)
	}
}

// TestVectorsRoundTrip: what is added is there when it is read, whatever the form and the rows.
func TestVectorsRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(20261130, 1))
	for range 50 {
		wide := r.IntN(2) == 0
		var all []*Vector
		var want []map[int64]bool
		for range r.IntN(5) {
			v, rows := NewVector(), map[int64]bool{}
			most := []int64{10, 70_000, 1 << 31, 1 << 34}[r.IntN(4)]
			if !wide {
				most = min(most, 1<<32)
			}
			for range r.IntN(300) {
				rows[r.Int64N(most)] = true
			}
			for row := range rows {
				if err := v.Add(row); err != nil {
					t.Fatal(err)
				}
			}
			c := v.Clone()
			if err := c.Add(most); err != nil || v.Len() != int64(len(rows)) {
				t.Fatalf("a clone shares its rows: %d, want %d (%v)", v.Len(), len(rows), err)
			}
			all, want = append(all, v), append(want, rows)
		}
		data, places, err := EncodeVectors(all, wide)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range places {
			v, err := DecodeVector(data[p.Offset:], p.Length)
			if err != nil || v.Len() != p.Deleted || p.Deleted != int64(len(want[i])) {
				t.Fatalf("%v: %d rows of %d", err, p.Deleted, len(want[i]))
			}
			for row := range want[i] {
				if has, err := v.Has(row); !has || err != nil {
					t.Fatalf("row %d is missing (%v)", row, err)
				}
			}
		}
		if !slices.IsSortedFunc(places, func(a, b Placed) int { return int(a.Offset - b.Offset) }) {
			t.Fatal(places)
		}
	}
	v := NewVector()
	if err := v.Add(1 << 33); err != nil {
		t.Fatal(err)
	}
	if _, _, err := EncodeVectors([]*Vector{v}, false); err == nil {
		t.Error("a row beyond 32 bits is written with 32")
	}
	if err := v.Add(-1); err == nil {
		t.Error("row -1 is deleted")
	}
}
