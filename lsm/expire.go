package lsm

import (
	"context"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// Rows expire by the options record-level.expire-time and record-level.time-field (`io.RecordLevelExpire`, §11.4): a
// compaction leaves out, before it merges, rows whose time is longer ago; rows without time stay. Readers still see
// expired rows that no compaction has met, as those of Paimon do.

// secondsFrom is the value from which a BIGINT time is milliseconds.
const secondsFrom = 1_000_000_000_000

// expireBefore is the time, in seconds since 1970, before which rows have expired; ok is false if rows do not expire.
func (f Files) expireBefore() (sec int64, ok bool) {
	life := f.Options.Merge.ExpireTime
	if life == 0 || f.Now == nil {
		return 0, false
	}
	return f.Now().Unix() - int64(life.Seconds()), true
}

// Expired reports whether a file has expired rows, as far as its statistics tell: those of an older schema are not
// asked.
func (f Files) Expired(m *manifest.DataFile) bool {
	before, ok := f.expireBefore()
	if !ok || m.SchemaID != f.Schema.ID {
		return false
	}
	var cols []int
	for i, field := range f.Schema.Fields {
		if m.ValueStatsAll || slices.Contains(m.ValueStatsCols, field.Name) {
			cols = append(cols, i)
		}
	}
	at, ok := f.Schema.Field(f.Options.Merge.TimeField)
	pos := slices.Index(cols, at)
	if !ok || pos < 0 {
		return false
	}
	vals, err := binrow.Decode(m.ValueStats.Min, f.Schema.Types(cols))
	if err != nil || len(vals) <= pos {
		return false
	}
	switch v := vals[pos].(type) {
	case int32:
		return int64(v) < before
	case int64:
		return secondsOf(f.Schema.Fields[at].Type, v) < before
	}
	return false
}

// secondsOf turns a time column's value into seconds since 1970.
func secondsOf(t schema.Type, v int64) int64 {
	if t.Root == schema.BigInt {
		if v >= secondsFrom {
			return v / 1000
		}
		return v
	}
	switch schema.TimeUnit(t) {
	case arrow.Microsecond:
		v = floorDiv(v, 1_000)
	case arrow.Nanosecond:
		v = floorDiv(v, 1_000_000)
	}
	return v / 1000
}

func floorDiv(v, n int64) int64 {
	q := v / n
	if v%n < 0 {
		q--
	}
	return q
}

// unexpired leaves expired rows out of a run of all columns.
func (f Files) unexpired(run Run) Run {
	files, isFiles := run.(*fileRun)
	before, ok := f.expireBefore()
	at, found := f.Schema.Field(f.Options.Merge.TimeField)
	if !ok || !found || !isFiles {
		return run
	}
	return &expiringRun{fileRun: files, at: at, typ: f.Schema.Fields[at].Type, before: before}
}

type expiringRun struct {
	*fileRun
	at     int
	typ    schema.Type
	before int64
}

// Next implements Run.
func (r *expiringRun) Next(ctx context.Context) (datafile.Rows, error) {
	for {
		rows, err := r.fileRun.Next(ctx)
		if err != nil || rows.N == 0 {
			return rows, err
		}
		live, n := r.live(rows)
		switch n {
		case rows.N:
			return rows, nil
		case 0:
			continue
		}
		return gatherRows(nil, part{wins: []*window{{rows: rows}}, ranges: live, rows: n})
	}
}

// live finds the rows that have not expired.
func (r *expiringRun) live(rows datafile.Rows) ([]Range, int) {
	col := rows.Cols[r.at]
	valid := validOf(col)
	expired := func(i int) bool { return secondsOf(r.typ, values[int64](col)[i]) < r.before }
	if r.typ.Root == schema.Int {
		expired = func(i int) bool { return int64(values[int32](col)[i]) < r.before }
	}
	var out []Range
	n := 0
	for i := range rows.N {
		if valid.has(i) && expired(i) {
			continue
		}
		n++
		if k := len(out); k > 0 && int(out[k-1].Start+out[k-1].N) == i {
			out[k-1].N++
		} else {
			out = append(out, Range{0, int32(i), 1})
		}
	}
	return out, n
}

var _ interface {
	Leveled
	io.Closer
} = (*expiringRun)(nil)
