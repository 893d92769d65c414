package lsm

import (
	"context"
	"fmt"
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

// Expired reports whether a file has expired rows, as far as its statistics tell (`RecordLevelExpire.isExpireFile`).
// written is the schema of the file, in which the time column may have had another name, place or type.
func (f Files) Expired(m *manifest.DataFile, written *schema.Schema) bool {
	before, ok := f.expireBefore()
	now, found := f.Schema.Field(f.Options.Merge.TimeField)
	if !ok || !found {
		return false
	}
	at, found := written.FieldByID(f.Schema.Fields[now].ID)
	if !found {
		return false // no row of the file has a time
	}
	pos, n := at, len(written.Fields)
	if !m.ValueStatsAll {
		pos, n = slices.Index(m.ValueStatsCols, written.Fields[at].Name), len(m.ValueStatsCols)
	}
	typ := written.Fields[at].Type
	if pos < 0 || !typ.Primitive() {
		return false
	}
	least, err := binrow.DecodeField(m.ValueStats.Min, n, pos, typ)
	if err != nil {
		return false
	}
	switch v := least.(type) {
	case int8:
		return int64(v) < before
	case int16:
		return int64(v) < before
	case int32:
		return typ.Root == schema.Int && int64(v) < before
	case int64:
		return (typ.Root == schema.BigInt || typ.Root == schema.Timestamp || typ.Root == schema.TimestampLTZ) && secondsOf(typ, v) < before
	}
	return false
}

// expiredFiles finds the files of a job that have expired rows.
func (f Files) expiredFiles(ctx context.Context, files []manifest.DataFile) (map[string]bool, error) {
	if _, ok := f.expireBefore(); !ok {
		return nil, nil
	}
	out := map[string]bool{}
	for i := range files {
		m, written := &files[i], f.Schema
		if m.SchemaID != written.ID {
			var err error
			if written, err = f.OpenSchema(ctx, m.SchemaID); err != nil {
				return nil, fmt.Errorf("schema %d of data file %s: %w", m.SchemaID, m.Name, err)
			}
		}
		out[m.Name] = f.Expired(m, written)
	}
	return out, nil
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
	x := f.expiring()
	if x == nil || !isFiles {
		return run
	}
	return &expiringRun{files, x}
}

// expiring tells rows, of all columns, that have expired.
type expiring struct {
	at     int
	typ    schema.Type
	before int64
}

// expiring is nil if rows do not expire.
func (f Files) expiring() *expiring {
	before, ok := f.expireBefore()
	at, found := f.Schema.Field(f.Options.Merge.TimeField)
	if !ok || !found {
		return nil
	}
	return &expiring{at: at, typ: f.Schema.Fields[at].Type, before: before}
}

// expired reports of rows by number whether they have expired.
func (x *expiring) expired(rows datafile.Rows) func(int) bool {
	col := rows.Cols[x.at]
	valid := validOf(col)
	if x.typ.Root == schema.Int {
		return func(i int) bool { return valid.has(i) && int64(values[int32](col)[i]) < x.before }
	}
	return func(i int) bool { return valid.has(i) && secondsOf(x.typ, values[int64](col)[i]) < x.before }
}

type expiringRun struct {
	*fileRun
	*expiring
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
	expired := r.expired(rows)
	var out []Range
	n := 0
	for i := range rows.N {
		if expired(i) {
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
