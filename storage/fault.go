package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Op is one call that a store of WithFaults is about to make.
type Op struct {
	Kind OpKind
	Name string // the object or folder
	Off  int64  // OpRead: where
	Len  int    // OpRead, OpWrite, OpPut, OpPutIfAbsent: how many bytes
}

// ErrHang is a fault: the call does not return before its context ends, with the context's error. Alone it means
// that nothing was done; LoseReply(ErrHang) hangs after the work is done.
var ErrHang = errors.New("hang until the context ends")

// lostReply is the fault made by LoseReply.
type lostReply struct{ err error }

func (e *lostReply) Error() string { return "reply lost: " + e.err.Error() }
func (e *lostReply) Unwrap() error { return e.err }

// LoseReply is a fault: the call is made and its result thrown away. The caller gets err, and for calls that write
// ErrUnknown as well.
func LoseReply(err error) error { return &lostReply{err: err} }

// partial is the fault made by Partial.
type partial struct {
	n   int
	err error
}

func (e *partial) Error() string { return fmt.Sprintf("after %d bytes: %v", e.n, e.err) }
func (e *partial) Unwrap() error { return e.err }

// Partial is a fault of OpRead and OpWrite: only the first n bytes are read or written, then the call fails with
// err, as on a broken connection or a full disk. For other calls it is as err alone.
func Partial(n int, err error) error { return &partial{n: n, err: err} }

// faultStore asks before every call whether it may succeed.
type faultStore struct {
	s Store
	f func(Op) error
}

// WithFaults returns a store that asks f before every call. Nil lets the call go on; any error makes it fail
// without being made; ErrHang, LoseReply and Partial say how else it fails. The errors that callers see wrap the one
// f gave. f is called from the goroutine that makes the call and must be safe for concurrent use. ReadAll on the
// store is an OpReadAll if the underlying store reads in one request, and OpOpen and OpRead otherwise; Walk is one
// OpList for each folder. Settle is an OpPutIfAbsent, whose reply it gives again.
func WithFaults(s Store, f func(Op) error) Store {
	fs := &faultStore{s: s, f: f}
	if _, ok := s.(AllReader); ok {
		return faultAllReader{fs}
	}
	return fs
}

// do runs one call under the fault that f chooses for it.
func (s *faultStore) do(ctx context.Context, op Op, call func() error) error {
	fault := s.f(op)
	if fault == nil {
		return call()
	}
	if _, lost := errors.AsType[*lostReply](fault); lost {
		_ = call() // whatever it says is lost
	}
	return s.failure(ctx, op, fault)
}

// move runs one call that moves up to op.Len bytes under the fault that f chooses for it.
func (s *faultStore) move(ctx context.Context, op Op, call func(n int) (int, error)) (int, error) {
	fault := s.f(op)
	if fault == nil {
		return call(op.Len)
	}
	n := 0
	if p, ok := errors.AsType[*partial](fault); ok {
		n, _ = call(min(max(p.n, 0), op.Len))
	}
	return n, s.failure(ctx, op, fault)
}

// failure is the error that the caller of a call under a fault sees. It waits if the fault says so.
func (s *faultStore) failure(ctx context.Context, op Op, fault error) error {
	_, lost := errors.AsType[*lostReply](fault)
	if errors.Is(fault, ErrHang) {
		<-ctx.Done()
		fault = ctx.Err()
	}
	if lost && writes(op.Kind) {
		return fmt.Errorf("%s %s: %w: %w", op.Kind, s.s.URL(op.Name), ErrUnknown, fault)
	}
	return fmt.Errorf("%s %s: %w", op.Kind, s.s.URL(op.Name), fault)
}

// writes says whether the outcome of a call that got no reply matters to what is stored.
func writes(k OpKind) bool {
	return k == OpCommit || k == OpPutIfAbsent || k == OpPut || k == OpDelete
}

func (s *faultStore) Open(ctx context.Context, name string) (File, error) {
	var f File
	err := s.do(ctx, Op{Kind: OpOpen, Name: name}, func() (err error) {
		f, err = s.s.Open(ctx, name)
		return err
	})
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	return &faultFile{File: f, ctx: ctx, s: s, name: name}, nil
}

func (s *faultStore) Create(ctx context.Context, name string) (Upload, error) {
	var u Upload
	err := s.do(ctx, Op{Kind: OpCreate, Name: name}, func() (err error) {
		u, err = s.s.Create(ctx, name)
		return err
	})
	if err != nil {
		if u != nil {
			u.Abort()
		}
		return nil, err
	}
	return &faultUpload{Upload: u, ctx: ctx, s: s, name: name}, nil
}

// Settle implements Settler with the underlying store's own, if it has one.
func (s *faultStore) Settle(ctx context.Context, name string) error {
	return s.do(ctx, Op{Kind: OpPutIfAbsent, Name: name}, func() error { return Settle(ctx, s.s, name) })
}

func (s *faultStore) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	return s.do(ctx, Op{Kind: OpPutIfAbsent, Name: name, Len: len(data)}, func() error {
		return s.s.PutIfAbsent(ctx, name, data)
	})
}

func (s *faultStore) Put(ctx context.Context, name string, data []byte) error {
	return s.do(ctx, Op{Kind: OpPut, Name: name, Len: len(data)}, func() error {
		return s.s.Put(ctx, name, data)
	})
}

func (s *faultStore) Delete(ctx context.Context, name string) error {
	return s.do(ctx, Op{Kind: OpDelete, Name: name}, func() error { return s.s.Delete(ctx, name) })
}

func (s *faultStore) URL(name string) string { return s.s.URL(name) }

// List fails before the first child. LoseReply ends a listing after all children but with an error.
func (s *faultStore) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		stopped := false
		err := s.do(ctx, Op{Kind: OpList, Name: dir}, func() error {
			for info, err := range s.s.List(ctx, dir) {
				if err != nil {
					return err
				}
				if !yield(info, nil) {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

// faultAllReader is a faultStore over a store with a ReadAll of its own.
type faultAllReader struct{ *faultStore }

// ReadAll implements AllReader.
func (s faultAllReader) ReadAll(ctx context.Context, name string, limit int64) (data []byte, err error) {
	err = s.do(ctx, Op{Kind: OpReadAll, Name: name}, func() (err error) {
		data, err = ReadAll(ctx, s.s, name, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

type faultFile struct {
	File
	ctx  context.Context
	s    *faultStore
	name string
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	return f.s.move(f.ctx, Op{Kind: OpRead, Name: f.name, Off: off, Len: len(p)}, func(n int) (int, error) {
		return f.File.ReadAt(p[:n], off)
	})
}

type faultUpload struct {
	Upload
	ctx    context.Context
	s      *faultStore
	name   string
	failed error // a write that failed makes Commit fail, as on a full disk
}

func (u *faultUpload) Write(p []byte) (int, error) {
	n, err := u.s.move(u.ctx, Op{Kind: OpWrite, Name: u.name, Len: len(p)}, func(n int) (int, error) {
		return u.Upload.Write(p[:n])
	})
	if err != nil && u.failed == nil {
		u.failed = err
	}
	return n, err
}

// Commit aborts the upload where the fault says that the call is not made: nothing must appear later.
func (u *faultUpload) Commit() error {
	called := false
	err := u.failed
	if err == nil {
		err = u.s.do(u.ctx, Op{Kind: OpCommit, Name: u.name}, func() error {
			called = true
			return u.Upload.Commit()
		})
	}
	if !called {
		u.Upload.Abort()
	}
	return err
}
