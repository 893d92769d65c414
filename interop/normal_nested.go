//go:build interop

package interop

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// KindField is a field of a ROW.
type KindField struct {
	Name string
	Kind
}

// parseNested reads a type in Paimon's SQL words that may be ARRAY<…>, MAP<…, …>, MULTISET<…> or ROW<`a` …, …>, and
// gives what follows it.
func parseNested(s string) (k Kind, rest string, err error) {
	open := strings.IndexByte(s, '<')
	word := s[:max(open, 0)]
	switch word {
	case "ARRAY", "MULTISET", "MAP", "ROW":
	default:
		n := typeLength(s)
		k, err = ParseKind(strings.TrimSpace(s[:n]))
		return k, s[n:], err
	}
	k.Word, rest = word, s[open+1:]
	for more := true; more; {
		var f KindField
		if word == "ROW" {
			if f.Name, rest, err = quotedName(rest); err != nil {
				return k, "", err
			}
		}
		if f.Kind, rest, err = parseNested(strings.TrimSpace(rest)); err != nil {
			return k, "", err
		}
		k.Fields = append(k.Fields, f)
		rest, more = strings.CutPrefix(strings.TrimSpace(rest), ",")
	}
	rest, ok := strings.CutPrefix(rest, ">")
	if want := map[string]int{"ARRAY": 1, "MULTISET": 1, "MAP": 2, "ROW": len(k.Fields)}[word]; !ok || len(k.Fields) != want {
		return k, "", fmt.Errorf("type %q is not in a form that the suite knows", s)
	}
	rest, k.NotNull = strings.CutPrefix(rest, " NOT NULL")
	return k, rest, nil
}

// typeLength is the length of the primitive type at the beginning: up to a comma or > outside of its parentheses.
func typeLength(s string) int {
	depth := 0
	for i, c := range s {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0 && (c == ',' || c == '>'):
			return i
		}
	}
	return len(s)
}

func quotedName(s string) (name, rest string, err error) {
	s = strings.TrimSpace(s)
	name, rest, ok := strings.Cut(strings.TrimPrefix(s, "`"), "`")
	if !ok || !strings.HasPrefix(s, "`") {
		return "", "", fmt.Errorf("a field of a ROW without `name`: %q", s)
	}
	return name, rest, nil
}

// nested gives the canonical text of a value of a nested type: maps are sorted by the text of their keys.
func (k Kind) nested(v any) (string, error) {
	switch k.Word {
	case "ARRAY":
		list, ok := v.([]any)
		if !ok {
			return "", fmt.Errorf("an ARRAY is a %T", v)
		}
		return joinCells("[", list, "]", func(x any) (string, error) { return k.Fields[0].quoted(x) })
	case "MAP", "MULTISET":
		list, ok := v.([]any)
		if !ok {
			return "", fmt.Errorf("a %s is a %T", k.Word, v)
		}
		value := Kind{Word: "INT"}
		if k.Word == "MAP" {
			value = k.Fields[1].Kind
		}
		var pairs []any
		for _, p := range list {
			pair, ok := p.([]any)
			if !ok || len(pair) != 2 {
				return "", fmt.Errorf("an entry of a %s is no pair", k.Word)
			}
			key, err := k.Fields[0].quoted(pair[0])
			if err != nil {
				return "", err
			}
			text, err := value.quoted(pair[1])
			if err != nil {
				return "", err
			}
			pairs = append(pairs, key+":"+text)
		}
		slices.SortFunc(pairs, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		return joinCells("{", pairs, "}", func(x any) (string, error) { return x.(string), nil })
	}
	row, ok := v.(map[string]any)
	if !ok || len(row) != len(k.Fields) {
		return "", fmt.Errorf("a ROW of %d fields is a %T of %d", len(k.Fields), v, len(row))
	}
	i := -1
	return joinCells("(", make([]any, len(k.Fields)), ")", func(any) (string, error) {
		i++
		field, ok := row[k.Fields[i].Name]
		if !ok {
			return "", fmt.Errorf("a ROW has no field %q", k.Fields[i].Name)
		}
		return k.Fields[i].quoted(field)
	})
}

func joinCells(before string, list []any, after string, text func(any) (string, error)) (string, error) {
	parts := make([]string, len(list))
	for i, x := range list {
		var err error
		if parts[i], err = text(x); err != nil {
			return "", err
		}
	}
	return before + strings.Join(parts, ",") + after, nil
}

// quoted is the text of an inner value: null is told from the text "null".
func (k Kind) quoted(v any) (string, error) {
	c, err := k.Cell(v)
	if err != nil || c.Null {
		return "null", err
	}
	return fmt.Sprintf("%q", c.Text), nil
}

// json gives the type as it stands in schema files. ids numbers the fields of rows.
func (k Kind) json(ids *int) any {
	null := ""
	if k.NotNull {
		null = " NOT NULL"
	}
	switch k.Word {
	case "ARRAY", "MULTISET":
		return map[string]any{"type": k.Word + null, "element": k.Fields[0].json(ids)}
	case "MAP":
		return map[string]any{"type": k.Word + null, "key": k.Fields[0].json(ids), "value": k.Fields[1].json(ids)}
	case "ROW":
		var fields []any
		for _, f := range k.Fields {
			*ids++
			fields = append(fields, map[string]any{"id": *ids, "name": f.Name, "type": f.json(ids)})
		}
		return map[string]any{"type": k.Word + null, "fields": fields}
	}
	return k.text + null
}

// toCalve turns a value of the normal form into what calve reads: binaries are base64. The value itself stays.
func (k Kind) toCalve(v any) (any, error) {
	inner := func(i int, v any) (any, error) { return k.Fields[i].toCalve(v) }
	switch x := v.(type) {
	case string:
		if k.Word != "BINARY" && k.Word != "VARBINARY" && k.Word != "BYTES" {
			return v, nil
		}
		b, err := hex.DecodeString(x)
		return base64.StdEncoding.EncodeToString(b), err
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			var err error
			if pair, ok := e.([]any); ok && k.Word == "MAP" && len(pair) == 2 {
				key, err1 := inner(0, pair[0])
				value, err2 := inner(1, pair[1])
				out[i], err = []any{key, value}, errors.Join(err1, err2)
			} else if ok && k.Word == "MULTISET" && len(pair) == 2 {
				key, err1 := inner(0, pair[0])
				out[i], err = []any{key, pair[1]}, err1
			} else {
				out[i], err = inner(0, e)
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for _, f := range k.Fields {
			e, err := f.toCalve(x[f.Name])
			if err != nil {
				return nil, err
			}
			out[f.Name] = e
		}
		return out, nil
	}
	return v, nil
}

// fromCalve turns a value as calve prints it into the normal form: binaries are base64, TIME is the text 15:04:05.000.
func (k Kind) fromCalve(v any) any {
	switch x := v.(type) {
	case []any:
		for i := range x {
			if pair, ok := x[i].([]any); ok && (k.Word == "MAP" || k.Word == "MULTISET") && len(pair) == 2 {
				pair[0] = k.Fields[0].fromCalve(pair[0])
				if k.Word == "MAP" {
					pair[1] = k.Fields[1].fromCalve(pair[1])
				}
			} else if k.Word == "ARRAY" {
				x[i] = k.Fields[0].fromCalve(x[i])
			}
		}
	case map[string]any:
		for _, f := range k.Fields {
			if inner, ok := x[f.Name]; ok {
				x[f.Name] = f.fromCalve(inner)
			}
		}
	case string:
		switch k.Word {
		case "BINARY", "VARBINARY", "BYTES":
			if b, err := base64.StdEncoding.DecodeString(x); err == nil {
				return hex.EncodeToString(b)
			}
		case "TIME":
			if t, err := time.Parse("15:04:05.000", x); err == nil {
				return json.Number(fmt.Sprint(t.Sub(t.Truncate(24 * time.Hour)).Milliseconds()))
			}
		}
	}
	return v
}
