package lookup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// indexTail is what data files' own index files have behind the data file's name.
const indexTail = ".index"

// FileIndex is an open index of the values of a data file (paimon-format §10): in the manifest, or in a file beside the data
// file. It is not safe for concurrent use.
type FileIndex struct {
	schema  *schema.Schema // of the data file
	src     io.ReaderAt
	file    storage.File // nil: the index is in the manifest
	entries []indexfile.ColumnIndex
	filters map[string]*indexfile.Bloom
	shared  bool // filters of an index in the manifest are not copied: they keep all of it in memory
}

// HasFileIndex reports whether a data file of a table has an index that is to be read.
func HasFileIndex(s *schema.Schema, f *manifest.DataFile) bool {
	return (f.EmbeddedIndex != nil || slices.Contains(f.ExtraFiles, f.Name+indexTail)) && s.Options["file-index.read.enabled"] != "false"
}

// firstIndexRead is how much of an index file is read at once: all of most.
const firstIndexRead = 64 << 10

// OpenFileIndex opens the index of a data file, whose name is below the table's folder; written is the schema it was written
// with. The caller closes it.
func OpenFileIndex(ctx context.Context, store storage.Store, name string, f *manifest.DataFile, written *schema.Schema) (_ *FileIndex, err error) {
	x := &FileIndex{schema: written, filters: map[string]*indexfile.Bloom{}}
	defer func() {
		if err != nil {
			x.Close()
		}
	}()
	if f.EmbeddedIndex != nil {
		x.src = bytesAt(f.EmbeddedIndex)
		x.entries, err = indexfile.DecodeFileIndex(f.EmbeddedIndex, int64(len(f.EmbeddedIndex)))
		return x, err
	}
	if x.file, err = store.Open(ctx, name+indexTail); err != nil {
		return nil, err
	}
	x.src = x.file
	size := x.file.Size()
	head := make([]byte, min(size, firstIndexRead))
	if err := readFull(x.src, head, 0); err != nil {
		return nil, err
	}
	n, err := indexfile.FileIndexHead(head)
	if err != nil {
		return nil, err
	}
	if n > int64(len(head)) && n <= size {
		head = make([]byte, n)
		if err := readFull(x.src, head, 0); err != nil {
			return nil, err
		}
	}
	if size <= int64(len(head)) {
		x.src = bytesAt(head)
	}
	if x.entries, err = indexfile.DecodeFileIndex(head, size); err != nil {
		return nil, err
	}
	return x, nil
}

// Close closes the index's file. Filters stay usable.
func (x *FileIndex) Close() {
	if x.file != nil {
		_ = x.file.Close() // it was only read
		x.file = nil
	}
}

// Filter is a Bloom filter of the values that a data file has in a column.
type Filter struct {
	typ   schema.Type
	bloom *indexfile.Bloom
	bytes int64
}

// May reports whether the file may have a value, given as schema.Cell gives it.
func (f *Filter) May(cell any) bool {
	hash, ok := filterHash(f.typ, cell)
	return !ok || f.bloom.May(hash)
}

// Filter gives the filter of a column, nil if there is none that is of use: the file may have the column in another type, or in
// one that is not hashed, or it has more bytes than most.
func (x *FileIndex) Filter(f schema.Field, most int64) (*Filter, error) {
	at, ok := x.schema.FieldByID(f.ID)
	if !ok {
		return nil, nil
	}
	then, now := x.schema.Fields[at].Type, f.Type
	then.NotNull, now.NotNull = true, true
	if !then.Equal(now) && !(isWhole(then.Root) && isWhole(now.Root)) || !hashable(now.Root) {
		return nil, nil
	}
	name := indexfile.IndexName(x.schema.Fields[at].Name)
	for _, e := range x.entries {
		if e.Column != name || e.Kind != indexfile.BloomFilter || e.Length > most {
			continue
		}
		b := x.filters[name]
		if b == nil {
			data, err := x.bytes(e)
			if err == nil {
				b, err = indexfile.DecodeBloom(data)
			}
			if err != nil {
				return nil, err
			}
			x.filters[name] = b
		}
		return &Filter{now, b, e.Length}, nil
	}
	return nil, nil
}

// bytes are those of a column's index.
func (x *FileIndex) bytes(e indexfile.ColumnIndex) ([]byte, error) {
	if all, ok := x.src.(bytesAt); ok && x.shared {
		return all[e.Start : e.Start+e.Length], nil // within it: DecodeFileIndex
	}
	data := make([]byte, e.Length)
	return data, readFull(x.src, data, e.Start)
}

func isWhole(r schema.Root) bool { return r >= schema.TinyInt && r <= schema.BigInt }

// hashable reports whether filterHash takes values of a type.
func hashable(r schema.Root) bool {
	switch r {
	case schema.TinyInt, schema.SmallInt, schema.Int, schema.BigInt, schema.Date, schema.Time, schema.Timestamp, schema.TimestampLTZ,
		schema.Char, schema.VarChar, schema.Binary, schema.VarBinary:
		return true
	}
	return false
}

// filterHash is the hash of a value in a Bloom filter (`fileindex.bloomfilter.FastHash`). Booleans and decimals have none;
// floats are not asked for, because equal ones may differ in their bits.
func filterHash(t schema.Type, cell any) (uint64, bool) {
	switch v := cell.(type) {
	case int8:
		return indexfile.HashInt(int64(v)), true
	case int16:
		return indexfile.HashInt(int64(v)), true
	case int32:
		return indexfile.HashInt(int64(v)), true
	case int64:
		if t.Root != schema.BigInt && schema.TimeUnit(t) == arrow.Nanosecond { // in microseconds, rounded down
			q := v / 1000
			if v%1000 < 0 {
				q--
			}
			v = q
		}
		return indexfile.HashInt(v), true
	case string:
		return indexfile.HashText(v), true
	case []byte:
		return indexfile.HashBytes(v), true
	}
	return 0, false
}

// bytesAt is a file in memory.
type bytesAt []byte

// ReadAt implements io.ReaderAt.
func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readFull reads all of p.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
}
