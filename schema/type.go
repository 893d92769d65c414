package schema

import (
	"fmt"
	"slices"
	"strings"
)

// word is how Paimon spells a root in type strings and in the "type" key of constructed types.
var word = [...]string{
	Invalid: "INVALID", Boolean: "BOOLEAN", TinyInt: "TINYINT", SmallInt: "SMALLINT", Int: "INT", BigInt: "BIGINT",
	Float: "FLOAT", Double: "DOUBLE", Decimal: "DECIMAL", Char: "CHAR", VarChar: "VARCHAR", Binary: "BINARY",
	VarBinary: "VARBINARY", Date: "DATE", Time: "TIME", Timestamp: "TIMESTAMP", TimestampLTZ: "TIMESTAMP_LTZ",
	Variant: "VARIANT", Array: "ARRAY", Multiset: "MULTISET", Map: "MAP", Row: "ROW",
}

// String gives the SQL word of the root, e.g. "BIGINT".
func (r Root) String() string {
	if int(r) < len(word) {
		return word[r]
	}
	return word[Invalid]
}

// String writes the type as Paimon does (`DataType.asSQLString`): "DECIMAL(10, 2) NOT NULL", "STRING".
func (t Type) String() string {
	var b strings.Builder
	switch t.Root {
	case VarChar, VarBinary:
		switch {
		case t.Length != MaxLength:
			fmt.Fprintf(&b, "%s(%d)", t.Root, t.Length)
		case t.Root == VarChar:
			b.WriteString("STRING")
		default:
			b.WriteString("BYTES")
		}
	case Char, Binary:
		fmt.Fprintf(&b, "%s(%d)", t.Root, t.Length)
	case Decimal:
		fmt.Fprintf(&b, "DECIMAL(%d, %d)", t.Precision, t.Scale)
	case Time, Timestamp:
		fmt.Fprintf(&b, "%s(%d)", t.Root, t.Precision)
	case TimestampLTZ:
		fmt.Fprintf(&b, "TIMESTAMP(%d) WITH LOCAL TIME ZONE", t.Precision)
	case Array, Multiset, Map, Row:
		t.writeConstructed(&b)
	default:
		b.WriteString(t.Root.String())
	}
	if t.NotNull {
		b.WriteString(" NOT NULL")
	}
	return b.String()
}

func (t Type) writeConstructed(b *strings.Builder) {
	b.WriteString(t.Root.String())
	b.WriteByte('<')
	if t.Key != nil {
		b.WriteString(t.Key.String() + ", ")
	}
	if t.Element != nil {
		b.WriteString(t.Element.String())
	}
	for i, f := range t.Fields {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "`%s` %s", f.Name, f.Type)
	}
	b.WriteByte('>')
}

// Primitive reports whether values of the type are single values: not ARRAY, MULTISET, MAP, ROW or VARIANT.
// Only such columns can be keys.
func (t Type) Primitive() bool { return t.Root > Invalid && t.Root < Variant }

// Equal reports whether both types are the same, nullability and nested fields included.
func (t Type) Equal(o Type) bool {
	return t.Root == o.Root && t.Length == o.Length && t.Precision == o.Precision && t.Scale == o.Scale &&
		t.NotNull == o.NotNull && equalPtr(t.Element, o.Element) && equalPtr(t.Key, o.Key) &&
		slices.EqualFunc(t.Fields, o.Fields, func(a, b Field) bool {
			return a.ID == b.ID && a.Name == b.Name && a.Type.Equal(b.Type)
		})
}

// SameValues reports whether the types are the same but for nullability, so that values need no cast. Members of ROWs are
// matched by id.
func (t Type) SameValues(o Type) bool {
	if t.Root != o.Root || t.Length != o.Length || t.Precision != o.Precision || t.Scale != o.Scale ||
		(t.Element == nil) != (o.Element == nil) || (t.Key == nil) != (o.Key == nil) {
		return false
	}
	if t.Element != nil && !t.Element.SameValues(*o.Element) || t.Key != nil && !t.Key.SameValues(*o.Key) {
		return false
	}
	for _, f := range o.Fields {
		for _, g := range t.Fields {
			if f.ID == g.ID && !g.Type.SameValues(f.Type) {
				return false
			}
		}
	}
	return true
}

func equalPtr(a, b *Type) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
