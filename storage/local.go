package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Local keeps objects as files below a folder of a local disk, readable by every other engine as they are.
//
// An object is written to a temporary file beside its final place, synced, and then given its name in one step:
// link(2) for PutIfAbsent, which fails if the name is taken whatever process took it, and rename(2) for the rest.
// Then the folder is synced. Every folder on the way is synced into its parent before the first object in it
// is acknowledged, so that nothing acknowledged hangs below an entry that a power cut could take back.
//
// A killed process leaves its temporary files behind. They are not listed; RemoveTemp deletes them.
type Local struct {
	root string        // absolute and clean
	id   string        // makes temporary names of processes differ
	next atomic.Uint64 // makes temporary names of one process differ
	dirs dirSet        // folders known to be durable
	sync func(*os.File) error
}

// NewLocal opens the folder root, absolute or relative to the working directory, as a store. The folder need not
// exist: it is created, durably, by the first write.
func NewLocal(root string) (*Local, error) {
	if root == "" || strings.ContainsRune(root, 0) {
		return nil, fmt.Errorf("open local store %q: %w: give the path of a folder", root, ErrBadName)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open local store %q: %w", root, err)
	}
	st, err := os.Stat(abs)
	switch {
	case err == nil && !st.IsDir():
		return nil, fmt.Errorf("open local store %s: it is not a folder", abs)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open local store %s: %w", abs, bare(err))
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("open local store %s: %w", abs, err)
	}
	return &Local{root: abs, id: hex.EncodeToString(id[:]), sync: (*os.File).Sync}, nil
}

// URL implements Store: file:// and the absolute path as it is, without percent-encoding. Engines that read such
// locations (Hadoop's Path, Iceberg's file IO) take them literally, and Paimon's partition folders hold "%".
func (l *Local) URL(name string) string {
	if name == "" {
		return "file://" + l.root
	}
	return "file://" + strings.TrimSuffix(l.root, "/") + "/" + name
}

// path is where an object of a checked name lies.
func (l *Local) path(name string) string {
	return filepath.Join(l.root, filepath.FromSlash(name))
}

// Open implements Store.
func (l *Local) Open(ctx context.Context, name string) (File, error) {
	f, size, err := l.open(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	return &localFile{ctx: ctx, f: f, size: size, url: l.URL(name)}, nil
}

func (l *Local) open(ctx context.Context, op, name string) (*os.File, int64, error) {
	if err := checkName(op, name); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, l.fail(op, name, err)
	}
	f, err := os.Open(l.path(name))
	if err != nil {
		return nil, 0, l.fail(op, name, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist // a folder is no object, as in an object store
	}
	if err != nil {
		f.Close()
		return nil, 0, l.fail(op, name, err)
	}
	return f, st.Size(), nil
}

// ReadAll implements AllReader.
func (l *Local) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, size, err := l.open(ctx, "read", name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, tooLarge(l.URL(name), size, limit)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, l.fail("read", name, err)
	}
	return data, nil
}

// List implements Store.
func (l *Local) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := checkDir("list", dir); err != nil {
			yield(Info{}, err)
			return
		}
		if err := ctx.Err(); err != nil {
			yield(Info{}, l.fail("list", dir, err))
			return
		}
		entries, err := os.ReadDir(l.path(dir)) // sorted by name
		if err != nil && !missing(err) {
			yield(Info{}, l.fail("list", dir, err))
			return
		}
		for _, e := range entries {
			info, ok, err := l.entry(dir, e)
			if err != nil {
				yield(Info{}, l.fail("list", join(dir, e.Name()), err))
				return
			}
			if ok && !yield(info, nil) {
				return
			}
		}
	}
}

// entry makes an Info of what is an object or a folder. Links are followed, for a warehouse may be put together of
// links to disks. An entry that has vanished since the folder was read is left out, as are names no object can have.
func (l *Local) entry(dir string, e fs.DirEntry) (Info, bool, error) {
	name := join(dir, e.Name())
	if checkName("list", name) != nil {
		return Info{}, false, nil
	}
	st, err := os.Stat(l.path(name))
	switch {
	case err != nil && missing(err):
		return Info{}, false, nil
	case err != nil:
		return Info{}, false, err
	case st.IsDir():
		return Info{Name: name, ModTime: st.ModTime(), Dir: true}, true, nil
	}
	return Info{Name: name, Size: st.Size(), ModTime: st.ModTime()}, st.Mode().IsRegular(), nil
}

// Delete implements Store. Empty folders stay: removing them would race with writers about to use them.
func (l *Local) Delete(ctx context.Context, name string) error {
	if err := checkName("delete", name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return l.fail("delete", name, err)
	}
	// unlink, not os.Remove: that would also remove an empty folder of this name.
	if err := syscall.Unlink(l.path(name)); err != nil && !missing(err) {
		if st, serr := os.Lstat(l.path(name)); serr == nil && st.IsDir() {
			return nil // no object of that name
		}
		return l.fail("delete", name, err)
	}
	return nil
}

// RemoveTemp implements TempRemover.
func (l *Local) RemoveTemp(ctx context.Context, dir string, before time.Time) (int, error) {
	if err := checkDir("clean", dir); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(l.path(dir))
	if err != nil && !missing(err) {
		return 0, l.fail("clean", dir, err)
	}
	n := 0
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return n, l.fail("clean", dir, err)
		}
		if !isTemp(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		st, err := e.Info()
		if err == nil && st.ModTime().Before(before) {
			err = os.Remove(filepath.Join(l.path(dir), e.Name()))
			n++
		}
		if err != nil && !missing(err) {
			return n, l.fail("clean", join(dir, e.Name()), err)
		}
	}
	return n, nil
}

// fail gives an error of a reading operation its place, and ErrNotFound where that is meant.
func (l *Local) fail(op, name string, err error) error {
	if missing(err) {
		return fmt.Errorf("%s %s: %w", op, l.URL(name), ErrNotFound)
	}
	return l.failWrite(op, name, err)
}

// failWrite gives an error its place. That something does not exist, or does, is no answer to a write.
func (l *Local) failWrite(op, name string, err error) error {
	return fmt.Errorf("%s %s: %w", op, l.URL(name), bare(err))
}

// missing says that a path does not exist, also because a part of it is a file and not a folder.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// bare takes off the operation and path that package os puts in front: our errors have a better one.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

// localFile is an open file.
type localFile struct {
	ctx  context.Context
	f    *os.File
	size int64
	url  string
}

func (f *localFile) Size() int64 { return f.size }

func (f *localFile) Close() error { return f.f.Close() }

func (f *localFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, fmt.Errorf("read %s: %w", f.url, err)
	}
	n, err := f.f.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read %s at %d: %w", f.url, off, bare(err))
	}
	return n, err
}

// dirSet remembers folders that are known to be durable. It forgets them all when it has grown large: knowing saves
// a sync, not knowing costs one.
type dirSet struct {
	mu sync.Mutex
	m  map[string]struct{}
}

const maxDirs = 1 << 16

func (s *dirSet) has(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.m[dir]
	return ok
}

func (s *dirSet) add(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxDirs {
		s.m = make(map[string]struct{})
	}
	s.m[dir] = struct{}{}
}

func (s *dirSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m = nil
}
