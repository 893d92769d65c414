package export

import "errors"

var (
	// ErrUnsupported: the table has something that Iceberg readers could not read, or would read wrongly.
	ErrUnsupported = errors.New("cannot be exported to Iceberg")
	// ErrForeign: the Iceberg metadata of the table was written by somebody else. calve does not touch it.
	ErrForeign = errors.New("foreign Iceberg metadata")
	// ErrDamaged: an exported metadata file or manifest cannot be read.
	ErrDamaged = errors.New("damaged Iceberg metadata")
	// ErrLost: another exporter published a version first. Publish reads the new version and tries again.
	ErrLost = errors.New("another exporter published first")
	// ErrNotExported: the table has no Iceberg metadata yet.
	ErrNotExported = errors.New("table is not exported")
)
