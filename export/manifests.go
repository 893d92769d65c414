package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/calve-io/calve/storage"
)

// Limits of what is read back. Real manifests have up to a few megabytes.
const (
	maxListFile     = 256 << 20
	maxManifestFile = 1 << 30
)

// files is the metadata folder as a place for manifests and manifest lists, addressed by location.
type files struct {
	store storage.Store
	base  string // what all locations in the table start with
}

func newFiles(store storage.Store) files {
	return files{store: store, base: strings.TrimSuffix(store.URL("x"), "x")}
}

// name gives the store's name of a location.
func (f files) name(location string) (string, error) {
	name, ok := strings.CutPrefix(location, f.base)
	if !ok || name == "" {
		return "", fmt.Errorf("%w: %s is not in the table's folder %s", ErrDamaged, location, f.base)
	}
	return name, nil
}

// write stores a new file of the metadata folder and gives its location.
func (f files) write(ctx context.Context, name string, data []byte) (string, error) {
	up, err := f.store.Create(ctx, name)
	if err != nil {
		return "", fmt.Errorf("write Iceberg metadata: %w", err)
	}
	if _, err := up.Write(data); err != nil {
		up.Abort()
		return "", fmt.Errorf("write %s: %w", f.store.URL(name), err)
	}
	if err := up.Commit(); err != nil {
		return "", fmt.Errorf("write %s: %w", f.store.URL(name), err)
	}
	return f.store.URL(name), nil
}

func (f files) read(ctx context.Context, location string, limit int64) ([]byte, error) {
	name, err := f.name(location)
	if err != nil {
		return nil, err
	}
	data, err := storage.ReadAll(ctx, f.store, name, limit)
	switch {
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return nil, fmt.Errorf("read Iceberg metadata: %w", err)
	}
	return data, nil
}

// readList reads a snapshot's manifest list.
func (f files) readList(ctx context.Context, location string) (list []iceberg.ManifestFile, err error) {
	data, err := f.read(ctx, location, maxListFile)
	if err != nil {
		return nil, err
	}
	defer recovered(location, &err)
	list, err = iceberg.ReadManifestList(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: manifest list %s: %w", ErrDamaged, location, err)
	}
	return list, nil
}

// readManifest gives the entries of a manifest that are live, in their order.
func (f files) readManifest(ctx context.Context, m iceberg.ManifestFile) (entries []iceberg.ManifestEntry, err error) {
	data, err := f.read(ctx, m.FilePath(), maxManifestFile)
	if err != nil {
		return nil, err
	}
	defer recovered(m.FilePath(), &err)
	r, err := iceberg.NewManifestReader(m, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: manifest %s: %w", ErrDamaged, m.FilePath(), err)
	}
	defer r.Close()
	for {
		e, err := r.ReadEntry()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: manifest %s, entry %d: %w", ErrDamaged, m.FilePath(), len(entries), err)
		}
		if e.Status() != iceberg.EntryStatusDELETED {
			entries = append(entries, e)
		}
	}
}

// recovered turns a panic of the Avro decoder on a damaged file into an error.
func recovered(location string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %s: %v", ErrDamaged, location, p)
	}
}

// live is the number of live files in a manifest.
func live(m iceberg.ManifestFile) int { return int(m.AddedDataFiles()) + int(m.ExistingDataFiles()) }

// entry is one line of a manifest to be written.
type entry struct {
	status iceberg.ManifestEntryStatus
	iceberg.ManifestEntry
}

func location(e iceberg.ManifestEntry) string { return e.DataFile().FilePath() }

// manifestWriter writes the manifests of one new snapshot.
type manifestWriter struct {
	files    files
	spec     iceberg.PartitionSpec
	schema   *iceberg.Schema
	snapshot int64
	id       string   // unique to this attempt
	written  []string // names, also of the one whose write failed
}

// write makes one manifest. Added files inherit the snapshot's id and sequence number from the manifest list, so that
// a manifest need not be written again when the attempt that wrote it was overtaken.
func (w *manifestWriter) write(ctx context.Context, entries []entry) (iceberg.ManifestFile, error) {
	var buf bytes.Buffer
	mw, err := iceberg.NewManifestWriter(formatVersion, &buf, w.spec, w.schema, w.snapshot)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	for _, e := range entries {
		switch e.status {
		case iceberg.EntryStatusADDED:
			err = mw.Add(e.ManifestEntry)
		case iceberg.EntryStatusEXISTING:
			err = mw.Existing(e.ManifestEntry)
		default:
			err = mw.Delete(e.ManifestEntry)
		}
		if err != nil {
			return nil, fmt.Errorf("encode manifest: %s: %w", location(e), err)
		}
	}
	if err := mw.Close(); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	name := fmt.Sprintf("%s/%s-m%d.avro", metadataDir, w.id, len(w.written))
	w.written = append(w.written, name)
	loc, err := w.files.write(ctx, name, buf.Bytes())
	if err != nil {
		return nil, err
	}
	m, err := mw.ToManifestFile(loc, int64(buf.Len()))
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return m, nil
}

// writeList makes the snapshot's manifest list. It gives its location and the list as a reader gets it.
func (w *manifestWriter) writeList(ctx context.Context, parent *int64, sequence int64, list []iceberg.ManifestFile) (string, []iceberg.ManifestFile, error) {
	var buf bytes.Buffer
	for i, m := range list {
		list[i] = withEmptyBounds(m)
	}
	if err := iceberg.WriteManifestList(formatVersion, &buf, w.snapshot, parent, &sequence, 0, list); err != nil {
		return "", nil, fmt.Errorf("encode manifest list: %w", err)
	}
	stored, err := iceberg.ReadManifestList(bytes.NewReader(buf.Bytes()))
	if err != nil {
		return "", nil, fmt.Errorf("read back a manifest list: %w", err)
	}
	name := fmt.Sprintf("%s/snap-%d-%s.avro", metadataDir, w.snapshot, w.id)
	w.written = append(w.written, name)
	loc, err := w.files.write(ctx, name, buf.Bytes())
	return loc, stored, err
}

// withEmptyBounds mends how iceberg-go v0.7.0 summarizes partitions whose lowest or highest value is the empty string:
// it has a nil slice for the bound and writes it as "no bound", from which readers (PyIceberg 0.12.0) conclude that the
// manifest holds nothing but nulls.
func withEmptyBounds(m iceberg.ManifestFile) iceberg.ManifestFile {
	parts, wrong := m.Partitions(), false
	for i := range parts {
		for _, bound := range []**[]byte{&parts[i].LowerBound, &parts[i].UpperBound} {
			if *bound != nil && **bound == nil {
				*bound, wrong = &[]byte{}, true
			}
		}
	}
	if !wrong {
		return m
	}
	return iceberg.NewManifestFile(m.Version(), m.FilePath(), m.Length(), m.PartitionSpecID(), m.SnapshotID()).
		Content(m.ManifestContent()).SequenceNum(m.SequenceNum(), m.MinSequenceNum()).
		AddedFiles(m.AddedDataFiles()).ExistingFiles(m.ExistingDataFiles()).DeletedFiles(m.DeletedDataFiles()).
		AddedRows(m.AddedRows()).ExistingRows(m.ExistingRows()).DeletedRows(m.DeletedRows()).Partitions(parts).Build()
}
