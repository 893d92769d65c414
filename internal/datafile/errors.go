package datafile

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrCorrupt marks everything a reader finds wrong with a file's bytes. Such a file cannot be read by anybody; restore
// it from a copy or remove it from the table.
var ErrCorrupt = errors.New("corrupt data file")

// ErrUnsupported marks files that are well formed but use something calve does not read (an encoding, a codec, a type
// change).
var ErrUnsupported = errors.New("unsupported data file")

// corruptf makes an error that matches ErrCorrupt.
func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
}

// unsupportedf makes an error that matches ErrUnsupported.
func unsupportedf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, fmt.Errorf(format, args...))
}

// recovered turns a panic of a library, or an index out of range on hostile bytes, into an error. It must be deferred
// directly. The stack is kept because such an error is a mistake of calve too: checks should have come first.
func recovered(err *error, kind error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: panic: %v\n%s", kind, p, debug.Stack())
	}
}
