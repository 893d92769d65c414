package datafile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	pqschema "github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/calve-io/calve/schema"
)

// Names and field ids of the columns that key-value files have before the table's own columns
// (`org.apache.paimon.table.SpecialFields`).
const (
	KeyPrefix  = "_KEY_"
	SeqColumn  = "_SEQUENCE_NUMBER"
	KindColumn = "_VALUE_KIND"

	keyIDStart = 1<<30 - 1 // Integer.MAX_VALUE / 2
	seqID      = 1<<31 - 2
	kindID     = 1<<31 - 3
)

// rootName is the name of the Parquet message (`ParquetSchemaConverter.PAIMON_SCHEMA`).
const rootName = "paimon_schema"

// Sources of a file's columns that are not columns of the table.
const (
	fromSeq  = -1
	fromKind = -2
)

// fileColumn is one Parquet column of a file to be written.
type fileColumn struct {
	name string
	id   int32
	typ  schema.Type
	from int // index into the table's columns, fromSeq or fromKind
}

// fileColumns gives the columns of a file in file order: keys, sequence number, kind, then the table's columns.
func fileColumns(s *schema.Schema, keyed, thin bool) []fileColumn {
	out := make([]fileColumn, 0, 2*len(s.Fields)+2)
	if keyed {
		if !thin {
			for _, i := range s.KeyColumns() {
				f := s.Fields[i]
				f.Type.NotNull = true
				out = append(out, fileColumn{name: KeyPrefix + f.Name, id: keyIDStart + int32(f.ID), typ: f.Type, from: i})
			}
		}
		out = append(out,
			fileColumn{name: SeqColumn, id: seqID, typ: schema.Type{Root: schema.BigInt, NotNull: true}, from: fromSeq},
			fileColumn{name: KindColumn, id: kindID, typ: schema.Type{Root: schema.TinyInt, NotNull: true}, from: fromKind})
	}
	for i, f := range s.Fields {
		out = append(out, fileColumn{name: f.Name, id: int32(f.ID), typ: f.Type, from: i})
	}
	return out
}

// parquetRoot builds the Parquet schema of a file.
func parquetRoot(cols []fileColumn) (*pqschema.GroupNode, error) {
	nodes := make(pqschema.FieldList, len(cols))
	for i, c := range cols {
		n, err := parquetNode(c)
		if err != nil {
			return nil, fmt.Errorf("column %q of type %s: %w", c.name, c.typ, err)
		}
		nodes[i] = n
	}
	return pqschema.NewGroupNode(rootName, parquet.Repetitions.Required, nodes, -1)
}

// parquetNode maps one column as Paimon's writer does (`ParquetSchemaConverter`). TIME is adjusted to UTC although the
// type has no zone; TIMESTAMP is not.
func parquetNode(c fileColumn) (pqschema.Node, error) {
	t := c.typ
	rep := parquet.Repetitions.Optional
	if t.NotNull {
		rep = parquet.Repetitions.Required
	}
	var (
		logical pqschema.LogicalType = pqschema.NoLogicalType{}
		phys    parquet.Type
		length  = -1
	)
	switch t.Root {
	case schema.Boolean:
		phys = parquet.Types.Boolean
	case schema.TinyInt:
		phys, logical = parquet.Types.Int32, pqschema.NewIntLogicalType(8, true)
	case schema.SmallInt:
		phys, logical = parquet.Types.Int32, pqschema.NewIntLogicalType(16, true)
	case schema.Int:
		phys = parquet.Types.Int32
	case schema.BigInt:
		phys = parquet.Types.Int64
	case schema.Float:
		phys = parquet.Types.Float
	case schema.Double:
		phys = parquet.Types.Double
	case schema.Decimal:
		logical = pqschema.NewDecimalLogicalType(int32(t.Precision), int32(t.Scale))
		switch decimalWidth(t.Precision) {
		case 4:
			phys = parquet.Types.Int32
		case 8:
			phys = parquet.Types.Int64
		default:
			phys, length = parquet.Types.FixedLenByteArray, fixedBytes(t.Precision)
		}
	case schema.Char, schema.VarChar:
		phys, logical = parquet.Types.ByteArray, pqschema.StringLogicalType{}
	case schema.Binary, schema.VarBinary:
		phys = parquet.Types.ByteArray
	case schema.Date:
		phys, logical = parquet.Types.Int32, pqschema.DateLogicalType{}
	case schema.Time:
		phys, logical = parquet.Types.Int32, pqschema.NewTimeLogicalType(true, pqschema.TimeUnitMillis)
	case schema.Timestamp, schema.TimestampLTZ:
		if t.Precision > 6 {
			return nil, fmt.Errorf("timestamps of precision above 6 cannot be written (Paimon stores them as INT96)")
		}
		unit := pqschema.TimeUnitMicros
		if t.Precision <= 3 {
			unit = pqschema.TimeUnitMillis
		}
		phys, logical = parquet.Types.Int64, pqschema.NewTimestampLogicalType(t.Root == schema.TimestampLTZ, unit)
	default:
		return nil, fmt.Errorf("only single values can be written")
	}
	return pqschema.NewPrimitiveNodeLogical(c.name, rep, logical, phys, length, c.id)
}

// decimalWidth is the width of a decimal's Parquet form: 4 (int32), 8 (int64) or 16 for a byte array of fixedBytes.
func decimalWidth(precision int) int {
	switch {
	case precision <= 9:
		return 4
	case precision <= 18:
		return 8
	}
	return 16
}

// fixedBytes is the least number of bytes that hold every decimal of a precision in two's complement
// (`ParquetSchemaConverter.computeMinBytesForDecimalPrecision`): 19 needs 9, 38 needs 16.
func fixedBytes(precision int) int {
	return fixedBytesTable[min(max(precision, 1), len(fixedBytesTable)-1)]
}

var fixedBytesTable = [39]int{
	0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 9,
	9, 9, 10, 10, 11, 11, 11, 12, 12, 13, 13, 13, 14, 14, 15, 15, 16, 16, 16,
}
