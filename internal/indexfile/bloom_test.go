package indexfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

const bloomTable = "../testdata/golden/golden.db/append_bloom/bucket-0"

// TestGoldenFilter rebuilds the file index that Paimon's own library wrote, from the rows of its table.
func TestGoldenFilter(t *testing.T) {
	names, err := filepath.Glob(bloomTable + "/*.index")
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	entries, err := DecodeFileIndex(data, int64(len(data)))
	if err != nil || len(entries) != 2 {
		t.Fatal(entries, err)
	}
	k, err := NewBloom(200, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewBloom(100_000, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := os.Open("../testdata/golden/append_bloom.expect/expected.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for sc := bufio.NewScanner(rows); sc.Scan(); n++ {
		var row struct {
			K int64
			V *string
		}
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		k.Add(HashInt(row.K))
		if row.V != nil {
			v.Add(HashText(*row.V))
		}
	}
	if n == 0 {
		t.Fatal("no rows")
	}
	ours, err := EncodeFileIndex([]string{"v", "k"}, []*Bloom{v, k})
	if err != nil || !bytes.Equal(ours, data) {
		t.Errorf("the index differs from Paimon's: %d bytes, want %d (%v)", len(ours), len(data), err)
	}
	for _, e := range entries {
		b, err := DecodeBloom(data[e.Start : e.Start+e.Length])
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for i := range 1000 {
			if e.Column == "k" && b.May(HashInt(int64(1_000_000+i))) || e.Column == "v" && b.May(HashBytes(fmt.Appendf(nil, "other %d", i))) {
				wrong++
			}
		}
		if wrong > 100 {
			t.Errorf("column %s: %d of 1000 wrong answers", e.Column, wrong)
		}
	}
}

// TestHashVectors: values of xxHash64 (its specification) and of Wang's hash worked out by hand for 0.
func TestHashVectors(t *testing.T) {
	if HashText("") != 0xef46db3751d8e999 || HashBytes([]byte("abc")) != 0x44bc2cf5ad770999 {
		t.Error("texts are not hashed by xxHash64 with seed 0")
	}
	v := int64(-1) // ~0
	v ^= v >> 24
	v *= 265
	v ^= v >> 14
	v *= 21
	v ^= v >> 28
	v += v << 31
	if HashInt(0) != uint64(v) {
		t.Errorf("%x, want %x", HashInt(0), uint64(v))
	}
}

func TestFilterHasWhatWasAdded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, items := range []int{1, 10, 3000} {
		b, err := NewBloom(items, 0.05)
		if err != nil {
			t.Fatal(err)
		}
		added := make([]uint64, items)
		for i := range added {
			added[i] = r.Uint64()
			b.Add(added[i])
		}
		for _, h := range added {
			if !b.May(h) {
				t.Fatalf("%d items: %x is missing", items, h)
			}
		}
	}
	for _, bad := range []struct {
		items int
		wrong float64
	}{{0, 0.1}, {10, 0}, {10, 1}, {1 << 40, 0.1}} {
		if _, err := NewBloom(bad.items, bad.wrong); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

func TestIndexNames(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "é\x00": "é\xc0\x80", "😀": "\xed\xa0\xbd\xed\xb8\x80"} {
		if got := IndexName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestFileIndexDamage: every cut and every changed byte gives an error or indexes within the file.
func TestFileIndexDamage(t *testing.T) {
	b, err := NewBloom(20, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	good, err := EncodeFileIndex([]string{"a", "long name"}, []*Bloom{b, b})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 20_000 {
		bad := bytes.Clone(good)
		if i < len(good) {
			bad = bad[:i]
		} else {
			bad[r.IntN(80)] = byte(r.Uint32())
		}
		checkIndex(t, bad)
	}
}

func checkIndex(t *testing.T, data []byte) {
	t.Helper()
	entries, err := DecodeFileIndex(data, int64(len(data)))
	if err != nil {
		if !errors.Is(err, ErrFileIndex) {
			t.Fatal(err)
		}
		return
	}
	for _, e := range entries {
		if f, err := DecodeBloom(data[e.Start : e.Start+e.Length]); err == nil {
			f.May(HashInt(e.Start))
		}
	}
}

func FuzzFileIndex(f *testing.F) {
	names, _ := filepath.Glob(bloomTable + "/*.index")
	for _, n := range names {
		if data, err := os.ReadFile(n); err == nil {
			f.Add(data[:min(len(data), 500)])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkIndex(t, data) })
}
