package manifest

import (
	"errors"
	"fmt"
)

var (
	// ErrNoTable: the folder has no schema file, so it is not a table.
	ErrNoTable = errors.New("no such table")
	// ErrTableExists: Create found a table with another schema.
	ErrTableExists = errors.New("table already exists")
	// ErrNoSnapshot: the table exists but nothing was ever committed.
	ErrNoSnapshot = errors.New("table has no snapshot")
	// ErrSnapshotExpired: the snapshot did exist and was removed by expiry.
	ErrSnapshotExpired = errors.New("snapshot has expired")
	// ErrConflict: what the commit removes is gone, or what it adds does not fit. Nothing was published; the caller
	// must look at the latest snapshot and work out its change again.
	ErrConflict = errors.New("commit conflict")
	// ErrCorrupt: a metadata file is damaged. The concrete error is a *CorruptError.
	ErrCorrupt = errors.New("corrupt file")
	// ErrUnsupported: the table holds something this package must not touch without understanding it.
	ErrUnsupported = errors.New("not supported")
)

// CorruptError says which file is damaged and where. It matches ErrCorrupt.
type CorruptError struct {
	Name   string // full location of the file
	Offset int64  // byte offset where reading stopped making sense
	Reason string
	Err    error // the error underneath, may be nil
}

// Error names the file, the offset and the reason.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("corrupt file %s at offset %d: %s", e.Name, e.Offset, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes every CorruptError match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap gives the error underneath.
func (e *CorruptError) Unwrap() error { return e.Err }
