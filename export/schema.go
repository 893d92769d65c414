package export

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/calve-io/calve/schema"
)

// icebergType gives the Iceberg v2 type that reads a Paimon column's Parquet form as it is
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
		t, err := icebergType(f.Type)
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
	for _, name := range []string{"row-tracking.enabled", "data-evolution.enabled"} {
		if strings.EqualFold(strings.TrimSpace(s.Options[name]), "true") {
			return fmt.Errorf("%w: table option %q: a row may be spread over several files", ErrUnsupported, name)
		}
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
	}
	return false
}

// checkEvolution refuses a schema under which files of an older schema would be misread.
func checkEvolution(file, current *schema.Schema) error {
	for _, f := range current.Fields {
		i, ok := file.FieldByID(f.ID)
		if !ok {
			continue
		}
		old, err := icebergType(file.Fields[i].Type)
		if err != nil {
			return fmt.Errorf("column %q had type %s in schema %d, which exported files still use: %w",
				f.Name, file.Fields[i].Type, file.ID, err)
		}
		now, err := icebergType(f.Type)
		if err != nil {
			return fmt.Errorf("column %q of schema %d: %w", f.Name, current.ID, err)
		}
		if !promotable(old, now) {
			return fmt.Errorf("%w: column %q changed from %s (schema %d) to %s (schema %d) and exported files still have the old type, "+
				"which Iceberg readers cannot read as the new one; a full compaction rewrites the files",
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
			}
		}
	}
	sort.Ints(ids)
	out := make(iceberg.NameMapping, len(ids))
	for i, id := range ids {
		id := id
		out[i] = iceberg.MappedField{FieldID: &id, Names: names[id]}
	}
	return out
}
