package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const fileFormatPerLevel = "file.format.per.level"

// codecs are the compressions that calve writes. "lz4" becomes LZ4_RAW in Parquet files, which parquet-mr reads.
var codecs = []string{"zstd", "snappy", "lz4", "none", "uncompressed"}

// CheckWritable says why calve must not write the table, or nil. A table whose options are not fully understood is
// refused with the first such option named, because other writers and readers would expect them to be obeyed.
func (s *Schema) CheckWritable() error { return s.check(false) }

// CheckReadable says why calve would read wrong rows from the table, or nil. Options that only bind writers pass.
func (s *Schema) CheckReadable() error { return s.check(true) }

// check runs the rules in an order that does not depend on map order, so that messages are stable.
func (s *Schema) check(readOnly bool) error {
	o, err := s.ParseOptions()
	if err != nil {
		return fmt.Errorf("%w; correct the option", err)
	}
	if err := s.checkListed(true); err != nil {
		return err
	}
	if err := s.checkMeaning(o, readOnly); err != nil {
		return err
	}
	if !readOnly {
		if err := s.checkListed(false); err != nil {
			return err
		}
	}
	if err := s.checkTypes(readOnly); err != nil {
		return err
	}
	if readOnly {
		return nil
	}
	if err := s.checkWriting(o); err != nil {
		return err
	}
	return s.checkBuckets(o)
}

// refuse is the message for an option that is set in a way calve does not support.
func (s *Schema) refuse(option, why string) error {
	value, set := s.Options[option]
	if !set {
		return fmt.Errorf("table option %q (not set): %s", option, why)
	}
	return fmt.Errorf("table option %q = %q: %s", option, value, why)
}

// checkListed holds each option against the table of all options.
func (s *Schema) checkListed(readOnly bool) error {
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		o, known := FindOption(name)
		switch {
		case !known && readOnly:
			continue
		case !known:
			return s.refuse(name, "calve does not know this option and cannot tell whether it may be ignored; "+
				"correct its name or remove it")
		case o.Use != Refused || readOnly && !o.Reads,
			slices.Contains(o.Off, strings.ToLower(strings.TrimSpace(s.Options[name]))):
			continue
		case len(o.Off) == 0:
			return s.refuse(name, o.Why+"; use a table without this option")
		}
		return s.refuse(name, o.Why+"; use a table where it is "+strings.Join(o.Off, " or "))
	}
	return nil
}

// checkMeaning holds for readers and writers.
func (s *Schema) checkMeaning(o Options, readOnly bool) error {
	if err := s.checkMerge(o); err != nil {
		return err
	}
	return s.checkFormats(o, readOnly)
}

// checkFormats: Parquet is read and written, Avro is read.
func (s *Schema) checkFormats(o Options, readOnly bool) error {
	fits := func(format string) bool { return format == "parquet" || readOnly && format == "avro" }
	if !fits(o.FileFormat) {
		return s.refuse(optFileFormat, fmt.Sprintf("the data files are %s; calve writes parquet only, and reads parquet and avro", o.FileFormat))
	}
	if f := o.Changelog.Format; f != "" && s.Keyed() && o.ChangelogProducer != ProducerNone && !fits(f) {
		return s.refuse(optChangelogFormat, "calve writes parquet only, and reads parquet and avro; remove the option")
	}
	p := optionParser{m: s.Options}
	levels := perLevel(&p, fileFormatPerLevel, lowerWord)
	for _, level := range slices.Sorted(maps.Keys(levels)) {
		if !fits(levels[level]) {
			return s.refuse(fileFormatPerLevel, "calve writes parquet only, and reads parquet and avro; remove the option")
		}
	}
	return p.err
}

func (s *Schema) checkTypes(readOnly bool) error {
	for _, f := range s.Fields {
		switch t := f.Type; {
		case !readOnly && t.hasEmptyRow():
			return fmt.Errorf("column %q has type %s: a ROW without fields has no form in data files; give it a field", f.Name, t)
		case !t.NotNull && slices.Contains(s.PrimaryKeys, f.Name):
			return fmt.Errorf("column %q is part of the primary key but nullable; make it NOT NULL", f.Name)
		}
	}
	return nil
}

// hasEmptyRow reports whether there is a ROW without fields in the type.
func (t Type) hasEmptyRow() bool {
	for _, p := range []*Type{t.Key, t.Element} {
		if p != nil && p.hasEmptyRow() {
			return true
		}
	}
	return t.Root == Row && len(t.Fields) == 0 || slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Type.hasEmptyRow() })
}

func (s *Schema) checkWriting(o Options) error {
	if m := &o.Merge; !s.Keyed() && (m.RowKindField != "" || m.IgnoreDelete || m.IgnoreUpdateBefore) {
		return errors.New("table options \"rowkind.field\", \"ignore-delete\" and \"ignore-update-before\": a table without primary key takes inserts only; remove them")
	}
	if err := s.checkProducer(o); err != nil {
		return err
	}
	if err := s.checkVectors(o); err != nil {
		return err
	}
	if !slices.Contains(codecs, o.Compression) {
		return s.refuse(optCompression, "calve writes "+strings.Join(codecs, ", ")+"; choose one of them")
	}
	for _, level := range slices.Sorted(maps.Keys(o.CompressionPerLevel)) {
		if c := o.CompressionPerLevel[level]; !slices.Contains(codecs, c) {
			return s.refuse(optCompressionPerLevel, fmt.Sprintf("calve writes %s, not %q", strings.Join(codecs, ", "), c))
		}
	}
	if strings.ContainsAny(o.DataFilePrefix, "/\\") || strings.HasPrefix(o.DataFilePrefix, ".") {
		return s.refuse("data-file.prefix", "file names must not hold slashes or start with a dot")
	}
	if err := s.checkFieldOptions(); err != nil {
		return err
	}
	if err := s.checkRowTracking(o); err != nil {
		return err
	}
	return s.checkPartitions(o)
}

// checkFieldOptions follows `schema.SchemaValidation.validateFieldsPrefix`, which takes for the columns of an option
// fields.A,B.* what stands before the second dot: no option can be for a column with a dot in its name, unless there is a
// column of that part of the name as well.
func (s *Schema) checkFieldOptions() error {
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		rest, ok := strings.CutPrefix(name, fieldsPrefix)
		if !ok {
			continue
		}
		of, _, _ := strings.Cut(rest, ".")
		if name == optDefaultAgg {
			continue
		}
		for _, column := range strings.Split(of, ",") {
			if _, ok := s.Field(column); !ok {
				return s.refuse(name, fmt.Sprintf("Paimon takes it to be for a column %q, which the table does not have, and refuses the table; remove the option", column))
			}
		}
	}
	return nil
}

// checkPartitions refuses partitions whose folder other readers may compute otherwise, and keyed tables whose rows
// could move between partitions.
func (s *Schema) checkPartitions(o Options) error {
	for _, c := range s.PartitionColumns() {
		f := s.Fields[c]
		if s.Keyed() && !slices.Contains(s.PrimaryKeys, f.Name) {
			return fmt.Errorf("partition key %q is not part of the primary key %v: calve does not move rows between "+
				"partitions; add it to the primary key", f.Name, s.PrimaryKeys)
		}
		why := ""
		switch f.Type.Root {
		case Float, Double:
			why = "its text in folder names depends on the Java version"
		case Binary, VarBinary:
			why = "it has no text for folder names"
		case TimestampLTZ:
			if !o.LegacyPartitionName {
				why = "its text in folder names depends on the time zone of each Java process while " +
					"partition.legacy-name is false"
			}
		}
		if why != "" {
			return fmt.Errorf("partition key %q has type %s: %s; partition by another type", f.Name, f.Type, why)
		}
	}
	return nil
}

// checkBuckets follows `schema.SchemaValidation` and the bucket modes that calve writes.
func (s *Schema) checkBuckets(o Options) error {
	switch {
	case o.Bucket == BucketPostpone && s.Keyed():
		return s.refuse(optBucket, "calve does not write postponed rows; use a fixed number of buckets")
	case o.Bucket == BucketDynamic && s.Keyed() && o.DynamicMax == 0:
		return s.refuse("dynamic-bucket.max-buckets", "must not be 0: give a number of buckets, or -1")
	case o.Bucket == BucketPostpone:
		return s.refuse(optBucket, "postponed buckets need a primary key; use -1 or a number of buckets with bucket-key")
	case o.Bucket == BucketDynamic && len(o.BucketKey) > 0:
		return s.refuse(optBucketKey, "a bucket key needs a fixed number of buckets; set \"bucket\" to 1 or more")
	case o.Bucket > 0 && !s.Keyed() && len(o.BucketKey) == 0:
		return s.refuse(optBucket, "an append table with buckets needs the option \"bucket-key\"; set it, or \"bucket\" to -1")
	}
	switch o.BucketFunction {
	case "default":
		return nil
	case "mod":
		if cols := s.BucketColumns(); len(cols) == 1 {
			if r := s.Fields[cols[0]].Type.Root; r == Int || r == BigInt {
				return nil
			}
		}
		return s.refuse(optBucketFunc, "mod needs exactly one bucket column, of type INT or BIGINT; use \"default\"")
	}
	return s.refuse(optBucketFunc, "calve knows \"default\" and \"mod\"")
}
