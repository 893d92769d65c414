package storage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// uploadBuffer gathers the small writes of a file writer.
const uploadBuffer = 256 << 10

// uploadWriters keeps the buffers of uploads that have ended: most objects are smaller than one.
var uploadWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, uploadBuffer) }}

// PutIfAbsent implements Store by link(2): exactly one of all racing processes succeeds. An error after the name was
// given is ErrUnknown: the object is there, but it is not certain that a power cut leaves it there.
func (l *Local) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	const op = "put if absent"
	if err := l.begin(ctx, op, name); err != nil {
		return err
	}
	final := l.path(name)
	dir := filepath.Dir(final)
	if _, err := os.Lstat(final); err == nil {
		return l.taken(op, name, dir)
	}
	tmp, err := l.writeTemp(dir, data, true)
	if err != nil {
		return l.failWrite(op, name, err)
	}
	err = os.Link(tmp, final)
	os.Remove(tmp) // a leftover is harmless: it is not listed, and RemoveTemp knows it
	switch {
	case errors.Is(err, fs.ErrExist):
		return l.taken(op, name, dir)
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP):
		return fmt.Errorf("%s %s: %w: the file system has no hard links: %w", op, l.URL(name), ErrUnsafe, bare(err))
	case err != nil:
		return l.failWrite(op, name, err)
	}
	if err := l.syncDir(dir); err != nil {
		return fmt.Errorf("%s %s: %w: syncing its folder: %w", op, l.URL(name), ErrUnknown, bare(err))
	}
	return nil
}

// taken reports that a name exists. The folder is synced first: its entry may be that of a writer that has not come
// to sync it yet, and whoever reads the object back to decide who won must not decide by what could still vanish.
func (l *Local) taken(op, name, dir string) error {
	if err := l.syncDir(dir); err != nil {
		return fmt.Errorf("%s %s: %w: syncing its folder: %w", op, l.URL(name), ErrUnknown, bare(err))
	}
	return fmt.Errorf("%s %s: %w", op, l.URL(name), ErrExists)
}

// Settle implements Settler by syncing the object's folder.
func (l *Local) Settle(ctx context.Context, name string) error {
	const op = "settle"
	if err := l.begin(ctx, op, name); err != nil {
		return err
	}
	if err := l.syncDir(filepath.Dir(l.path(name))); err != nil {
		return fmt.Errorf("%s %s: %w: syncing its folder: %w", op, l.URL(name), ErrUnknown, bare(err))
	}
	return nil
}

// Put implements Store. Nothing is synced: hints are written often and may be lost.
func (l *Local) Put(ctx context.Context, name string, data []byte) error {
	const op = "put"
	if err := l.begin(ctx, op, name); err != nil {
		return err
	}
	final := l.path(name)
	tmp, err := l.writeTemp(filepath.Dir(final), data, false)
	if err != nil {
		return l.failWrite(op, name, err)
	}
	if err := os.Rename(tmp, final); err != nil {
		os.Remove(tmp)
		return l.failWrite(op, name, err)
	}
	return nil
}

// Create implements Store.
func (l *Local) Create(ctx context.Context, name string) (Upload, error) {
	const op = "create"
	if err := l.begin(ctx, op, name); err != nil {
		return nil, err
	}
	f, err := l.openTemp(filepath.Dir(l.path(name)))
	if err != nil {
		return nil, l.failWrite(op, name, err)
	}
	w := uploadWriters.Get().(*bufio.Writer)
	w.Reset(f)
	return &localUpload{ctx: ctx, l: l, name: name, f: f, w: w}, nil
}

// PutAll implements AllPutter: the folders are synced when all objects have their names.
func (l *Local) PutAll(ctx context.Context, objects []Object) error {
	const op = "put"
	for _, o := range objects {
		if err := l.begin(ctx, op, o.Name); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(putAtOnce)
	for _, o := range objects {
		g.Go(func() error {
			final := l.path(o.Name)
			tmp, err := l.writeTemp(filepath.Dir(final), o.Data, true)
			if err != nil {
				return l.failWrite(op, o.Name, err)
			}
			if err = gctx.Err(); err == nil {
				err = os.Rename(tmp, final)
			}
			if err != nil {
				os.Remove(tmp)
				return l.failWrite(op, o.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	synced := make(map[string]bool, 1)
	for _, o := range objects {
		dir := filepath.Dir(l.path(o.Name))
		if synced[dir] {
			continue
		}
		if err := l.syncDir(dir); err != nil {
			return fmt.Errorf("%s %s: %w: syncing its folder: %w", op, l.URL(o.Name), ErrUnknown, bare(err))
		}
		synced[dir] = true
	}
	return nil
}

func (l *Local) begin(ctx context.Context, op, name string) error {
	if err := checkName(op, name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return l.failWrite(op, name, err)
	}
	return nil
}

// writeTemp leaves data in a temporary file of a folder and returns its path; on an error it leaves nothing.
func (l *Local) writeTemp(dir string, data []byte, sync bool) (string, error) {
	f, err := l.openTemp(dir)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = l.sync(f)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// openTemp creates a temporary file in a folder, which it makes, durably, if need be. The file gets the permissions
// that the user's umask leaves, for other users' engines are to read it.
func (l *Local) openTemp(dir string) (*os.File, error) {
	for attempt := 0; ; attempt++ {
		if err := l.ensureDir(dir); err != nil {
			return nil, err
		}
		tmp := fmt.Sprintf("%s%s-%d%s", tempPrefix, l.id, l.next.Add(1), tempSuffix)
		f, err := os.OpenFile(filepath.Join(dir, tmp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrNotExist) && attempt < 3 {
			l.dirs.clear() // someone removed a folder we had made: look again at all of them
			continue
		}
		return f, err
	}
}

// ensureDir makes a folder and those above it, and syncs what it has not yet seen durable: also a folder that was
// there may be one whose maker has not synced it, or died before it did. Above the root only new folders are synced.
func (l *Local) ensureDir(dir string) error {
	if l.dirs.has(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	below := strings.HasPrefix(dir, strings.TrimSuffix(l.root, "/")+"/")
	if below {
		if err := l.ensureDir(parent); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) && !below && parent != dir {
		if err := l.ensureDir(parent); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o777)
	}
	made := err == nil
	if err != nil {
		if st, serr := os.Stat(dir); serr != nil || !st.IsDir() {
			return notFolder(dir, err)
		}
	}
	if made || below {
		if err := l.syncDir(parent); err != nil {
			return fmt.Errorf("syncing folder %s: %w", parent, bare(err))
		}
	}
	l.dirs.add(dir)
	return nil
}

// notFolder explains why a folder cannot be made. "File exists" must not pass for the object's name being taken.
func notFolder(dir string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is a file, not a folder", dir)
	}
	return fmt.Errorf("making folder %s: %w", dir, bare(err))
}

// syncDir makes the entries of a folder durable. File systems that cannot sync a folder say EINVAL or ENOTSUP: they
// write entries at once or leave no way to ask.
func (l *Local) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := l.sync(d); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// localUpload is a temporary file on its way to its name.
type localUpload struct {
	ctx  context.Context
	l    *Local
	name string
	f    *os.File // nil when the upload has ended
	w    *bufio.Writer
}

func (u *localUpload) Write(p []byte) (int, error) {
	if u.f == nil {
		return 0, u.l.failWrite("write", u.name, fs.ErrClosed)
	}
	if err := u.ctx.Err(); err != nil {
		return 0, u.l.failWrite("write", u.name, err)
	}
	n, err := u.w.Write(p)
	if err != nil {
		return n, u.l.failWrite("write", u.name, err)
	}
	return n, nil
}

// Commit implements Upload. An error that is ErrUnknown says that the object is there but may not survive a power
// cut; after any other nothing is.
func (u *localUpload) Commit() error {
	const op = "commit"
	if u.f == nil {
		return u.l.failWrite(op, u.name, fs.ErrClosed)
	}
	err := u.ctx.Err()
	if err == nil {
		err = u.w.Flush() // gives the error of an earlier Write again
	}
	if err == nil {
		err = u.l.sync(u.f)
	}
	if cerr := u.f.Close(); err == nil {
		err = cerr
	}
	tmp := u.f.Name()
	u.end()
	final := u.l.path(u.name)
	if err == nil {
		err = os.Rename(tmp, final)
	}
	if err != nil {
		os.Remove(tmp)
		return u.l.failWrite(op, u.name, err)
	}
	if err := u.l.syncDir(filepath.Dir(final)); err != nil {
		return fmt.Errorf("%s %s: %w: syncing its folder: %w", op, u.l.URL(u.name), ErrUnknown, bare(err))
	}
	return nil
}

func (u *localUpload) Abort() {
	if u.f == nil {
		return
	}
	u.f.Close()
	os.Remove(u.f.Name())
	u.end()
}

// end gives the buffer back.
func (u *localUpload) end() {
	u.w.Reset(nil)
	uploadWriters.Put(u.w)
	u.f, u.w = nil, nil
}
