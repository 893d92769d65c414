package datafile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
)

// A page that Paimon Java 1.4.2 wrote with file.compression = lz4: nine sequence numbers.
const javaLZ4 = "000000480000002b220a0001001210070023000d0800131308001312080013020800130f080013070800800600000000000000"

func TestLZ4OfJava(t *testing.T) {
	src, err := hex.DecodeString(javaLZ4)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, n := range []byte{10, 16, 13, 19, 18, 2, 15, 7, 6} {
		want = append(want, n, 0, 0, 0, 0, 0, 0, 0)
	}
	got, err := decompress(codecLZ4, nil, src, len(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %x, %v, want %x", got, err, want)
	}
	twice, err := decompress(codecLZ4, nil, slices.Concat(src, src), 2*len(want))
	if err != nil || !bytes.Equal(twice, slices.Concat(want, want)) {
		t.Fatalf("two frames: got %x, %v", twice, err)
	}
	for n := range src {
		if _, err := decompress(codecLZ4, nil, src[:n], len(want)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("the first %d bytes: %v, want ErrCorrupt", n, err)
		}
	}
	for i := range src {
		broken := slices.Clone(src)
		broken[i] ^= 0xff
		if got, err := decompress(codecLZ4, nil, broken, len(want)); err == nil && len(got) != len(want) {
			t.Errorf("byte %d broken: %d bytes, want %d", i, len(got), len(want))
		}
	}
	// One plain length may span several blocks: the second frame's block joined to the first's.
	joined := slices.Concat([]byte{0, 0, 0, 0x90}, src[4:], src[4:])
	if got, err := decompress(codecLZ4, nil, joined, 2*len(want)); err != nil || !bytes.Equal(got, slices.Concat(want, want)) {
		t.Fatalf("two blocks in a frame: got %x, %v", got, err)
	}
}
