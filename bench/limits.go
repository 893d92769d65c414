package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// limitOf names a limit to be measured beside a group.
type limitOf struct {
	name  string
	procs int
}

// Names of the limits.
const (
	memcpy        = "Limit/memcpy"
	zstdEncode    = "Limit/zstd1-encode"
	zstdDecode    = "Limit/zstd1-decode"
	durableCreate = "Limit/durable-create"
	openRead      = "Limit/open-read"
)

// page is how much is compressed at once, as in Parquet pages.
const page = 1 << 20

// limits measures what the machine can do at most: copying memory, compressing the plain bytes of the benchmark's rows
// with the codec of the data files, and making files durable.
type limits struct {
	rows   int64
	src    []byte
	dst    []byte
	pages  [][]byte
	packed [][]byte
	dir    string
	seq    int
}

func newLimits(k *kit) (*limits, error) {
	s, err := newTable(nil)
	if err != nil {
		return nil, err
	}
	rows, err := sorted(makeRuns(s, 1, k.codecRows, 1)[0])
	if err != nil {
		return nil, err
	}
	l := &limits{rows: int64(rows.N), src: plain(rows), dir: filepath.Join(k.dir, "limits")}
	l.dst = bytes.Clone(l.src)
	enc, err := newEncoder()
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	for at := 0; at < len(l.src); at += page {
		p := l.src[at:min(at+page, len(l.src))]
		l.pages = append(l.pages, p)
		l.packed = append(l.packed, enc.EncodeAll(p, nil))
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	return l, os.WriteFile(filepath.Join(l.dir, "small"), l.src[:4096], 0o644)
}

func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
}

// bench makes the benchmark of a limit.
func (l *limits) bench(of limitOf) (*benchmark, error) {
	b := &benchmark{name: of.name, procs: of.procs}
	var err error
	switch of.name {
	case memcpy:
		b.rows, b.bytes, b.op = l.rows, int64(len(l.src)), l.copying(of.procs)
		b.more = func(c *clock) []metric {
			return []metric{{float64(b.bytes) * float64(len(c.laps)) / c.sum.cpu.Seconds() / 1e6, "MB/cpu-s"}}
		}
	case zstdEncode:
		b.rows, b.bytes = l.rows, int64(len(l.src))
		b.op, err = l.encoding(of.procs)
	case zstdDecode:
		b.rows, b.bytes = l.rows, int64(len(l.src))
		b.op, err = l.decoding(of.procs)
	case durableCreate:
		b.op, b.laps = l.creating, true
	case openRead:
		b.op = l.reading
	default:
		err = fmt.Errorf("no such limit: %s", of.name)
	}
	return b, err
}

// split runs f on p goroutines and waits.
func split(p int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range p {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func (l *limits) copying(p int) func(context.Context, *clock) error {
	n := len(l.src) / p
	return func(_ context.Context, c *clock) error {
		c.start()
		split(p, func(i int) { copy(l.dst[i*n:(i+1)*n], l.src[i*n:(i+1)*n]) })
		c.stop()
		return nil
	}
}

func (l *limits) encoding(p int) (func(context.Context, *clock) error, error) {
	encs, bufs := make([]*zstd.Encoder, p), make([][]byte, p)
	for i := range encs {
		var err error
		if encs[i], err = newEncoder(); err != nil {
			return nil, err
		}
		bufs[i] = make([]byte, 0, 2*page)
	}
	return func(_ context.Context, c *clock) error {
		c.start()
		split(p, func(i int) {
			for j := i; j < len(l.pages); j += p {
				bufs[i] = encs[i].EncodeAll(l.pages[j], bufs[i][:0])
			}
		})
		c.stop()
		return nil
	}, nil
}

func (l *limits) decoding(p int) (func(context.Context, *clock) error, error) {
	decs, bufs := make([]*zstd.Decoder, p), make([][]byte, p)
	for i := range decs {
		var err error
		if decs[i], err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)); err != nil {
			return nil, err
		}
		bufs[i] = make([]byte, 0, 2*page)
	}
	return func(_ context.Context, c *clock) error {
		errs := make([]error, p)
		c.start()
		split(p, func(i int) {
			for j := i; j < len(l.packed) && errs[i] == nil; j += p {
				var out []byte
				if out, errs[i] = decs[i].DecodeAll(l.packed[j], bufs[i][:0]); errs[i] == nil && len(out) != len(l.pages[j]) {
					errs[i] = fmt.Errorf("page %d decodes to %d bytes, want %d", j, len(out), len(l.pages[j]))
				}
			}
		})
		c.stop()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// creating makes a file of 4 KiB that survives a power cut: its bytes and its folder's entry are synced.
func (l *limits) creating(_ context.Context, c *clock) error {
	l.seq++
	name := filepath.Join(l.dir, fmt.Sprint("f", l.seq))
	c.start()
	err := createDurably(name, l.src[:4096])
	c.stop()
	if err != nil {
		return err
	}
	return os.Remove(name)
}

func createDurably(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// reading opens a small file that is in the page cache, reads and closes it.
func (l *limits) reading(_ context.Context, c *clock) error {
	const n = 100 // one is too short to be timed
	c.start()
	for range n {
		if _, err := os.ReadFile(filepath.Join(l.dir, "small")); err != nil {
			return err
		}
	}
	c.stop()
	return nil
}
