package decode

import (
	"fmt"
	"slices"

	"github.com/calve-io/calve/schema"
)

// metaField is what of the record fills a column.
type metaField uint8

const (
	metaNone metaField = iota
	metaTopic
	metaPartition
	metaOffset
	metaTimestamp
	metaKey
	metaHash
	metaCopies
)

// metaFields lists the names of the configuration and the shapes of columns that can hold them.
var metaFields = []struct {
	name   string
	field  metaField
	shapes []shape
	types  string
}{
	{"topic", metaTopic, []shape{shapeText}, "STRING"},
	{"partition", metaPartition, []shape{shapeInt32, shapeInt64}, "INT or BIGINT"},
	{"offset", metaOffset, []shape{shapeInt64}, "BIGINT"},
	{"timestamp", metaTimestamp, []shape{shapeInt64, shapeTimestamp}, "TIMESTAMP, TIMESTAMP_LTZ or BIGINT (milliseconds)"},
	{"key", metaKey, []shape{shapeText, shapeBytes}, "STRING or BYTES"},
	{"row-hash", metaHash, []shape{shapeBytes}, "BYTES, BINARY or VARBINARY of 16 bytes or more"},
	{"copies", metaCopies, []shape{shapeInt64}, "BIGINT"},
}

// bindMetadata connects columns with the record's metadata.
func (d *rowBuilder) bindMetadata() error {
	for name, what := range d.cfg.Metadata {
		i, ok := d.cfg.Schema.Field(name)
		if !ok {
			return fmt.Errorf("metadata column %q is not a column of the table", name)
		}
		c := &d.cols[i]
		for _, m := range metaFields {
			if m.name != what {
				continue
			}
			if !slices.Contains(m.shapes, c.shape) {
				return fmt.Errorf("metadata column %q: %q needs type %s, not %s", name, what, m.types, c.typ)
			}
			c.meta = m.field
		}
		if c.meta == metaNone {
			return fmt.Errorf("metadata column %q: %q is unknown; use topic, partition, offset, timestamp, key, row-hash or copies", name, what)
		}
		d.metas = append(d.metas, i)
	}
	slices.Sort(d.metas)
	return d.bindBag()
}

// bindUnits sets the units of numeric timestamps.
func (d *rowBuilder) bindUnits() error {
	if u := d.cfg.EpochUnit; u != "" {
		n, ok := u.digits()
		if !ok {
			return fmt.Errorf("epoch unit %q is unknown; use s, ms, us or ns", u)
		}
		for i := range d.cols {
			d.cols[i].setUnit(n)
		}
	}
	for name, u := range d.cfg.EpochUnits {
		i, ok := d.cfg.Schema.Field(name)
		if !ok || d.cols[i].shape != shapeTimestamp {
			return fmt.Errorf("epoch unit of %q: the table has no TIMESTAMP column of that name", name)
		}
		n, ok := u.digits()
		if !ok {
			return fmt.Errorf("epoch unit %q of column %q is unknown; use s, ms, us or ns", u, name)
		}
		d.cols[i].unit = n
	}
	return nil
}

// checkDefaults reads every column default once, so that a bad one is found now and not with each record.
func (d *rowBuilder) checkDefaults() error {
	d.reserve()
	for i := range d.cols {
		if c := &d.cols[i]; c.hasDef {
			d.begin()
			if !d.setDefault(c) {
				return fmt.Errorf("column %q has a default that its type %s cannot hold: %s", c.name, c.typ, d.bad.Reason)
			}
		}
	}
	return nil
}

// MetadataType is the type of a column for what Config.Metadata names; STRING for what it does not know.
func MetadataType(what string) schema.Type {
	switch what {
	case "partition":
		return schema.Type{Root: schema.Int}
	case "offset":
		return schema.Type{Root: schema.BigInt}
	case "timestamp":
		return schema.Type{Root: schema.TimestampLTZ, Precision: 3}
	case "key":
		return bytesType
	case "row-hash":
		return schema.Type{Root: schema.Binary, Length: hashBytes}
	case "copies":
		return longType
	}
	return textType
}
