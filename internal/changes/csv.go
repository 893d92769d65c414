package changes

import (
	"bytes"
	"encoding/json"
)

// quoted appends a field of CSV, in quotes where it needs them or is empty.
func quoted(dst, field []byte) []byte {
	if len(field) > 0 && !bytes.ContainsAny(field, "\",\r\n") {
		return append(dst, field...)
	}
	dst = append(dst, '"')
	for _, b := range field {
		if b == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, b)
	}
	return append(dst, '"')
}

// unquoted gives the text of a JSON string, and other JSON as it is.
func unquoted(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return value
	}
	if inner := value[1 : len(value)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return value // rowjson writes no such thing
	}
	return []byte(s)
}
