package predicate

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

func testSchema(t testing.TB) *schema.Schema {
	t.Helper()
	s := &schema.Schema{Version: 3}
	for i, c := range []string{"t TINYINT", "i INT", "l BIGINT", "f FLOAT", "d DOUBLE", "m DECIMAL(9, 2)", "w DECIMAL(38, 10)", "s STRING",
		"c CHAR(3)", "x BYTES", "b BOOLEAN", "day DATE", "clock TIME(3)", "at TIMESTAMP(6)", "ms TIMESTAMP(3)", "z TIMESTAMP(9) WITH LOCAL TIME ZONE", "order STRING"} {
		name, typ, _ := strings.Cut(c, " ")
		ty, err := schema.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, schema.Field{ID: i, Name: name, Type: ty})
	}
	return s
}

// sample are values of each column that literals lie at, between and beyond.
func sample(r *rand.Rand, f schema.Field) any {
	n := func(k int64) int64 { return r.Int64N(2*k+1) - k }
	if r.IntN(6) == 0 {
		return nil
	}
	switch f.Type.Root {
	case schema.Boolean:
		return r.IntN(2) == 0
	case schema.TinyInt:
		return []int8{-128, 127, int8(n(3)), int8(n(3))}[r.IntN(4)]
	case schema.Int, schema.Date:
		return []int32{math.MinInt32, math.MaxInt32, int32(n(5)), int32(n(5))}[r.IntN(4)]
	case schema.Time:
		return int32(r.IntN(4)) * 43_200_000 / 2
	case schema.BigInt:
		return []int64{math.MinInt64, math.MaxInt64, n(5), n(5)}[r.IntN(4)]
	case schema.Timestamp, schema.TimestampLTZ:
		return []int64{math.MinInt64, math.MaxInt64, n(3), 1_700_000_000_000_000 + n(2)}[r.IntN(4)]
	case schema.Float:
		return []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Copysign(0, -1)), 0.1, float32(n(3))}[r.IntN(6)]
	case schema.Double:
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0.1, float64(n(3)) / 2}[r.IntN(6)]
	case schema.Decimal:
		v := big.NewInt(n(300))
		if f.Type.Precision > 20 && r.IntN(2) == 0 {
			v.Mul(v, pow10(30))
		}
		return decimal128.FromBigInt(v)
	case schema.VarChar, schema.Char:
		return []string{"", "a", "ab", "abc", "b%", "a_c", "é", "éa", `a\`, "it's", "\U0010FFFF"}[r.IntN(11)]
	case schema.VarBinary:
		return [][]byte{{}, {0}, {0, 255}, {255}, []byte("'")}[r.IntN(5)]
	}
	panic(f.Type)
}

// tri is a truth value: -1 false, 0 null, 1 true.
type tri int

// condition is a generated expression and what it is for a row, told without the package.
type condition struct {
	text string
	of   func(row []any) tri
}

// known is the truth of what is not null.
func known(b bool) tri {
	if b {
		return 1
	}
	return -1
}

// literalFor writes a literal for a column and gives how a cell compares with it.
func literalFor(r *rand.Rand, f schema.Field) (text string, compare func(cell any) int) {
	switch f.Type.Root {
	case schema.TinyInt, schema.Int, schema.BigInt, schema.Decimal:
		text = []string{"0", "-1", "2", "1.5", "-1.5", "127", "300", "-2147483648", "9223372036854775807", "9223372036854775808", "1e40", "-1E+40", "0.0000000000001", "2.50", ".5", "1e-3"}[r.IntN(16)]
		lit, _ := new(big.Rat).SetString(text)
		scale := f.Type.Scale
		return text, func(cell any) int {
			v := new(big.Rat)
			switch c := cell.(type) {
			case int8:
				v.SetInt64(int64(c))
			case int32:
				v.SetInt64(int64(c))
			case int64:
				v.SetInt64(c)
			case decimal128.Num:
				v.SetFrac(c.BigInt(), pow10(scale))
			}
			return v.Cmp(lit)
		}
	case schema.Float, schema.Double:
		text = []string{"0", "-0.0", "0.1", "-1.5", "1e39", "'NaN'", "'Infinity'", "'-Infinity'", "2", "1e-400"}[r.IntN(10)]
		var lit float64
		if _, err := fmt.Sscan(strings.Trim(text, "'"), &lit); err != nil && !strings.HasPrefix(text, "1e") {
			panic(err)
		}
		if f.Type.Root == schema.Float {
			lit = float64(float32(lit))
		}
		return text, func(cell any) int {
			v, ok := cell.(float64)
			if !ok {
				v = float64(cell.(float32))
			}
			switch {
			case math.IsNaN(v) && math.IsNaN(lit), v == lit:
				return 0
			case math.IsNaN(v) || v > lit:
				return 1
			}
			return -1
		}
	case schema.VarChar, schema.Char:
		lit := []string{"", "a", "ab", "abc", "b%", "zz", "it's", "é", `a\`}[r.IntN(9)]
		return "'" + strings.ReplaceAll(lit, "'", "''") + "'", func(cell any) int { return strings.Compare(cell.(string), lit) }
	case schema.VarBinary:
		lit := [][]byte{{}, {0}, {0, 255}, {255}}[r.IntN(4)]
		return "X'" + hex.EncodeToString(lit) + "'", func(cell any) int { return strings.Compare(string(cell.([]byte)), string(lit)) }
	case schema.Date:
		text = []string{"1970-01-01", "1970-01-03", "1969-12-30", "2026-02-28"}[r.IntN(4)]
		d, _ := time.Parse(time.DateOnly, text)
		return []string{"DATE ", ""}[r.IntN(2)] + "'" + text + "'", func(cell any) int {
			return time.Unix(int64(cell.(int32))*86400, 0).Compare(d)
		}
	case schema.Time:
		text = []string{"00:00", "06:00:00", "12:00:00.0005", "23:59:59.999"}[r.IntN(4)]
		d, _ := time.Parse("15:04:05", strings.Replace(text, "00:00", "00:00:00", map[bool]int{true: 1}[len(text) == 5]))
		at := big.NewRat(int64(d.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))), 1e6)
		return []string{"time ", ""}[r.IntN(2)] + "'" + text + "'", func(cell any) int { return big.NewRat(int64(cell.(int32)), 1).Cmp(at) }
	}
	text = []string{"1970-01-01", "1970-01-01 00:00:00.000002", "1969-12-31 23:59:59.9999985", "2023-11-14T22:13:20", "2023-11-14 22:13:20.000001", "9999-12-31 00:00"}[r.IntN(6)]
	var at time.Time
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if p, err := time.Parse(layout, strings.Replace(text, "T", " ", 1)); err == nil {
			at = p
		}
	}
	if f.Type.Root == schema.TimestampLTZ && len(text) > 16 && r.IntN(2) == 0 {
		at = at.Add(-90 * time.Minute)
		text += "+01:30"
	}
	lit := new(big.Rat).SetInt(new(big.Int).Add(new(big.Int).Mul(big.NewInt(at.Unix()), big.NewInt(1e9)), big.NewInt(int64(at.Nanosecond()))))
	per := map[arrow.TimeUnit]int64{arrow.Millisecond: 1e6, arrow.Microsecond: 1e3, arrow.Nanosecond: 1}[schema.TimeUnit(f.Type)]
	return []string{"TIMESTAMP ", ""}[r.IntN(2)] + "'" + text + "'", func(cell any) int {
		return new(big.Rat).Mul(big.NewRat(cell.(int64), 1), big.NewRat(per, 1)).Cmp(lit)
	}
}

func generate(r *rand.Rand, s *schema.Schema, depth int) condition {
	if depth > 0 {
		switch r.IntN(4) {
		case 0, 1:
			a, b := generate(r, s, depth-1), generate(r, s, depth-1)
			if r.IntN(2) == 0 {
				return condition{"(" + a.text + " AND " + b.text + ")", func(row []any) tri { return min(a.of(row), b.of(row)) }}
			}
			return condition{"(" + a.text + " or " + b.text + ")", func(row []any) tri { return max(a.of(row), b.of(row)) }}
		case 2:
			a := generate(r, s, depth-1)
			return condition{"NOT (" + a.text + ")", func(row []any) tri { return -a.of(row) }}
		}
	}
	i := r.IntN(len(s.Fields))
	f := s.Fields[i]
	name := []string{f.Name, `"` + f.Name + `"`, "`" + f.Name + "`"}[r.IntN(3)]
	if r.IntN(8) == 0 {
		not := r.IntN(2) == 0
		return condition{name + map[bool]string{true: " IS NOT NULL", false: " is null"}[not], func(row []any) tri { return known((row[i] == nil) != not) }}
	}
	lift := func(text string, test func(cell any) bool) condition {
		return condition{text, func(row []any) tri {
			if row[i] == nil {
				return 0
			}
			return known(test(row[i]))
		}}
	}
	if f.Type.Root == schema.Boolean {
		switch r.IntN(4) {
		case 0:
			return lift(name, func(c any) bool { return c.(bool) })
		case 1:
			return lift(name+" <> TRUE", func(c any) bool { return !c.(bool) })
		case 2:
			return condition{name + " IS NOT FALSE", func(row []any) tri { return known(row[i] != false) }}
		}
		return lift("false = "+name, func(c any) bool { return !c.(bool) })
	}
	if root := f.Type.Root; (root == schema.VarChar || root == schema.Char) && r.IntN(3) == 0 {
		p := []string{"a%", "%c", "_", "a_c", "%b%", `b\%`, "", "%", "é%", `a\\`, "a%b%c", "_%_", "ab"}[r.IntN(13)]
		not := r.IntN(2) == 0
		return lift(name+map[bool]string{true: " NOT LIKE ", false: " LIKE "}[not]+"'"+p+"'", func(c any) bool { return likeSlowly([]rune(p), []rune(c.(string))) != not })
	}
	text, compare := literalFor(r, f)
	switch r.IntN(4) {
	case 0:
		text2, compare2 := literalFor(r, f)
		not := r.IntN(2) == 0
		return lift(name+map[bool]string{true: " NOT", false: ""}[not]+" BETWEEN "+text+" AND "+text2, func(c any) bool { return (compare(c) >= 0 && compare2(c) <= 0) != not })
	case 1:
		list, all := []string{text}, []func(any) int{compare}
		for range r.IntN(4) {
			t, c := literalFor(r, f)
			list, all = append(list, t), append(all, c)
		}
		not := r.IntN(2) == 0
		return lift(name+map[bool]string{true: " NOT", false: ""}[not]+" IN ("+strings.Join(list, ", ")+")", func(c any) bool {
			return slices.ContainsFunc(all, func(cmp func(any) int) bool { return cmp(c) == 0 }) != not
		})
	}
	op := r.IntN(6)
	test := func(c any) bool {
		d := compare(c)
		return []bool{d == 0, d != 0, d < 0, d <= 0, d > 0, d >= 0}[op]
	}
	if r.IntN(4) == 0 {
		return lift(text+[]string{" = ", " != ", " > ", " >= ", " < ", " <= "}[op]+name, test)
	}
	return lift(name+[]string{"=", "<>", "<", "<=", ">", ">="}[op]+text, test)
}

// likeSlowly matches a pattern by trying everything.
func likeSlowly(p, s []rune) bool {
	switch {
	case len(p) == 0:
		return len(s) == 0
	case p[0] == '%':
		return likeSlowly(p[1:], s) || len(s) > 0 && likeSlowly(p, s[1:])
	case len(s) == 0:
		return false
	case p[0] == '_':
		return likeSlowly(p[1:], s[1:])
	case p[0] == '\\':
		return p[1] == s[0] && likeSlowly(p[2:], s[1:])
	}
	return p[0] == s[0] && likeSlowly(p[1:], s[1:])
}

// TestRandomConditions holds the whole package against a slow evaluation of the same conditions: rows chosen from
// batches, statistics, points and weaker predicates.
func TestRandomConditions(t *testing.T) {
	s := testSchema(t)
	chosen, pruned, points := 0, 0, 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 4))
		cond := generate(r, s, r.IntN(4))
		p, err := Parse(cond.text, s)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		rows := make([][]any, 1+r.IntN(150))
		cells := make([][]any, len(s.Fields))
		for i := range rows {
			for c, f := range s.Fields {
				v := sample(r, f)
				rows[i], cells[c] = append(rows[i], v), append(cells[c], v)
			}
		}
		var want []int32
		from := r.IntN(len(rows))
		for i, row := range rows[from:] {
			if cond.of(row) > 0 {
				want = append(want, int32(i))
			}
		}
		cols := make([]arrow.Array, len(s.Fields))
		order := r.Perm(len(cols))
		for i, c := range order {
			cols[i] = array.NewSlice(schematest.Array(t, s.Fields[c].Type, cells[c]...), int64(from), int64(len(rows)))
		}
		f, err := p.Filter(order)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // memory is used again
			sel, err := f.Select(cols, len(rows)-from)
			if err != nil {
				t.Fatal(err)
			}
			if got := sel.Rows(nil); !slices.Equal(got, want) || sel.Count() != len(want) {
				t.Fatalf("seed %d: %s: rows %v, want %v of %v", seed, cond.text, got, want, rows[from:])
			}
		}
		chosen += len(want)
		part := rows[from : from+1+r.IntN(min(3, len(rows)-from))]
		pruned += checkStats(t, r, s, p, cond, part)
		points += checkPoints(t, s, p, cond, part)
	}
	t.Logf("%d rows chosen, %d parts pruned, %d columns with points", chosen, pruned, points)
	if chosen < 10000 || pruned < 100 || points < 100 {
		t.Errorf("the test tests little: %d rows, %d pruned, %d points", chosen, pruned, points)
	}
}

// checkStats holds few rows against their statistics, of which some are not known.
func checkStats(t *testing.T, r *rand.Rand, s *schema.Schema, p *Predicate, cond condition, rows [][]any) int {
	any1 := slices.ContainsFunc(rows, func(row []any) bool { return cond.of(row) > 0 })
	stats := func(c int) Stats {
		out := Stats{}
		form := formOf(s.Fields[c].Type)
		for _, row := range rows {
			v, ok := form.valueOf(row[c])
			if !ok {
				out.Nulls++
				continue
			}
			if v.f != v.f { // writers leave NaN out of bounds
				continue
			}
			if lo, has := form.valueOf(out.Min); !has || form.compare(v, lo) < 0 {
				out.Min = row[c]
			}
			if hi, has := form.valueOf(out.Max); !has || form.compare(v, hi) > 0 {
				out.Max = row[c]
			}
		}
		switch r.IntN(8) {
		case 0:
			out.Min = nil
		case 1:
			out.Max = nil
		case 2:
			out.Nulls = -1
		}
		return out
	}
	may := p.May(int64(len(rows)), stats)
	if any1 && !may {
		t.Fatalf("%s: rows %v would be left out", cond.text, rows)
	}
	if weak := p.Only(func(c int) bool { return c%2 == 0 }); weak != nil {
		if any1 && !weak.May(int64(len(rows)), stats) {
			t.Fatalf("%s: the weaker predicate is not weaker", cond.text)
		}
		if slices.ContainsFunc(weak.Columns(), func(c int) bool { return c%2 != 0 }) {
			t.Fatalf("%s: the weaker predicate looks at %v", cond.text, weak.Columns())
		}
	}
	if !may {
		return 1
	}
	return 0
}

func checkPoints(t *testing.T, s *schema.Schema, p *Predicate, cond condition, rows [][]any) (n int) {
	for _, row := range rows {
		has := func(c int, cell any) bool { return fmt.Sprint(row[c]) == fmt.Sprint(cell) }
		for c := range s.Fields {
			cells, ok := p.Points(c)
			if !ok {
				continue
			}
			n++
			if cond.of(row) > 0 && !slices.ContainsFunc(cells, func(cell any) bool { return has(c, cell) }) {
				t.Fatalf("%s: %v is not among the points %v of %s", cond.text, row[c], cells, s.Fields[c].Name)
			}
		}
		if cond.of(row) > 0 && !p.MayHave(has) {
			t.Fatalf("%s: row %v would be left out by an index", cond.text, row)
		}
	}
	return n
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	s := testSchema(t)
	s.Fields = append(s.Fields, schema.Field{Name: "arr", Type: schema.Type{Root: schema.Array, Element: &schema.Type{Root: schema.Int}}})
	for _, c := range []struct {
		text string
		at   int
		want string
	}{
		{"", 1, "empty"}, {"i", 1, `"i" (INT) is no condition`}, {"i = ", 5, "unexpected"}, {"i = 'a'", 5, `column "i" (INT) cannot be compared with a text; write a number without quotes`},
		{"s = 5", 5, "write a text in single quotes"}, {"x = 'a'", 5, "X'00ff'"}, {"nope = 1", 1, `no column "nope"; the table has t, i,`}, {"b AND I = 1", 7, `did you mean "i"?`},
		{"é = 1 AND i = NULL", 1, "no column"}, {"s = 'é' AND i = NULL", 17, "IS NULL"}, {"i + 1 = 2", 1, "calculations"}, {"i = l", 5, "a literal is expected"}, {"f(i) = 1", 1, "functions"},
		{"i IN (SELECT 1)", 14, ""}, {"i IN (1, NULL)", 10, "IS NULL"}, {"i = 1 -- x", 7, "comments"}, {"i = 1; DROP", 6, `';' has no meaning`}, {"s = 'abc", 5, "no closing '"},
		{"b < TRUE", 5, "no order"}, {"day = 5", 7, "DATE '"}, {"day = DATE '2026-02-30'", 7, "is no date"}, {"at = TIMESTAMP 'x'", 6, "is no timestamp"}, {"at < '2026-01-01 00:00:00Z'", 6, "has a time zone"},
		{"i LIKE 'x'", 1, "is no text"}, {`s LIKE 'x\'`, 8, "ends in a backslash"}, {"arr = 1", 7, "is nested"}, {"i IS TRUE", 1, "not BOOLEAN"}, {"d = 'x'", 5, "'NaN'"}, {"5x = 1", 1, "double quotes"},
		{"arr.x = 1", 1, "nested"}, {"i = 1e99999", 5, "exponent"}, {"i == 1", 4, "unexpected"}, {strings.Repeat("(", 200) + "b" + strings.Repeat(")", 200), maxDepth + 1, "nested deeper"},
		{strings.Repeat("NOT ", 200) + "b", 4*maxDepth + 1, "nested deeper"}, {"X'0' = x", 1, "pairs"}, {`"" = 1`, 1, "empty"}, {"i BETWEEN 1 AND 'x'", 17, "number"},
		{"NOT 5", 5, "a condition is expected"}, {"i = - 'x'", 5, "before"}, {"clock = '25:00'", 9, "TIME '12:00:00'"}, {"i = 1 i = 2", 7, ""},
	} {
		_, err := Parse(c.text, s)
		var e *Error
		if !errors.As(err, &e) || e.At != c.at || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%.60q: %v, want %q at character %d", c.text, err, c.want, c.at)
		}
	}
}

func TestLargeConditions(t *testing.T) {
	s := testSchema(t)
	var long strings.Builder
	long.WriteString("i = 0")
	for i := range 50_000 {
		long.WriteString([]string{" OR ", " AND "}[i%7/6] + "i = 1")
	}
	if _, err := Parse(long.String(), s); err != nil {
		t.Fatal(err)
	}
	list := "l NOT IN (0" + strings.Repeat(", 123456789", 50_000) + ")"
	p, err := Parse(list, s)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Columns(); !slices.Equal(got, []int{2}) {
		t.Errorf("columns %v", got)
	}
	if _, err := Parse(strings.Repeat(" ", maxText+1), s); err == nil {
		t.Error("a text beyond the limit was taken")
	}
}

func FuzzParse(f *testing.F) {
	s := testSchema(f)
	for _, x := range []string{"i = 1 AND (s LIKE 'x%' OR at < TIMESTAMP '2026-01-01')", `"order" IN ('a', 'it''s') AND NOT b`, "x = X'00' OR d <> -1.5e3", "\\x00'\"`"} {
		f.Add(x)
	}
	cells := make([]any, len(s.Fields))
	cols := make([]arrow.Array, len(s.Fields))
	all := make([]int, len(s.Fields))
	for i, fd := range s.Fields {
		cols[i], all[i] = schematest.Array(f, fd.Type, cells...), i
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text, s)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.At < 1 || e.At > len(text)+1 {
				t.Fatalf("%v", err)
			}
			return
		}
		flt, err := p.Filter(all)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := flt.Select(cols, len(cells)); err != nil {
			t.Fatal(err)
		}
	})
}
