package ingest

import "bytes"

// csvAt is where in a row of CSV its bytes end.
type csvAt uint8

const (
	csvField  csvAt = iota // where a field begins
	csvBegin               // where the input begins, maybe with the mark that spreadsheets write
	csvPlain               // within a field without quotes, or behind those that it had
	csvQuoted              // within quotes
	csvQuote               // behind a quote within quotes: it ended them, or is the first of two that stand for one
)

// csvEnd finds the end of a row of CSV: the next newline outside of quotes, or -1. Quotes open only where a field begins, as
// for the decoder: elsewhere they spoil their own row, but not those behind it. at says where in a row data begins, stays
// where it ends.
func csvEnd(data []byte, at csvAt) (n int, stays csvAt) {
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case at == csvQuoted:
			n := bytes.IndexByte(data[i:], '"')
			if n < 0 {
				return -1, csvQuoted
			}
			i, at = i+n+1, csvQuote
			continue
		case c == '"' && at != csvPlain:
			i, at = i+1, csvQuoted
			continue
		case at == csvBegin && (c == 0xef || c == 0xbb || c == 0xbf):
			i++
			continue
		}
		for i < len(data) && data[i] != ',' && data[i] != '\n' {
			i++
		}
		if i == len(data) {
			return -1, csvPlain
		}
		if data[i] == '\n' {
			return i, csvField
		}
		i, at = i+1, csvField
	}
	return -1, at
}
