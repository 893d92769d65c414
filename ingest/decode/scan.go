package decode

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON scanning primitives (RFC 8259). Each takes the whole message and a position, and gives the position after what
// it read, or a scanFault. They look at 8 bytes at a time: a flat message of 200 bytes is mostly short keys and strings.

// Faults of the scanners, as negative positions.
const (
	faultEnd       = -1 - iota // the message ends too early
	faultControl               // unescaped control character in a string
	faultEscape                // unknown escape
	faultSurrogate             // half of a surrogate pair
	faultUTF8                  // invalid UTF-8
	faultNumber                // not a number by JSON's grammar
	faultValue                 // no JSON value here
	faultDepth                 // nested too deep
)

var faultText = [...]string{
	-faultEnd:       "the JSON text ends too early",
	-faultControl:   "unescaped control character in a string",
	-faultEscape:    "unknown escape in a string",
	-faultSurrogate: `\u escape is half of a surrogate pair`,
	-faultUTF8:      "invalid UTF-8",
	-faultNumber:    "malformed number",
	-faultValue:     "malformed JSON: unexpected character",
	-faultDepth:     "nested too deep",
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// space skips JSON white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// scanPlain reads a string from after its opening quote up to the first byte that is a quote, a backslash or a control
// character. high has bit 7 of some byte set when a byte before that is not ASCII. At the end of b it gives len(b).
func scanPlain(b []byte, i int) (end int, high uint64) {
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		// Each term borrows into bit 7 of a byte below the bound; borrows can only spoil bytes above a true hit,
		// so the lowest hit is exact.
		m := ((x - ones*0x20) | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones)) &^ x & highs
		if m != 0 {
			n := bits.TrailingZeros64(m) &^ 7
			return i + n>>3, high | x&(1<<n-1)
		}
		high |= x
		i += 8
	}
	for ; i < len(b); i++ {
		c := b[i]
		if c < 0x20 || c == '"' || c == '\\' {
			return i, high
		}
		high |= uint64(c)
	}
	return i, high
}

// skipString validates a string from after its opening quote and gives the position after its closing quote.
// escaped reports whether it holds escapes; at is where a fault is.
func skipString(b []byte, i int) (end int, escaped bool, at int) {
	for {
		e, high := scanPlain(b, i)
		if high&highs != 0 && !utf8.Valid(b[i:e]) {
			return faultUTF8, escaped, invalidAt(b[i:e]) + i
		}
		if e == len(b) {
			return faultEnd, escaped, e
		}
		switch b[e] {
		case '"':
			return e + 1, escaped, 0
		case '\\':
			escaped = true
			_, n := unescape(b[e:])
			if n < 0 {
				return n, true, e
			}
			i = e + n
		default:
			return faultControl, escaped, e
		}
	}
}

// invalidAt finds the first byte that is not part of valid UTF-8.
func invalidAt(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

// unescape reads one escape, b[0] being the backslash: the character and the length of the escape, or a fault.
func unescape(b []byte) (rune, int) {
	if len(b) < 2 {
		return 0, faultEnd
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return unescapeUnit(b)
	}
	return 0, faultEscape
}

// unescapeUnit reads \uXXXX, or two of them that are a surrogate pair.
func unescapeUnit(b []byte) (rune, int) {
	r := hex4(b)
	if r < 0 {
		return 0, int(r)
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) < 8 || b[6] != '\\' || b[7] != 'u' {
		return 0, faultSurrogate
	}
	lo := hex4(b[6:])
	if lo < 0 {
		return 0, int(lo)
	}
	if p := utf16.DecodeRune(r, lo); p != utf8.RuneError {
		return p, 12
	}
	return 0, faultSurrogate
}

// hex4 reads the four digits of \uXXXX, or gives a fault.
func hex4(b []byte) rune {
	if len(b) < 6 {
		return faultEnd
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return faultEscape
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unquote appends the characters of a string that skipString accepted; s is the text between its quotes.
func unquote(dst, s []byte) []byte {
	for len(s) > 0 {
		n := 0
		for n < len(s) && s[n] != '\\' {
			n++
		}
		dst = append(dst, s[:n]...)
		if n == len(s) {
			break
		}
		r, k := unescape(s[n:])
		if k < 0 { // skipString has refused these
			break
		}
		dst = utf8.AppendRune(dst, r)
		s = s[n+k:]
	}
	return dst
}

// skipNumber validates a number by JSON's grammar.
func skipNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i]-'1' < 9:
		i = digits(b, i)
	default:
		return faultNumber
	}
	if i < len(b) && b[i] == '.' {
		j := digits(b, i+1)
		if j == i+1 {
			return faultNumber
		}
		i = j
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := digits(b, i)
		if j == i {
			return faultNumber
		}
		i = j
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	return i
}

// literal checks that the word stands at i.
func literal(b []byte, i int, word string) int {
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word)
	}
	return faultValue
}

// maxDepth bounds nesting, as encoding/json does.
const maxDepth = 10000

// nesting is a stack of bits: set for an object, clear for an array.
type nesting struct {
	bits  [maxDepth/64 + 1]uint64
	depth int
}

func (n *nesting) push(object bool) bool {
	if n.depth >= maxDepth {
		return false
	}
	w, bit := n.depth>>6, uint64(1)<<(n.depth&63)
	n.bits[w] &^= bit
	if object {
		n.bits[w] |= bit
	}
	n.depth++
	return true
}

// inObject reports what the innermost open bracket is.
func (n *nesting) inObject() bool {
	d := n.depth - 1
	return n.bits[d>>6]>>(d&63)&1 == 1
}

// skipScalar validates a string, number or literal.
func skipScalar(b []byte, i int) (end, at int) {
	if i >= len(b) {
		return faultEnd, i
	}
	switch c := b[i]; {
	case c == '"':
		e, _, at := skipString(b, i+1)
		return e, at
	case c == '-' || c-'0' < 10:
		return skipNumber(b, i), i
	case c == 't':
		return literal(b, i, "true"), i
	case c == 'f':
		return literal(b, i, "false"), i
	case c == 'n':
		return literal(b, i, "null"), i
	}
	return faultValue, i
}

// skipValue validates any value and gives the position after it.
func skipValue(b []byte, i int, n *nesting) (end, at int) {
	if i >= len(b) || b[i] != '{' && b[i] != '[' {
		return skipScalar(b, i)
	}
	n.depth = 0
	for {
		var e int
		// A value starts at i.
		switch {
		case i < len(b) && (b[i] == '{' || b[i] == '['):
			if !n.push(b[i] == '{') {
				return faultDepth, i
			}
			i = space(b, i+1)
			if i < len(b) && b[i] == closer(n.inObject()) {
				break // empty: closed below
			}
			if n.inObject() {
				if e, at = skipKey(b, i); e < 0 {
					return e, at
				}
				i = e
			}
			continue
		default:
			if e, at = skipScalar(b, i); e < 0 {
				return e, at
			}
			i = space(b, e)
		}
		if i, at = closeBrackets(b, i, n); i < 0 || n.depth == 0 {
			return i, at
		}
	}
}

func closer(object bool) byte {
	if object {
		return '}'
	}
	return ']'
}

// closeBrackets stands after a value (or at the bracket that closes an empty one): it reads closing brackets, then
// either a comma with the next key, ending where the next value starts, or the end of the outermost bracket.
func closeBrackets(b []byte, i int, n *nesting) (end, at int) {
	for {
		if i >= len(b) {
			return faultEnd, i
		}
		object := n.inObject()
		switch b[i] {
		case ',':
			i = space(b, i+1)
			if !object {
				return i, 0
			}
			return skipKey(b, i)
		case closer(object):
			n.depth--
			i++
			if n.depth == 0 {
				return i, 0
			}
			i = space(b, i)
		default:
			return faultValue, i
		}
	}
}

// skipKey reads a member's name and the colon, ending where its value starts.
func skipKey(b []byte, i int) (end, at int) {
	if i >= len(b) {
		return faultEnd, i
	}
	if b[i] != '"' {
		return faultValue, i
	}
	e, _, at := skipString(b, i+1)
	if e < 0 {
		return e, at
	}
	return colon(b, e)
}

// colon reads the colon after a name, ending where the value starts.
func colon(b []byte, i int) (end, at int) {
	i = space(b, i)
	if i >= len(b) {
		return faultEnd, i
	}
	if b[i] != ':' {
		return faultValue, i
	}
	return space(b, i+1), 0
}
