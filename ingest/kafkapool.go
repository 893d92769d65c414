package ingest

import (
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool lends the Kafka client the memory of fetched batches: records and decompressed bytes. The decoder copies
// what it keeps, so that a batch's memory serves the next one as soon as its last record is decoded. Without it they
// are most of the garbage that a stream makes.
//
// It implements kgo.PoolRecords and kgo.PoolDecompressBytes, and is safe for concurrent use as these ask.
type recordPool struct {
	mu      sync.Mutex // guards both; held for moments
	records shelf[kgo.Record]
	bytes   shelf[byte]
}

// pooledBytes bounds what is kept of either kind, about a fetch: batches come back one by one, and are asked for when the
// next fetch is there.
const pooledBytes = 4 << 20

// GetRecords implements kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	p.mu.Lock()
	s := p.records.take(n)
	p.mu.Unlock()
	if s == nil {
		s = make([]kgo.Record, 0, n)
	}
	return s
}

// PutRecords implements kgo.PoolRecords.
func (p *recordPool) PutRecords(s []kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records.put(s, pooledBytes/recordBytes)
}

// GetDecompressBytes implements kgo.PoolDecompressBytes. The client makes a slice of its own where this one is too small.
// Blocks of snappy say how large they become; of others it is guessed, for the client clears all of what it gets.
func (p *recordPool) GetDecompressBytes(compressed []byte, codec kgo.CompressionCodecType) []byte {
	n := 4 * len(compressed)
	if codec == kgo.CodecSnappy {
		n, _ = s2.DecodedLen(compressed) // a block that is none is refused when it is decoded
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes.take(n)
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (p *recordPool) PutDecompressBytes(s []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes.put(s, pooledBytes)
}

// shelf keeps slices to be used again. One that is too small for what is asked stays for others: dropped, it would soon be
// made again.
type shelf[T any] struct {
	slices [][]T // the last one put is the last
	room   int   // sum of their capacities
}

// take gives the slice put last that has room for n elements and not far more, without elements; nil if there is none.
func (s *shelf[T]) take(n int) []T {
	for i := len(s.slices) - 1; i >= 0; i-- {
		if c := cap(s.slices[i]); c >= n && c/4 <= n {
			out := s.slices[i][:0]
			s.slices = slices.Delete(s.slices, i, i+1)
			s.room -= c
			return out
		}
	}
	return nil
}

// put keeps a slice. Of more than most elements the oldest go.
func (s *shelf[T]) put(v []T, most int) {
	if cap(v) == 0 || cap(v) > most {
		return
	}
	s.slices = append(s.slices, v)
	s.room += cap(v)
	drop := 0
	for ; s.room > most; drop++ {
		s.room -= cap(s.slices[drop])
	}
	s.slices = slices.Delete(s.slices, 0, drop)
}
