package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func (c SetOption) apply(a *alteration) error {
	if have, ok := a.options[c.Name]; ok && have == c.Value {
		return nil
	}
	line, known := FindOption(c.Name)
	switch {
	case c.Name == "primary-key" || c.Name == "partition":
		return fmt.Errorf("the keys of a table are chosen when it is created")
	case c.Name == "path":
		return fmt.Errorf("a table cannot be moved by an option")
	case !known:
		return fmt.Errorf("table option %q is none that calve or Paimon knows", c.Name)
	case a.past.Snapshots && line.Fixed:
		return fmt.Errorf("%q cannot change once the table has a snapshot", c.Name)
	}
	if a.past.Snapshots {
		if err := a.checkSet(c.Name, c.Value); err != nil {
			return err
		}
	}
	a.options[c.Name], a.changed = c.Value, true
	return nil
}

// checkSet holds the rules for single options in a table with snapshots (`SchemaManager.checkAlterTableOption`), and
// one of calve's own: what the folders of partitions are named by stays.
func (a *alteration) checkSet(name, value string) error {
	isTrue := func(v string) bool { return strings.EqualFold(strings.TrimSpace(v), "true") }
	switch name {
	case optBucket:
		have := defaultBucket(a.old.Version)
		if v, ok := a.options[optBucket]; ok {
			have, _ = strconv.Atoi(v)
		}
		want, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a number of buckets", value)
		}
		if have == want {
			return nil
		}
		if have == BucketDynamic || want == BucketDynamic {
			return fmt.Errorf("the number of buckets can change between fixed numbers only, not from %d to %d", have, want)
		}
	case "deletion-vectors.enabled":
		if isTrue(a.options[name]) != isTrue(value) && !isTrue(a.options["deletion-vectors.modifiable"]) {
			return fmt.Errorf("the table has snapshots; without a full compaction of all of it, rows could come back. " +
				"Set deletion-vectors.modifiable to true first if you are sure")
		}
	case "ignore-delete", "ignore-update-before":
		if isTrue(a.options[name]) && !isTrue(value) {
			return fmt.Errorf("it can be turned on but not off once the table has a snapshot")
		}
	case optProducer:
		return a.checkProducer(value)
	case optNumLevels, optTrigger:
		if a.options[optProducer] == ProducerFullCompaction && (name == optNumLevels || a.options[optNumLevels] == "") {
			return fmt.Errorf("it says which level is the highest, and changes are told when rows come there: they would be told again. " +
				"Set changelog-producer to another first, or choose the levels of a new table")
		}
	case optLegacyName, "partition.default-name":
		if a.old.Partitioned() {
			return fmt.Errorf("the folders of the partitions that are there are named by it")
		}
	}
	return nil
}

// checkProducer refuses producers that rely on what compactions under another have not done: for lookup, the rows of a key
// above level 0 are merged; for full-compaction, what is below the highest level has not been told.
func (a *alteration) checkProducer(value string) error {
	have := a.options[optProducer]
	engine := a.options[optMergeEngine]
	switch {
	case value == have:
	case value == ProducerLookup && (engine == "aggregation" || engine == "partial-update" || a.options[optSequenceField] != ""):
		return fmt.Errorf("rows of a key on different levels are not merged with each other yet, and lookup relies on that: " +
			"rows would be lost. Choose it when the table is created")
	case value == ProducerFullCompaction && have == ProducerLookup:
		return fmt.Errorf("what lookup has told would be told again. Choose it when the table is created")
	}
	return nil
}

func (c RemoveOption) apply(a *alteration) error {
	have, ok := a.options[c.Name]
	if !ok {
		return nil
	}
	if a.past.Snapshots {
		line, _ := FindOption(c.Name)
		switch c.Name {
		case optBucket:
			return fmt.Errorf("the number of buckets cannot be left open once the table has a snapshot")
		case "deletion-vectors.enabled", "ignore-delete", "ignore-update-before":
			if err := a.checkSet(c.Name, "false"); err != nil {
				return err
			}
		case optLegacyName:
			if !strings.EqualFold(have, "true") {
				if err := a.checkSet(c.Name, "true"); err != nil {
					return err
				}
			}
		case "partition.default-name":
			if err := a.checkSet(c.Name, ""); err != nil {
				return err
			}
		}
		if line.Fixed {
			return fmt.Errorf("%q cannot change once the table has a snapshot", c.Name)
		}
	}
	delete(a.options, c.Name)
	a.changed = true
	return nil
}

// columnLists are the options whose value is a comma list of columns.
var columnLists = []string{optBucketKey, "sequence.field", "rowkind.field", "record-level.time-field",
	"partial-update.remove-record-on-sequence-group", "clustering.columns", "sink.clustering.by-columns", "upsert-key",
	"changelog-producer.row-deduplicate-ignore-fields", "blob-field", "blob-descriptor-field", "blob-external-storage-field",
	"vector-field"}

const sequenceGroupSuffix = ".sequence-group"

// fieldSuffixes are what follows the columns in options of the form fields.COLUMN[,COLUMN…].SUFFIX.
var fieldSuffixes = []string{statsModeSuffix, ".aggregate-function", ".ignore-retract", ".list-agg-delimiter", ".distinct",
	".nested-key", ".count-limit", ".ts-field", sequenceGroupSuffix}

// fieldOption cuts fields.COLUMNS.SUFFIX into its columns and its suffix (with the dot).
func fieldOption(name string) (columns []string, suffix string, ok bool) {
	body, ok := strings.CutPrefix(name, fieldsPrefix)
	if !ok {
		return nil, "", false
	}
	for _, suffix := range fieldSuffixes {
		if list, ok := strings.CutSuffix(body, suffix); ok && list != "" {
			return splitNames(list), suffix, true
		}
	}
	return nil, "", false
}

const fileIndexPrefix = "file-index."

// fileIndexOption cuts file-index.TYPE.REST.
func fileIndexOption(name string) (kind, rest string, ok bool) {
	body, ok := strings.CutPrefix(name, fileIndexPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(body, ".")
}

// renameInOptions rewrites the options that mention a column: in lists of columns, in fields.COLUMN.*, and in
// file-index.TYPE.columns and file-index.TYPE.COLUMN.*.
func (a *alteration) renameInOptions(from, to string) {
	renamed := func(list []string) ([]string, bool) {
		out, hit := slices.Clone(list), false
		for i, n := range out {
			if n == from {
				out[i], hit = to, true
			}
		}
		return out, hit
	}
	for _, name := range slices.Sorted(maps.Keys(a.options)) {
		value := a.options[name]
		newName, newValue := name, value
		inValue := slices.Contains(columnLists, name)
		if columns, suffix, ok := fieldOption(name); ok {
			if list, hit := renamed(columns); hit {
				newName = fieldsPrefix + strings.Join(list, ",") + suffix
			}
			inValue = suffix == sequenceGroupSuffix
		} else if kind, rest, ok := fileIndexOption(name); ok {
			inValue = rest == "columns"
			if option, hit := strings.CutPrefix(rest, from+"."); hit {
				newName = fileIndexPrefix + kind + "." + to + "." + option
			}
		}
		if inValue {
			if list, hit := renamed(splitNames(value)); hit {
				newValue = strings.Join(list, ",")
			}
		}
		delete(a.options, name)
		a.options[newName] = newValue
	}
}

// checkMentions refuses options that speak of columns that are not there (`SchemaValidation`), as they are left behind
// when a column is dropped.
func (s *Schema) checkMentions() error {
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		var columns []string
		if slices.Contains(columnLists, name) {
			columns = splitNames(s.Options[name])
		}
		if list, suffix, ok := fieldOption(name); ok {
			columns = list
			if suffix == sequenceGroupSuffix {
				columns = append(columns, splitNames(s.Options[name])...)
			}
		}
		for _, c := range columns {
			if _, ok := s.Field(c); !ok {
				return fmt.Errorf("table option %q = %q speaks of the column %q, which is not there; unset or change the option",
					name, s.Options[name], c)
			}
		}
	}
	return nil
}
