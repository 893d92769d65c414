package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
)

// encodeBatch is the number of rows handed to the writer at once.
const encodeBatch = 64 << 10

// oneAndTwo are the limits of a name on one core and on two.
func oneAndTwo(names ...string) []limitOf {
	var out []limitOf
	for _, n := range names {
		out = append(out, limitOf{n, 1}, limitOf{n, 2})
	}
	return out
}

var codecGroup = group{name: "codec", limits: oneAndTwo(memcpy, zstdEncode, zstdDecode), open: openCodec}

// openCodec measures a data file's writer and reader alone, on the benchmark table in thin mode.
func openCodec(k *kit, _ *run) ([]*benchmark, func() error, error) {
	s, err := newTable(thin)
	if err != nil {
		return nil, nil, err
	}
	rows, err := sorted(makeRuns(s, 1, k.codecRows, 1)[0])
	if err != nil {
		return nil, nil, err
	}
	size := int64(len(plain(rows)))
	batches := cut(rows, encodeBatch)
	var file bytes.Buffer
	if _, err := encode(&file, s, batches, 1); err != nil {
		return nil, nil, err
	}
	var out []*benchmark
	for _, procs := range []int{1, 2} {
		var info datafile.Info
		out = append(out, &benchmark{
			name: "Encode", procs: procs, rows: int64(rows.N), bytes: size,
			op: func(_ context.Context, c *clock) (err error) {
				c.start()
				info, err = encode(io.Discard, s, batches, procs)
				c.stop()
				if err == nil && info.Rows != int64(rows.N) {
					err = fmt.Errorf("%d rows in the file, want %d", info.Rows, rows.N)
				}
				return err
			},
			more: func(*clock) []metric { return []metric{{float64(info.Size) / float64(rows.N), "fileB/row"}} },
			shown: &shown{title: "encode a data file", unit: rate(procs), limit: func(med lookup) (float64, string) {
				return med(zstdEncode, procs, rate(procs)), "zstd-1 encode of the plain bytes"
			}},
		}, &benchmark{
			name: "Decode", procs: procs, rows: int64(rows.N * procs), bytes: size * int64(procs),
			op: func(_ context.Context, c *clock) error {
				errs := make([]error, procs)
				c.start()
				split(procs, func(i int) { errs[i] = decode(file.Bytes(), s, rows.N) })
				c.stop()
				for _, err := range errs {
					if err != nil {
						return err
					}
				}
				return nil
			},
			shown: &shown{title: "decode a data file", unit: rate(procs), limit: func(med lookup) (float64, string) {
				return med(zstdDecode, procs, rate(procs)), "zstd-1 decode of the plain bytes"
			}},
		})
	}
	return out, nil, nil
}

func encode(w io.Writer, s *schema.Schema, batches []datafile.Rows, parallel int) (datafile.Info, error) {
	dw, err := datafile.NewWriter(w, datafile.WriterConfig{Schema: s, Keyed: true, Thin: true, Parallel: parallel})
	if err != nil {
		return datafile.Info{}, err
	}
	for _, b := range batches {
		if err := dw.Write(b); err != nil {
			return datafile.Info{}, err
		}
	}
	return dw.Close()
}

// fileBytes is a file in memory.
type fileBytes struct{ *bytes.Reader }

// Size implements storage.File.
func (f fileBytes) Size() int64 { return f.Reader.Size() }

// Close implements storage.File.
func (f fileBytes) Close() error { return nil }

func decode(file []byte, s *schema.Schema, want int) error {
	cols := make([]int, len(s.Fields))
	for i := range cols {
		cols[i] = i
	}
	r, err := datafile.Open(fileBytes{bytes.NewReader(file)}, "memory", s, datafile.ReadSpec{Schema: s, Cols: cols, KeyValue: true})
	if err != nil {
		return err
	}
	defer r.Close()
	for n := 0; ; {
		rows, err := r.Next()
		if err == io.EOF {
			if n != want {
				return fmt.Errorf("%d rows, want %d", n, want)
			}
			return nil
		}
		if err != nil {
			return err
		}
		n += rows.N
	}
}
