package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// spy records what a Local syncs, relative to the folder that its root is created in.
type spy struct {
	base   string
	synced []string
	fail   func(path string) error
}

func spyOn(t *testing.T) (*Local, *spy) {
	t.Helper()
	sp := &spy{base: t.TempDir()}
	l, err := NewLocal(filepath.Join(sp.base, "root"))
	if err != nil {
		t.Fatal(err)
	}
	l.sync = func(f *os.File) error {
		rel, err := filepath.Rel(sp.base, f.Name())
		if err != nil {
			return err
		}
		if isTemp(filepath.Base(rel)) {
			rel = filepath.Join(filepath.Dir(rel), "TEMP")
		}
		sp.synced = append(sp.synced, rel)
		if sp.fail != nil {
			return sp.fail(rel)
		}
		return f.Sync()
	}
	return l, sp
}

// take returns what was synced since the last call.
func (s *spy) take() string {
	defer func() { s.synced = nil }()
	return strings.Join(s.synced, " ")
}

// TestLocalSyncs checks that everything an acknowledged object hangs on is synced, in order, and nothing twice.
func TestLocalSyncs(t *testing.T) {
	l, sp := spyOn(t)
	ctx := t.Context()
	if err := l.PutIfAbsent(ctx, "a/b/x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	// Each new folder into its parent, then the file, then its own folder.
	if got, want := sp.take(), ". root root/a root/a/b/TEMP root/a/b"; got != want {
		t.Errorf("first put synced %q, want %q", got, want)
	}
	if err := l.PutIfAbsent(ctx, "a/b/y", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if got, want := sp.take(), "root/a/b/TEMP root/a/b"; got != want {
		t.Errorf("second put synced %q, want %q", got, want)
	}
	if err := l.PutIfAbsent(ctx, "a/b/y", []byte("1")); !errors.Is(err, ErrExists) {
		t.Fatal(err)
	}
	if got, want := sp.take(), "root/a/b"; got != want {
		t.Errorf("a put of a taken name synced %q, want %q", got, want)
	}
	u, err := l.Create(ctx, "a/c/data")
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, want := sp.take(), "root/a root/a/c/TEMP root/a/c"; got != want {
		t.Errorf("an upload synced %q, want %q", got, want)
	}
	if err := l.Put(ctx, "a/c/hint", nil); err != nil {
		t.Fatal(err)
	}
	if got := sp.take(); got != "" {
		t.Errorf("a hint synced %q", got)
	}

	// Another process finds the folders there, but cannot know that their maker synced them.
	other, err := NewLocal(l.root)
	if err != nil {
		t.Fatal(err)
	}
	other.sync = l.sync
	if err := other.PutIfAbsent(ctx, "a/b/z", nil); err != nil {
		t.Fatal(err)
	}
	if got, want := sp.take(), "root root/a root/a/b/TEMP root/a/b"; got != want {
		t.Errorf("the first put of another process synced %q, want %q", got, want)
	}
}

// TestLocalSyncFails checks what is said and left when a sync fails: on the file nothing happened, on the folder the
// outcome is unknown.
func TestLocalSyncFails(t *testing.T) {
	broken := errors.New("input/output error")
	for _, at := range []string{"root/a/TEMP", "root/a"} {
		l, sp := spyOn(t)
		if err := l.PutIfAbsent(t.Context(), "a/first", nil); err != nil {
			t.Fatal(err)
		}
		sp.fail = func(path string) error {
			if path == at {
				return broken
			}
			return nil
		}
		known := at != "root/a"
		err := l.PutIfAbsent(t.Context(), "a/x", []byte("1"))
		if !errors.Is(err, broken) || errors.Is(err, ErrUnknown) == known {
			t.Errorf("put with a failing sync of %s: %v", at, err)
		}
		u, err := l.Create(t.Context(), "a/u")
		if err != nil {
			t.Fatal(err)
		}
		err = u.Commit()
		if !errors.Is(err, broken) || errors.Is(err, ErrUnknown) == known {
			t.Errorf("commit with a failing sync of %s: %v", at, err)
		}
		for _, name := range []string{"a/x", "a/u"} {
			_, err := os.Stat(l.path(name))
			if known != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after a failing sync of %s, %s: %v", at, name, err)
			}
		}
		if !known {
			// While the folder cannot be synced nobody is told that the name is taken for good.
			if err := l.PutIfAbsent(t.Context(), "a/x", []byte("2")); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrExists) {
				t.Errorf("put of a taken name with a failing sync of %s: %v", at, err)
			}
		}
		entries, err := os.ReadDir(l.path("a"))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isTemp(e.Name()) }) {
			t.Errorf("after a failing sync of %s a temporary file is left", at)
		}
	}

	// A new folder that cannot be synced holds no object.
	l, sp := spyOn(t)
	sp.fail = func(path string) error {
		if path == "root" {
			return broken
		}
		return nil
	}
	for range 2 {
		if err := l.PutIfAbsent(t.Context(), "new/x", nil); !errors.Is(err, broken) || errors.Is(err, ErrUnknown) {
			t.Errorf("put into a folder that cannot be synced: %v", err)
		}
	}
	sp.fail = nil
	if err := l.PutIfAbsent(t.Context(), "new/x", nil); err != nil {
		t.Error(err)
	}
}

// TestLocalUploadBuffers: an upload has its own bytes only, whatever became of those before it.
func TestLocalUploadBuffers(t *testing.T) {
	l, _ := spyOn(t)
	for i := range 20 {
		u, err := l.Create(t.Context(), "given-up")
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := u.(*localUpload).f.Close(); err != nil { // stands for a disk that takes no more bytes
				t.Fatal(err)
			}
			if _, err := u.Write(make([]byte, uploadBuffer+1)); err == nil {
				t.Error("write to a broken disk succeeded")
			}
		} else if _, err := u.Write([]byte("not these")); err != nil {
			t.Fatal(err)
		}
		u.Abort()
		u.Abort()
		if _, err := u.Write([]byte("x")); err == nil {
			t.Error("a write after the end succeeded")
		}
		name, want := fmt.Sprint("whole-", i), fmt.Sprint("these ", i)
		if u, err = l.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if err := u.Commit(); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadAll(t.Context(), l, name, 100); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// TestLocalDiskFull checks that a write that fails makes the upload come to nothing.
func TestLocalDiskFull(t *testing.T) {
	l, _ := spyOn(t)
	u, err := l.Create(t.Context(), "full")
	if err != nil {
		t.Fatal(err)
	}
	lu := u.(*localUpload)
	tmp := lu.f.Name()
	if err := lu.f.Close(); err != nil { // stands for a disk that takes no more bytes
		t.Fatal(err)
	}
	_, werr := u.Write(make([]byte, uploadBuffer+1))
	if werr == nil {
		t.Error("write to a broken disk succeeded")
	}
	if _, err := u.Write([]byte("x")); err == nil {
		t.Error("a later write succeeded")
	}
	if err := u.Commit(); err == nil {
		t.Error("commit succeeded")
	}
	for _, p := range []string{tmp, l.path("full")} {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", p, err)
		}
	}
}

// TestPutOnceUnsynced: an object whose folder could not be synced is not won, though it can be read, before a sync succeeds.
func TestPutOnceUnsynced(t *testing.T) {
	for fails, want := range map[int]bool{0: true, 1: true, 2: true, 1000: false} {
		l, err := NewLocal(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Put(t.Context(), "snapshot/x", nil); err != nil {
			t.Fatal(err)
		}
		left := fails
		l.sync = func(f *os.File) error {
			if filepath.Base(f.Name()) == "snapshot" && left > 0 {
				left--
				return syscall.EIO
			}
			return f.Sync()
		}
		won, err := PutOnce(t.Context(), l, "snapshot/snapshot-1", []byte("mine"))
		if won != want || want != (err == nil) || !want && (!errors.Is(err, ErrUnknown) || !errors.Is(err, syscall.EIO)) {
			t.Errorf("%d syncs fail: won %v, %v", fails, won, err)
		}
	}
}

// deletedOnce is a local store of which another process deletes an object as soon as it was read back.
type deletedOnce struct {
	*Local
	puts int
}

func (d *deletedOnce) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	d.puts++
	if err := d.Local.PutIfAbsent(ctx, name, data); err != nil {
		return err
	}
	return ErrUnknown
}

func (d *deletedOnce) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	data, err := d.Local.ReadAll(ctx, name, limit)
	return data, errors.Join(err, d.Delete(ctx, name))
}

// TestPutOnceRevives: what was put, with its reply lost, and was deleted by another process since, is won and does not come back.
func TestPutOnceRevives(t *testing.T) {
	l, err := NewLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []func(Store) Store{
		func(s Store) Store { return s },
		func(s Store) Store { return WithFaults(s, func(Op) error { return nil }) },
		func(s Store) Store { return Sub(s, "in") },
		func(s Store) Store { return WithCounter(s) },
	} {
		d := &deletedOnce{Local: l}
		synced := 0
		l.sync = func(f *os.File) error {
			synced++
			return f.Sync()
		}
		s := of(d)
		if err := s.Put(t.Context(), "calve/expiry/x", nil); err != nil { // makes the folder
			t.Fatal(err)
		}
		synced = 0
		won, err := PutOnce(t.Context(), s, "calve/expiry/1", []byte("ours"))
		if !won || err != nil || d.puts != 1 || synced != 3 { // the file, its folder, and that when it was read
			t.Errorf("%T: won %v, %v; %d puts, %d syncs", s, won, err, d.puts, synced)
		}
		if _, err := l.ReadAll(t.Context(), "calve/expiry/1", 10); !errors.Is(err, ErrNotFound) {
			t.Errorf("%T: an object that was deleted is there again: %v", s, err)
		}
	}
}

// TestLocalPutAll: each of several objects is synced, and then each folder once; a failing sync is told as that of one
// object is.
func TestLocalPutAll(t *testing.T) {
	broken := errors.New("input/output error")
	objects := []Object{{"m/1", []byte("a")}, {"m/2", []byte("b")}, {"n/3", []byte("c")}, {"m/4", nil}}
	for _, fails := range []string{"", "m/TEMP", "n"} {
		root := t.TempDir()
		l, err := NewLocal(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if err := l.Put(t.Context(), o.Name+"-before", nil); err != nil { // makes the folders
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var synced []string
		l.sync = func(f *os.File) error {
			rel, err := filepath.Rel(root, f.Name())
			if err != nil {
				return err
			}
			if isTemp(filepath.Base(rel)) {
				rel = filepath.Join(filepath.Dir(rel), "TEMP")
			}
			mu.Lock()
			defer mu.Unlock()
			synced = append(synced, rel)
			if rel == fails {
				return broken
			}
			return nil
		}
		err = l.PutAll(t.Context(), objects)
		switch {
		case fails == "" && err != nil:
			t.Error(err)
		case fails != "" && !errors.Is(err, broken), errors.Is(err, ErrUnknown) != (fails == "n"):
			t.Errorf("a sync of %s fails: %v", fails, err)
		}
		if len(synced) == 6 { // all were; files come before folders
			slices.Sort(synced[:4])
		}
		if want := "m/TEMP m/TEMP m/TEMP n/TEMP m n"; fails != "m/TEMP" && strings.Join(synced, " ") != want {
			t.Errorf("synced %q, want %q", synced, want)
		}
		for _, dir := range []string{"m", "n"} {
			entries, err := os.ReadDir(filepath.Join(root, dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if isTemp(e.Name()) {
					t.Errorf("a sync of %q fails, and %s is left", fails, e.Name())
				}
			}
		}
	}
}
