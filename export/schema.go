package export

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/calve-io/calve/schema"
)

// icebergType gives the Iceberg v2 type that reads a primitive Paimon column's Parquet form as it is
// (paimon-format §8.2, §17; Iceberg spec, "Parquet" and "Primitive Types").
func icebergType(t schema.Type) (iceberg.Type, error) {
	switch t.Root {
	case schema.Boolean:
		return iceberg.PrimitiveTypes.Bool, nil
	case schema.TinyInt, schema.SmallInt, schema.Int:
		return iceberg.PrimitiveTypes.Int32, nil
	case schema.BigInt:
		return iceberg.PrimitiveTypes.Int64, nil
	case schema.Float:
		return iceberg.PrimitiveTypes.Float32, nil
	case schema.Double:
		return iceberg.PrimitiveTypes.Float64, nil
	case schema.Decimal:
		return iceberg.DecimalTypeOf(t.Precision, t.Scale), nil
	case schema.Char, schema.VarChar:
		return iceberg.PrimitiveTypes.String, nil
	case schema.Binary, schema.VarBinary:
		return iceberg.PrimitiveTypes.Binary, nil
	case schema.Date:
		return iceberg.PrimitiveTypes.Date, nil
	case schema.Timestamp, schema.TimestampLTZ:
		return icebergTimestamp(t)
	case schema.Time:
		return nil, fmt.Errorf("%w: type %s: Paimon stores a time of day in milliseconds and Iceberg reads microseconds; "+
			"use INT (milliseconds of the day) or STRING instead", ErrUnsupported, t)
	}
	return nil, fmt.Errorf("%w: type %s has no Iceberg v2 form", ErrUnsupported, t)
}

// icebergNested is icebergType for every type: nested ones have the ids of their Parquet form. fieldID is that of the nearest
// field around, depth how many collections lie between.
func icebergNested(t schema.Type, fieldID, depth int) (iceberg.Type, error) {
	inside := func(what string, t schema.Type) (iceberg.Type, error) {
		out, err := icebergNested(t, fieldID, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		return out, nil
	}
	up, down := schema.ElementID(fieldID, depth+1), schema.KeyID(fieldID, depth+1)
	if t.Root >= schema.Array && (up > math.MaxInt32 || down <= 0) {
		return nil, fmt.Errorf("%w: type %s: the ids inside of field id %d are beyond what Iceberg can hold", ErrUnsupported, t, fieldID)
	}
	switch t.Root {
	case schema.Array:
		e, err := inside("element", *t.Element)
		if err != nil {
			return nil, err
		}
		return &iceberg.ListType{ElementID: up, Element: e, ElementRequired: t.Element.NotNull}, nil
	case schema.Map, schema.Multiset:
		key, item := t.Key, t.Element
		if t.Root == schema.Multiset { // a map from the element to how often it occurs
			key, item = t.Element, &schema.Type{Root: schema.Int, NotNull: true}
		}
		k, err := inside("key", *key)
		if err != nil {
			return nil, err
		}
		v, err := inside("value", *item)
		if err != nil {
			return nil, err
		}
		return &iceberg.MapType{KeyID: down, KeyType: k, ValueID: up, ValueType: v, ValueRequired: item.NotNull}, nil
	case schema.Row:
		out := &iceberg.StructType{}
		for _, f := range t.Fields {
			x, err := icebergNested(f.Type, f.ID, 0)
			if err != nil {
				return nil, fmt.Errorf("field %q: %w", f.Name, err)
			}
			out.FieldList = append(out.FieldList, iceberg.NestedField{ID: f.ID, Name: f.Name, Type: x, Required: f.Type.NotNull, Doc: f.Description})
		}
		return out, nil
	}
	return icebergType(t)
}

// icebergTimestamp accepts the precisions that Paimon stores as microseconds, Iceberg v2's only unit.
func icebergTimestamp(t schema.Type) (iceberg.Type, error) {
	if t.Precision <= 3 {
		return nil, fmt.Errorf("%w: type %s: Paimon stores milliseconds for precisions up to 3 and Iceberg reads microseconds; "+
			"use precision 4, 5 or 6 (the default is 6)", ErrUnsupported, t)
	}
	if t.Precision > 6 {
		return nil, fmt.Errorf("%w: type %s: Iceberg v2 has no timestamps finer than microseconds; use precision 4, 5 or 6",
			ErrUnsupported, t)
	}
	if t.Root == schema.TimestampLTZ {
		return iceberg.PrimitiveTypes.TimestampTz, nil
	}
	return iceberg.PrimitiveTypes.Timestamp, nil
}

// icebergSchema converts one version of a table's schema. Field ids and the schema id are the table's own.
func icebergSchema(s *schema.Schema) (*iceberg.Schema, error) {
	fields := make([]iceberg.NestedField, len(s.Fields))
	for i, f := range s.Fields {
		t, err := icebergNested(f.Type, f.ID, 0)
		if err != nil {
			return nil, fmt.Errorf("column %q of schema %d cannot be exported: %w", f.Name, s.ID, err)
		}
		if f.ID < 0 {
			return nil, fmt.Errorf("column %q of schema %d has field id %d: %w", f.Name, s.ID, f.ID, ErrUnsupported)
		}
		fields[i] = iceberg.NestedField{ID: f.ID, Name: f.Name, Type: t, Required: f.Type.NotNull, Doc: f.Description}
	}
	return iceberg.NewSchema(int(s.ID), fields...), nil
}

// checkTable refuses tables whose files on their own do not give the table's rows.
func checkTable(s *schema.Schema, opt schema.Options) error {
	if opt.DeletionVectors {
		return fmt.Errorf("%w: the table has deletion vectors: its data files hold rows that are deleted", ErrUnsupported)
	}
	if name := "data-evolution.enabled"; strings.EqualFold(strings.TrimSpace(s.Options[name]), "true") {
		return fmt.Errorf("%w: table option %q: a row may be spread over several files", ErrUnsupported, name)
	}
	for _, i := range s.PartitionColumns() {
		if f := s.Fields[i]; f.ID == 0 {
			return fmt.Errorf("%w: the partition column %q has field id 0, which Iceberg readers refuse as the source of a partition; "+
				"tables created by calve number their columns from 1: create the table anew through calve and copy the rows",
				ErrUnsupported, f.Name)
		}
	}
	return nil
}

// firstPartitionID is the id of the first partition field (Iceberg spec, "Partition Specs").
const firstPartitionID = iceberg.PartitionDataIDStart

// partitionSpec is the table's one and only partition spec: identity of each partition key, in their order.
func partitionSpec(s *schema.Schema) iceberg.PartitionSpec {
	var fields []iceberg.PartitionField
	taken := map[string]bool{}
	for _, f := range s.Fields {
		taken[f.Name] = true
	}
	for n, i := range s.PartitionColumns() {
		f := s.Fields[i]
		fields = append(fields, iceberg.PartitionField{
			SourceIDs: []int{f.ID}, FieldID: firstPartitionID + n, Name: partitionName(f.Name, taken), Transform: iceberg.IdentityTransform{},
		})
	}
	return iceberg.NewPartitionSpecID(0, fields...)
}

// partitionName is the column's name if Avro allows it as a field name, since the name goes into the schema of the
// manifests. Otherwise it is escaped the way Iceberg's Java library escapes such names (AvroSchemaUtil), and made
// different from every column of another id, which Iceberg demands.
func partitionName(column string, taken map[string]bool) string {
	var b strings.Builder
	for i, r := range column {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9'
		switch {
		case letter || digit && i > 0:
			b.WriteRune(r)
		case digit:
			b.WriteString("_" + string(r))
		default:
			b.WriteString("_x" + strings.ToUpper(strconv.FormatInt(int64(r), 16)))
		}
	}
	name := b.String()
	if name == column {
		return name
	}
	for taken[name] {
		name += "_"
	}
	taken[name] = true
	return name
}

// promotable says whether Iceberg readers read a column of the old type as the new one (Iceberg spec, "Schema
// Evolution"). Paimon allows more: it casts while reading.
func promotable(old, now iceberg.Type) bool {
	if old.Equals(now) {
		return true
	}
	switch o := old.(type) {
	case iceberg.Int32Type:
		return now.Equals(iceberg.PrimitiveTypes.Int64)
	case iceberg.Float32Type:
		return now.Equals(iceberg.PrimitiveTypes.Float64)
	case iceberg.DecimalType:
		n, ok := now.(iceberg.DecimalType)
		return ok && n.Scale() == o.Scale() && n.Precision() >= o.Precision()
	case *iceberg.ListType:
		n, ok := now.(*iceberg.ListType)
		return ok && n.ElementID == o.ElementID && promotable(o.Element, n.Element)
	case *iceberg.MapType:
		n, ok := now.(*iceberg.MapType)
		return ok && n.KeyID == o.KeyID && promotable(o.KeyType, n.KeyType) && promotable(o.ValueType, n.ValueType)
	case *iceberg.StructType:
		n, ok := now.(*iceberg.StructType)
		return ok && promotableFields(o.FieldList, n.FieldList)
	}
	return false
}

// promotableFields compares the fields that both structs have, by id. Fields that were added later must be optional.
func promotableFields(old, now []iceberg.NestedField) bool {
	for _, n := range now {
		at := slices.IndexFunc(old, func(o iceberg.NestedField) bool { return o.ID == n.ID })
		if at < 0 && n.Required || at >= 0 && !promotable(old[at].Type, n.Type) {
			return false
		}
	}
	return true
}

// checkEvolution refuses a schema under which files of an older schema would be misread.
func checkEvolution(file, current *schema.Schema) error {
	for _, f := range current.Fields {
		i, ok := file.FieldByID(f.ID)
		if !ok {
			continue
		}
		old, err := icebergNested(file.Fields[i].Type, f.ID, 0)
		if err != nil {
			return fmt.Errorf("column %q had type %s in schema %d, which exported files still use: %w",
				f.Name, file.Fields[i].Type, file.ID, err)
		}
		now, err := icebergNested(f.Type, f.ID, 0)
		if err != nil {
			return fmt.Errorf("column %q of schema %d: %w", f.Name, current.ID, err)
		}
		if !promotable(old, now) {
			return fmt.Errorf("%w: column %q changed from %s (schema %d) to %s (schema %d) and exported files still have the old type, "+
				"which Iceberg readers cannot read as the new one; a full compaction (calve compact --full) rewrites the files of a table with primary key",
				ErrUnsupported, f.Name, file.Fields[i].Type, file.ID, f.Type, current.ID)
		}
	}
	return nil
}

// nameMapping maps column names to field ids for data files that carry no ids (some foreign Paimon writers leave them
// out). Without it Iceberg's Java reader would count columns by position, and key-value files start with key columns.
// Every name a column ever had is listed unless a later schema gave it to another column.
func nameMapping(versions []*schema.Schema) iceberg.NameMapping {
	owner := map[string]int{}
	names := map[int][]string{}
	types := map[int]schema.Type{}
	var ids []int
	for v := len(versions) - 1; v >= 0; v-- {
		for _, f := range versions[v].Fields {
			if id, taken := owner[f.Name]; taken {
				if id != f.ID {
					continue
				}
			} else {
				owner[f.Name] = f.ID
				names[f.ID] = append(names[f.ID], f.Name)
			}
			if v == len(versions)-1 {
				ids = append(ids, f.ID)
				types[f.ID] = f.Type
			}
		}
	}
	sort.Ints(ids)
	out := make(iceberg.NameMapping, len(ids))
	for i, id := range ids {
		id := id
		out[i] = iceberg.MappedField{FieldID: &id, Names: names[id], Fields: mappedInside(types[id], id, 0)}
	}
	return out
}

// mappedInside names what is inside of a nested type, as it is now.
func mappedInside(t schema.Type, fieldID, depth int) []iceberg.MappedField {
	part := func(name string, id int, t schema.Type) iceberg.MappedField {
		return iceberg.MappedField{FieldID: &id, Names: []string{name}, Fields: mappedInside(t, fieldID, depth+1)}
	}
	up, down := schema.ElementID(fieldID, depth+1), schema.KeyID(fieldID, depth+1)
	switch t.Root {
	case schema.Array:
		return []iceberg.MappedField{part("element", up, *t.Element)}
	case schema.Map:
		return []iceberg.MappedField{part("key", down, *t.Key), part("value", up, *t.Element)}
	case schema.Multiset:
		return []iceberg.MappedField{part("key", down, *t.Element), part("value", up, schema.Type{Root: schema.Int})}
	}
	var out []iceberg.MappedField
	for _, f := range t.Fields {
		id := f.ID
		out = append(out, iceberg.MappedField{FieldID: &id, Names: []string{f.Name}, Fields: mappedInside(f.Type, id, 0)})
	}
	return out
}
