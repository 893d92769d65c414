// Package storage owns bytes under names. A name appears whole or not at all.
//
// Names are slash-separated, relative to the store's root, without leading slash and without "..". Names that a
// manifest or a user brings along are not trusted: every store refuses, before it touches anything, a name that is
// empty, has an empty, "." or ".." part, a control character or bytes that are not UTF-8 (ErrBadName).
// Every method is safe for concurrent use. Errors name the operation and the full URL and match one of the
// sentinels below with errors.Is where one applies.
//
// What a power cut may undo, on a local disk: a Put (the hint may then be old, new or torn), and a Delete until the
// next durable write into the same folder. PutIfAbsent and Upload.Commit are durable when they return nil.
// Mem.CrashClone shows a test every such state.
package storage

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

var (
	// ErrNotFound: the name does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: PutIfAbsent found the name taken. Nothing was written by this call; but after a retry inside a
	// client the existing object may be the caller's own: read it back and compare.
	ErrExists = errors.New("already exists")
	// ErrUnknown: the outcome of a write is not known (the reply was lost). The caller must read back before it decides.
	ErrUnknown = errors.New("outcome unknown")
	// ErrTooLarge: ReadAll found more bytes than its limit.
	ErrTooLarge = errors.New("too large")
	// ErrBadName: the name cannot be an object's name, whatever the store.
	ErrBadName = errors.New("not a valid object name")
	// ErrReadOnly: the store was opened for reading only.
	ErrReadOnly = errors.New("store is read-only")
	// ErrUnsafe: the store cannot do what calve needs (it ignores conditional puts).
	ErrUnsafe = errors.New("store is not safe for commits")

	errNegative = errors.New("negative offset")
)

// Store is a flat name space of immutable objects, plus small overwritable hints.
type Store interface {
	// Open opens an object for random reads. The context governs all reads of the file.
	Open(ctx context.Context, name string) (File, error)
	// Create starts an object that becomes visible, whole and durable, when Commit returns nil.
	// An existing object of that name is replaced: callers use unique names. The context governs the whole upload.
	Create(ctx context.Context, name string) (Upload, error)
	// PutIfAbsent creates a small object, durably, unless the name is taken (ErrExists). It is the only commit primitive.
	PutIfAbsent(ctx context.Context, name string, data []byte) error
	// Put creates or overwrites a small object. Readers see the old or the new content, or for a moment none; used for hints.
	Put(ctx context.Context, name string, data []byte) error
	// List yields the direct children of a folder ("" is the root) in name order. A missing folder yields nothing.
	List(ctx context.Context, dir string) iter.Seq2[Info, error]
	// Delete removes an object. A missing one is not an error.
	Delete(ctx context.Context, name string) error
	// URL is the name's absolute location as other engines write it: file:///x/y, s3://bucket/key.
	URL(name string) string
}

// File is an open object.
type File interface {
	// ReadAt follows io.ReaderAt; after Close it fails with an error that is fs.ErrClosed.
	io.ReaderAt
	io.Closer
	// Size is the object's size when it was opened.
	Size() int64
}

// Upload is an object being written. Exactly one of Commit and Abort ends it; Abort after Commit does nothing.
// One goroutine at a time may use it.
type Upload interface {
	io.Writer
	// Commit makes the object visible and durable: its bytes and its folder entry are synced on a local disk.
	Commit() error
	// Abort drops what was written; no object appears.
	Abort()
}

// Info is one child of a folder.
type Info struct {
	Name    string // the full name, not only the last part; without trailing slash for folders
	Size    int64
	ModTime time.Time
	Dir     bool
}
