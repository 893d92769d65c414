package datafile

import "github.com/calve-io/calve/schema"

// ColumnStats are the statistics of one column of a file, as they go into a manifest.
//
// Min and Max are cells in the form of schema.Cell, nil when unknown: no value at all, binary columns, columns with a
// NaN, strings that cannot be shortened, and the modes none and counts. Nulls is the number of nulls, or -1 in the mode
// none: such columns are left out of densely stored statistics.
type ColumnStats struct {
	Min, Max any
	Nulls    int64
}

// keyStats is the mode of key columns, whatever the table says (`KeyValueDataFileWriter`).
const keyStats schema.StatsMode = "truncate(128)"

// defaultStats is the mode of value columns (`metadata.stats-mode`).
const defaultStats schema.StatsMode = "truncate(16)"

// keep cuts collected statistics down to what a mode keeps.
func keep(m schema.StatsMode, s ColumnStats) ColumnStats {
	switch m {
	case schema.StatsNone:
		return ColumnStats{Nulls: -1}
	case schema.StatsCounts:
		return ColumnStats{Nulls: s.Nulls}
	}
	n, ok := m.Truncate()
	if !ok {
		return s
	}
	lo, isText := s.Min.(string)
	if !isText {
		return s
	}
	hi, ok := truncateMax(s.Max.(string), n)
	if !ok { // as Paimon: without a maximum the minimum is not kept either
		return ColumnStats{Nulls: s.Nulls}
	}
	return ColumnStats{Min: truncateMin(lo, n), Max: hi, Nulls: s.Nulls}
}
