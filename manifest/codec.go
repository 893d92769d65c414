package manifest

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/twmb/avro"
)

// emptyRow is the serialized BinaryRow without fields: arity 0 and one empty header word (paimon-format §6.4).
// It stands for the partition of an unpartitioned table and for keys and statistics that do not exist; a byte string
// of length zero would not be readable.
var emptyRow = make([]byte, 12)

// fill gives the empty row for "nothing".
func fill(row []byte) []byte {
	if len(row) == 0 {
		return emptyRow
	}
	return row
}

// encodeEntries writes a manifest.
func encodeEntries(name string, entries []Entry) ([]byte, error) {
	wire := make([]wireEntryOut, len(entries))
	for i := range entries {
		if err := entryToWire(&wire[i], &entries[i]); err != nil {
			return nil, fmt.Errorf("write %s: entry %d: %w", name, i, err)
		}
	}
	return encodeContainer(name, entrySchema, wire)
}

// decodeEntries reads a manifest of about count entries. lossy reports that the entries hold more than Entry can carry,
// so that they must not be written again. Strings and byte strings share the memory of decoded blocks, of which they
// are nearly all.
func decodeEntries(name string, data []byte, count int64) (entries []Entry, lossy bool, err error) {
	defer recoverCorrupt(name, &err)
	var s fileSchema
	entries = make([]Entry, 0, min(max(0, count), maxReserve, int64(len(data))/16))
	var fast entryDecoder
	err = decodeContainer(name, data, func(text string) error {
		if text == entrySchemaText {
			s, fast.on = fileSchema{avro: entrySchema}, true
			return nil
		}
		s, err = foreignSchemas.get(text, checkEntrySchema)
		return err
	}, func(block []byte) ([]byte, error) {
		w, rest, err := &fast.w, []byte(nil), error(nil)
		if fast.on {
			rest, err = fast.entry(block)
		} else {
			w = new(wireEntry)
			rest, err = s.avro.Decode(block, w, avro.SkipUnknown(), avro.AliasInput())
		}
		if err != nil {
			return nil, err
		}
		lossy = lossy || w.File.WriteColsSeq != nil
		e, err := entryFromWire(w)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
		return rest, nil
	})
	if err != nil {
		return nil, false, err
	}
	return entries, lossy || s.lossy, nil
}

// encodeMetas writes a manifest list.
func encodeMetas(name string, metas []Meta) ([]byte, error) {
	wire := make([]wireMeta, len(metas))
	for i := range metas {
		wire[i] = metaToWire(&metas[i])
	}
	return encodeContainer(name, listSchema, wire)
}

// decodeMetas reads a manifest list.
func decodeMetas(name string, data []byte) (metas []Meta, err error) {
	defer recoverCorrupt(name, &err)
	var s fileSchema
	err = decodeContainer(name, data, func(text string) error {
		if text == listSchemaText {
			s = fileSchema{avro: listSchema}
			return nil
		}
		s, err = foreignSchemas.get(text, checkListSchema)
		return err
	}, func(block []byte) ([]byte, error) {
		var w wireMeta
		rest, err := s.avro.Decode(block, &w, avro.SkipUnknown())
		if err != nil {
			return nil, err
		}
		m, err := metaFromWire(&w)
		if err != nil {
			return nil, err
		}
		metas = append(metas, m)
		return rest, nil
	})
	if err != nil {
		return nil, err
	}
	return metas, nil
}

// recoverCorrupt turns a panic inside a decoder into an error that names the file: no input may end the process.
func recoverCorrupt(name string, err *error) {
	if r := recover(); r != nil {
		*err = &CorruptError{Name: name, Reason: fmt.Sprintf("the decoder gave up: %v", r)}
	}
}

// checkFileName refuses names that would lead out of the folder they are meant for.
func checkFileName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("%q is not a file name", name)
	}
	return nil
}

// wireEntryOut is wireEntry without the field that is only read.
type wireEntryOut struct {
	Version      int32       `avro:"_VERSION"`
	Kind         int32       `avro:"_KIND"`
	Partition    []byte      `avro:"_PARTITION"`
	Bucket       int32       `avro:"_BUCKET"`
	TotalBuckets int32       `avro:"_TOTAL_BUCKETS"`
	File         wireFileOut `avro:"_FILE"`
}

// entryToWire fills w from e.
func entryToWire(w *wireEntryOut, e *Entry) error {
	f := &e.File
	if err := checkFileName(f.Name); err != nil {
		return err
	}
	if e.Bucket != int(int32(e.Bucket)) || e.TotalBuckets != int(int32(e.TotalBuckets)) || f.Level < 0 || f.Level > math.MaxInt32 {
		return fmt.Errorf("file %s: bucket %d of %d, level %d is out of range", f.Name, e.Bucket, e.TotalBuckets, f.Level)
	}
	*w = wireEntryOut{
		Version: wireVersion, Kind: int32(e.Kind), Partition: fill(e.Partition),
		Bucket: int32(e.Bucket), TotalBuckets: int32(e.TotalBuckets),
		File: wireFileOut{
			Name: f.Name, Size: f.Size, Rows: f.Rows, MinKey: fill(f.MinKey), MaxKey: fill(f.MaxKey),
			KeyStats: statsToWire(f.KeyStats), ValueStats: statsToWire(f.ValueStats),
			MinSeq: f.MinSeq, MaxSeq: f.MaxSeq, SchemaID: f.SchemaID, Level: int32(f.Level),
			ExtraFiles: f.ExtraFiles, DeleteRows: f.DeleteRows, ExternalPath: f.ExternalPath, FirstRowID: f.FirstRowID,
		},
	}
	if f.ExtraFiles == nil {
		w.File.ExtraFiles = []string{}
	}
	if f.CreatedMillis != 0 {
		w.File.CreatedMillis = &f.CreatedMillis
	}
	if f.EmbeddedIndex != nil {
		w.File.EmbeddedIndex = &f.EmbeddedIndex
	}
	if f.Source != nil {
		s := int32(*f.Source)
		w.File.Source = &s
	}
	if !f.ValueStatsAll {
		cols := f.ValueStatsCols
		if cols == nil {
			cols = []string{}
		}
		w.File.ValueStatsCols = &cols
	}
	if f.WriteCols != nil {
		w.File.WriteCols = &f.WriteCols
	}
	return nil
}

// Sources that entries share: most files have one of them.
var sharedSources = [...]FileSource{FromAppend, FromCompact}

func sourceOf(v int32) *FileSource {
	if v == int32(FromAppend) || v == int32(FromCompact) {
		return &sharedSources[v]
	}
	s := FileSource(v)
	return &s
}

// entryFromWire checks a decoded record and gives it as an Entry.
func entryFromWire(w *wireEntry) (Entry, error) {
	f := &w.File
	switch {
	case w.Version != wireVersion:
		return Entry{}, fmt.Errorf("%w: manifest version %d, this version reads %d", ErrUnsupported, w.Version, wireVersion)
	case w.Kind != int32(Add) && w.Kind != int32(Remove):
		return Entry{}, fmt.Errorf("entry kind %d is neither 0 (add) nor 1 (delete)", w.Kind)
	case f.Size < 0 || f.Rows < 0 || f.Level < 0:
		return Entry{}, fmt.Errorf("file %q: size %d, %d rows, level %d", f.Name, f.Size, f.Rows, f.Level)
	case f.Rows > 0 && f.MinSeq > f.MaxSeq: // without rows, they may be the bounds of nothing
		return Entry{}, fmt.Errorf("file %q: sequence numbers from %d to %d", f.Name, f.MinSeq, f.MaxSeq)
	}
	if err := checkFileName(f.Name); err != nil {
		return Entry{}, err
	}
	for _, x := range f.ExtraFiles {
		if err := checkFileName(x); err != nil {
			return Entry{}, fmt.Errorf("extra file of %s: %w", f.Name, err)
		}
	}
	e := Entry{
		Kind: EntryKind(w.Kind), Partition: fill(w.Partition), Bucket: int(w.Bucket), TotalBuckets: int(w.TotalBuckets),
		File: DataFile{
			Name: f.Name, Size: f.Size, Rows: f.Rows, MinKey: fill(f.MinKey), MaxKey: fill(f.MaxKey),
			KeyStats: statsFromWire(f.KeyStats), ValueStats: statsFromWire(f.ValueStats),
			MinSeq: f.MinSeq, MaxSeq: f.MaxSeq, SchemaID: f.SchemaID, Level: int(f.Level), ExtraFiles: f.ExtraFiles,
			DeleteRows: f.DeleteRows, ValueStatsAll: f.ValueStatsCols == nil, ExternalPath: f.ExternalPath, FirstRowID: f.FirstRowID,
		},
	}
	if f.CreatedMillis != nil {
		e.File.CreatedMillis = *f.CreatedMillis
	}
	if f.EmbeddedIndex != nil {
		e.File.EmbeddedIndex = *f.EmbeddedIndex
	}
	if f.Source != nil {
		e.File.Source = sourceOf(*f.Source)
	}
	if f.ValueStatsCols != nil {
		e.File.ValueStatsCols = *f.ValueStatsCols
	}
	if f.WriteCols != nil {
		e.File.WriteCols = *f.WriteCols
	}
	return e, nil
}

func statsToWire(s Stats) wireStats {
	w := wireStats{Min: fill(s.Min), Max: fill(s.Max), Nulls: s.NullCounts}
	if w.Nulls == nil {
		w.Nulls = []*int64{}
	}
	return w
}

func statsFromWire(w wireStats) Stats {
	s := Stats{Min: fill(w.Min), Max: fill(w.Max), NullCounts: w.Nulls}
	if s.NullCounts == nil {
		s.NullCounts = []*int64{}
	}
	return s
}

func metaToWire(m *Meta) wireMeta {
	return wireMeta{
		Version: wireVersion, Name: m.Name, Size: m.Size, Added: m.Added, Deleted: m.Deleted,
		Partition: statsToWire(m.Partitions), SchemaID: m.SchemaID,
		MinBucket: m.MinBucket, MaxBucket: m.MaxBucket, MinLevel: m.MinLevel, MaxLevel: m.MaxLevel,
	}
}

func metaFromWire(w *wireMeta) (Meta, error) {
	if w.Version != wireVersion {
		return Meta{}, fmt.Errorf("%w: manifest list version %d, this version reads %d", ErrUnsupported, w.Version, wireVersion)
	}
	if err := checkFileName(w.Name); err != nil {
		return Meta{}, err
	}
	if w.Size < 0 || w.Added < 0 || w.Deleted < 0 {
		return Meta{}, errors.New("negative size or count of manifest " + w.Name)
	}
	return Meta{
		Name: w.Name, Size: w.Size, Added: w.Added, Deleted: w.Deleted, Partitions: statsFromWire(w.Partition),
		SchemaID: w.SchemaID, MinBucket: w.MinBucket, MaxBucket: w.MaxBucket, MinLevel: w.MinLevel, MaxLevel: w.MaxLevel,
	}, nil
}
