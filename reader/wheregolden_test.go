package reader_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

const goldenRoot = "../internal/testdata/golden/golden.db"

// TestWhereOnGolden asks random conditions of the tables that Paimon's own library wrote: of other statistics, indexes,
// levels and schemas than calve writes.
func TestWhereOnGolden(t *testing.T) {
	dirs, err := os.ReadDir(goldenRoot)
	if err != nil {
		t.Fatal(err)
	}
	tables, pruned := 0, 0
	for i, d := range dirs {
		store, err := storage.NewLocal(filepath.Join(goldenRoot, d.Name()))
		if err != nil {
			t.Fatal(err)
		}
		rd := reader.Open(store, env())
		if _, err := rd.Meta().Latest(t.Context()); err != nil {
			continue
		}
		s, err := rd.Meta().LatestSchema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.CheckReadable() != nil {
			continue
		}
		t.Run(d.Name(), func(t *testing.T) {
			var cells []map[int]any
			for rec, err := range rd.Scan(t.Context(), reader.Query{}) {
				if err != nil {
					t.Fatal(err)
				}
				for i := range int(rec.NumRows()) {
					row := map[int]any{}
					for c, f := range s.Fields {
						if f.Type.Primitive() {
							row[c] = schema.Cell(rec.Column(c), i)
						}
					}
					cells = append(cells, row)
				}
			}
			if len(cells) == 0 {
				return
			}
			tables++
			r := rand.New(rand.NewPCG(uint64(i), 5))
			p, _ := checkWhere(t, r, store, s, 20, func() string { return goldenWhere(r, s, cells, r.IntN(3)) })
			pruned += p
		})
	}
	t.Logf("%d tables, %d scans read less than a full scan", tables, pruned)
	if tables < 15 || pruned < 50 {
		t.Errorf("%d tables, %d scans that read less", tables, pruned)
	}
}

// TestWhereByFilter: values that are not in the Bloom filters of Paimon's file index, though within the statistics, need
// no look into the data file.
func TestWhereByFilter(t *testing.T) {
	store, err := storage.NewLocal(filepath.Join(goldenRoot, "append_bloom"))
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]struct {
		rows   int
		opened bool
	}{
		"k = 102": {1, true}, "k = 103": {0, false}, "v = 'v34'": {1, true}, "v = 'v34x'": {0, false}, "k = 103 OR v = 'v34x'": {0, false},
		"k = 103 OR v LIKE 'v34%'": {1, true}, "k IN (103, 104) AND v > 'a'": {0, false}, "NOT k <> 103": {0, false},
	} {
		seen := &opens{Store: store}
		got, _ := scanWhere(t, seen, reader.Query{Where: where})
		if data := slices.ContainsFunc(seen.names, func(n string) bool { return strings.HasSuffix(n, ".parquet") }); len(got) != want.rows || data != want.opened {
			t.Errorf("%s: %d rows, %v opened", where, len(got), seen.names)
		}
		if !slices.ContainsFunc(seen.names, func(n string) bool { return strings.HasSuffix(n, ".index") }) {
			t.Errorf("%s: the index was not opened: %v", where, seen.names)
		}
	}
}

// opens remembers which files were opened.
type opens struct {
	storage.Store
	names []string
}

func (o *opens) Open(ctx context.Context, name string) (storage.File, error) {
	o.names = append(o.names, name)
	return o.Store.Open(ctx, name)
}

// goldenWhere writes a condition about values of the table.
func goldenWhere(r *rand.Rand, s *schema.Schema, cells []map[int]any, depth int) string {
	if depth > 0 {
		a, b := goldenWhere(r, s, cells, depth-1), goldenWhere(r, s, cells, depth-1)
		return []string{"(" + a + " AND " + b + ")", "(" + a + " OR " + b + ")", "NOT (" + a + ")"}[r.IntN(3)]
	}
	c := r.IntN(len(s.Fields))
	if keys := append(s.KeyColumns(), s.PartitionColumns()...); len(keys) > 0 && r.IntN(2) == 0 {
		c = keys[r.IntN(len(keys))]
	}
	f := s.Fields[c]
	name := `"` + f.Name + `"`
	v, w := cells[r.IntN(len(cells))][c], cells[r.IntN(len(cells))][c]
	if v == nil || w == nil || r.IntN(10) == 0 {
		return name + []string{" IS NULL", " IS NOT NULL"}[r.IntN(2)]
	}
	if f.Type.Root == schema.Boolean {
		return name
	}
	a, b := literalOf(f.Type, v), literalOf(f.Type, w)
	return name + []string{" = " + a, " = " + b, " IN (" + a + ", " + b + ")", " < " + a, " > " + a, " >= " + a, " <= " + b, " <> " + a, " BETWEEN " + a + " AND " + b}[r.IntN(9)]
}

// literalOf writes a cell as a literal.
func literalOf(t schema.Type, v any) string {
	switch x := v.(type) {
	case string:
		return "'" + strings.ReplaceAll(x, "'", "''") + "'"
	case []byte:
		return "X'" + hex.EncodeToString(x) + "'"
	case decimal128.Num:
		return x.ToString(int32(t.Scale))
	case float32, float64:
		s := fmt.Sprint(x)
		if strings.ContainsAny(s, "NI") {
			return "'" + strings.TrimPrefix(strings.ReplaceAll(s, "Inf", "Infinity"), "+") + "'"
		}
		return s
	case int32:
		switch t.Root {
		case schema.Date:
			return "DATE '" + time.Unix(int64(x)*86400, 0).UTC().Format(time.DateOnly) + "'"
		case schema.Time:
			return "TIME '" + time.UnixMilli(int64(x)).UTC().Format("15:04:05.000") + "'"
		}
	case int64:
		if t.Root == schema.Timestamp || t.Root == schema.TimestampLTZ {
			unit := map[arrow.TimeUnit]time.Duration{arrow.Millisecond: time.Millisecond, arrow.Microsecond: time.Microsecond, arrow.Nanosecond: time.Nanosecond}[schema.TimeUnit(t)]
			per := int64(time.Second / unit)
			sec := x / per
			if x%per < 0 {
				sec--
			}
			return "TIMESTAMP '" + time.Unix(sec, (x-sec*per)*int64(unit)).UTC().Format("2006-01-02 15:04:05.999999999") + "'"
		}
	}
	return fmt.Sprint(v)
}
