package datafile

import (
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

// fileColumn is one Parquet column of a file to be written: a leaf of the file's schema.
type fileColumn struct {
	name string // for messages
	path []string
	id   int32
	typ  schema.Type
	from int         // index into the table's columns, fromSeq or fromKind
	top  schema.Type // of that column

	// Of a leaf inside a nested type: the way there. Levels are as in leaf.
	steps          []step
	maxDef, maxRep uint8
}

// nested reports whether the column is a part of a nested type.
func (c *fileColumn) nested() bool { return !c.top.Primitive() }

// fileParts gives the top-level fields of a file in file order: keys, sequence number, kind, then the table's columns.
func fileParts(s *schema.Schema, keyed, thin bool) (parts []part, from []int) {
	add := func(name string, id int32, t schema.Type, source int) {
		parts, from = append(parts, newPart(name, id, id, 0, t)), append(from, source)
	}
	if keyed {
		if !thin {
			for _, i := range s.KeyColumns() {
				f := s.Fields[i]
				f.Type.NotNull = true
				add(KeyPrefix+f.Name, keyIDStart+int32(f.ID), f.Type, i)
			}
		}
		add(SeqColumn, seqID, schema.Type{Root: schema.BigInt, NotNull: true}, fromSeq)
		add(KindColumn, kindID, schema.Type{Root: schema.TinyInt, NotNull: true}, fromKind)
	}
	for i, f := range s.Fields {
		add(f.Name, int32(f.ID), f.Type, i)
	}
	return parts, from
}

// fileColumns gives the leaves of a file.
func fileColumns(parts []part, from []int) (out []fileColumn, err error) {
	for i := range parts {
		if out, err = parts[i].leaves(out, from[i], parts[i].typ, nil, nil, 0, 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parquetType is a physical type of parquet.thrift.
type parquetType = int32

// physicalOf maps a type as Paimon's writer does (`ParquetSchemaConverter`): the physical type and the bytes of a
// value (0 for text).
func physicalOf(t schema.Type) (parquetType, int) {
	switch t.Root {
	case schema.Boolean:
		return typeBoolean, 0
	case schema.Float:
		return typeFloat, 4
	case schema.Double:
		return typeDouble, 8
	case schema.Timestamp, schema.TimestampLTZ:
		if t.Precision > 6 {
			return typeInt96, 12
		}
		return typeInt64, 8
	case schema.BigInt:
		return typeInt64, 8
	case schema.Decimal:
		switch decimalWidth(t.Precision) {
		case 4:
			return typeInt32, 4
		case 8:
			return typeInt64, 8
		}
		return typeFixedBytes, fixedBytes(t.Precision)
	case schema.Char, schema.VarChar, schema.Binary, schema.VarBinary:
		return typeByteArray, 0
	}
	return typeInt32, 4 // TINYINT, SMALLINT, INT, DATE, TIME
}

// Annotations of parquet.thrift: members of LogicalType, and what they were called before (ConvertedType).
const (
	logicalString, convertedUTF8           = 1, 0
	logicalMap, convertedMap               = 2, 1
	convertedMapKeyValue                   = 2
	logicalList, convertedList             = 3, 3
	logicalDecimal, convertedDecimal       = 5, 5
	logicalDate, convertedDate             = 6, 6
	logicalTime, convertedTimeMillis       = 7, 7
	logicalTimestamp, convertedStampMillis = 8, 9
	logicalInt, convertedInt8              = 10, 15
)

// writeElement appends the SchemaElement of a leaf. TIME is adjusted to UTC although the type has no zone; TIMESTAMP is
// not, and has no converted type then.
func writeElement(t *thriftWriter, name string, fieldID int32, typ schema.Type) {
	phys, width := physicalOf(typ)
	t.element()
	t.i32(1, phys)
	if phys == typeFixedBytes {
		t.i32(2, int32(width))
	}
	rep := int32(repOptional)
	if typ.NotNull {
		rep = repRequired
	}
	t.i32(3, rep)
	t.text(4, name)
	var logical func()
	member := int16(0)
	switch typ.Root {
	case schema.TinyInt, schema.SmallInt:
		bits, conv := int8(8), int32(convertedInt8)
		if typ.Root == schema.SmallInt {
			bits, conv = 16, convertedInt8+1
		}
		t.i32(6, conv)
		member, logical = logicalInt, func() { t.i8(1, bits); t.bool(2, true) }
	case schema.Decimal:
		t.i32(6, convertedDecimal)
		t.i32(7, int32(typ.Scale))
		t.i32(8, int32(typ.Precision))
		member, logical = logicalDecimal, func() { t.i32(1, int32(typ.Scale)); t.i32(2, int32(typ.Precision)) }
	case schema.Char, schema.VarChar:
		t.i32(6, convertedUTF8)
		member = logicalString
	case schema.Date:
		t.i32(6, convertedDate)
		member = logicalDate
	case schema.Time:
		t.i32(6, convertedTimeMillis)
		member, logical = logicalTime, func() { writeUnit(t, true, unitMillis) }
	case schema.Timestamp, schema.TimestampLTZ:
		if phys == typeInt96 { // has no annotation
			break
		}
		unit, utc := unitMillis, typ.Root == schema.TimestampLTZ
		if typ.Precision > 3 {
			unit = unitMicros
		}
		if utc {
			t.i32(6, convertedStampMillis+int32(unit-unitMillis))
		}
		member, logical = logicalTimestamp, func() { writeUnit(t, utc, unit) }
	}
	if fieldID >= 0 {
		t.i32(9, fieldID)
	}
	if member != 0 {
		t.structure(10)
		t.structure(member)
		if logical != nil {
			logical()
		}
		t.end()
		t.end()
	}
	t.end()
}

// writeUnit appends the content of TimeType or TimestampType.
func writeUnit(t *thriftWriter, utc bool, unit timeUnit) {
	t.bool(1, utc)
	t.structure(2)
	t.structure(int16(unit))
	t.end()
	t.end()
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
