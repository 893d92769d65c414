package datafile

import "unicode/utf8"

// truncateMin gives the first n code points of s: a lower bound of s.
func truncateMin(s string, n int) string { return s[:codePoints(s, n)] }

// truncateMax gives a string of at most n code points that is not less than s: s itself if it is short enough, else
// its first n code points with the last one that has a successor increased and what follows dropped. There is none if
// all are the last code point (`TruncateSimpleColStatsCollector.truncateMax`).
func truncateMax(s string, n int) (string, bool) {
	cut := codePoints(s, n)
	if cut == len(s) {
		return s, true
	}
	for cut > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:cut])
		if r == utf8.RuneError && size < 2 {
			return "", false // not UTF-8: what a reader makes of it is not known
		}
		cut -= size
		if next, ok := successor(r); ok {
			return string(utf8.AppendRune([]byte(s[:cut]), next)), true
		}
	}
	return "", false
}

// successor gives the next code point. The surrogates are skipped: they have no UTF-8 form.
func successor(r rune) (rune, bool) {
	switch {
	case r >= utf8.MaxRune:
		return 0, false
	case r == 0xD7FF:
		return 0xE000, true
	}
	return r + 1, true
}

// codePoints gives the length in bytes of the first n code points of s.
func codePoints(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}
