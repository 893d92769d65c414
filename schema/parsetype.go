package schema

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits of type parameters (`org.apache.paimon.types`).
const (
	maxCharLength       = MaxLength
	maxDecimalPrecision = 38
	maxTimePrecision    = 9
	maxTypeText         = 256 // longest type string looked at; real ones have at most 60 characters
)

// ParseType reads the text of a primitive type, as Paimon writes it and as its parser also takes it: lower case,
// INTEGER, NUMERIC, DEC, STRING, BYTES, TIMESTAMP_LTZ, "DOUBLE PRECISION", missing lengths, [NOT] NULL.
// ARRAY, MAP, MULTISET and ROW have no text form in schema files; they are JSON objects.
func ParseType(s string) (Type, error) {
	p, err := newTypeParser(s)
	if err != nil {
		return Type{}, err
	}
	t, err := p.typ()
	if err != nil {
		return Type{}, err
	}
	if !p.done() {
		return Type{}, p.errorf("unexpected %q after the type", p.peek())
	}
	return t, nil
}

// typeParser walks over the tokens of one type, or of a column list.
type typeParser struct {
	text string
	toks []token
	pos  int
	// nested: ARRAY, MAP, MULTISET and ROW are taken as text, as users give them; depth is how many are open.
	nested bool
	depth  int
}

// maxNesting bounds how deep a user's types may be nested.
const maxNesting = 32

// token is a word, a number, a quoted name or one punctuation character.
type token struct {
	text   string
	quoted bool
	at     int // byte offset in the text
}

func newTypeParser(s string) (*typeParser, error) {
	if len(s) > maxTypeText {
		return nil, fmt.Errorf("type %q… has %d characters: at most %d are allowed", s[:40], len(s), maxTypeText)
	}
	toks, err := tokenize(s)
	if err != nil {
		return nil, fmt.Errorf("type %q: %w", s, err)
	}
	return &typeParser{text: s, toks: toks}, nil
}

func (p *typeParser) done() bool { return p.pos >= len(p.toks) }

// peek gives the next token's text, or "" at the end.
func (p *typeParser) peek() string {
	if p.done() {
		return ""
	}
	return p.toks[p.pos].text
}

// accept takes the given words (any case), all or none.
func (p *typeParser) accept(words ...string) bool {
	if p.pos+len(words) > len(p.toks) {
		return false
	}
	for i, w := range words {
		if t := p.toks[p.pos+i]; t.quoted || !strings.EqualFold(t.text, w) {
			return false
		}
	}
	p.pos += len(words)
	return true
}

func (p *typeParser) errorf(format string, args ...any) error {
	return fmt.Errorf("type %q: %s", p.text, fmt.Sprintf(format, args...))
}

// typ reads one type with its nullability.
func (p *typeParser) typ() (Type, error) {
	if p.done() {
		return Type{}, p.errorf("a type is missing")
	}
	t, err := p.root()
	if err != nil {
		return Type{}, err
	}
	switch {
	case p.accept("NOT", "NULL"):
		t.NotNull = true
	case p.accept("NULL"):
	}
	return t, nil
}

// bare are the types without parameters.
var bare = map[string]Type{
	"BOOLEAN": {Root: Boolean}, "TINYINT": {Root: TinyInt}, "SMALLINT": {Root: SmallInt}, "INT": {Root: Int},
	"INTEGER": {Root: Int}, "BIGINT": {Root: BigInt}, "FLOAT": {Root: Float}, "DATE": {Root: Date},
	"STRING": {Root: VarChar, Length: MaxLength}, "BYTES": {Root: VarBinary, Length: MaxLength},
	"VARIANT": {Root: Variant},
}

func (p *typeParser) root() (Type, error) {
	tok := p.toks[p.pos]
	p.pos++
	name := strings.ToUpper(tok.text)
	if tok.quoted {
		return Type{}, p.errorf("%q is a quoted name, not a type", tok.text)
	}
	if t, ok := bare[name]; ok {
		return t, nil
	}
	switch name {
	case "DOUBLE":
		p.accept("PRECISION")
		return Type{Root: Double}, nil
	case "CHAR":
		return p.length(Char, maxCharLength)
	case "VARCHAR":
		return p.length(VarChar, MaxLength)
	case "BINARY":
		return p.length(Binary, MaxLength)
	case "VARBINARY":
		return p.length(VarBinary, MaxLength)
	case "DECIMAL", "NUMERIC", "DEC":
		return p.decimal()
	case "TIME":
		return p.time()
	case "TIMESTAMP", "TIMESTAMP_LTZ":
		return p.timestamp(name == "TIMESTAMP_LTZ")
	case "ARRAY", "MAP", "MULTISET", "ROW":
		if !p.nested {
			return Type{}, p.errorf("%s has no text form in schema files", name)
		}
		return p.constructed(name)
	}
	return Type{}, p.errorf("unknown type %q; known are BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, "+
		"DECIMAL(p, s), CHAR(n), VARCHAR(n), STRING, BINARY(n), VARBINARY(n), BYTES, DATE, TIME(p), TIMESTAMP(p), "+
		"TIMESTAMP_LTZ(p), VARIANT, ARRAY<t>, MAP<k, v>, MULTISET<t>, ROW<name t, …>", tok.text)
}

// constructed reads what follows the word of a nested type. Field ids are given when a table is made of it.
func (p *typeParser) constructed(name string) (Type, error) {
	if p.depth++; p.depth > maxNesting {
		return Type{}, p.errorf("types are nested deeper than %d", maxNesting)
	}
	defer func() { p.depth-- }()
	if !p.accept("<") {
		return Type{}, p.errorf("%s needs its types in <>", name)
	}
	var types []Type
	var fields []Field
	for {
		if name == "ROW" {
			if p.done() || p.peek() == "" || !p.toks[p.pos].quoted && strings.ContainsAny(p.peek(), "(),<>") {
				return Type{}, p.errorf("a field of ROW has no name")
			}
			fields = append(fields, Field{Name: p.peek()})
			p.pos++
		}
		t, err := p.typ()
		if err != nil {
			return Type{}, err
		}
		types = append(types, t)
		if p.accept(",") {
			continue
		}
		if p.accept(">") {
			break
		}
		return Type{}, p.errorf("expected , or > in %s, got %q", name, p.peek())
	}
	switch {
	case name == "ROW":
		for i := range fields {
			fields[i].Type = types[i]
		}
		return Type{Root: Row, Fields: fields}, nil
	case name == "MAP" && len(types) == 2:
		return Type{Root: Map, Key: &types[0], Element: &types[1]}, nil
	case name == "ARRAY" && len(types) == 1:
		return Type{Root: Array, Element: &types[0]}, nil
	case name == "MULTISET" && len(types) == 1:
		return Type{Root: Multiset, Element: &types[0]}, nil
	}
	return Type{}, p.errorf("%s does not take %d types", name, len(types))
}

func (p *typeParser) length(r Root, limit int) (Type, error) {
	n, err := p.params(1, []int{1}, r.String())
	if err != nil {
		return Type{}, err
	}
	if n[0] < 1 || n[0] > limit {
		return Type{}, p.errorf("length %d of %s is not between 1 and %d", n[0], r, limit)
	}
	return Type{Root: r, Length: n[0]}, nil
}

func (p *typeParser) decimal() (Type, error) {
	n, err := p.params(2, []int{10, 0}, "DECIMAL")
	if err != nil {
		return Type{}, err
	}
	if n[0] < 1 || n[0] > maxDecimalPrecision {
		return Type{}, p.errorf("precision %d of DECIMAL is not between 1 and %d", n[0], maxDecimalPrecision)
	}
	if n[1] < 0 || n[1] > n[0] {
		return Type{}, p.errorf("scale %d of DECIMAL is not between 0 and the precision %d", n[1], n[0])
	}
	return Type{Root: Decimal, Precision: n[0], Scale: n[1]}, nil
}

func (p *typeParser) time() (Type, error) {
	n, err := p.params(1, []int{0}, "TIME")
	if err != nil {
		return Type{}, err
	}
	p.accept("WITHOUT", "TIME", "ZONE")
	return p.fraction(Time, n[0])
}

func (p *typeParser) timestamp(local bool) (Type, error) {
	n, err := p.params(1, []int{6}, "TIMESTAMP")
	if err != nil {
		return Type{}, err
	}
	switch {
	case local, p.accept("WITH", "LOCAL", "TIME", "ZONE"):
		return p.fraction(TimestampLTZ, n[0])
	}
	p.accept("WITHOUT", "TIME", "ZONE")
	return p.fraction(Timestamp, n[0])
}

func (p *typeParser) fraction(r Root, precision int) (Type, error) {
	if precision < 0 || precision > maxTimePrecision {
		return Type{}, p.errorf("precision %d of %s is not between 0 and %d", precision, r, maxTimePrecision)
	}
	return Type{Root: r, Precision: precision}, nil
}

// params reads "(a)" or "(a, b)" with at most max numbers; missing ones keep their default.
func (p *typeParser) params(most int, defaults []int, name string) ([]int, error) {
	out := append([]int(nil), defaults...)
	if !p.accept("(") {
		return out, nil
	}
	for i := 0; ; i++ {
		if i == most {
			return nil, p.errorf("%s takes at most %d parameter(s)", name, most)
		}
		v, err := strconv.ParseInt(p.peek(), 10, 64)
		if err != nil || v < 0 || v > math.MaxInt32 {
			return nil, p.errorf("parameter %q of %s is not a number between 0 and %d", p.peek(), name, math.MaxInt32)
		}
		out[i] = int(v)
		p.pos++
		if p.accept(")") {
			return out, nil
		}
		if !p.accept(",") {
			return nil, p.errorf("expected , or ) in the parameters of %s, got %q", name, p.peek())
		}
	}
}

// tokenize cuts text into words, numbers, quoted names (`a b` or "a b", the quote doubled inside) and punctuation.
func tokenize(s string) ([]token, error) {
	var out []token
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '(' || c == ')' || c == ',' || c == '<' || c == '>':
			out = append(out, token{text: s[i : i+1], at: i})
			i++
		case c == '`' || c == '"' || c == '\'':
			text, n, err := quoted(s[i:])
			if err != nil {
				return nil, fmt.Errorf("at offset %d: %w", i, err)
			}
			out = append(out, token{text: text, quoted: true, at: i})
			i += n
		default:
			n := strings.IndexAny(s[i:], " \t\n\r(),<>`\"'")
			if n < 0 {
				n = len(s) - i
			}
			out = append(out, token{text: s[i : i+n], at: i})
			i += n
		}
	}
	return out, nil
}

// quoted reads the quoted text at the start of s and says how many bytes it took.
func quoted(s string) (string, int, error) {
	q := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != q {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == q {
			b.WriteByte(q)
			i++
			continue
		}
		return b.String(), i + 1, nil
	}
	return "", 0, fmt.Errorf("the quote %c is not closed", q)
}
