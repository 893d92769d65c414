package predicate

import (
	"math"
	"slices"
	"strings"

	"github.com/cloudspannerecosystem/memefish/ast"

	"github.com/calve-io/calve/schema"
)

// binder turns a syntax tree into nodes.
type binder struct {
	src    *source
	fields []schema.Field
}

func parse(text string, fields []schema.Field) (*node, error) {
	src, e, err := parseText(text)
	if err != nil {
		return nil, err
	}
	b := &binder{src: src, fields: fields}
	return b.condition(e, false)
}

func (b *binder) fail(e ast.Node, format string, args ...any) error {
	return b.src.fail(b.src.at(int(e.Pos())), format, args...)
}

// constant is a node that is always or never true.
func constant(v bool) *node {
	if v {
		return &node{kind: kTrue}
	}
	return &node{kind: kFalse}
}

// condition binds an expression whose value is true, false or null; not asks for its negation.
func (b *binder) condition(e ast.Expr, not bool) (*node, error) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return b.condition(e.Expr, not)
	case *ast.UnaryExpr:
		if e.Op == ast.OpNot {
			return b.condition(e.Expr, !not)
		}
	case *ast.BoolLiteral:
		return constant(e.Value != not), nil
	case *ast.BinaryExpr:
		switch e.Op {
		case ast.OpAnd, ast.OpOr:
			return b.junction(e, not)
		case ast.OpLike, ast.OpNotLike:
			return b.like(e, not != (e.Op == ast.OpNotLike))
		}
		return b.comparison(e, not)
	case *ast.InExpr:
		return b.in(e, not != e.Not)
	case *ast.BetweenExpr:
		return b.between(e, not != e.Not)
	case *ast.IsNullExpr:
		col, err := b.column(e.Left)
		if err != nil {
			return nil, err
		}
		k := kNull
		if e.Not != not {
			k = kNotNull
		}
		return &node{kind: k, col: col}, nil
	case *ast.IsBoolExpr:
		return b.isBool(e, not)
	case *ast.Ident, *ast.Path:
		col, err := b.column(e)
		if err != nil {
			return nil, err
		}
		if b.fields[col].Type.Root != schema.Boolean {
			return nil, b.fail(e, "column %s is no condition: compare it with something", b.describe(col))
		}
		return b.boolean(col, !not), nil
	}
	return nil, b.fail(e, "a condition is expected here, such as a comparison of a column with a literal")
}

// boolean asks for a value of a boolean column.
func (b *binder) boolean(col int, want bool) *node {
	v := value{}
	if want {
		v.i = 1
	}
	return &node{kind: kRange, col: col, form: formBool, rng: span{lo: v, hi: v, hasLo: true, hasHi: true}}
}

// junction binds a chain of ANDs or ORs, which is as deep as it is long, without recursion.
func (b *binder) junction(e *ast.BinaryExpr, not bool) (*node, error) {
	op, k := e.Op, kAnd
	if (op == ast.OpOr) != not {
		k = kOr
	}
	var parts []ast.Expr
	var left ast.Expr = e
	for {
		x, ok := left.(*ast.BinaryExpr)
		if !ok || x.Op != op {
			break
		}
		parts, left = append(parts, x.Right), x.Left
	}
	parts = append(parts, left)
	kids := make([]*node, len(parts))
	for i := range parts { // from the left, so that the first mistake is told
		var err error
		if kids[i], err = b.condition(parts[len(parts)-1-i], not); err != nil {
			return nil, err
		}
	}
	return join(k, kids), nil
}

// column finds the column an expression names.
func (b *binder) column(e ast.Expr) (int, error) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return b.column(e.Expr)
	case *ast.Path:
		return 0, b.fail(e, "members of nested columns cannot be used in a condition")
	case *ast.SelectorExpr:
		return 0, b.fail(e, "members of nested columns cannot be used in a condition")
	case *ast.CallExpr:
		return 0, b.fail(e, "functions cannot be used in a condition")
	case *ast.Ident:
		hint := ""
		for i := range b.fields {
			if b.fields[i].Name == e.Name {
				return i, nil
			}
			if strings.EqualFold(b.fields[i].Name, e.Name) {
				hint = b.fields[i].Name
			}
		}
		if hint != "" {
			return 0, b.fail(e, "no column %q; did you mean %q?", e.Name, hint)
		}
		names := make([]string, len(b.fields))
		for i := range b.fields {
			names[i] = b.fields[i].Name
		}
		return 0, b.fail(e, "no column %q; the table has %s", e.Name, strings.Join(names, ", "))
	}
	return 0, b.fail(e, "a column is expected here; calculations and comparisons of columns with each other are not supported")
}

func (b *binder) describe(col int) string {
	return `"` + b.fields[col].Name + `" (` + b.fields[col].Type.String() + ")"
}

// operator is a comparison.
type operator uint8

const (
	opEq operator = iota
	opNe
	opLt
	opLe
	opGt
	opGe
)

var operators = map[ast.BinaryOp]operator{
	ast.OpEqual: opEq, ast.OpNotEqual: opNe, ast.OpLess: opLt, ast.OpLessEqual: opLe, ast.OpGreater: opGt, ast.OpGreaterEqual: opGe,
}

// negated and swapped give the operators of NOT (a op b) and b op a.
var (
	negated = [...]operator{opEq: opNe, opNe: opEq, opLt: opGe, opLe: opGt, opGt: opLe, opGe: opLt}
	swapped = [...]operator{opEq: opEq, opNe: opNe, opLt: opGt, opLe: opGe, opGt: opLt, opGe: opLe}
)

func (b *binder) comparison(e *ast.BinaryExpr, not bool) (*node, error) {
	op, ok := operators[e.Op]
	if !ok {
		return nil, b.fail(e, "operator %s cannot be used in a condition", e.Op)
	}
	left, right := e.Left, e.Right
	if isLiteral(left) && !isLiteral(right) {
		left, right, op = right, left, swapped[op]
	}
	col, err := b.column(left)
	if err != nil {
		return nil, err
	}
	lit, err := b.literal(right)
	if err != nil {
		return nil, err
	}
	if not {
		op = negated[op]
	}
	return b.compare(col, op, lit)
}

// compare makes the node of a column and a literal.
func (b *binder) compare(col int, op operator, lit literal) (*node, error) {
	f := formOf(b.fields[col].Type)
	c, err := b.coerce(col, lit)
	if err != nil {
		return nil, err
	}
	always, never := &node{kind: kNotNull, col: col}, constant(false)
	if f == formBool {
		if op != opEq && op != opNe {
			return nil, b.src.fail(lit.at, "column %s has no order: compare it with = or <>", b.describe(col))
		}
		return b.boolean(col, (c.v.i != 0) == (op == opEq)), nil
	}
	if c.place == exact {
		return f.ordered(col, op, c.v), nil
	}
	// The literal lies between two values of the type (c.v is the lower), below or above all of them.
	switch {
	case op == opEq:
		return never, nil
	case op == opNe:
		return always, nil
	case c.place == between && (op == opLt || op == opLe):
		return f.ordered(col, opLe, c.v), nil
	case c.place == between:
		return f.ordered(col, opGt, c.v), nil
	case (c.place == above) == (op == opLt || op == opLe):
		return always, nil
	}
	return never, nil
}

// ordered makes the range of values that an operator takes.
func (f form) ordered(col int, op operator, v value) *node {
	n := &node{kind: kRange, col: col, form: f}
	r := &n.rng
	switch op {
	case opEq, opNe:
		r.lo, r.hi, r.hasLo, r.hasHi = v, v, true, true
		n.not = op == opNe
	case opLt, opLe:
		r.hi, r.hasHi, r.openHi = v, true, op == opLt
	default:
		r.lo, r.hasLo, r.openLo = v, true, op == opGt
	}
	if f == formFloat && math.IsNaN(v.f) && (op == opLe || op == opGt) { // everything, nothing
		if op == opGt {
			return constant(false)
		}
		return &node{kind: kNotNull, col: col}
	}
	return n
}

func (b *binder) between(e *ast.BetweenExpr, not bool) (*node, error) {
	col, err := b.column(e.Left)
	if err != nil {
		return nil, err
	}
	from, to, k := opGe, opLe, kAnd
	if not {
		from, to, k = opLt, opGt, kOr
	}
	kids := make([]*node, 2)
	for i, x := range []ast.Expr{e.RightStart, e.RightEnd} {
		lit, err := b.literal(x)
		if err != nil {
			return nil, err
		}
		if kids[i], err = b.compare(col, []operator{from, to}[i], lit); err != nil {
			return nil, err
		}
	}
	return join(k, kids), nil
}

func (b *binder) in(e *ast.InExpr, not bool) (*node, error) {
	list, ok := e.Right.(*ast.ValuesInCondition)
	if !ok {
		return nil, b.fail(e, "IN takes a list of literals in parentheses")
	}
	col, err := b.column(e.Left)
	if err != nil {
		return nil, err
	}
	f := formOf(b.fields[col].Type)
	var vals []value
	for _, x := range list.Exprs {
		lit, err := b.literal(x)
		if err != nil {
			return nil, err
		}
		c, err := b.coerce(col, lit)
		if err != nil {
			return nil, err
		}
		if c.place == exact { // no value of the type equals another literal
			vals = append(vals, c.v)
		}
	}
	slices.SortFunc(vals, f.compare)
	vals = slices.CompactFunc(vals, func(x, y value) bool { return f.compare(x, y) == 0 })
	switch {
	case len(vals) == 0 && not:
		return &node{kind: kNotNull, col: col}, nil
	case len(vals) == 0:
		return constant(false), nil
	case f == formBool && len(vals) == 2:
		if not {
			return constant(false), nil
		}
		return &node{kind: kNotNull, col: col}, nil
	case f == formBool:
		return b.boolean(col, (vals[0].i != 0) != not), nil
	case len(vals) == 1:
		n := f.ordered(col, opEq, vals[0])
		n.not = not
		return n, nil
	}
	return &node{kind: kIn, col: col, form: f, not: not, vals: vals}, nil
}

func (b *binder) like(e *ast.BinaryExpr, not bool) (*node, error) {
	col, err := b.column(e.Left)
	if err != nil {
		return nil, err
	}
	if r := b.fields[col].Type.Root; r != schema.Char && r != schema.VarChar {
		return nil, b.fail(e.Left, "column %s is no text: LIKE cannot be used with it", b.describe(col))
	}
	text, ok := e.Right.(*ast.StringLiteral)
	if !ok {
		return nil, b.fail(e.Right, "LIKE takes a pattern in single quotes")
	}
	p, msg := compilePattern(text.Value)
	if msg != "" {
		return nil, b.fail(text, "pattern '%s' %s", text.Value, msg)
	}
	if p.whole {
		n := formText.ordered(col, opEq, value{s: p.prefix})
		n.not = not
		return n, nil
	}
	return &node{kind: kLike, col: col, form: formText, not: not, like: p}, nil
}

func (b *binder) isBool(e *ast.IsBoolExpr, not bool) (*node, error) {
	col, err := b.column(e.Left)
	if err != nil {
		return nil, err
	}
	if b.fields[col].Type.Root != schema.Boolean {
		return nil, b.fail(e, "column %s is not BOOLEAN: IS TRUE and IS FALSE cannot be used with it", b.describe(col))
	}
	if e.Not == not {
		return b.boolean(col, e.Right), nil
	}
	return join(kOr, []*node{b.boolean(col, !e.Right), {kind: kNull, col: col}}), nil
}
