package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"
)

// AllReader is what a Store may offer to read a small object in one request. ReadAll uses it.
type AllReader interface {
	// ReadAll returns the object's bytes, or an error that is ErrTooLarge when there are more than limit.
	ReadAll(ctx context.Context, name string, limit int64) ([]byte, error)
}

// TailOpener is what a Store may offer whose Open brings the end of an object along. OpenTail uses it.
type TailOpener interface {
	// OpenTail is Open for a reader that reads so many bytes of the end first: they come in the request that opens the object.
	OpenTail(ctx context.Context, name string, tail int64) (File, error)
}

// OpenTail opens an object of which so many bytes of the end are read first.
func OpenTail(ctx context.Context, s Store, name string, tail int64) (File, error) {
	if t, ok := s.(TailOpener); ok {
		return t.OpenTail(ctx, name, tail)
	}
	return s.Open(ctx, name)
}

// Walker is what a Store may offer to list a whole tree without visiting each folder. Walk uses it.
type Walker interface {
	// Walk yields every object below dir ("" is the root), folders not, in no promised order.
	Walk(ctx context.Context, dir string) iter.Seq2[Info, error]
}

// TempRemover is what a Store may offer that leaves traces of uploads whose process died. RemoveTemp uses it.
type TempRemover interface {
	// RemoveTemp deletes what uploads left directly in a folder and did not touch since a moment.
	RemoveTemp(ctx context.Context, dir string, before time.Time) (int, error)
}

// RemoveTemp deletes the temporary files that killed processes left directly in a folder, if they were last written
// before a moment. The caller chooses it so far back that no living writer can own one. It returns how many went;
// none on stores that have no such files.
func RemoveTemp(ctx context.Context, s Store, dir string, before time.Time) (int, error) {
	if r, ok := s.(TempRemover); ok {
		return r.RemoveTemp(ctx, dir, before)
	}
	return 0, nil
}

// Settler is what a Store offers where an object can be read that a power cut may still take. Settle uses it.
type Settler interface {
	// Settle makes durable what the folder of an object holds, that object or none; it creates nothing.
	Settle(ctx context.Context, name string) error
}

// Settle makes an object durable that was read, after its writer was told ErrUnknown: whatever the name holds by then, it does not
// bring back what was deleted. On stores where all that can be read is durable it does nothing.
func Settle(ctx context.Context, s Store, name string) error {
	if d, ok := s.(Settler); ok {
		return d.Settle(ctx, name)
	}
	return nil
}

// Object is a small object as PutAll writes it.
type Object struct {
	Name string
	Data []byte
}

// AllPutter is what a Store may offer to write several small objects for less than each for itself. PutAll uses it.
type AllPutter interface {
	// PutAll writes objects as Create and Commit do: all of them are there, whole and durable, when it returns nil. After
	// an error any of them may be, and may not survive a power cut.
	PutAll(ctx context.Context, objects []Object) error
}

// putAtOnce bounds how many objects PutAll writes at the same time.
const putAtOnce = 8

// PutAll writes small objects of different names at the same time, as Create and Commit do for one: their names are the
// caller's own. When it returns nil all of them are there, whole and durable; after an error any of them may be. On a
// local disk it costs a sync for each object and one for each of their folders.
func PutAll(ctx context.Context, s Store, objects []Object) error {
	if a, ok := s.(AllPutter); ok {
		return a.PutAll(ctx, objects)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(putAtOnce)
	for _, o := range objects {
		g.Go(func() error { return putOne(ctx, s, o) })
	}
	return g.Wait()
}

func putOne(ctx context.Context, s Store, o Object) error {
	u, err := s.Create(ctx, o.Name)
	if err != nil {
		return err
	}
	if _, err := u.Write(o.Data); err != nil {
		u.Abort()
		return err
	}
	return u.Commit()
}

// ReadAll returns the bytes of a small object. More than limit bytes are an error that names the limit and is
// ErrTooLarge: no object, however damaged or hostile, makes the caller allocate more. On S3 it costs one GET.
func ReadAll(ctx context.Context, s Store, name string, limit int64) ([]byte, error) {
	if a, ok := s.(AllReader); ok {
		return a.ReadAll(ctx, name, limit)
	}
	f, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := f.Size()
	if size > limit {
		return nil, tooLarge(s.URL(name), size, limit)
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, fmt.Errorf("read %s: got %d of %d bytes: %w", s.URL(name), n, size, err)
	}
	return data, nil
}

func tooLarge(url string, size, limit int64) error {
	return fmt.Errorf("read %s: %w: %d bytes, the limit is %d", url, ErrTooLarge, size, limit)
}

// Walk yields every object below dir ("" is the root), in no promised order. Folders are not yielded; an error ends
// the walk. On S3 it costs one request for each 1,000 objects.
func Walk(ctx context.Context, s Store, dir string) iter.Seq2[Info, error] {
	if w, ok := s.(Walker); ok {
		return w.Walk(ctx, dir)
	}
	return func(yield func(Info, error) bool) {
		walk(ctx, s, dir, yield)
	}
}

// walk goes depth first and keeps the folders that are still to be visited, not their contents, in memory.
func walk(ctx context.Context, s Store, dir string, yield func(Info, error) bool) {
	todo := []string{dir}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for info, err := range s.List(ctx, dir) {
			if err != nil {
				yield(Info{}, err)
				return
			}
			if info.Dir {
				todo = append(todo, info.Name)
			} else if !yield(info, nil) {
				return
			}
		}
	}
}

// putOnceAttempts bounds how often PutOnce repeats a conditional put whose outcome it cannot see. The client of an
// object store has already retried with back-off below each of them.
const putOnceAttempts = 3

// PutOnce creates a small object by PutIfAbsent and settles what happened when that call did not simply succeed: it
// reads the name back, and won says whether the stored bytes are the caller's own. So the data must be unique to the
// caller (hold an id of its own); two callers with equal bytes would both be told that they won.
//
// (true, nil): the object holds data. (false, nil): the name is taken by something else. An error that is ErrUnknown:
// it could not be settled, the object may exist now or appear later. Any other error: nothing was written.
//
// Where a reply was lost and the bytes are there, they are the caller's as soon as they are durable (Settle), and are not put again:
// another process may have seen and deleted them since, and they must not come back.
// Where the name is still free, reading alone cannot tell "never arrived" from "still on its way", but the second put and
// the first cannot both create the object, and whichever does leaves the caller's bytes. It costs one request when nothing goes wrong.
func PutOnce(ctx context.Context, s Store, name string, data []byte) (won bool, err error) {
	unsettled := false
	for attempt := 1; ; attempt++ {
		err := s.PutIfAbsent(ctx, name, data)
		if err == nil {
			return true, nil
		}
		if errors.Is(err, ErrBadName) || errors.Is(err, ErrReadOnly) {
			return false, err // refused before anything was asked
		}
		got, rerr := ReadAll(ctx, s, name, int64(len(data)))
		switch {
		case rerr == nil && bytes.Equal(got, data):
			if errors.Is(err, ErrExists) {
				return true, nil
			}
			return settled(ctx, s, name, attempt)
		case rerr == nil:
			return false, nil
		case errors.Is(rerr, ErrTooLarge):
			return false, nil
		case !errors.Is(rerr, ErrNotFound):
			return false, fmt.Errorf("put %s: %w: %w; reading it back: %w", s.URL(name), ErrUnknown, err, rerr)
		case errors.Is(err, ErrExists):
			// Someone took the name and someone deleted it since. Creating it again could bring back an expired
			// snapshot, and whose it was is gone with it.
			return false, fmt.Errorf("put %s: %w: %w, but gone when read back", s.URL(name), ErrUnknown, err)
		}
		unsettled = unsettled || errors.Is(err, ErrUnknown)
		if !unsettled {
			return false, err
		}
		if attempt == putOnceAttempts || ctx.Err() != nil {
			return false, fmt.Errorf("put %s: %w after %d attempts: %w", s.URL(name), ErrUnknown, attempt, err)
		}
	}
}

// settled makes durable what PutOnce has read back as the caller's own, in the attempts that are left.
func settled(ctx context.Context, s Store, name string, attempt int) (bool, error) {
	for ; ; attempt++ {
		err := Settle(ctx, s, name)
		if err == nil {
			return true, nil
		}
		if attempt >= putOnceAttempts-1 || ctx.Err() != nil {
			return false, fmt.Errorf("put %s: %w: it is there, and may not be durable: %w", s.URL(name), ErrUnknown, err)
		}
	}
}
