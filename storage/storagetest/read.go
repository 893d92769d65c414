package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/calve-io/calve/storage"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

func openFile(t *testing.T, s storage.Store, name string) storage.File {
	t.Helper()
	f, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	return f
}

// wantRange checks one ReadAt against the object's bytes.
func wantRange(f storage.File, data []byte, off int64, n int) error {
	want := data[min(off, int64(len(data))):]
	want = want[:min(n, len(want))]
	p := make([]byte, n)
	got, err := f.ReadAt(p, off)
	switch {
	case got != len(want) || !bytes.Equal(p[:got], want):
		return fmt.Errorf("ReadAt(%d bytes, %d) of %d: got %d bytes, error %v; want %d bytes", n, off, len(data), got, err, len(want))
	case got < n && err != io.EOF:
		return fmt.Errorf("ReadAt(%d bytes, %d) of %d: got %d bytes, error %v; want io.EOF", n, off, len(data), got, err)
	case got == n && err != nil && err != io.EOF:
		return fmt.Errorf("ReadAt(%d bytes, %d) of %d: %w", n, off, len(data), err)
	}
	return nil
}

func testReadAt(t *testing.T, s storage.Store) {
	rng := rngFor(t)
	const tail = 64 << 10 // what a store may have read ahead
	for _, size := range []int{0, 1, 1000, tail - 1, tail, tail + 1, 300_000} {
		name := fmt.Sprintf("f/%d", size)
		data := randomBytes(uint64(size), size)
		put(t, s, name, data)
		f := openFile(t, s, name)
		if f.Size() != int64(size) {
			t.Fatalf("size %d, want %d", f.Size(), size)
		}
		for range 30 {
			off := rng.Int64N(int64(size) + 3)
			if err := wantRange(f, data, off, rng.IntN(size+10)); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{0, 1, 100} {
			for _, back := range []int64{-5, 0, 1, 8, 99, 100, 101, tail, tail + 1, tail + 50} {
				if off := int64(size) - back; off >= 0 {
					if err := wantRange(f, data, off, n); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if n, err := f.ReadAt(make([]byte, 1), -1); n != 0 || err == nil {
			t.Errorf("ReadAt a negative offset: %d, %v", n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func testReadAtConcurrent(t *testing.T, s storage.Store) {
	data := randomBytes(7, 500_000)
	put(t, s, "f", data)
	f := openFile(t, s, "f")
	defer f.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for range 25 {
				if err := wantRange(f, data, rng.Int64N(int64(len(data))), 1+rng.IntN(50_000)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// testReadEnds checks reads after Close, after the context's end, and of what is no object.
func testReadEnds(t *testing.T, s storage.Store) {
	put(t, s, "dir/f", randomBytes(1, 200_000))
	f := openFile(t, s, "dir/f")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := f.ReadAt(make([]byte, 10), 0)
	wantErr(t, "read after Close", err, fs.ErrClosed)

	ctx, cancel := context.WithCancel(t.Context())
	f, err = s.Open(ctx, "dir/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cancel()
	_, err = f.ReadAt(make([]byte, 10), 0)
	wantErr(t, "read after the context's end", err, context.Canceled)

	for _, name := range []string{"dir", "di", "dir/f/g", "dir/f2", "none/f"} {
		_, err := s.Open(t.Context(), name)
		wantErr(t, "open "+name, err, storage.ErrNotFound)
		if !strings.Contains(err.Error(), s.URL(name)) {
			t.Errorf("error %q does not name %s", err, s.URL(name))
		}
	}
}

func testReadAll(t *testing.T, s storage.Store) {
	data := randomBytes(9, 5000)
	put(t, s, "f", data)
	for _, limit := range []int64{5000, 5001, 1 << 40} {
		got, err := storage.ReadAll(t.Context(), s, "f", limit)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("limit %d: %d bytes, %v", limit, len(got), err)
		}
		for i := range got {
			got[i] = 0 // the caller owns them
		}
	}
	for _, limit := range []int64{0, 4999} {
		_, err := storage.ReadAll(t.Context(), s, "f", limit)
		wantErr(t, "read all over the limit", err, storage.ErrTooLarge)
		if !strings.Contains(err.Error(), fmt.Sprint(limit)) || !strings.Contains(err.Error(), s.URL("f")) {
			t.Errorf("error %q does not name the limit and the object", err)
		}
	}
	put(t, s, "empty", nil)
	if got, err := storage.ReadAll(t.Context(), s, "empty", 0); err != nil || len(got) != 0 {
		t.Errorf("an empty object: %d bytes, %v", len(got), err)
	}
	_, err := storage.ReadAll(t.Context(), s, "none", 10)
	wantErr(t, "read all of nothing", err, storage.ErrNotFound)
}
