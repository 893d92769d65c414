package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// snapshotVersion is the newest layout of snapshot files that Paimon 1.3 and 2.0 write.
const snapshotVersion = 3

// maxSnapshotSize bounds a snapshot file. Properties carry source positions, a few bytes for each source partition.
const maxSnapshotSize = 16 << 20

// snapshotName is the file of a snapshot.
func snapshotName(id int64) string { return "snapshot/snapshot-" + strconv.FormatInt(id, 10) }

// encodeSnapshot writes the file snapshot-N with Paimon's keys in Paimon's order (paimon-format §4).
func encodeSnapshot(s *Snapshot) ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", snapshotName(s.ID), err)
	}
	if len(data) > maxSnapshotSize { // nobody could read it, nor commit after it
		return nil, refusal{fmt.Errorf("write %s: it would have %d bytes, more than the %d that are read; its properties are too large", snapshotName(s.ID), len(data), maxSnapshotSize)}
	}
	return data, nil
}

// decodeSnapshot reads a snapshot or tag file. Unknown keys are ignored, as Paimon does.
func decodeSnapshot(name string, data []byte) (*Snapshot, error) {
	corrupt := func(off int64, reason string, err error) error {
		return &CorruptError{Name: name, Offset: off, Reason: reason, Err: err}
	}
	s := &Snapshot{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, corrupt(jsonOffset(err, data), "not a snapshot in JSON", err)
	}
	at := func(key string) int64 { return int64(max(0, bytes.Index(data, []byte(`"`+key+`"`)))) }
	switch {
	case s.Version > snapshotVersion:
		return nil, fmt.Errorf("snapshot %s: %w: version %d, this version reads up to %d", name, ErrUnsupported, s.Version, snapshotVersion)
	case s.ID < 1:
		return nil, corrupt(at("id"), fmt.Sprintf("snapshot id %d", s.ID), nil)
	case s.SchemaID < 0:
		return nil, corrupt(at("schemaId"), fmt.Sprintf("schema id %d", s.SchemaID), nil)
	case s.CommitKind != Append && s.CommitKind != Compact && s.CommitKind != Overwrite && s.CommitKind != Analyze:
		return nil, corrupt(at("commitKind"), fmt.Sprintf("unknown commit kind %q", s.CommitKind), nil)
	}
	lists := []struct {
		key  string
		name *string
		size *int64
	}{
		{"baseManifestList", &s.BaseManifestList, s.BaseManifestListSize},
		{"deltaManifestList", &s.DeltaManifestList, s.DeltaManifestListSize},
		{"changelogManifestList", s.ChangelogManifestList, s.ChangelogManifestListSize},
		{"indexManifest", s.IndexManifest, nil},
		{"statistics", s.Statistics, nil},
	}
	for _, l := range lists {
		if l.name != nil {
			if err := checkFileName(*l.name); err != nil {
				return nil, corrupt(at(l.key), l.key, err)
			}
		}
		if l.size != nil && *l.size < 0 {
			return nil, corrupt(at(l.key), fmt.Sprintf("size %d of %s", *l.size, l.key), nil)
		}
	}
	return s, nil
}

// jsonOffset finds where a JSON error happened.
func jsonOffset(err error, data []byte) int64 {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntax.Offset
	case errors.As(err, &typ):
		return typ.Offset
	}
	return int64(len(data))
}
