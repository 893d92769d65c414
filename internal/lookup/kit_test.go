package lookup

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

var seed = flag.Uint64("seed", 20261130, "seed of the random tests")

func newRand(t testing.TB) *rand.Rand {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("run again with -seed=%d", *seed)
		}
	})
	return rand.New(rand.NewPCG(*seed, 7))
}

// bucket is one bucket of a table on a store.
type bucket struct {
	t      testing.TB
	r      *rand.Rand
	s      *schema.Schema
	opts   schema.Options
	rule   *lsm.MergeRule
	files  lsm.Files
	part   lsm.Part
	levels *lsm.Levels
	seq    int64
}

// newBucket makes a table of columns "name TYPE".
func newBucket(t testing.TB, r *rand.Rand, store storage.Store, keys []string, options map[string]string, cols ...string) *bucket {
	t.Helper()
	spec := schema.Spec{PrimaryKeys: keys, Options: options}
	for _, c := range cols {
		name, typ, _ := strings.Cut(c, " ")
		parsed, err := schema.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		spec.Columns = append(spec.Columns, schema.Column{Name: name, Type: parsed})
	}
	s, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	b := &bucket{t: t, r: r, s: s, part: lsm.Part{Dir: "bucket-0", Partition: binrow.EmptyRow, TotalBuckets: 1}}
	if b.opts, err = s.ParseOptions(); err != nil {
		t.Fatal(err)
	}
	if b.rule, err = lsm.NewMergeRule(s, b.opts); err != nil {
		t.Fatal(err)
	}
	n := 0
	b.files = lsm.Files{
		Store: store, Schema: s, Options: b.opts, Now: func() time.Time { return time.UnixMilli(1_750_000_000_000).UTC() },
		NewName:    func() string { n++; return fmt.Sprintf("data-%d.parquet", n) },
		OpenSchema: noSchema,
	}
	if b.levels, err = lsm.NewLevels(lsm.NewKeys(s), b.opts.NumLevels, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func noSchema(_ context.Context, id int64) (*schema.Schema, error) {
	return nil, fmt.Errorf("no schema %d", id)
}

// table is what lookups know of the bucket's table.
func (b *bucket) table(c *Cache) *Table {
	return &Table{Store: b.files.Store, Schema: b.s, Rule: b.rule, OpenSchema: noSchema, Cache: c}
}

// value gives a value of few different ones if pool is small. i chooses it.
func value(t schema.Type, i int) any {
	switch t.Root {
	case schema.Boolean:
		return i%2 == 0
	case schema.TinyInt:
		return int8(i % 128)
	case schema.SmallInt:
		return int16(i % 32768)
	case schema.Int, schema.Date, schema.Time:
		return int32(i)
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		return int64(i) - 1000
	case schema.Float:
		return float32(i) / 3
	case schema.Double:
		return float64(i)/3 - 100
	case schema.Decimal:
		return decimal128.FromI64(int64(i % 99999))
	case schema.Char, schema.VarChar:
		return fmt.Sprintf("a text of many more than eight bytes \x00\x01 %d", i*7919%100003)[i%3*20:]
	}
	return []byte(fmt.Sprint(i))
}

// keyColumns makes the key columns of keys, each of which numbers a value.
func (b *bucket) keyColumns(keys []int) []arrow.Array {
	out := make([]arrow.Array, 0, 2)
	cols := b.s.KeyColumns()
	for i, c := range cols {
		vals := make([]any, len(keys))
		for j, k := range keys {
			if i < len(cols)-1 {
				k /= 100 // few different ones, so that the last column matters
			}
			vals[j] = value(b.s.Fields[c].Type, k)
		}
		out = append(out, schematest.Array(b.t, b.s.Fields[c].Type, vals...))
	}
	return out
}

// flush writes rows of keys with random values and kinds.
func (b *bucket) flush(keys []int, kinds []int8) {
	b.t.Helper()
	rows := datafile.Rows{N: len(keys), Kinds: make([]int8, len(keys)), Cols: make([]arrow.Array, len(b.s.Fields))}
	for i := range rows.Kinds {
		rows.Kinds[i] = kinds[b.r.IntN(len(kinds))]
	}
	for i, a := range b.keyColumns(keys) {
		rows.Cols[b.s.KeyColumns()[i]] = a
	}
	for c, f := range b.s.Fields {
		if rows.Cols[c] != nil {
			continue
		}
		vals := make([]any, len(keys))
		for i := range vals {
			if f.Type.NotNull || b.r.IntN(5) > 0 {
				vals[i] = value(f.Type, b.r.IntN(5000))
			}
		}
		rows.Cols[c] = schematest.Array(b.t, f.Type, vals...)
	}
	made, err := b.files.Flush(b.t.Context(), b.part, []datafile.Rows{rows}, nil, b.seq)
	if err != nil {
		b.t.Fatal(err)
	}
	b.seq += int64(len(keys))
	if err := b.levels.Apply(lsm.Change{Added: made}); err != nil {
		b.t.Fatal(err)
	}
}

// compact does what is due.
func (b *bucket) compact(full bool) {
	b.t.Helper()
	pick := lsm.Pick
	if full {
		pick = lsm.PickFull
	}
	j, ok := pick(b.levels, lsm.PolicyOf(b.opts, true))
	if !ok {
		return
	}
	c, err := b.files.Compact(b.t.Context(), b.part, j)
	if err == nil {
		err = b.levels.Apply(c)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// merged reads runs as a scan does, deletes included, and gives the rows by key.
func (b *bucket) merged(runs []lsm.SortedRun) map[string]string {
	b.t.Helper()
	cols := make([]int, len(b.s.Fields))
	for i := range cols {
		cols[i] = i
	}
	var all []lsm.Run
	for _, r := range runs {
		all = append(all, &leveled{b.files.OpenRun(b.t.Context(), b.part, r.Files, b.s, cols), r.Level})
	}
	m := lsm.Merge(lsm.MergeSpec{Schema: b.s, KeyCols: b.s.KeyColumns(), Rule: b.rule}, all)
	out := map[string]string{}
	for {
		rows, err := m.Next(b.t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range rows.N {
			out[text(rows, b.s.KeyColumns(), i)] = text(rows, cols, i) + fmt.Sprint(rows.Seq[i], rows.Kinds[i])
		}
	}
	return out
}

type leveled struct {
	lsm.Run
	level int
}

func (l *leveled) Level() int { return l.level }

func text(rows datafile.Rows, cols []int, i int) string {
	var b strings.Builder
	for _, c := range cols {
		fmt.Fprintf(&b, "%#v ", schema.Cell(rows.Cols[c], i))
	}
	return b.String()
}
