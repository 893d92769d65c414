package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Spec describes a table to be created.
type Spec struct {
	Columns       []Column
	PrimaryKeys   []string          // empty: append table
	PartitionKeys []string          // must be part of the primary key, if there is one
	Options       map[string]string // table options; New adds calve's defaults
	Comment       string
	TimeMillis    int64 // creation time in epoch milliseconds
}

// New builds the first schema of a table: id 0, field ids from 1 (some Iceberg readers refuse 0), primary key columns
// NOT NULL, options completed with calve's defaults, and checked to be writable.
func New(spec Spec) (*Schema, error) {
	if len(spec.Columns) == 0 {
		return nil, errors.New("a table needs at least one column")
	}
	for _, name := range []string{"primary-key", "partition"} {
		if _, ok := spec.Options[name]; ok {
			return nil, fmt.Errorf("table option %q: give the primary key and the partition keys of the table instead", name)
		}
	}
	s := &Schema{
		Version: maxVersion, PartitionKeys: slices.Clone(spec.PartitionKeys), PrimaryKeys: slices.Clone(spec.PrimaryKeys),
		Options: maps.Clone(spec.Options), Comment: spec.Comment, TimeMillis: spec.TimeMillis,
	}
	for _, c := range spec.Columns {
		if slices.Contains(s.PrimaryKeys, c.Name) {
			c.Type.NotNull = true
		}
		s.HighestFieldID++
		f := Field{ID: s.HighestFieldID, Name: c.Name, Description: c.Comment}
		f.Type = c.Type.numbered(&s.HighestFieldID)
		s.Fields = append(s.Fields, f)
	}
	if s.Options == nil {
		s.Options = map[string]string{}
	}
	s.setDefaults()
	if err := s.validate(); err != nil {
		return nil, err
	}
	if err := s.CheckWritable(); err != nil {
		return nil, err
	}
	return s, nil
}

// numbered gives the type with field ids after highest, which moves on. As in Paimon, a field of a ROW has a higher id than
// those inside of it (`types.ReassignFieldId`).
func (t Type) numbered(highest *int) Type {
	inside := func(p *Type) *Type {
		if p == nil {
			return nil
		}
		c := p.numbered(highest)
		return &c
	}
	t.Key, t.Element, t.Fields = inside(t.Key), inside(t.Element), slices.Clone(t.Fields)
	for i := range t.Fields {
		t.Fields[i].Type = t.Fields[i].Type.numbered(highest)
		*highest++
		t.Fields[i].ID = *highest
	}
	return t
}

// setDefaults writes down the options that calve chooses for its tables, so that every other writer works alike.
func (s *Schema) setDefaults() {
	defaults := map[string]string{
		optBucket:      strconv.Itoa(BucketDynamic),
		optTargetSize:  "512 mb",
		optFileFormat:  "parquet",
		optCompression: "zstd",
		optZstdLevel:   "1",
		// Dates in folder names as dates, not as day numbers.
		optLegacyName: "false",
	}
	if s.Keyed() || s.Options[optBucketKey] != "" {
		defaults[optBucket] = "1"
	}
	if s.Keyed() {
		// Levels 0, 1 and 2, whatever the trigger: 2 is the level that the export publishes. Where level 0 is brought up
		// after every commit, more levels keep that from being merged with much of the table each time.
		defaults[optNumLevels] = "3"
		if strings.EqualFold(s.Options[optVectors], "true") || strings.EqualFold(strings.TrimSpace(s.Options[optProducer]), ProducerLookup) {
			defaults[optNumLevels] = "6"
		}
		defaults[optTrigger] = "5"
		// Level 0 lives for seconds: a codec that costs a third of zstd, and that every Parquet library reads.
		if _, chosen := s.Options[optCompression]; !chosen {
			defaults[optCompressionPerLevel] = "0:snappy"
		}
	}
	for name, value := range defaults {
		if _, ok := s.Options[name]; !ok {
			s.Options[name] = value
		}
	}
}
