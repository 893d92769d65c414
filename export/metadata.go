package export

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/calve-io/calve/manifest"
)

// Properties that calve writes into the table metadata and, those marked S, into the summary of each snapshot.
const (
	// PropSnapshot (S) is the id of the Paimon snapshot that the Iceberg table shows.
	PropSnapshot = "calve.paimon-snapshot"
	// PropSchema (S) is the id of that snapshot's Paimon schema.
	PropSchema = "calve.paimon-schema"
	// PropCommit (S) identifies the commit behind that snapshot: "kind/identifier/time/user". A snapshot of the same
	// id with another commit means that the table was rolled back.
	PropCommit = "calve.paimon-commit"
	// PropChanged (S) is the id of the first Paimon snapshot whose data files differ from those of the previous
	// Iceberg snapshot: once Paimon has expired it, the previous Iceberg snapshot has lost files.
	PropChanged = "calve.paimon-changed-at"
	// propGC stops Iceberg's own maintenance from deleting data files, which belong to Paimon snapshots as well.
	propGC = "gc.enabled"
)

// formatVersion is the version of the Iceberg table format that calve writes.
const formatVersion = 2

// tableMetadata is the content of a metadata file (Iceberg spec, "Table Metadata Fields"), the fields that v2 has and
// calve uses. Values are not changed once they are published: next makes the successor.
type tableMetadata struct {
	FormatVersion      int                          `json:"format-version"`
	TableUUID          uuid.UUID                    `json:"table-uuid"`
	Location           string                       `json:"location"`
	LastSequenceNumber int64                        `json:"last-sequence-number"`
	LastUpdatedMS      int64                        `json:"last-updated-ms"`
	LastColumnID       int                          `json:"last-column-id"`
	CurrentSchemaID    int                          `json:"current-schema-id"`
	Schemas            []*iceberg.Schema            `json:"schemas"`
	DefaultSpecID      int                          `json:"default-spec-id"`
	PartitionSpecs     []iceberg.PartitionSpec      `json:"partition-specs"`
	LastPartitionID    int                          `json:"last-partition-id"`
	DefaultSortOrderID int                          `json:"default-sort-order-id"`
	SortOrders         []sortOrder                  `json:"sort-orders"`
	Properties         map[string]string            `json:"properties"`
	CurrentSnapshotID  int64                        `json:"current-snapshot-id"` // noSnapshot: none
	Refs               map[string]table.SnapshotRef `json:"refs"`
	Snapshots          []snapshot                   `json:"snapshots"`
	SnapshotLog        []table.SnapshotLogEntry     `json:"snapshot-log"`
	MetadataLog        []table.MetadataLogEntry     `json:"metadata-log"`
}

// sortOrder is the one sort order an export has: none.
type sortOrder struct {
	ID     int        `json:"order-id"`
	Fields []struct{} `json:"fields"`
}

// snapshot is a snapshot together with its JSON form, which is made once and not for every version anew.
type snapshot struct {
	table.Snapshot
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (s snapshot) MarshalJSON() ([]byte, error) {
	if s.raw != nil {
		return s.raw, nil
	}
	return json.Marshal(s.Snapshot)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *snapshot) UnmarshalJSON(data []byte) error {
	s.raw = slices.Clone(data)
	return json.Unmarshal(data, &s.Snapshot)
}

// noSnapshot is what Iceberg's own writers put for "no current snapshot".
const noSnapshot = -1

// parseMetadata reads a metadata file that calve wrote and refuses any other.
func parseMetadata(data []byte, location string) (*tableMetadata, error) {
	var m tableMetadata
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w; delete the folder metadata/ of the table to have it exported anew", ErrDamaged, location, err)
	}
	if m.Properties[PropSchema] == "" || m.FormatVersion != formatVersion {
		return nil, fmt.Errorf("%w: %s was not written by calve; move the folder metadata/ of the table away to have calve export it",
			ErrForeign, location)
	}
	if s := m.current(); s != nil && (s.Summary == nil || s.Summary.Properties[PropSnapshot] == "") {
		return nil, fmt.Errorf("%w: snapshot %d in %s was committed by another Iceberg writer; calve is the only writer of an exported "+
			"table: move the folder metadata/ of the table away to have it exported anew", ErrForeign, s.SnapshotID, location)
	}
	return &m, nil
}

// checked is how many of the newest snapshots are checked again with each version. The older ones were checked when
// they were new and have not changed; parsing a hundred of them would be most of the work of a Publish.
const checked = 2

// encode writes the metadata after iceberg-go's parser has accepted it.
func (m *tableMetadata) encode() ([]byte, error) {
	short := *m
	short.Snapshots = m.Snapshots[max(0, len(m.Snapshots)-checked):]
	data, err := json.Marshal(short)
	if err != nil {
		return nil, fmt.Errorf("encode Iceberg metadata: %w", err)
	}
	if _, err := table.ParseMetadataBytes(data); err != nil {
		return nil, fmt.Errorf("encode Iceberg metadata: the result is refused by iceberg-go: %w", err)
	}
	if len(short.Snapshots) == len(m.Snapshots) {
		return data, nil
	}
	if data, err = json.Marshal(m); err != nil {
		return nil, fmt.Errorf("encode Iceberg metadata: %w", err)
	}
	return data, nil
}

// current is the current snapshot, nil for none, also of no metadata at all.
func (m *tableMetadata) current() *snapshot {
	if m == nil {
		return nil
	}
	for i := len(m.Snapshots) - 1; i >= 0; i-- {
		if m.Snapshots[i].SnapshotID == m.CurrentSnapshotID {
			return &m.Snapshots[i]
		}
	}
	return nil
}

// shown is the Paimon snapshot the metadata shows, 0 for none.
func (m *tableMetadata) shown() int64 { return number(m.Properties[PropSnapshot]) }

// number reads a decimal property; a missing or foreign value is 0.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// commitOf is the value of PropCommit.
func commitOf(s *manifest.Snapshot) string {
	return fmt.Sprintf("%s/%d/%d/%s", s.CommitKind, s.CommitIdentifier, s.TimeMillis, s.CommitUser)
}

// newMetadata starts the metadata of a table that was never exported.
func newMetadata(id uuid.UUID, location string) *tableMetadata {
	return &tableMetadata{
		FormatVersion: formatVersion, TableUUID: id, Location: location,
		Schemas: []*iceberg.Schema{}, PartitionSpecs: []iceberg.PartitionSpec{},
		SortOrders: []sortOrder{{Fields: []struct{}{}}}, Properties: map[string]string{},
		CurrentSnapshotID: noSnapshot, Refs: map[string]table.SnapshotRef{},
		Snapshots: []snapshot{}, SnapshotLog: []table.SnapshotLogEntry{}, MetadataLog: []table.MetadataLogEntry{},
		LastPartitionID: firstPartitionID - 1,
	}
}

// next starts the successor of m, which is stored at location; keep is the number of entries of the metadata log.
func (m *tableMetadata) next(location string, keep int) *tableMetadata {
	n := *m
	n.Properties = map[string]string{}
	for k, v := range m.Properties {
		n.Properties[k] = v
	}
	n.Schemas = slices.Clone(m.Schemas)
	n.Snapshots = slices.Clone(m.Snapshots)
	n.SnapshotLog = slices.Clone(m.SnapshotLog)
	n.Refs = map[string]table.SnapshotRef{}
	for k, v := range m.Refs {
		n.Refs[k] = v
	}
	n.MetadataLog = append(slices.Clone(m.MetadataLog), table.MetadataLogEntry{TimestampMs: m.LastUpdatedMS, MetadataFile: location})
	if extra := len(n.MetadataLog) - keep; extra > 0 {
		n.MetadataLog = slices.Delete(n.MetadataLog, 0, extra)
	}
	return &n
}

// touch moves the time of the last update, which never goes back whatever the clocks of the committers did.
func (m *tableMetadata) touch(millis int64) { m.LastUpdatedMS = max(m.LastUpdatedMS, millis) }

// addSchema makes sure that the schema is there.
func (m *tableMetadata) addSchema(s *iceberg.Schema) {
	if slices.ContainsFunc(m.Schemas, func(o *iceberg.Schema) bool { return o.ID == s.ID }) {
		return
	}
	m.Schemas = append(m.Schemas, s)
	slices.SortFunc(m.Schemas, func(a, b *iceberg.Schema) int { return a.ID - b.ID })
	m.LastColumnID = max(m.LastColumnID, s.HighestFieldID())
}

// hasSchema says whether a schema is there.
func (m *tableMetadata) hasSchema(id int) bool {
	return slices.ContainsFunc(m.Schemas, func(o *iceberg.Schema) bool { return o.ID == id })
}

// addSnapshot makes s the current snapshot.
func (m *tableMetadata) addSnapshot(s table.Snapshot) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode Iceberg snapshot %d: %w", s.SnapshotID, err)
	}
	m.Snapshots = append(m.Snapshots, snapshot{Snapshot: s, raw: raw})
	m.SnapshotLog = append(m.SnapshotLog, table.SnapshotLogEntry{SnapshotID: s.SnapshotID, TimestampMs: s.TimestampMs})
	m.CurrentSnapshotID = s.SnapshotID
	m.LastSequenceNumber = s.SequenceNumber
	m.Refs = map[string]table.SnapshotRef{table.MainBranch: {SnapshotID: s.SnapshotID, SnapshotRefType: table.BranchRef}}
	m.touch(s.TimestampMs)
	return nil
}

// drop removes the snapshots for which gone is true, never the current one, and returns them. As the Iceberg spec
// wants it, the snapshot log keeps only what is newer than the newest removed entry.
func (m *tableMetadata) drop(gone func(i int, s *snapshot) bool) []snapshot {
	var dropped, kept []snapshot
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		if s.SnapshotID != m.CurrentSnapshotID && gone(i, s) {
			dropped = append(dropped, *s)
		} else {
			kept = append(kept, *s)
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	from := 0
	for i, entry := range m.SnapshotLog {
		if slices.ContainsFunc(dropped, func(s snapshot) bool { return s.SnapshotID == entry.SnapshotID }) {
			from = i + 1
		}
	}
	m.Snapshots, m.SnapshotLog = kept, slices.Clone(m.SnapshotLog[from:])
	return dropped
}

// forget removes all snapshots: their manifests are lost, or name locations that are not the table's any more.
func (m *tableMetadata) forget() {
	m.Snapshots, m.SnapshotLog = []snapshot{}, []table.SnapshotLogEntry{}
	m.Refs, m.CurrentSnapshotID = map[string]table.SnapshotRef{}, noSnapshot
}
