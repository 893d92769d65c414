package predicate

import (
	"encoding/hex"
	"errors"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/cloudspannerecosystem/memefish"
	"github.com/cloudspannerecosystem/memefish/ast"
)

// The parser library reads GoogleSQL, which writes quotes in texts and names differently from standard SQL and reserves
// words that may well be columns ("at", "order"). The text is therefore rewritten word by word first: every word that
// is not one of the few of this language becomes a quoted name. That also keeps the rest of GoogleSQL out of reach.

// Limits of a text. Nesting costs the parser more than linear time, and stack.
const (
	maxText  = 1 << 20
	maxDepth = 60
)

// keywords are the words that stand for themselves.
var keywords = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "IN": true, "LIKE": true, "BETWEEN": true, "IS": true, "NULL": true, "TRUE": true, "FALSE": true,
}

// source is a condition as it was given and as the parser gets it.
type source struct {
	in     string
	out    strings.Builder
	places []place // ascending in both
	depth  int     // open parentheses
	prefix int     // signs and NOTs in a row
}

// place says where a word of the output comes from.
type place struct{ out, in int }

// Error is a mistake in a condition.
type Error struct {
	Text string // the whole condition
	At   int    // character of Text, from 1
	Msg  string
}

// Error tells the place and the mistake.
func (e *Error) Error() string {
	near := e.Text
	if r := []rune(near); len(r) > 60 {
		from := max(0, min(e.At-20, len(r)-50))
		near = "…" + string(r[from:min(len(r), from+50)]) + "…"
	}
	return fmt.Sprintf("condition %q, character %d: %s", near, e.At, e.Msg)
}

// fail makes an error at a byte of the input.
func (s *source) fail(at int, format string, args ...any) error {
	at = min(max(at, 0), len(s.in))
	return &Error{Text: s.in, At: utf8.RuneCountInString(s.in[:at]) + 1, Msg: fmt.Sprintf(format, args...)}
}

// at gives the input's place of a place in the output.
func (s *source) at(out int) int {
	i := sort.Search(len(s.places), func(i int) bool { return s.places[i].out > out })
	if i == 0 {
		return 0
	}
	return s.places[i-1].in
}

// parseText gives the syntax tree of a condition.
func parseText(text string) (*source, ast.Expr, error) {
	s := &source{in: text}
	if len(text) > maxText {
		return nil, nil, s.fail(0, "the condition has %d bytes, at most %d are taken", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, nil, s.fail(0, "the condition is not UTF-8")
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil, s.fail(0, "the condition is empty")
	}
	for at := 0; at < len(text); {
		n, err := s.word(at)
		if err != nil {
			return nil, nil, err
		}
		at += n
	}
	s.mark(len(text))
	e, err := memefish.ParseExpr("", s.out.String())
	if err != nil {
		var list memefish.MultiError
		if errors.As(err, &list) && len(list) > 0 {
			return nil, nil, s.fail(s.at(int(list[0].Position.Pos)), "%s", strings.ReplaceAll(list[0].Message, "`", `"`))
		}
		return nil, nil, s.fail(0, "%s", err)
	}
	return s, e, nil
}

func (s *source) mark(in int) { s.places = append(s.places, place{s.out.Len(), in}) }

// emit writes a word for one of the input. Words are kept apart, because a letter before a quote has a meaning.
func (s *source) emit(in int, word string) {
	s.mark(in)
	s.out.WriteString(word)
	s.out.WriteByte(' ')
}

// word takes the word that begins at a byte and gives its length.
func (s *source) word(at int) (int, error) {
	rest := s.in[at:]
	c := rest[0]
	if strings.IndexByte(" \t\r\n", c) >= 0 {
		return 1, nil
	}
	if err := s.nest(at, c); err != nil {
		return 0, err
	}
	switch {
	case c == '\'':
		text, n, err := s.quoted(at, '\'')
		s.emit(at, "'"+escape(text, "'")+"'")
		return n, err
	case c == '"' || c == '`':
		name, n, err := s.quoted(at, c)
		if err == nil && name == "" {
			err = s.fail(at, "the name of a column is empty")
		}
		s.emit(at, "`"+escape(name, "`")+"`")
		return n, err
	case letter(c):
		return s.name(at)
	case c >= '0' && c <= '9', c == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		n := number(rest)
		if n < len(rest) && letter(rest[n]) {
			return 0, s.fail(at, "%q is neither a number nor a name; put a name into double quotes", rest[:n+1])
		}
		s.emit(at, rest[:n])
		return n, nil
	case strings.HasPrefix(rest, "--"):
		return 0, s.fail(at, "comments cannot be given here")
	}
	for _, op := range []string{"<=", ">=", "<>", "!=", "<", ">", "=", "(", ")", ",", ".", "-", "+"} {
		if strings.HasPrefix(rest, op) {
			if op == "<>" {
				op = "!="
			}
			s.emit(at, op)
			return len(op), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return 0, s.fail(at, "%q has no meaning here", r)
}

// nest counts how deep the word is.
func (s *source) nest(at int, c byte) error {
	switch c {
	case '(':
		s.depth++
	case ')':
		s.depth--
	case '-', '+', 'N', 'n':
		if c == '-' || c == '+' || wordIs(s.in[at:], "NOT") {
			s.prefix++
			break
		}
		s.prefix = 0
	default:
		s.prefix = 0
	}
	if s.depth+s.prefix > maxDepth {
		return s.fail(at, "nested deeper than %d levels", maxDepth)
	}
	return nil
}

func wordIs(s, word string) bool {
	return len(s) >= len(word) && strings.EqualFold(s[:len(word)], word) && (len(s) == len(word) || !letter(s[len(word)]) && !digit(s[len(word)]))
}

// name takes a word of letters: one of the language, or a column.
func (s *source) name(at int) (int, error) {
	rest := s.in[at:]
	n := 1
	for n < len(rest) && (letter(rest[n]) || digit(rest[n])) {
		n++
	}
	word, upper := rest[:n], strings.ToUpper(rest[:n])
	behind := strings.TrimLeft(rest[n:], " \t\r\n")
	text := strings.HasPrefix(behind, "'")
	switch {
	case keywords[upper]:
		s.emit(at, upper)
	case text && (upper == "DATE" || upper == "TIMESTAMP"):
		s.emit(at, upper)
	case text && upper == "TIME": // the library has no such literal: the text says enough
	case upper == "X" && strings.HasPrefix(rest[n:], "'"):
		digits, m, err := s.quoted(at+n, '\'')
		if err != nil {
			return 0, err
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			return 0, s.fail(at, "X'…' holds pairs of hexadecimal digits")
		}
		var w strings.Builder
		for _, c := range b {
			fmt.Fprintf(&w, `\x%02x`, c)
		}
		s.emit(at, "b'"+w.String()+"'")
		return n + m, nil
	default:
		s.emit(at, "`"+word+"`")
	}
	return n, nil
}

// quoted takes a text in quotes, in which the quote itself is written twice, and gives its length in the input.
func (s *source) quoted(at int, quote byte) (string, int, error) {
	rest := s.in[at+1:]
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		if rest[i] != quote {
			b.WriteByte(rest[i])
			continue
		}
		if i+1 == len(rest) || rest[i+1] != quote {
			return b.String(), i + 2, nil
		}
		b.WriteByte(quote)
		i++
	}
	return "", 0, s.fail(at, "the text has no closing %c", quote)
}

// escape writes a text as the library reads it.
func escape(text, quote string) string {
	return strings.NewReplacer(`\`, `\\`, quote, `\`+quote, "\n", `\n`, "\r", `\r`, "\x00", `\x00`).Replace(text)
}

func letter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
func digit(c byte) bool { return c >= '0' && c <= '9' }

// number gives the length of a number: digits, a fraction, an exponent.
func number(s string) int {
	n := 0
	for n < len(s) && (digit(s[n]) || s[n] == '.') {
		n++
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if m < len(s) && digit(s[m]) {
			for n = m; n < len(s) && digit(s[n]); {
				n++
			}
		}
	}
	return n
}
