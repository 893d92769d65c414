package schema

import (
	"fmt"
	"strings"
)

// ParsePath reads the path of a column: a name, or names with dots between them for members of nested types. A name
// with a dot or a space in it is quoted with ` or ".
func ParsePath(s string) ([]string, error) {
	p, err := newChangeParser(s)
	if err != nil {
		return nil, err
	}
	path, err := p.path()
	if err == nil {
		err = p.end()
	}
	return path, err
}

// ParseAddColumn reads "name TYPE [COMMENT 'text'] [FIRST | LAST | AFTER name | BEFORE name]".
func ParseAddColumn(s string) (AddColumn, error) {
	p, err := newChangeParser(s)
	if err != nil {
		return AddColumn{}, err
	}
	var c AddColumn
	if c.Path, err = p.path(); err != nil {
		return AddColumn{}, err
	}
	if c.Type, err = p.typ(); err != nil {
		return AddColumn{}, err
	}
	if p.accept("COMMENT") {
		if p.done() || !p.toks[p.pos].quoted {
			return AddColumn{}, fmt.Errorf("%q: COMMENT needs a quoted text", s)
		}
		c.Comment = p.peek()
		p.pos++
	}
	if c.Place, err = p.place(); err != nil {
		return AddColumn{}, err
	}
	return c, p.end()
}

// ParseChangeType reads "name TYPE [NULL | NOT NULL]"; without a word on nulls they stay allowed or forbidden.
func ParseChangeType(s string) (ChangeType, error) {
	p, err := newChangeParser(s)
	if err != nil {
		return ChangeType{}, err
	}
	var c ChangeType
	if c.Path, err = p.path(); err != nil {
		return ChangeType{}, err
	}
	if c.Type, err = p.typ(); err != nil {
		return ChangeType{}, err
	}
	last := p.toks[p.pos-1]
	c.KeepNull = last.quoted || !strings.EqualFold(last.text, "NULL")
	return c, p.end()
}

// ParseMove reads "name FIRST", "name LAST", "name AFTER name" or "name BEFORE name".
func ParseMove(s string) (MoveColumn, error) {
	p, err := newChangeParser(s)
	if err != nil {
		return MoveColumn{}, err
	}
	path, err := p.path()
	if err != nil {
		return MoveColumn{}, err
	}
	if len(path) != 1 {
		return MoveColumn{}, fmt.Errorf("%q: only columns of the table can be moved, not members of nested types", s)
	}
	place, err := p.place()
	if err == nil && place.At == AnyPlace {
		err = fmt.Errorf("%q: say where to: FIRST, LAST, AFTER name or BEFORE name", s)
	}
	if err != nil {
		return MoveColumn{}, err
	}
	return MoveColumn{Name: path[0], Place: place}, p.end()
}

// ParseAssign cuts "left=right" at the first = outside quotes; the left side is a path. It is the form of renames
// and of comments on columns.
func ParseAssign(s string) (path []string, right string, err error) {
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '`' || c == '"':
			quote = c
		case c == '=':
			path, err = ParsePath(s[:i])
			return path, s[i+1:], err
		}
	}
	return nil, "", fmt.Errorf("%q has no =", s)
}

func newChangeParser(s string) (*typeParser, error) {
	if len(s) > maxColumnsText {
		return nil, fmt.Errorf("text has %d characters: at most %d are allowed", len(s), maxColumnsText)
	}
	toks, err := tokenize(s)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	return &typeParser{text: s, toks: toks}, nil
}

// end checks that nothing is left.
func (p *typeParser) end() error {
	if p.done() {
		return nil
	}
	return fmt.Errorf("%q: unexpected %q at offset %d", p.text, p.peek(), p.toks[p.pos].at)
}

// path reads names with dots between them. Dots in quotes are part of a name.
func (p *typeParser) path() ([]string, error) {
	var out []string
	for open := true; open && !p.done(); {
		t := p.toks[p.pos]
		if !t.quoted && strings.ContainsAny(t.text, "(),<>") || t.text == "" {
			break
		}
		p.pos++
		open = false
		switch {
		case t.quoted:
			out = append(out, t.text)
		case t.text == "." && len(out) > 0:
			open = true
			continue
		default:
			text, more := strings.CutSuffix(t.text, ".")
			out = append(out, strings.Split(strings.TrimPrefix(text, "."), ".")...)
			open = more
		}
		// `a`.b is the tokens `a` and .b, without a space between.
		if !p.done() && !p.toks[p.pos].quoted && strings.HasPrefix(p.peek(), ".") {
			open = true
		}
	}
	for _, name := range out {
		if name == "" {
			out = nil
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q does not begin with the name of a column", p.text)
	}
	return out, nil
}

// place reads where a column goes, if it says so.
func (p *typeParser) place() (Place, error) {
	switch {
	case p.accept("FIRST"):
		return Place{At: First}, nil
	case p.accept("LAST"):
		return Place{At: Last}, nil
	}
	at := AnyPlace
	if p.accept("AFTER") {
		at = After
	} else if p.accept("BEFORE") {
		at = Before
	}
	if at == AnyPlace {
		return Place{}, nil
	}
	if p.done() {
		return Place{}, fmt.Errorf("%q: the column to stand beside is missing", p.text)
	}
	ref := p.peek()
	p.pos++
	return Place{At: at, Ref: ref}, nil
}
