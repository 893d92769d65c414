package schema

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Values of the option merge-engine (`CoreOptions.MergeEngine`).
const (
	Deduplicate   = "deduplicate"
	PartialUpdate = "partial-update"
	Aggregation   = "aggregation"
	FirstRow      = "first-row"
)

// Names of the options that say how rows of one key become one.
const (
	optSequenceField = "sequence.field"
	optSortOrder     = "sequence.field.sort-order"
	optRowKindField  = "rowkind.field"
	optIgnoreDelete  = "ignore-delete"
	optIgnoreBefore  = "ignore-update-before"
	optAggRemove     = "aggregation.remove-record-on-delete"
	optPartialRemove = "partial-update.remove-record-on-delete"
	optGroupRemove   = "partial-update.remove-record-on-sequence-group"
	optExpireTime    = "record-level.expire-time"
	optTimeField     = "record-level.time-field"
	optForceLookup   = "force-lookup"
	optDefaultAgg    = "fields.default-aggregate-function"

	suffixFunction      = ".aggregate-function"
	suffixIgnoreRetract = ".ignore-retract"
	suffixDistinct      = ".distinct"
	suffixDelimiter     = ".list-agg-delimiter"
	suffixNestedKey     = ".nested-key"
	suffixCountLimit    = ".count-limit"
	suffixGroup         = ".sequence-group"
)

// Aggregate functions (`mergetree.compact.aggregate.factory`). Those that calve does not know are refused by
// CheckReadable and CheckWritable.
const (
	AggPrimaryKey   = "primary-key" // of key columns: they are all the same
	AggSum          = "sum"
	AggProduct      = "product"
	AggMax          = "max"
	AggMin          = "min"
	AggLastValue    = "last_value"
	AggLastNonNull  = "last_non_null_value"
	AggFirstValue   = "first_value"
	AggFirstNonNull = "first_non_null_value"
	AggFirstNotNull = "first_not_null_value" // the older name of AggFirstNonNull
	AggListagg      = "listagg"
	AggBoolAnd      = "bool_and"
	AggBoolOr       = "bool_or"
	AggCollect      = "collect"
	AggMergeMap     = "merge_map"
	AggNestedUpdate = "nested_update"
)

// MergeOptions say how rows of one key become one, beside Options.MergeEngine and Options.SequenceFields. The zero value
// stands for Paimon's defaults.
type MergeOptions struct {
	SequenceDescending bool   // sequence.field.sort-order: the row with the smallest sequence fields wins
	RowKindField       string // rowkind.field: the column with the kind of each row that is written; "": none
	IgnoreDelete       bool   // ignore-delete and its older names: rows of kind -D and -U are dropped
	IgnoreUpdateBefore bool   // ignore-update-before: rows of kind -U are dropped when they are written

	// RemoveOnDelete is aggregation.remove-record-on-delete or partial-update.remove-record-on-delete, whichever is of
	// the table's engine: a row of kind -D removes what was there.
	RemoveOnDelete bool
	RemoveOnGroup  []string        // partial-update.remove-record-on-sequence-group: sequence columns
	Groups         []SequenceGroup // fields.A,B.sequence-group, ordered by option name
	DefaultFunc    string          // fields.default-aggregate-function; "": none
	Functions      map[string]Aggregate

	ExpireTime  time.Duration // record-level.expire-time; 0: rows do not expire
	TimeField   string        // record-level.time-field
	ForceLookup bool          // force-lookup
}

// SequenceGroup is a set of columns of a partial-update table that change together, when their own sequence columns are
// not behind.
type SequenceGroup struct{ By, Fields []string }

// Aggregate is what the options fields.COLUMN.* say.
type Aggregate struct {
	Function      string // "": not set
	IgnoreRetract bool
	Distinct      bool
	Delimiter     string   // of listagg
	NestedKey     []string // of nested_update
	CountLimit    int      // of nested_update
}

// Lookup reports whether Paimon's compaction of the table looks older rows up, so that a row above level 0 already has
// everything below it merged in (`lookup.LookupStrategy`).
func (o Options) Lookup() bool {
	return o.ChangelogProducer == "lookup" || o.DeletionVectors || o.MergeEngine == FirstRow || o.Merge.ForceLookup
}

// Aggregate is the function by which a column of the table is merged. Function is "" for a column of a partial-update
// table without one (§11.4; `AggregateMergeFunction.getAggFuncName`, `PartialUpdateMergeFunction.getAggFuncName`).
func (s *Schema) Aggregate(o Options, column string) Aggregate {
	a := Aggregate{Delimiter: ",", CountLimit: math.MaxInt32}
	if own, ok := o.Merge.Functions[column]; ok {
		a = own
	}
	switch {
	case o.MergeEngine == Aggregation && slices.Contains(o.SequenceFields, column):
		return Aggregate{Function: AggLastValue, IgnoreRetract: a.IgnoreRetract}
	case o.MergeEngine == PartialUpdate && o.Merge.groupBy(column) >= 0:
		return Aggregate{}
	case slices.Contains(s.PrimaryKeys, column):
		return Aggregate{Function: AggPrimaryKey}
	}
	if a.Function == "" {
		a.Function = o.Merge.DefaultFunc
	}
	if a.Function == "" && o.MergeEngine == Aggregation {
		a.Function = AggLastNonNull
	}
	if a.Function == AggFirstNotNull {
		a.Function = AggFirstNonNull
	}
	if a.Function == "" {
		a.IgnoreRetract = false // the option speaks of a function (`FieldIgnoreRetractAgg` wraps one)
	}
	return a
}

// groupBy is the group that has the column as a sequence column, or -1.
func (m *MergeOptions) groupBy(column string) int {
	return slices.IndexFunc(m.Groups, func(g SequenceGroup) bool { return slices.Contains(g.By, column) })
}

// GroupOf is the sequence group that a column belongs to, as a member or a sequence column, or -1.
func (m *MergeOptions) GroupOf(column string) int {
	if g := m.groupBy(column); g >= 0 {
		return g
	}
	return slices.IndexFunc(m.Groups, func(g SequenceGroup) bool { return slices.Contains(g.Fields, column) })
}

// merge reads the options of MergeOptions.
func (p *optionParser) merge(s *Schema, o *Options) {
	m := &o.Merge
	switch order := p.word(optSortOrder, "ascending"); order {
	case "ascending":
	case "descending":
		m.SequenceDescending = true
	default:
		p.fail(optSortOrder, "is neither ascending nor descending")
	}
	m.RowKindField = p.column(s, optRowKindField)
	for _, name := range []string{optIgnoreDelete, "first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"} {
		if _, set := p.m[name]; set { // the first that is set counts
			m.IgnoreDelete = p.bool(name, false)
			break
		}
	}
	m.IgnoreUpdateBefore = p.bool(optIgnoreBefore, false)
	m.ForceLookup = p.bool(optForceLookup, false)
	aggRemove, partialRemove := p.bool(optAggRemove, false), p.bool(optPartialRemove, false)
	m.RemoveOnDelete = o.MergeEngine == Aggregation && aggRemove || o.MergeEngine == PartialUpdate && partialRemove
	if text, set := p.m[optGroupRemove]; set {
		m.RemoveOnGroup = strings.Split(text, ",")
	}
	m.ExpireTime = p.duration(optExpireTime, 0)
	m.TimeField = p.column(s, optTimeField)
	p.fields(s, m)
}

// column reads the name of one column; "" when the option is not set.
func (p *optionParser) column(s *Schema, name string) string {
	c, set := p.m[name]
	if _, ok := s.Field(c); set && !ok {
		p.fail(name, fmt.Sprintf("names %q, which is not a column", c))
	}
	return c
}

// fields reads the options of single columns.
func (p *optionParser) fields(s *Schema, m *MergeOptions) {
	for _, name := range slices.Sorted(maps.Keys(p.m)) {
		if name == optDefaultAgg {
			m.DefaultFunc = p.m[name]
			continue
		}
		rest, ok := strings.CutPrefix(name, fieldsPrefix)
		if !ok {
			continue
		}
		if by, ok := strings.CutSuffix(rest, suffixGroup); ok {
			m.Groups = append(m.Groups, SequenceGroup{By: strings.Split(by, ","), Fields: strings.Split(p.m[name], ",")})
			continue
		}
		for _, suffix := range mergeSuffixes {
			column, ok := strings.CutSuffix(rest, suffix)
			if !ok {
				continue
			}
			if _, known := s.Field(column); !known {
				p.fail(name, fmt.Sprintf("%q is not a column", column))
				break
			}
			if m.Functions == nil {
				m.Functions = map[string]Aggregate{}
			}
			a, seen := m.Functions[column]
			if !seen {
				a.Delimiter, a.CountLimit = ",", math.MaxInt32
			}
			p.aggregate(&a, name, suffix)
			m.Functions[column] = a
		}
	}
}

var mergeSuffixes = []string{suffixFunction, suffixIgnoreRetract, suffixDistinct, suffixDelimiter, suffixNestedKey, suffixCountLimit}

func (p *optionParser) aggregate(a *Aggregate, name, suffix string) {
	switch suffix {
	case suffixFunction:
		a.Function = p.m[name]
	case suffixIgnoreRetract:
		a.IgnoreRetract = p.bool(name, false)
	case suffixDistinct:
		a.Distinct = p.bool(name, false)
	case suffixDelimiter:
		a.Delimiter = p.m[name]
	case suffixNestedKey:
		a.NestedKey = splitNames(p.m[name])
	case suffixCountLimit:
		a.CountLimit = p.int(name, math.MaxInt32, math.MinInt32, math.MaxInt32)
	}
}
