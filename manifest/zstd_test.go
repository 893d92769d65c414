package manifest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Java's streaming writer does not say how much a block holds. A manifest with long keys holds far more than its
// compressed size lets one guess, and the decoder says in several ways that its buffer is too small.
func TestZstandardOfUnknownSize(t *testing.T) {
	for _, n := range []int{1, 100, 2_000, 20_000, 60_000} {
		var want []byte
		for i := range n {
			want = fmt.Appendf(want, "%slong key %d", strings.Repeat("ab", i%17), i%50)
		}
		var stored bytes.Buffer
		enc, err := zstd.NewWriter(&stored)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(want); i += 1000 {
			if _, err := enc.Write(want[i:min(i+1000, len(want))]); err != nil {
				t.Fatal(err)
			}
			if err := enc.Flush(); err != nil { // the header is written without the size
				t.Fatal(err)
			}
		}
		if err := enc.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := decodeBlock("zstandard", stored.Bytes())
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes in %d: got %d, %v", len(want), stored.Len(), len(got), err)
		}
		if _, err := decodeBlock("zstandard", stored.Bytes()[:stored.Len()/2]); err == nil {
			t.Errorf("%d bytes: half of the block decodes without an error", len(want))
		}
	}
}
