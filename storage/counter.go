package storage

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"
)

// Stat is what was done of one kind of operation.
type Stat struct {
	Calls  int64 // calls made, failed ones too
	Errors int64 // calls that failed; ErrExists and ErrNotFound are failures
	Bytes  int64 // bytes read or written by the calls that succeeded
}

// Counts holds a Stat for each OpKind. Two of them can be compared with ==.
type Counts [opKinds]Stat

// Of returns the Stat of one kind.
func (c Counts) Of(k OpKind) Stat {
	if k >= opKinds {
		return Stat{}
	}
	return c[k]
}

// Since returns what was done after an earlier Counts of the same Counter.
func (c Counts) Since(earlier Counts) Counts {
	for k := range c {
		c[k].Calls -= earlier[k].Calls
		c[k].Errors -= earlier[k].Errors
		c[k].Bytes -= earlier[k].Bytes
	}
	return c
}

// Total sums all kinds.
func (c Counts) Total() Stat {
	var t Stat
	for _, s := range c {
		t.Calls += s.Calls
		t.Errors += s.Errors
		t.Bytes += s.Bytes
	}
	return t
}

// String lists the kinds that were used: "open 2, read 2 (1234 B), list 1 (1 failed)".
func (c Counts) String() string {
	var parts []string
	for k, s := range c {
		if s.Calls == 0 {
			continue
		}
		p := fmt.Sprintf("%s %d", OpKind(k), s.Calls)
		if s.Bytes > 0 {
			p += fmt.Sprintf(" (%d B)", s.Bytes)
		}
		if s.Errors > 0 {
			p += fmt.Sprintf(" (%d failed)", s.Errors)
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Counter is a store that counts what is done with another.
type Counter struct {
	s     Store
	kinds [opKinds]struct{ calls, errors, bytes atomic.Int64 }
}

// WithCounter returns a store that counts the calls and bytes that go through it to s. Its ReadAll is one OpReadAll
// and its Walk one OpWalk, however many requests s makes of them.
func WithCounter(s Store) *Counter { return &Counter{s: s} }

// Counts returns what was done so far. Calls that run at the moment may be counted in part.
func (c *Counter) Counts() Counts {
	var out Counts
	for k := range c.kinds {
		n := &c.kinds[k]
		out[k] = Stat{Calls: n.calls.Load(), Errors: n.errors.Load(), Bytes: n.bytes.Load()}
	}
	return out
}

// add counts one call and hands its error through.
func (c *Counter) add(k OpKind, bytes int, err error) error {
	n := &c.kinds[k]
	n.calls.Add(1)
	n.bytes.Add(int64(bytes))
	if err != nil {
		n.errors.Add(1)
	}
	return err
}

// addPut counts a call that writes all of data or nothing.
func (c *Counter) addPut(k OpKind, data []byte, err error) error {
	if err != nil {
		return c.add(k, 0, err)
	}
	return c.add(k, len(data), nil)
}

// Open implements Store.
func (c *Counter) Open(ctx context.Context, name string) (File, error) {
	return c.opened(c.s.Open(ctx, name))
}

// OpenTail implements TailOpener; it counts as Open.
func (c *Counter) OpenTail(ctx context.Context, name string, tail int64) (File, error) {
	return c.opened(OpenTail(ctx, c.s, name, tail))
}

func (c *Counter) opened(f File, err error) (File, error) {
	if c.add(OpOpen, 0, err) != nil {
		return nil, err
	}
	return &countFile{File: f, c: c}, nil
}

// ReadAll implements AllReader.
func (c *Counter) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	data, err := ReadAll(ctx, c.s, name, limit)
	return data, c.add(OpReadAll, len(data), err)
}

// Create implements Store.
func (c *Counter) Create(ctx context.Context, name string) (Upload, error) {
	u, err := c.s.Create(ctx, name)
	if c.add(OpCreate, 0, err) != nil {
		return nil, err
	}
	return &countUpload{Upload: u, c: c}, nil
}

// PutIfAbsent implements Store.
func (c *Counter) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	return c.addPut(OpPutIfAbsent, data, c.s.PutIfAbsent(ctx, name, data))
}

// Put implements Store.
func (c *Counter) Put(ctx context.Context, name string, data []byte) error {
	return c.addPut(OpPut, data, c.s.Put(ctx, name, data))
}

// Delete implements Store.
func (c *Counter) Delete(ctx context.Context, name string) error {
	return c.add(OpDelete, 0, c.s.Delete(ctx, name))
}

// URL implements Store.
func (c *Counter) URL(name string) string { return c.s.URL(name) }

// List implements Store.
func (c *Counter) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return c.each(OpList, c.s.List(ctx, dir))
}

// Walk implements Walker.
func (c *Counter) Walk(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return c.each(OpWalk, Walk(ctx, c.s, dir))
}

// Settle implements Settler, uncounted.
func (c *Counter) Settle(ctx context.Context, name string) error { return Settle(ctx, c.s, name) }

// RemoveTemp implements TempRemover, uncounted.
func (c *Counter) RemoveTemp(ctx context.Context, dir string, before time.Time) (int, error) {
	return RemoveTemp(ctx, c.s, dir, before)
}

// each counts one listing.
func (c *Counter) each(k OpKind, seq iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var failed error
		defer func() { c.add(k, 0, failed) }()
		for info, err := range seq {
			failed = err
			if !yield(info, err) {
				return
			}
		}
	}
}

type countFile struct {
	File
	c *Counter
}

func (f *countFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if n == len(p) {
		f.c.add(OpRead, n, nil) // io.EOF beside all bytes is no failure
	} else {
		f.c.add(OpRead, n, err)
	}
	return n, err
}

type countUpload struct {
	Upload
	c *Counter
}

func (u *countUpload) Write(p []byte) (int, error) {
	n, err := u.Upload.Write(p)
	return n, u.c.add(OpWrite, n, err)
}

func (u *countUpload) Commit() error { return u.c.add(OpCommit, 0, u.Upload.Commit()) }
