package datafile

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/calve-io/calve/schema"
)

// allocLimit is what reading a damaged file of some kilobytes may allocate at most: a few pages.
const allocLimit = 256 << 20

// readHostile reads a file that may be damaged. The only outcomes are rows and errors; a panic that was caught counts
// as a failure too, since the checks should have come before it.
func readHostile(t testing.TB, b []byte, s *schema.Schema, keyed bool) error {
	t.Helper()
	before := allocated()
	_, err := readFile(b, s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: keyed, BatchRows: 512})
	if n := allocated() - before; n > allocLimit+64*uint64(len(b)) {
		t.Fatalf("reading %d bytes allocated %d MB (%v)", len(b), n>>20, err)
	}
	if err != nil {
		if strings.Contains(err.Error(), "panic:") {
			t.Fatal(err)
		}
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("error is neither ErrCorrupt nor ErrUnsupported: %v", err)
		}
		if !strings.Contains(err.Error(), "test.parquet") {
			t.Fatalf("error does not name the file: %v", err)
		}
	}
	return err
}

// allocated is how many bytes the process has allocated so far, without stopping it.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// corpus are valid files, small, of all page forms.
func corpus(t testing.TB, s *schema.Schema) [][]byte {
	t.Helper()
	var out [][]byte
	for i, c := range []struct {
		rows  int
		shape valueShape
		codec string
	}{
		{200, valueShape{nulls: 0.2}, "zstd"}, {200, valueShape{nulls: 0.2, repeats: 5}, "none"},
		{300, valueShape{repeats: 3}, "snappy"}, {100, valueShape{nulls: 1}, "lz4"}, {50, valueShape{nulls: 0.5}, "none"},
	} {
		rows := randomRows(newRand(uint64(i)), s, 0, c.rows, c.shape)
		b, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, Compression: c.codec, RowGroupRows: 128}, rows)
		out = append(out, b)
	}
	return out
}

// TestTruncated cuts files off everywhere.
func TestTruncated(t *testing.T) {
	s := allTypes(t)
	for i, b := range corpus(t, s) {
		r := newRand(uint64(i))
		for n := 0; n < len(b); n += 1 + r.IntN(len(b)/60) {
			if err := readHostile(t, b[:n], s, true); err == nil {
				t.Fatalf("file %d cut to %d of %d bytes was read", i, n, len(b))
			}
		}
	}
}

// TestFlipped changes bytes. Values may come out wrong (only zstd and checksums notice), but nothing else may happen.
func TestFlipped(t *testing.T) {
	s := allTypes(t)
	for i, b := range corpus(t, s) {
		r := newRand(100 + uint64(i))
		footer := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		for range 120 {
			c := append([]byte(nil), b...)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(c))
				if r.IntN(3) == 0 { // the footer is where lies do most
					at = footer + r.IntN(len(c)-footer)
				}
				c[at] ^= byte(1 << r.IntN(8))
			}
			readHostile(t, c, s, true)
		}
	}
}

// TestOverwritten replaces stretches by random bytes, zeros or ones.
func TestOverwritten(t *testing.T) {
	s := allTypes(t)
	for i, b := range corpus(t, s) {
		r := newRand(200 + uint64(i))
		for range 50 {
			c := append([]byte(nil), b...)
			at := r.IntN(len(c))
			kind := r.IntN(3)
			for j := at; j < min(len(c), at+1+r.IntN(40)); j++ {
				c[j] = [3]byte{byte(r.Uint32()), 0, 0xff}[kind]
			}
			readHostile(t, c, s, true)
		}
	}
}

// fuzzTypes has one column for each way a value is stored.
func fuzzTypes(t testing.TB) *schema.Schema {
	s := &schema.Schema{PrimaryKeys: []string{"k"}}
	for i, c := range []string{
		"k BIGINT NOT NULL", "t_int INT", "t_string STRING", "t_dec9 DECIMAL(9, 2)", "t_dec38 DECIMAL(38, 10)",
		"t_bytes BYTES NOT NULL", "t_bool BOOLEAN", "t_tiny TINYINT", "t_double DOUBLE", "t_ts3 TIMESTAMP(3)", "t_big BIGINT",
	} {
		name, typ, _ := strings.Cut(c, " ")
		s.Fields = append(s.Fields, schema.Field{ID: i, Name: name, Type: mustType(t, typ)})
	}
	return s
}

// FuzzRead feeds arbitrary bytes.
func FuzzRead(f *testing.F) {
	s := fuzzTypes(f)
	for i, sh := range []valueShape{{nulls: 0.3}, {nulls: 0.2, repeats: 3}, {repeats: 2}, {nulls: 1}} {
		for _, codec := range []string{"none", "zstd", "snappy", "lz4"} {
			rows := randomRows(newRand(uint64(i)), s, 0, 80, sh)
			b, _ := writeFile(f, WriterConfig{Schema: s, Keyed: true, Thin: true, Compression: codec, RowGroupRows: 70}, rows)
			f.Add(b)
		}
	}
	paths, err := filepath.Glob("testdata/paimon/golden.db/*/bucket-0/*.parquet")
	more, err2 := filepath.Glob("../testdata/golden/golden.db/*_all_types/bucket-0/*.parquet")
	if paths = append(paths, more...); err != nil || err2 != nil || len(paths) < 6 {
		f.Fatal(err, err2, paths)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s.Fields = append(s.Fields, schema.Field{ID: 100, Name: "t_ts9", Type: mustType(f, "TIMESTAMP(9)")}) // INT96
	text, err := os.ReadFile("../testdata/golden/golden.db/append_all_types/schema/schema-0")
	if err != nil {
		f.Fatal(err)
	}
	golden, err := schema.Parse(text)
	if err != nil {
		f.Fatal(err)
	}
	for _, x := range golden.Fields {
		if !x.Type.Primitive() {
			x.ID += 1000
			s.Fields = append(s.Fields, x)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i := range s.Fields { // one by one: an error in one column hides the others
			one := schema.Schema{Fields: s.Fields[i : i+1]}
			if err := readHostile(t, b, &one, i == 0); err != nil && strings.Contains(err.Error(), "footer") {
				return
			}
		}
	})
}
