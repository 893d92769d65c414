package predicate

import (
	"strings"
	"unicode/utf8"
)

// pattern is a LIKE pattern, cut at its %.
type pattern struct {
	whole  bool // no wildcard at all: prefix is the text
	prefix string
	parts  []part // between the %: the first is bound to the start, the last to the end
	plain  bool   // no _ in any part
}

// part is a piece of text in which some characters may be any.
type part struct {
	text []rune // anyChar: any character
	str  string // the text when no character is any
}

const anyChar rune = -1

// compilePattern reads a pattern, or says what is wrong with it.
func compilePattern(s string) (*pattern, string) {
	p := &pattern{plain: true}
	cur := part{}
	wild, fixed := false, true
	var prefix strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch r {
		case '%':
			wild, fixed = true, false
			p.parts = append(p.parts, cur)
			cur = part{}
			continue
		case '_':
			wild, fixed, p.plain = true, false, false
			cur.text = append(cur.text, anyChar)
			continue
		case '\\':
			if i == len(s) {
				return nil, `ends in a backslash; write \\ for one`
			}
			r, n = utf8.DecodeRuneInString(s[i:])
			i += n
		}
		cur.text = append(cur.text, r)
		if fixed {
			prefix.WriteRune(r)
		}
	}
	p.parts = append(p.parts, cur)
	for i := range p.parts {
		var b strings.Builder
		for _, r := range p.parts[i].text {
			if r != anyChar {
				b.WriteRune(r)
			}
		}
		p.parts[i].str = b.String()
	}
	p.whole, p.prefix = !wild, prefix.String()
	return p, ""
}

// match reports whether a text matches. It takes time of at most the text's length times the pattern's.
func (p *pattern) match(s string) bool {
	first, rest := p.parts[0], p.parts[1:]
	n, ok := p.at(first, s)
	if !ok {
		return false
	}
	if s = s[n:]; len(rest) == 0 {
		return s == ""
	}
	last := rest[len(rest)-1]
	for _, x := range rest[:len(rest)-1] { // leftmost is best: what follows then has the most room
		if s, ok = p.find(x, s); !ok {
			return false
		}
	}
	return p.ends(last, s)
}

// at gives the length of a part at the start of a text.
func (p *pattern) at(x part, s string) (int, bool) {
	if p.plain {
		return len(x.str), strings.HasPrefix(s, x.str)
	}
	n := 0
	for _, want := range x.text {
		if n == len(s) {
			return 0, false
		}
		r, size := utf8.DecodeRuneInString(s[n:])
		if want != anyChar && want != r {
			return 0, false
		}
		n += size
	}
	return n, true
}

// find gives what follows the first occurrence of a part.
func (p *pattern) find(x part, s string) (string, bool) {
	if p.plain {
		_, after, ok := strings.Cut(s, x.str)
		return after, ok
	}
	for {
		if n, ok := p.at(x, s); ok {
			return s[n:], true
		}
		if s == "" {
			return "", false
		}
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
}

// ends reports whether a text ends in a part.
func (p *pattern) ends(x part, s string) bool {
	if p.plain {
		return strings.HasSuffix(s, x.str)
	}
	from := len(s)
	for range x.text {
		if from == 0 {
			return false
		}
		_, size := utf8.DecodeLastRuneInString(s[:from])
		from -= size
	}
	n, ok := p.at(x, s[from:])
	return ok && from+n == len(s)
}
