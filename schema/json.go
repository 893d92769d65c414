package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Limits on schema files. Real ones have a few kilobytes.
const (
	maxSchemaFile  = 64 << 20
	maxSchemaDepth = 256 // nested brackets; a ROW in a ROW takes three
	maxVersion     = 3   // `TableSchema.CURRENT_VERSION` of Paimon 1.3 and 2.0
)

// constructed is the JSON form of ARRAY, MULTISET, MAP and ROW (`types.DataTypeJsonParser`).
type constructed struct {
	Type    string   `json:"type"`
	Element *Type    `json:"element,omitempty"`
	Key     *Type    `json:"key,omitempty"`
	Value   *Type    `json:"value,omitempty"`
	Fields  *[]Field `json:"fields,omitempty"`
}

// MarshalJSON writes a string for primitive types and an object for constructed ones.
func (t Type) MarshalJSON() ([]byte, error) {
	c := constructed{Type: t.Root.String()}
	if t.NotNull {
		c.Type += " NOT NULL"
	}
	switch t.Root {
	case Invalid:
		return nil, errors.New("the zero schema.Type has no JSON form")
	case Array, Multiset:
		c.Element = t.Element
	case Map:
		c.Key, c.Value = t.Key, t.Element
	case Row:
		fields := t.Fields
		if fields == nil {
			fields = []Field{}
		}
		c.Fields = &fields
	default:
		return json.Marshal(t.String())
	}
	return json.Marshal(c)
}

// UnmarshalJSON reads either form.
func (t *Type) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '{' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return fmt.Errorf("a type is a string or an object: %w", err)
		}
		parsed, err := ParseType(s)
		*t = parsed
		return err
	}
	var c constructed
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	name, notNull := strings.CutSuffix(c.Type, " NOT NULL")
	*t = Type{NotNull: notNull}
	switch name {
	case "ARRAY", "MULTISET":
		if c.Element == nil {
			return fmt.Errorf("type %s has no \"element\"", name)
		}
		t.Root, t.Element = Array, c.Element
		if name == "MULTISET" {
			t.Root = Multiset
		}
	case "MAP":
		if c.Key == nil || c.Value == nil {
			return errors.New("type MAP needs \"key\" and \"value\"")
		}
		t.Root, t.Key, t.Element = Map, c.Key, c.Value
	case "ROW":
		if c.Fields == nil {
			return errors.New("type ROW has no \"fields\"")
		}
		t.Root, t.Fields = Row, *c.Fields
	default:
		return fmt.Errorf("unknown constructed type %q; known are ARRAY, MULTISET, MAP and ROW", c.Type)
	}
	return nil
}

// plain is Schema without its methods.
type plain Schema

// MarshalJSON writes the schema in Paimon's form and key order (`schema.SchemaSerializer`).
func (s *Schema) MarshalJSON() ([]byte, error) {
	p := plain(*s)
	// Paimon's reader wants arrays and an object, never null.
	if p.Fields == nil {
		p.Fields = []Field{}
	}
	if p.PartitionKeys == nil {
		p.PartitionKeys = []string{}
	}
	if p.PrimaryKeys == nil {
		p.PrimaryKeys = []string{}
	}
	if p.Options == nil {
		p.Options = map[string]string{}
	}
	return json.Marshal(p)
}

// UnmarshalJSON reads a schema and validates it; see Parse.
func (s *Schema) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data)
	if err != nil {
		return err
	}
	*s = *parsed
	return nil
}

// Parse reads the content of a file `schema/schema-N` and validates it. Unknown keys are ignored, as Paimon does.
// A missing version means a table of Paimon 0.7 or older.
func Parse(data []byte) (*Schema, error) {
	if len(data) > maxSchemaFile {
		return nil, fmt.Errorf("schema has %d bytes: at most %d are allowed", len(data), maxSchemaFile)
	}
	if at, deep := tooDeep(data); deep {
		return nil, fmt.Errorf("schema nests deeper than %d brackets at offset %d", maxSchemaDepth, at)
	}
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			return nil, fmt.Errorf("schema is not JSON at offset %d: %w", syn.Offset, err)
		}
		return nil, fmt.Errorf("schema: %w", err)
	}
	if p.Version == 0 {
		p.Version = 1
	}
	s := Schema(p)
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("schema %d: %w", s.ID, err)
	}
	return &s, nil
}

// Encode writes the content of a schema file: indented JSON with the keys in Paimon's order, options sorted.
func (s *Schema) Encode() ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode schema %d: %w", s.ID, err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("encode schema %d: %w", s.ID, err)
	}
	return out.Bytes(), nil
}

// tooDeep says where brackets nest too deep. Types are decoded one level at a time, each reading its whole text
// again, so without this bound a hostile file could cost the square of its size.
func tooDeep(data []byte) (int, bool) {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > maxSchemaDepth {
				return i, true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return 0, false
}
