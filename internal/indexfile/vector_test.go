package indexfile

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

// encode frames positions as Paimon does; it gives the bytes and the length that the index manifest states.
func encode(t testing.TB, wide bool, positions ...uint64) ([]byte, int64) {
	t.Helper()
	maps := map[uint32]*roaring.Bitmap{}
	var keys []uint32
	for _, p := range positions {
		k := uint32(p >> 32)
		if maps[k] == nil {
			maps[k] = roaring.New()
			keys = append(keys, k)
		}
		maps[k].Add(uint32(p))
	}
	slices.Sort(keys)
	var body []byte
	if !wide {
		body = binary.BigEndian.AppendUint32(nil, magic32)
		if maps[0] == nil {
			maps[0] = roaring.New()
		}
		maps[0].RunOptimize()
		b, err := maps[0].ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		body = append(body, b...)
	} else {
		body = binary.LittleEndian.AppendUint32(nil, magic64)
		body = binary.LittleEndian.AppendUint64(body, uint64(len(keys)))
		for _, k := range keys {
			b, err := maps[k].ToBytes()
			if err != nil {
				t.Fatal(err)
			}
			body = append(binary.LittleEndian.AppendUint32(body, k), b...)
		}
	}
	stated := int64(len(body))
	if wide {
		stated += frame
	}
	return seal(body), stated
}

// seal puts length and checksum around the bytes of a vector.
func seal(body []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	out = append(out, body...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
}

// alive lists the rows that a cursor leaves, asked for in steps.
func alive(t *testing.T, v *Vector, rows int, step func() int) []int64 {
	t.Helper()
	var out []int64
	c := v.Cursor()
	for at := 0; at < rows; {
		n := min(step(), rows-at)
		if rows > 100_000 && at > rows/2 && at < rows/2+30_000 { // as a reader that leaves rows out
			for i := range int64(n) {
				out = append(out, -1-int64(at)-i)
			}
			at += n
			continue
		}
		spans, err := c.Live(nil, int64(at), n)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spans {
			for i := range int64(s.N) {
				out = append(out, int64(at)+int64(s.Start)+i)
			}
		}
		at += n
	}
	if c.Beyond(int64(rows)) {
		t.Fatal("positions left behind the last row")
	}
	return out
}

func TestVectorModel(t *testing.T) {
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, seed))
	for range 15 {
		rows := 1 + rnd.IntN(200_000)
		gone := map[uint64]bool{}
		for range rnd.IntN(1 + rows/(1+rnd.IntN(8))) {
			p := uint64(rnd.IntN(rows))
			for range 1 + rnd.IntN(5) { // runs too
				if p < uint64(rows) {
					gone[p] = true
				}
				p++
			}
		}
		var positions []uint64
		for p := range gone {
			positions = append(positions, p)
		}
		for _, wide := range []bool{false, true} {
			data, stated := encode(t, wide, positions...)
			v, err := DecodeVector(append(data, 1, 2, 3), stated)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if v.Len() != int64(len(positions)) || v.Check(int64(rows)) != nil {
				t.Fatalf("seed %d: %d positions, want %d (%v)", seed, v.Len(), len(positions), v.Check(int64(rows)))
			}
			var want []int64
			for i := range int64(rows) {
				if !gone[uint64(i)] {
					want = append(want, i)
				}
			}
			got := alive(t, v, rows, func() int { return 1 + rnd.IntN(70_000) })
			skipped := map[int64]bool{}
			got = slices.DeleteFunc(got, func(r int64) bool {
				if r < 0 {
					skipped[-1-r] = true
				}
				return r < 0
			})
			want = slices.DeleteFunc(want, func(r int64) bool { return skipped[r] })
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d wide %v: %d rows alive, want %d", seed, wide, len(got), len(want))
			}
		}
	}
}

func TestVectorBeyond32Bits(t *testing.T) {
	data, stated := encode(t, true, 3, 1<<32+5, 9<<32)
	v, err := DecodeVector(data, stated)
	if err != nil || v.Len() != 3 {
		t.Fatal(v, err)
	}
	if err := v.Check(9<<32 + 1); err != nil {
		t.Error(err)
	}
	if err := v.Check(9 << 32); !errors.Is(err, ErrCorrupt) {
		t.Error("a position beyond the file:", err)
	}
}

func TestVectorDamage(t *testing.T) {
	for _, wide := range []bool{false, true} {
		data, stated := encode(t, wide, 1, 2, 3, 700, 70_000)
		if _, err := DecodeVector(data, stated+1); !errors.Is(err, ErrCorrupt) {
			t.Error("another length than stated:", err)
		}
		for n := range data {
			if _, err := DecodeVector(data[:n], stated); !errors.Is(err, ErrCorrupt) {
				t.Errorf("cut at %d: %v", n, err)
			}
		}
		for i := range data {
			bad := slices.Clone(data)
			bad[i] ^= 0x40
			if _, err := DecodeVector(bad, stated); !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d changed: %v", i, err)
			}
		}
	}
	// Sealed well, but with positions that do not ascend: two equal ones in an array.
	body := binary.BigEndian.AppendUint32(nil, magic32)
	body = append(body, 0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 16, 0, 0, 0, 5, 0, 5, 0)
	v, err := DecodeVector(seal(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Cursor().Live(nil, 0, 100); !errors.Is(err, ErrCorrupt) {
		t.Error("equal positions:", err)
	}
}

func TestHashes(t *testing.T) {
	hashes := []int32{0, -1, 1 << 30, -1 << 31}
	data := AppendHashes(nil, hashes)
	got, err := DecodeHashes(nil, data)
	if err != nil || !slices.Equal(got, hashes) {
		t.Fatal(got, err)
	}
	if _, err := DecodeHashes(nil, data[:5]); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// FuzzVector: any bytes give a vector whose cursor comes to an end, or an error of the known kind.
func FuzzVector(f *testing.F) {
	names, err := filepath.Glob("../testdata/golden/golden.db/*/index/index-*")
	if err != nil || len(names) == 0 {
		f.Fatal(names, err)
	}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
		if len(data) > 1 {
			f.Add(data[1:], true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, sealIt bool) {
		if sealIt && len(data) > frame { // let the bitmap decoder see what the checksum would keep from it
			data = seal(data[4 : len(data)-4])
		}
		for _, stated := range []int64{int64(len(data)) - frame, int64(len(data))} {
			v, err := DecodeVector(data, stated)
			if err == nil {
				err = v.Check(1 << 20)
			}
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
		if _, err := DecodeHashes(nil, data); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
