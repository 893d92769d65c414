package decode

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// errOffsets: lists or texts overlap, so that a few bytes could stand for any number of values. The format forbids it
// (Columnar.rst, "Variable-size Binary Layout": offsets must be monotonically increasing).
var errOffsets = errors.New("offsets run backwards, or beyond the values")

// arrowChecker looks at the offsets of batches that come from anywhere. Dictionaries, which many batches have in common,
// are looked at once.
type arrowChecker struct{ dictionary map[arrow.ArrayData]bool }

// batch checks a batch. What an array lacks that it says to have makes the library panic.
func (c *arrowChecker) batch(b arrow.RecordBatch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the batch is broken: %v", p)
		}
	}()
	for i, a := range b.Columns() {
		if err := c.array(a); err != nil {
			return fmt.Errorf("column %q: the batch is broken: %w", b.ColumnName(i), err)
		}
	}
	return nil
}

func (c *arrowChecker) array(a arrow.Array) error {
	if x, ok := a.(array.ExtensionArray); ok {
		return c.array(x.Storage())
	}
	d := a.Data()
	n, off := d.Len(), d.Offset()
	if n < 0 || off < 0 || n > maxArrowValues || off > maxArrowValues {
		return errors.New("an array of more values than there can be")
	}
	if n == 0 {
		return nil
	}
	switch a := a.(type) {
	case *array.Dictionary:
		words := a.Dictionary()
		if c.dictionary[words.Data()] {
			return nil
		}
		if c.dictionary == nil {
			c.dictionary = map[arrow.ArrayData]bool{}
		}
		c.dictionary[words.Data()] = true
		return c.array(words)
	case *array.Struct:
		for k := range a.NumField() {
			if err := c.array(a.Field(k)); err != nil {
				return err
			}
		}
		return nil
	case *array.Binary, *array.String, *array.LargeBinary, *array.LargeString:
		bytes := 0
		if b := d.Buffers()[2]; b != nil {
			bytes = b.Len()
		}
		return checkOffsets(d, bytes)
	case *array.FixedSizeList:
		width := int(a.DataType().(*arrow.FixedSizeListType).Len())
		if width < 0 || width > maxArrowWidth || (off+n)*width > a.ListValues().Len() {
			return errOffsets
		}
		return c.array(a.ListValues())
	case *array.List, *array.LargeList, *array.Map:
		inside := a.(array.ListLike).ListValues()
		if err := checkOffsets(d, inside.Len()); err != nil {
			return err
		}
		return c.array(inside)
	}
	return nil
}

// checkOffsets checks that the offsets of an array never go down, and end where its values do, or before.
func checkOffsets(d arrow.ArrayData, values int) error {
	b, from, to := d.Buffers()[1].Bytes(), d.Offset(), d.Offset()+d.Len()+1
	if w := d.DataType().(arrow.OffsetsDataType).OffsetTypeTraits().BytesRequired(1); w == arrow.Int64SizeBytes {
		return growing(arrow.Int64Traits.CastFromBytes(b[from*w:to*w]), values)
	}
	const w = arrow.Int32SizeBytes
	return growing(arrow.Int32Traits.CastFromBytes(b[from*w:to*w]), values)
}

func growing[T int32 | int64](limits []T, values int) error {
	last := T(0)
	for _, v := range limits {
		if v < last {
			return errOffsets
		}
		last = v
	}
	if int64(last) > int64(values) {
		return errOffsets
	}
	return nil
}
