package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

const fileAvro = `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"s","type":["null","string"]},{"name":"more","type":{"type":"array","items":"double"}}]}`

// avroContainer writes n records.
func avroContainer(t testing.TB, n int, opts ...ocf.WriterOpt) []byte {
	t.Helper()
	s, err := avro.Parse(fileAvro)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := ocf.NewWriter(&b, s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		text := any(fmt.Sprintf("text %d", i))
		if i%100 == 7 {
			text = "\xff" // no text
		}
		if err := w.Encode(map[string]any{"id": int64(i), "s": text, "more": []float64{1, float64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func wantContainer(n int) (rows []string) {
	for i := range n {
		if i%100 != 7 {
			rows = append(rows, fmt.Sprintf(`{"id":%d,"s":"text %d"}`, i, i))
		}
	}
	slices.Sort(rows)
	return rows
}

func runFile(t *testing.T, store storage.Store, data []byte, name string, limits Limits, events Events) (LinesResult, *list, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	table, err := engine.Open(ctx, store, engine.Settings{Job: "file"}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	if events.Committed != nil {
		then := events.Committed
		events.Committed = func(c Committed) { then(c); cancel() }
	}
	dead := &list{}
	cfg := FileConfig{Name: name, Resume: true, Limits: limits, Decode: decode.Config{Format: decode.Avro, BatchRows: 64}}
	res, err := RunFile(ctx, bytes.NewReader(data), int64(len(data)), cfg, table, dead, testEnv(), events)
	return res, dead, errors.Join(err, table.Close(context.Background()))
}

// TestAvroFile reads containers of every codec into a table, in several tries; each record is in it once.
func TestAvroFile(t *testing.T) {
	cols, err := schema.ParseColumns("id BIGINT, s STRING")
	if err != nil {
		t.Fatal(err)
	}
	zstd, err := ocf.ZstdCodec(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string][]ocf.WriterOpt{"null": nil, "deflate": {ocf.WithCodec(ocf.DeflateCodec(5))}, "snappy": {ocf.WithCodec(ocf.SnappyCodec())}, "zstandard": {ocf.WithCodec(zstd)}} {
		t.Run(name, func(t *testing.T) {
			data := avroContainer(t, 1500, append(opts, ocf.WithBlockCount(130))...)
			store := createFrom(t, cols)
			tries, rows, letters := 0, int64(0), 0
			for ; rows < 1500-15; tries++ {
				res, dead, err := runFile(t, store, data, "f.avro", Limits{CommitRows: 200}, Events{Committed: func(Committed) {}}) // stops after a commit
				if err != nil || tries > 50 {
					t.Fatal(res, err)
				}
				rows += res.Rows
				letters += len(dead.all())
			}
			if got, want := jsonRows(t, store), wantContainer(1500); !slices.Equal(got, want) || tries < 2 || letters != 15 {
				t.Fatalf("%d rows, want %d; %d tries, %d letters", len(got), len(want), tries, letters)
			}
			if res, _, err := runFile(t, store, data, "f.avro", Limits{}, Events{}); err != nil || res.Lines != 0 {
				t.Errorf("once more: %+v %v", res, err)
			}
			other := avroContainer(t, 1500, opts...)
			if _, _, err := runFile(t, store, other, "f.avro", Limits{}, Events{}); !errors.Is(err, ErrSourceChanged) {
				t.Errorf("another file: %v", err)
			}
			if _, _, err := runFile(t, store, data, "g.avro", Limits{}, Events{}); !errors.Is(err, ErrSourceChanged) {
				t.Errorf("another name: %v", err)
			}
		})
	}
}

// TestAvroFileBroken: what stands before the fault is written, and the fault is told; nothing is allocated that is not there.
func TestAvroFileBroken(t *testing.T) {
	cols, err := schema.ParseColumns("id BIGINT, s STRING")
	if err != nil {
		t.Fatal(err)
	}
	data := avroContainer(t, 300, ocf.WithBlockCount(100))
	whole := len(data)
	if res, _, err := runFile(t, createFrom(t, cols), data[:whole-30], "f", Limits{}, Events{}); err == nil || !strings.Contains(err.Error(), "is broken") || res.Rows != 198 {
		t.Errorf("cut: %+v %v", res, err)
	}
	marker := append([]byte(nil), data...)
	marker[whole-1]++
	if res, _, err := runFile(t, createFrom(t, cols), marker, "f", Limits{}, Events{}); err == nil || !strings.Contains(err.Error(), "marker") || res.Rows != 198 {
		t.Errorf("marker: %+v %v", res, err)
	}
	for _, b := range [][]byte{nil, []byte("PAR1"), []byte("Obj\x01"), binary.AppendVarint([]byte("Obj\x01\x02"), 1<<40), data[:40]} {
		if _, _, err := runFile(t, createFrom(t, cols), b, "f", Limits{}, Events{}); !errors.Is(err, ErrConfig) {
			t.Errorf("%.20q: %v", b, err)
		}
	}
}

// TestAvroFileEmptyRecords: records without bytes are read, but not as many as a block of none says that it has.
func TestAvroFileEmptyRecords(t *testing.T) {
	for _, c := range []struct {
		records int64
		rows    int
		broken  bool
	}{{records: 3, rows: 3}, {records: maxAvroEmpty, rows: maxAvroEmpty}, {records: maxAvroEmpty + 1, broken: true}, {records: 1 << 40, broken: true}} {
		const marker = "0123456789abcdef"
		b := []byte("Obj\x01")
		put := func(s string) { b = append(binary.AppendVarint(b, int64(len(s))), s...) }
		b = binary.AppendVarint(b, 1)
		put("avro.schema")
		put(`{"type":"record","name":"R","fields":[]}`)
		b = append(append(b, 0), marker...)
		b = append(binary.AppendVarint(binary.AppendVarint(b, c.records), 0), marker...)
		f, err := openAvroFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for err == nil && rows <= maxAvroEmpty+1 {
			if _, err = f.next(); err == nil {
				rows++
			}
		}
		f.close()
		if rows != c.rows || (err != io.EOF) != c.broken {
			t.Errorf("a block that says it has %d records without bytes gave %d, %v", c.records, rows, err)
		}
	}
}

func FuzzAvroFile(f *testing.F) {
	f.Add(avroContainer(f, 5, ocf.WithCodec(ocf.SnappyCodec())))
	f.Add(avroContainer(f, 5, ocf.WithCodec(ocf.DeflateCodec(1))))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := openAvroFile(bytes.NewReader(b))
		if err != nil {
			return
		}
		defer r.close()
		for range 1000 {
			if _, err := r.next(); err != nil {
				return
			}
		}
	})
}
