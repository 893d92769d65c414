package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"

	"github.com/calve-io/calve/schema"
)

// Bounds of what is inferred from one value: a record must not make a table that nobody can use.
const (
	maxInferDepth  = 32
	maxInferFields = 1000
)

// text is the type of strings whose length says nothing.
var textType = schema.Type{Root: schema.VarChar, Length: schema.MaxLength}

// Infer gives the type of a JSON value:
//
//	true, false            BOOLEAN
//	whole numbers          BIGINT, and DECIMAL(38,0) beyond its range
//	other numbers          DOUBLE
//	strings                STRING: what looks like a date may be one today and a text tomorrow
//	objects                ROW with the members whose types are known
//	arrays                 ARRAY of the type that holds all elements
//
// Null, empty objects and arrays, and what holds nothing else, have no type yet: known is false. Numbers within one value
// are brought together (BIGINT and DOUBLE are DOUBLE); anything else that does not agree is an error.
func Infer(value []byte) (t schema.Type, known bool, err error) {
	in := inference{dec: json.NewDecoder(bytes.NewReader(value))}
	in.dec.UseNumber()
	if t, known, err = in.value(0); err != nil {
		return t, false, err
	}
	if _, err := in.dec.Token(); !errors.Is(err, io.EOF) {
		return t, false, errors.New("more text after the value")
	}
	return t, known, nil
}

// inference reads one value token by token.
type inference struct {
	dec    *json.Decoder
	fields int
}

func (in *inference) value(depth int) (schema.Type, bool, error) {
	if depth > maxInferDepth {
		return schema.Type{}, false, fmt.Errorf("has more than %d levels; declare the column to take it as it is", maxInferDepth)
	}
	tok, err := in.dec.Token()
	if err != nil {
		return schema.Type{}, false, fmt.Errorf("malformed JSON: %w", err)
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '[' {
			return in.list(depth)
		}
		return in.object(depth)
	case bool:
		return schema.Type{Root: schema.Boolean}, true, nil
	case string:
		return textType, true, nil
	case json.Number:
		t, err := inferNumber(v.String())
		return t, err == nil, err
	}
	return schema.Type{}, false, nil // null
}

// inferNumber gives the type of a number as it is written.
func inferNumber(text string) (schema.Type, error) {
	if strings.ContainsAny(text, ".eE") {
		return schema.Type{Root: schema.Double}, nil
	}
	v, ok := new(big.Int).SetString(text, 10)
	switch {
	case !ok:
		return schema.Type{}, fmt.Errorf("%.40q is no number", text)
	case v.IsInt64():
		return schema.Type{Root: schema.BigInt}, nil
	case len(strings.TrimPrefix(text, "-")) <= 38:
		return schema.Type{Root: schema.Decimal, Precision: 38}, nil
	}
	return schema.Type{}, fmt.Errorf("%.40q… has more digits than a DECIMAL holds", text)
}

func (in *inference) list(depth int) (schema.Type, bool, error) {
	var element schema.Type
	var known bool
	for in.dec.More() {
		t, ok, err := in.value(depth + 1)
		if err != nil {
			return schema.Type{}, false, err
		}
		if !ok {
			continue
		}
		if known {
			if t, err = joinTypes(element, t); err != nil {
				return schema.Type{}, false, fmt.Errorf("elements of an array: %w", err)
			}
		}
		element, known = t, true
	}
	if _, err := in.dec.Token(); err != nil {
		return schema.Type{}, false, fmt.Errorf("malformed JSON: %w", err)
	}
	if !known {
		return schema.Type{}, false, nil
	}
	return schema.Type{Root: schema.Array, Element: &element}, true, nil
}

func (in *inference) object(depth int) (schema.Type, bool, error) {
	t := schema.Type{Root: schema.Row}
	for in.dec.More() {
		tok, err := in.dec.Token()
		if err != nil {
			return t, false, fmt.Errorf("malformed JSON: %w", err)
		}
		name, _ := tok.(string)
		if in.fields++; in.fields > maxInferFields {
			return t, false, fmt.Errorf("has more than %d members; declare the column to take it as it is", maxInferFields)
		}
		kid, ok, err := in.value(depth + 1)
		if err != nil {
			return t, false, fmt.Errorf("%s: %w", name, err)
		}
		if !ok {
			continue
		}
		if err := clash(t.Fields, name); err != nil {
			return t, false, err
		}
		t.Fields = append(t.Fields, schema.Field{Name: name, Type: kid})
	}
	if _, err := in.dec.Token(); err != nil {
		return t, false, fmt.Errorf("malformed JSON: %w", err)
	}
	return t, len(t.Fields) > 0, nil
}

// clash refuses a name that engines which do not tell upper from lower case could not tell from another.
func clash(fields []schema.Field, name string) error {
	for i := range fields {
		if strings.EqualFold(fields[i].Name, name) {
			if fields[i].Name == name {
				return fmt.Errorf("the field %q occurs twice", name)
			}
			return fmt.Errorf("the field %q differs from %q in case alone, which most engines do not tell apart", name, fields[i].Name)
		}
	}
	return nil
}

// joinTypes gives the type that holds the values of both.
func joinTypes(a, b schema.Type) (schema.Type, error) {
	if a.Equal(b) {
		return a, nil
	}
	switch {
	case isNumber(a) && isNumber(b):
		if a.Root == schema.Double || b.Root == schema.Double {
			return schema.Type{Root: schema.Double}, nil
		}
		return schema.Type{Root: schema.Decimal, Precision: 38}, nil
	case a.Root == schema.Array && b.Root == schema.Array:
		e, err := joinTypes(*a.Element, *b.Element)
		return schema.Type{Root: schema.Array, Element: &e}, err
	case a.Root == schema.Row && b.Root == schema.Row:
		return joinRows(a, b)
	}
	return a, fmt.Errorf("values of types %s and %s have no type in common", a, b)
}

func isNumber(t schema.Type) bool {
	return t.Root == schema.BigInt || t.Root == schema.Decimal || t.Root == schema.Double
}

// joinRows gives a ROW with the fields of both, in the order in which they came.
func joinRows(a, b schema.Type) (schema.Type, error) {
	out := schema.Type{Root: schema.Row, Fields: append([]schema.Field(nil), a.Fields...)}
next:
	for _, f := range b.Fields {
		for i := range out.Fields {
			if out.Fields[i].Name == f.Name {
				t, err := joinTypes(out.Fields[i].Type, f.Type)
				if err != nil {
					return a, fmt.Errorf("%s: %w", f.Name, err)
				}
				out.Fields[i].Type = t
				continue next
			}
		}
		if err := clash(out.Fields, f.Name); err != nil {
			return a, err
		}
		out.Fields = append(out.Fields, f)
	}
	return out, nil
}
