package manifest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/calve-io/calve/storage"
)

// encodeForeign writes entries with another schema: extra gets a value if it is not empty.
func encodeForeign(t testing.TB, schemaText, extra string, value any, entries []Entry, opts ...ocf.WriterOpt) []byte {
	t.Helper()
	s, err := avro.Parse(schemaText)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := ocf.NewWriter(&buf, s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		var rec wireEntryOut
		if err := entryToWire(&rec, &entries[i]); err != nil {
			t.Fatal(err)
		}
		data, err := entrySchema.Encode(&rec)
		if err != nil {
			t.Fatal(err)
		}
		var m any
		if _, err := entrySchema.Decode(data, &m); err != nil {
			t.Fatal(err)
		}
		if extra != "" {
			m.(map[string]any)[extra] = value
			m.(map[string]any)["_FILE"].(map[string]any)[extra] = value
		}
		if err := w.Encode(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// randomEntry fills every field, each optional one in half of the cases.
func randomEntry(rng *rand.Rand) Entry {
	blob := func() []byte {
		b := make([]byte, 12+rng.IntN(40))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	num := func() *int64 {
		if rng.IntN(2) == 0 {
			return nil
		}
		v := rng.Int64() - rng.Int64()
		return &v
	}
	strs := func() []string {
		s := []string{}
		for range rng.IntN(4) {
			s = append(s, fmt.Sprint("säule", rng.IntN(100)))
		}
		return s
	}
	stats := func() Stats {
		s := Stats{Min: blob(), Max: blob(), NullCounts: []*int64{}}
		for range rng.IntN(4) {
			s.NullCounts = append(s.NullCounts, num())
		}
		return s
	}
	e := Entry{
		Kind: EntryKind(rng.IntN(2)), Partition: blob(), Bucket: rng.IntN(100) - 2, TotalBuckets: rng.IntN(100) - 2,
		File: DataFile{
			Name: fmt.Sprint("f", rng.Uint64()), Size: rng.Int64(), Rows: rng.Int64(), MinKey: blob(), MaxKey: blob(),
			KeyStats: stats(), ValueStats: stats(), MinSeq: rng.Int64() - rng.Int64(), MaxSeq: rng.Int64(), SchemaID: rng.Int64N(5),
			Level: rng.IntN(7), ExtraFiles: strs(), CreatedMillis: rng.Int64N(1 << 45), DeleteRows: num(), FirstRowID: num(), ValueStatsAll: true,
		},
	}
	e.File.MaxSeq = max(e.File.MinSeq, e.File.MaxSeq)
	if rng.IntN(2) == 0 {
		e.File.ValueStatsAll, e.File.ValueStatsCols = false, strs()
	}
	if rng.IntN(2) == 0 {
		e.File.WriteCols = strs()
	}
	if rng.IntN(2) == 0 {
		e.File.EmbeddedIndex = blob()
	}
	if rng.IntN(2) == 0 {
		src := FileSource(rng.IntN(2))
		e.File.Source = &src
	}
	if rng.IntN(2) == 0 {
		p := "s3://elsewhere/" + e.File.Name
		e.File.ExternalPath = &p
	}
	return e
}

func TestEntriesRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 0))
	for _, n := range []int{0, 1, 2, 700} {
		entries := []Entry{}
		for range n {
			entries = append(entries, randomEntry(rng))
		}
		data, err := encodeEntries("m", entries)
		if err != nil {
			t.Fatal(err)
		}
		got, lossy, err := decodeEntries("m", data, 0)
		if err != nil || lossy || !reflect.DeepEqual(got, entries) {
			t.Fatalf("%d entries: changed (lossy %v): %v", n, lossy, err)
		}
		if again, err := encodeEntries("m", entries); err != nil || !bytes.Equal(again, data) {
			t.Fatal("equal input gave other bytes", err)
		}
	}
}

// TestSequenceBounds: a file whose sequence numbers are the wrong way round is an error, as readers that look for numbers would
// pass over its rows.
func TestSequenceBounds(t *testing.T) {
	for _, rows := range []int64{0, 1} {
		data, err := encodeEntries("m", []Entry{{File: DataFile{Name: "a", Rows: rows, MinSeq: 8, MaxSeq: 7}}})
		if err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if _, _, err = decodeEntries("m", data, 0); errors.As(err, &corrupt) != (rows > 0) || rows > 0 && !strings.Contains(err.Error(), `"a": sequence numbers from 8 to 7`) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}

// TestNothingIsARow: fields left empty are written as the empty row, which Paimon can read.
func TestNothingIsARow(t *testing.T) {
	data, err := encodeEntries("m", []Entry{{File: DataFile{Name: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeEntries("m", data, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := got[0].File
	for _, b := range [][]byte{got[0].Partition, f.MinKey, f.MaxKey, f.KeyStats.Min, f.KeyStats.Max, f.ValueStats.Min, f.ValueStats.Max} {
		if !bytes.Equal(b, make([]byte, 12)) {
			t.Fatalf("%x", b)
		}
	}
	if f.ValueStatsAll || len(f.ValueStatsCols) != 0 || f.CreatedMillis != 0 || f.Source != nil {
		t.Fatalf("%+v", f)
	}
}

func TestCodecsAndForeignSchemas(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 0))
	var entries []Entry
	for range 50 {
		entries = append(entries, randomEntry(rng))
	}
	for _, codec := range []ocf.Codec{nil, ocf.DeflateCodec(6), ocf.SnappyCodec(), ocf.MustZstdCodec(nil, nil)} {
		got, lossy, err := decodeEntries("m", encodeForeign(t, entrySchemaText, "", nil, entries, ocf.WithCodec(codec)), 0)
		if err != nil || lossy || !reflect.DeepEqual(got, entries) {
			t.Fatalf("codec %v: %v", codec, err)
		}
	}
	renamed := strings.NewReplacer("org.apache.paimon.avro.generated", "x.y", `"record__FILE"`, `"ManifestFile"`).Replace(entrySchemaText)
	if got, lossy, err := decodeEntries("m", encodeForeign(t, renamed, "", nil, entries), 0); err != nil || lossy || !reflect.DeepEqual(got, entries) {
		t.Fatal("other record names:", lossy, err)
	}
	// HEAD's field: null may be dropped, a value may not.
	seq := `{"name":"_WRITE_COLS","type":["null",{"type":"array","items":"string"}],"default":null}`
	head := strings.Replace(entrySchemaText, seq, seq+`,{"name":"_WRITE_COLS_SEQUENCES","type":["null",{"type":"array","items":"long"}],"default":null}`, 1)
	for value, want := range map[any]bool{nil: false, 5: true} {
		v := value
		if v != nil {
			v = []any{int64(5)}
		}
		got, lossy, err := decodeEntries("m", encodeForeign(t, head, "_WRITE_COLS_SEQUENCES", v, entries), 0)
		if err != nil || lossy != want || !reflect.DeepEqual(got, entries) {
			t.Fatal("field of HEAD:", value, lossy, err)
		}
	}
	// Old files lack the optional fields.
	old := entrySchemaText
	for _, cut := range []string{
		`,{"name":"_EXTERNAL_PATH","type":["null","string"],"default":null}`, `,{"name":"_FIRST_ROW_ID","type":["null","long"],"default":null}`, "," + seq,
	} {
		if !strings.Contains(old, cut) {
			t.Fatal(cut)
		}
		old = strings.Replace(old, cut, "", 1)
	}
	got, lossy, err := decodeEntries("m", encodeForeign(t, old, "", nil, entries), 0)
	if err != nil || lossy || got[0].File.WriteCols != nil || got[0].File.Name != entries[0].File.Name {
		t.Fatal("old file:", err)
	}
	missing := strings.Replace(entrySchemaText, `{"name":"_LEVEL","type":"int"},`, "", 1)
	if _, _, err = decodeEntries("m", encodeForeign(t, missing, "", nil, entries), 0); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "_LEVEL") {
		t.Fatal("required field missing:", err)
	}
}

// TestCorruptFiles damages real files: every truncation and many flipped bytes give an error that names the file, or
// entries; never a panic.
func TestCorruptFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 0))
	for _, data := range goldenMetadata(t) {
		for n := 0; n < len(data); n += 11 {
			_, errList := decodeMetas("the-list", data[:n])
			_, _, errEntries := decodeEntries("the-manifest", data[:n], 0)
			for name, err := range map[string]error{"the-list": errList, "the-manifest": errEntries} {
				// A cut at the end of the header or of a block leaves a shorter file that is whole.
				if err == nil {
					continue
				}
				var c *CorruptError
				if !errors.As(err, &c) || c.Name != name || c.Offset > int64(n) || !errors.Is(err, ErrCorrupt) {
					t.Fatalf("cut at %d: %v", n, err)
				}
			}
		}
		for range 80 {
			bad := bytes.Clone(data)
			bad[rng.IntN(len(bad))] ^= byte(1 + rng.IntN(255))
			_, err := decodeMetas("m", bad)
			_, _, err2 := decodeEntries("m", bad, 0)
			for _, err := range []error{err, err2} {
				if err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
			}
		}
	}
}

// goldenMetadata gives the bytes of some golden manifests and lists.
func goldenMetadata(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, table := range []string{"pk_partitioned", "append_only"} {
		dir := filepath.Join(goldenDir, "golden.db", table, "manifest")
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files[:4] {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data)
		}
		data, err := os.ReadFile(filepath.Join(dir, files[len(files)-1].Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

// hostile builds a container with one block.
func hostile(codec string, count int64, block []byte) []byte {
	long := func(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }
	str := func(b []byte, s string) []byte { return append(long(b, int64(len(s))), s...) }
	b := append([]byte{}, containerMagic...)
	b = long(b, 2)
	b = str(str(b, "avro.schema"), entrySchemaText)
	b = str(str(b, "avro.codec"), codec)
	b = long(b, 0)
	sync := make([]byte, 16)
	b = append(b, sync...)
	b = long(b, count)
	b = str(b, string(block))
	return append(b, sync...)
}

// TestHostileSizes: small files that promise much are refused without allocating it.
func TestHostileSizes(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := enc.EncodeAll(make([]byte, 40<<20), nil)
	var stream bytes.Buffer
	sw, err := zstd.NewWriter(&stream) // without a stated size
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sw.Write(make([]byte, 40<<20)); err != nil {
		t.Fatal(err)
	}
	if err := sw.Close(); err != nil {
		t.Fatal(err)
	}
	deflated, err := ocf.DeflateCodec(9).Compress(make([]byte, 20<<20))
	if err != nil {
		t.Fatal(err)
	}
	hugeHeader := binary.AppendVarint(append([]byte{}, containerMagic...), 1<<60)
	hugeKey := binary.AppendVarint(binary.AppendVarint(append([]byte{}, containerMagic...), 1), 1<<40)
	// One record whose array of null counts claims 2^40 items.
	array := []byte{4, 0}
	array = append(binary.AppendVarint(array, 12), make([]byte, 12)...)
	array = append(array, 0, 0, 2, 'f', 0, 0, 0, 0, 0, 0, 2)
	array = binary.AppendVarint(array, 1<<40)
	for name, data := range map[string][]byte{
		"zstandard bomb":          hostile("zstandard", 1, bomb),
		"zstandard bomb, unsized": hostile("zstandard", 1, stream.Bytes()),
		"deflate bomb":            hostile("deflate", 1, deflated),
		"record count":            hostile("null", 1<<50, []byte{4, 0, 0}),
		"negative count":          hostile("null", -5, []byte{4, 0, 0}),
		"array count":             hostile("null", 1, array),
		"header count":            hugeHeader,
		"header key":              hugeKey,
		"unknown codec":           hostile("lzma", 1, []byte{1}),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := decodeEntries("m", data, 0)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
			t.Errorf("%s: a file of %d bytes made the reader allocate %d", name, len(data), n)
		}
	}
}

// TestWrongSizes: stated sizes and counts are checked.
func TestWrongSizes(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	tab := newKeyed(t, store, nil)
	s := commit(t, tab, Commit{Identifier: 1, Entries: []Entry{file(t, "a", "x", 0, 0, 1, 1)}})
	for _, d := range []int64{-1, 1} {
		bad := *s
		size := *s.DeltaManifestListSize + d
		bad.DeltaManifestListSize = &size
		_, err := tab.Delta(ctx, &bad)
		var c *CorruptError
		if !errors.As(err, &c) || !strings.Contains(c.Name, s.DeltaManifestList) {
			t.Fatal(err)
		}
	}
	metas, err := tab.readList(ctx, s.DeltaManifestList, nil)
	if err != nil {
		t.Fatal(err)
	}
	metas[0].Added = 2
	if _, _, err := tab.readManifest(ctx, &metas[0]); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "1 entries") {
		t.Fatal(err)
	}
}

func TestBadSnapshots(t *testing.T) {
	ok := `{"version":3,"id":7,"schemaId":0,"baseManifestList":"b","deltaManifestList":"d","changelogManifestList":null,` +
		`"commitUser":"u","commitIdentifier":1,"commitKind":"APPEND","timeMillis":1,"totalRecordCount":1,"deltaRecordCount":1,"future":{"x":[1]}}`
	if s, err := decodeSnapshot("s", []byte(ok)); err != nil || s.ID != 7 {
		t.Fatal(s, err)
	}
	for _, c := range [][2]string{
		{`"id":7`, `"id":0`}, {`"id":7`, `"id":"7"`}, {`"id":7`, `"id":7.5`}, {`"schemaId":0`, `"schemaId":-1`},
		{`"b"`, `"../../b"`}, {`"d"`, `""`}, {`"APPEND"`, `"MERGE"`}, {`null`, `"a/b"`}, {`"future"`, `"indexManifest":"..","future"`},
		{`"future"`, `"baseManifestListSize":-1,"future"`}, {`}}`, `}`}, {`{"version"`, `["version"`}, {`"future"`, `"properties":[1],"future"`},
	} {
		bad := strings.Replace(ok, c[0], c[1], 1)
		var ce *CorruptError
		if s, err := decodeSnapshot("s", []byte(bad)); !errors.As(err, &ce) || ce.Name != "s" {
			t.Errorf("%s → %s: %+v %v", c[0], c[1], s, err)
		}
	}
	if _, err := decodeSnapshot("s", []byte(strings.Replace(ok, `"version":3`, `"version":4`, 1))); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
