package ingest

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool lends the Kafka client the memory of fetched batches: records and decompressed bytes. The decoder copies
// what it keeps, so that a batch's memory serves the next one as soon as its last record is decoded. Without it they
// are most of the garbage that a stream makes.
//
// It implements kgo.PoolRecords and kgo.PoolDecompressBytes, and is safe for concurrent use as these ask.
type recordPool struct {
	records, bytes sync.Pool // *[]kgo.Record, *[]byte
}

// GetRecords implements kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.records.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return (*s)[:0]
	}
	return make([]kgo.Record, 0, n)
}

// PutRecords implements kgo.PoolRecords.
func (p *recordPool) PutRecords(s []kgo.Record) { p.records.Put(&s) }

// GetDecompressBytes implements kgo.PoolDecompressBytes. The client grows the slice where it is too small.
func (p *recordPool) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	if s, ok := p.bytes.Get().(*[]byte); ok {
		return (*s)[:0]
	}
	return nil
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (p *recordPool) PutDecompressBytes(s []byte) { p.bytes.Put(&s) }
