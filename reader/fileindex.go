package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// indexTail is what data files' own index files have behind the data file's name.
const indexTail = ".index"

// mayHave reports whether a predicate may be true for a row of a file, by the file's index of values: in the manifest, or
// in a file beside the data file. The index is looked for only if the predicate asks for values.
func (r *Reader) mayHave(ctx context.Context, v *view, dir string, f *manifest.DataFile, p *predicate.Predicate) (bool, error) {
	beside := slices.Contains(f.ExtraFiles, f.Name+indexTail)
	if p == nil || !beside && f.EmbeddedIndex == nil || v.schema.Options["file-index.read.enabled"] == "false" {
		return true, nil
	}
	x := &fileIndex{filters: map[string]*indexfile.Bloom{}}
	defer x.close()
	var failed error
	may := p.MayHave(func(col int, cell any) bool {
		if failed != nil {
			return true
		}
		if x.schema == nil {
			if failed = x.open(ctx, r, dir, f); failed != nil {
				return true
			}
		}
		name, hash, ok := x.hash(v.schema.Fields[col], cell)
		if !ok {
			return true
		}
		b, err := x.filter(name)
		failed = err
		return b == nil || b.May(hash)
	})
	if failed != nil {
		return true, fmt.Errorf("file index of %s (option file-index.read.enabled = false does without): %w", r.store.URL(dir+"/"+f.Name), failed)
	}
	return may, nil
}

// fileIndex is an open file index.
type fileIndex struct {
	schema  *schema.Schema // of the file
	src     io.ReaderAt
	file    storage.File // nil: the index is in the manifest
	entries []indexfile.ColumnIndex
	filters map[string]*indexfile.Bloom
}

// firstRead is how much of an index file is read at once: all of most.
const firstRead = 64 << 10

func (x *fileIndex) open(ctx context.Context, r *Reader, dir string, f *manifest.DataFile) (err error) {
	if x.schema, err = r.meta.Schema(ctx, f.SchemaID); err != nil {
		return err
	}
	size := int64(len(f.EmbeddedIndex))
	if f.EmbeddedIndex != nil {
		x.src = bytesAt(f.EmbeddedIndex)
	} else {
		if x.file, err = r.store.Open(ctx, dir+"/"+f.Name+indexTail); err != nil {
			return err
		}
		x.src, size = x.file, x.file.Size()
	}
	head := make([]byte, min(size, firstRead))
	if err := readFull(x.src, head, 0); err != nil {
		return err
	}
	n, err := indexfile.FileIndexHead(head)
	if err != nil {
		return err
	}
	if n > int64(len(head)) && n <= size {
		head = make([]byte, n)
		if err := readFull(x.src, head, 0); err != nil {
			return err
		}
	}
	if size <= int64(len(head)) {
		x.src = bytesAt(head)
	}
	x.entries, err = indexfile.DecodeFileIndex(head, size)
	return err
}

func (x *fileIndex) close() {
	if x.file != nil {
		_ = x.file.Close() // it was only read
	}
}

// maxFilter bounds a filter that is read: that of a hundred million values.
const maxFilter = 64 << 20

// filter reads the Bloom filter of a column, nil if there is none that is of use.
func (x *fileIndex) filter(name string) (*indexfile.Bloom, error) {
	if b, ok := x.filters[name]; ok {
		return b, nil
	}
	for _, e := range x.entries {
		if e.Column != name || e.Kind != indexfile.BloomFilter || e.Length > maxFilter {
			continue
		}
		data := make([]byte, e.Length)
		if err := readFull(x.src, data, e.Start); err != nil {
			return nil, err
		}
		b, err := indexfile.DecodeBloom(data)
		x.filters[name] = b
		return b, err
	}
	x.filters[name] = nil
	return nil, nil
}

// hash gives the name of a column in the file's index and the hash of a value; false if the file has the column in
// another type, or in one that is not hashed.
func (x *fileIndex) hash(f schema.Field, cell any) (name string, hash uint64, ok bool) {
	at, ok := x.schema.FieldByID(f.ID)
	if !ok {
		return "", 0, false
	}
	then, now := x.schema.Fields[at].Type, f.Type
	then.NotNull, now.NotNull = true, true
	if !then.Equal(now) && !(isWhole(then.Root) && isWhole(now.Root)) {
		return "", 0, false
	}
	hash, ok = hashOf(now, cell)
	return indexfile.IndexName(x.schema.Fields[at].Name), hash, ok
}

func isWhole(r schema.Root) bool { return r >= schema.TinyInt && r <= schema.BigInt }

// hashOf is the hash of a value in a Bloom filter (`fileindex.bloomfilter.FastHash`). Booleans and decimals have none;
// floats are not asked for, because equal ones may differ in their bits.
func hashOf(t schema.Type, cell any) (uint64, bool) {
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
