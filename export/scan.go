package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/calve-io/calve/storage"
)

// ScanSpec says what to read of an exported table.
type ScanSpec struct {
	Snapshot int64    // an Iceberg snapshot; 0: the current one
	Columns  []string // in this order; nil: all
}

// Scan reads the exported table in a folder the way an Iceberg engine does, with iceberg-go and from the Iceberg
// metadata alone, so that what readers get can be checked against the Paimon table. Only the bytes come through calve's
// storage. The records belong to the caller. ErrNotExported: there is no Iceberg metadata.
func Scan(ctx context.Context, store storage.Store, spec ScanSpec) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		t, err := OpenTable(ctx, store)
		if err != nil {
			yield(nil, err)
			return
		}
		var opts []table.ScanOption
		if spec.Columns != nil {
			opts = append(opts, table.WithSelectedFields(spec.Columns...))
		}
		if spec.Snapshot != 0 {
			opts = append(opts, table.WithSnapshotID(spec.Snapshot))
		}
		_, batches, err := t.Scan(opts...).ToArrowRecords(ctx)
		if err != nil {
			yield(nil, fmt.Errorf("scan %s: %w", t.MetadataLocation(), err))
			return
		}
		for batch, err := range batches {
			if err != nil {
				err = fmt.Errorf("scan %s: %w", t.MetadataLocation(), err)
			}
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

// OpenTable opens the exported table in a folder with iceberg-go, for reading.
func OpenTable(ctx context.Context, store storage.Store) (*table.Table, error) {
	ref, data, err := loadNewest(ctx, store)
	if err != nil {
		return nil, fmt.Errorf("open the exported table %s: %w", store.URL(""), err)
	}
	if ref.Version == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotExported, store.URL(""))
	}
	meta, err := table.ParseMetadataBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, ref.MetadataLocation, err)
	}
	fsys := icebergIO{ctx: ctx, files: newFiles(store)}
	name := path.Base(meta.Location())
	return table.New([]string{name}, meta, ref.MetadataLocation, func(context.Context) (iceio.IO, error) { return fsys, nil }, nil), nil
}

// icebergIO lets iceberg-go read a table's folder through a store, by location.
type icebergIO struct {
	ctx   context.Context
	files files
}

// Open implements iceberg-go's io.IO.
func (i icebergIO) Open(location string) (iceio.File, error) {
	name, err := i.files.name(location)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: location, Err: err}
	}
	f, err := i.files.store.Open(i.ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: location, Err: err}
	}
	return &icebergFile{SectionReader: io.NewSectionReader(f, 0, f.Size()), file: f, name: path.Base(name)}, nil
}

// Remove implements iceberg-go's io.IO: nothing is ever removed by a reader.
func (i icebergIO) Remove(location string) error {
	return &fs.PathError{Op: "remove", Path: location, Err: fs.ErrPermission}
}

// icebergFile is an object as a file with a position.
type icebergFile struct {
	*io.SectionReader
	file storage.File
	name string
}

func (f *icebergFile) Close() error               { return f.file.Close() }
func (f *icebergFile) Stat() (fs.FileInfo, error) { return icebergInfo{f}, nil }

type icebergInfo struct{ f *icebergFile }

func (i icebergInfo) Name() string     { return i.f.name }
func (icebergInfo) Mode() fs.FileMode  { return 0o444 }
func (icebergInfo) ModTime() time.Time { return time.Time{} }
func (icebergInfo) IsDir() bool        { return false }
func (icebergInfo) Sys() any           { return nil }

// Size is the object's size; the method of the embedded reader is shadowed by fs.FileInfo's.
func (i icebergInfo) Size() int64 { return i.f.SectionReader.Size() }
