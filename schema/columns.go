package schema

import (
	"fmt"
	"strings"
)

// Column is a column of a table to be created.
type Column struct {
	Name    string
	Type    Type
	Comment string
}

// maxColumnsText bounds the column list given by a user.
const maxColumnsText = 1 << 20

// ParseColumns reads a column list such as
//
//	id BIGINT NOT NULL, name STRING COMMENT 'full name', "due date" DATE, at ROW<x INT, y ARRAY<DOUBLE NOT NULL>>
//
// Names may be quoted with ` or "; the quote is doubled inside. A trailing comma is allowed.
func ParseColumns(s string) ([]Column, error) {
	if len(s) > maxColumnsText {
		return nil, fmt.Errorf("column list has %d characters: at most %d are allowed", len(s), maxColumnsText)
	}
	toks, err := tokenize(s)
	if err != nil {
		return nil, fmt.Errorf("column list: %w", err)
	}
	p := &typeParser{text: s, toks: toks, nested: true}
	var out []Column
	seen := map[string]bool{}
	for !p.done() {
		c, err := p.column(len(out) + 1)
		if err != nil {
			return nil, err
		}
		if seen[c.Name] {
			return nil, fmt.Errorf("column list: the name %q is given twice", c.Name)
		}
		seen[c.Name] = true
		out = append(out, c)
		if !p.done() && !p.accept(",") {
			return nil, fmt.Errorf("column list: expected , after column %q (%s), got %q at offset %d",
				c.Name, c.Type, p.peek(), p.toks[p.pos].at)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("column list is empty; give at least one, for example \"id BIGINT NOT NULL, name STRING\"")
	}
	return out, nil
}

// column reads the n-th column (from 1).
func (p *typeParser) column(n int) (Column, error) {
	name := p.toks[p.pos]
	if name.text == "" || !name.quoted && strings.ContainsAny(name.text, "(),<>") {
		return Column{}, fmt.Errorf("column list: column %d has no name (offset %d)", n, name.at)
	}
	p.pos++
	sub := &typeParser{text: p.rest(), toks: p.toks, pos: p.pos, nested: true}
	t, err := sub.typ()
	if err != nil {
		return Column{}, fmt.Errorf("column %q: %w", name.text, err)
	}
	p.pos = sub.pos
	c := Column{Name: name.text, Type: t}
	if p.accept("COMMENT") {
		if p.done() || !p.toks[p.pos].quoted {
			return Column{}, fmt.Errorf("column %q: COMMENT needs a quoted text", name.text)
		}
		c.Comment = p.peek()
		p.pos++
	}
	return c, nil
}

// rest gives the text from the next token to the next comma outside brackets, for error messages.
func (p *typeParser) rest() string {
	if p.done() {
		return ""
	}
	from, depth := p.toks[p.pos].at, 0
	for _, t := range p.toks[p.pos:] {
		switch {
		case t.quoted:
		case t.text == "(", t.text == "<":
			depth++
		case t.text == ")", t.text == ">":
			depth--
		case t.text == "," && depth <= 0:
			return strings.TrimSpace(p.text[from:t.at])
		}
	}
	return strings.TrimSpace(p.text[from:])
}
