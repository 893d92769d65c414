// Package predicate is the condition on rows that a scan is given: a subset of SQL expressions, bound to the columns of
// a table, evaluated over Arrow arrays, and held against statistics to find what cannot hold a matching row.
//
// The language, in the words of standard SQL:
//
//	condition   a OR b, a AND b, NOT a, (a), TRUE, FALSE
//	comparison  column = literal, also <> != < <= > >=, also with the literal first
//	            column [NOT] BETWEEN literal AND literal, column [NOT] IN (literal, …)
//	            column [NOT] LIKE 'pattern': % is any text, _ one character, \ takes the meaning from the next character
//	            column IS [NOT] NULL
//	boolean     column, column IS [NOT] TRUE, column IS [NOT] FALSE
//	column      name, "name" or `name`: as it is written in the table
//	literal     12, -1.5, 1e3, 'text' (a quote is written twice, a backslash is one), X'00ff', TRUE, FALSE,
//	            DATE '2026-01-31', TIMESTAMP '2026-01-31 12:00:00.123' (with zone for columns WITH LOCAL TIME ZONE; without,
//	            UTC is meant), TIME '12:00:00'; before a text the words may be left out
//
// Logic has three values: what compares with null is neither true nor false, and only rows for which the condition is
// true are kept. Numbers compare exactly with integer and decimal columns, whatever digits they have; with FLOAT and
// DOUBLE they are first rounded to that type. NaN (written 'NaN') equals itself and is greater than all other numbers;
// -0.0 equals 0.0. Texts compare by code points, binaries by bytes.
//
//	sql.go     text → what the parser library takes; limits of hostile input
//	bind.go    syntax tree and schema → nodes; literal.go  values in the types of columns
//	eval.go    nodes over Arrow arrays; like.go  patterns
//	prune.go   nodes over statistics, equality points
package predicate

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// Predicate is a condition bound to a schema. It is immutable and safe for concurrent use.
type Predicate struct {
	root   *node
	fields []schema.Field
}

// Parse reads a condition on rows of a schema. Errors tell the place in the text, the column and its type, and what can
// be done.
func Parse(text string, s *schema.Schema) (*Predicate, error) {
	root, err := parse(text, s.Fields)
	if err != nil {
		return nil, err
	}
	return &Predicate{root: root, fields: s.Fields}, nil
}

// Columns gives the columns that the predicate looks at, as ascending indexes into the schema's Fields.
func (p *Predicate) Columns() []int {
	var out []int
	p.root.walk(func(n *node) {
		if n.kind > kOr && !slices.Contains(out, n.col) {
			out = append(out, n.col)
		}
	})
	slices.Sort(out)
	return out
}

// Only gives a weaker predicate that looks at nothing but some columns: it is true wherever the predicate is. It is nil
// if nothing is left that could be false.
func (p *Predicate) Only(columns func(int) bool) *Predicate {
	root := p.root.only(columns)
	if root.kind == kTrue {
		return nil
	}
	return &Predicate{root: root, fields: p.fields}
}

// kind is what a node asks. All answers are true or not true: negation was moved into the leaves when the predicate was
// bound, and what remains, AND and OR, does not tell null from false.
type kind uint8

const (
	kTrue kind = iota
	kFalse
	kAnd
	kOr
	kNull    // col IS NULL
	kNotNull // col IS NOT NULL
	kRange   // col lies in rng, or does not
	kIn      // col is among vals, or is not
	kLike    // col matches like, or does not
)

// node is one question. Leaves with not set are still not true for null.
type node struct {
	kind kind
	kids []*node // kAnd, kOr
	col  int
	form form
	not  bool
	rng  span
	vals []value // kIn: ascending, each once
	like *pattern
}

func (n *node) walk(f func(*node)) {
	f(n)
	for _, k := range n.kids {
		k.walk(f)
	}
}

func (n *node) only(columns func(int) bool) *node {
	switch n.kind {
	case kTrue, kFalse:
		return n
	case kAnd, kOr:
		kids := make([]*node, len(n.kids))
		for i, k := range n.kids {
			kids[i] = k.only(columns)
		}
		return join(n.kind, kids)
	}
	if columns(n.col) {
		return n
	}
	return &node{kind: kTrue}
}

// join makes an AND or OR, flat, without constants.
func join(k kind, kids []*node) *node {
	neutral, strong := kTrue, kFalse
	if k == kOr {
		neutral, strong = kFalse, kTrue
	}
	var out []*node
	for _, x := range kids {
		switch x.kind {
		case neutral:
		case strong:
			return x
		case k:
			out = append(out, x.kids...)
		default:
			out = append(out, x)
		}
	}
	switch len(out) {
	case 0:
		return &node{kind: neutral}
	case 1:
		return out[0]
	}
	return &node{kind: k, kids: out}
}

// form is how values of a column are held and compared.
type form uint8

const (
	formNone  form = iota // nested types: only IS NULL
	formInt               // integers, DATE, TIME, timestamps in the unit of their type
	formFloat             // FLOAT and DOUBLE
	formDecimal
	formText // texts and binaries
	formBool // 0 and 1
)

func formOf(t schema.Type) form {
	switch t.Root {
	case schema.Boolean:
		return formBool
	case schema.TinyInt, schema.SmallInt, schema.Int, schema.BigInt, schema.Date, schema.Time, schema.Timestamp, schema.TimestampLTZ:
		return formInt
	case schema.Float, schema.Double:
		return formFloat
	case schema.Decimal:
		return formDecimal
	case schema.Char, schema.VarChar, schema.Binary, schema.VarBinary:
		return formText
	}
	return formNone
}

// value is a value of a form; only that field is used. A float is never -0.
type value struct {
	i int64
	f float64
	d decimal128.Num
	s string
}

func (f form) compare(a, b value) int {
	switch f {
	case formFloat:
		return compareFloats(a.f, b.f)
	case formDecimal:
		return a.d.Cmp(b.d)
	case formText:
		switch {
		case a.s < b.s:
			return -1
		case a.s > b.s:
			return 1
		}
		return 0
	}
	switch {
	case a.i < b.i:
		return -1
	case a.i > b.i:
		return 1
	}
	return 0
}

// compareFloats orders NaN behind all numbers.
func compareFloats(a, b float64) int {
	switch {
	case a < b || b != b && a == a:
		return -1
	case a > b || a != a && b == b:
		return 1
	}
	return 0
}

// unsigned makes -0 to 0.
func unsigned(f float64) float64 {
	if f == 0 {
		return 0
	}
	return f
}

// span is a range of values. A bound counts only if it is there, and belongs to the range unless it is open.
type span struct {
	lo, hi         value
	hasLo, hasHi   bool
	openLo, openHi bool
}

// single reports that the span is one value.
func (s *span) single(f form) bool {
	return s.hasLo && s.hasHi && !s.openLo && !s.openHi && f.compare(s.lo, s.hi) == 0
}

// valueOf gives a cell (schema.Cell) as a value; false for what is not of the column's form.
func (f form) valueOf(cell any) (v value, ok bool) {
	ok = true
	switch x := cell.(type) {
	case bool:
		if x {
			v.i = 1
		}
		return v, f == formBool
	case int8:
		v.i = int64(x)
	case int16:
		v.i = int64(x)
	case int32:
		v.i = int64(x)
	case int64:
		v.i = x
	case float32:
		v.f = unsigned(float64(x))
		return v, f == formFloat
	case float64:
		v.f = unsigned(x)
		return v, f == formFloat
	case decimal128.Num:
		v.d = x
		return v, f == formDecimal
	case string:
		v.s = x
		return v, f == formText
	case []byte:
		v.s = string(x)
		return v, f == formText
	default:
		return v, false
	}
	return v, f == formInt
}

// cellOf gives a value as a cell of a type.
func cellOf(t schema.Type, v value) any {
	switch t.Root {
	case schema.Boolean:
		return v.i != 0
	case schema.TinyInt:
		return int8(v.i)
	case schema.SmallInt:
		return int16(v.i)
	case schema.Int, schema.Date, schema.Time:
		return int32(v.i)
	case schema.Float:
		return float32(v.f)
	case schema.Double:
		return v.f
	case schema.Decimal:
		return v.d
	case schema.Char, schema.VarChar:
		return v.s
	case schema.Binary, schema.VarBinary:
		return []byte(v.s)
	}
	return v.i
}
