package ingest

import (
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRecordPool: a slice is lent again where it is large enough and not far too large, and what is kept is bounded.
func TestRecordPool(t *testing.T) {
	var p recordPool
	small, large := make([]byte, 0, 1000), make([]byte, 0, 100_000)
	p.PutDecompressBytes(large)
	p.PutDecompressBytes(small)
	block := func(n int) []byte { return snappy.Encode(nil, make([]byte, n)) }
	for _, c := range []struct{ n, want int }{{2000, 0}, {60_000, cap(large)}, {60_000, 0}, {900, cap(small)}, {900, 0}} {
		if got := p.GetDecompressBytes(block(c.n), kgo.CodecSnappy); cap(got) != c.want || len(got) != 0 {
			t.Errorf("for %d bytes: a slice of %d of %d, want one of %d", c.n, len(got), cap(got), c.want)
		}
	}
	p.PutDecompressBytes(small)
	if got := p.GetDecompressBytes([]byte{0xff}, kgo.CodecSnappy); cap(got) != 0 {
		t.Errorf("for a block that is none: a slice of %d", cap(got))
	}
	for range 3 * pooledBytes / cap(large) {
		p.PutDecompressBytes(make([]byte, cap(large)))
		p.PutRecords(make([]kgo.Record, 0, 1000))
	}
	p.PutDecompressBytes(make([]byte, 2*pooledBytes))
	n := 0
	for _, s := range p.bytes.slices {
		n += cap(s)
	}
	if n > pooledBytes || n < pooledBytes/2 || n != p.bytes.room {
		t.Errorf("%d bytes are kept, %d are counted, at most %d", n, p.bytes.room, pooledBytes)
	}
	if r := len(p.records.slices) * 1000; r > pooledBytes/recordBytes || r != p.records.room || r == 0 {
		t.Errorf("%d records are kept, %d are counted", r, p.records.room)
	}
	if got := p.GetRecords(500); cap(got) != 1000 || len(got) != 0 {
		t.Errorf("500 records: a slice of %d of %d", len(got), cap(got))
	}
	if got := p.GetRecords(5000); cap(got) != 5000 {
		t.Errorf("5000 records: a slice of %d", cap(got))
	}
	for n, want := range map[int]int{100: 0, 20_000: cap(large), 30_000: 0} { // the client clears what it gets
		if got := p.GetDecompressBytes(make([]byte, n), kgo.CodecZstd); cap(got) != want {
			t.Errorf("for %d bytes of zstd: a slice of %d, want one of %d", n, cap(got), want)
		}
	}
}
