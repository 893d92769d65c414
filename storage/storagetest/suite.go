// Package storagetest holds what every storage.Store must do, as tests.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/calve-io/calve/storage"
)

// Run tests a kind of store. open makes a new, empty one for each test; it cleans up with t.Cleanup. The names,
// sizes and bytes are the same in every run, racing goroutines apart.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	tests := []struct {
		name string
		run  func(*testing.T, storage.Store)
	}{
		{"Names", testNames},
		{"OddNames", testOddNames},
		{"Context", testContext},
		{"PutIfAbsent", testPutIfAbsent},
		{"PutIfAbsentRace", testPutIfAbsentRace},
		{"Put", testPut},
		{"PutAll", testPutAll},
		{"Upload", testUpload},
		{"UploadSizes", testUploadSizes},
		{"UploadAbort", testUploadAbort},
		{"UploadContext", testUploadContext},
		{"Delete", testDelete},
		{"ReadAt", testReadAt},
		{"ReadAtConcurrent", testReadAtConcurrent},
		{"ReadEnds", testReadEnds},
		{"ReadAll", testReadAll},
		{"List", testList},
		{"ListMany", testListMany},
		{"Walk", testWalk},
		{"URL", testURL},
		{"Sub", testSub},
		{"PutOnce", testPutOnce},
		{"PutOnceLostReplies", testPutOnceLostReplies},
		{"PutOnceRace", testPutOnceRace},
		{"Faults", testFaults},
		{"Counter", testCounter},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, open(t)) })
	}
}

// randomBytes makes bytes that a seed names.
func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	rng := rand.NewChaCha8(key)
	rng.Read(b)
	return b
}

// rngFor makes a generator that the test's name names.
func rngFor(t *testing.T) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

func put(t *testing.T, s storage.Store, name string, data []byte) {
	t.Helper()
	if err := s.Put(t.Context(), name, data); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

func create(t *testing.T, s storage.Store, name string) storage.Upload {
	t.Helper()
	u, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return u
}

// wantObject checks an object's bytes by both ways of reading it.
func wantObject(t *testing.T, s storage.Store, name string, want []byte) {
	t.Helper()
	got, err := storage.ReadAll(t.Context(), s, name, int64(len(want))+1)
	if err != nil {
		t.Fatalf("read all of %s: %v", name, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: read %d bytes %.40q, want %d bytes %.40q", name, len(got), got, len(want), want)
	}
	f, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	defer f.Close()
	if f.Size() != int64(len(want)) {
		t.Fatalf("%s: size %d, want %d", name, f.Size(), len(want))
	}
	got = make([]byte, len(want))
	if n, err := f.ReadAt(got, 0); n != len(want) || (err != nil && !isEOF(err)) {
		t.Fatalf("%s: read %d of %d bytes: %v", name, n, len(want), err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: ReadAt gave other bytes than were written", name)
	}
}

// wantMissing checks that no way of reading finds an object.
func wantMissing(t *testing.T, s storage.Store, name string) {
	t.Helper()
	f, err := s.Open(t.Context(), name)
	if err == nil {
		f.Close()
	}
	wantErr(t, "open "+name, err, storage.ErrNotFound)
	_, err = storage.ReadAll(t.Context(), s, name, 1<<20)
	wantErr(t, "read all of "+name, err, storage.ErrNotFound)
	for info, err := range storage.Walk(t.Context(), s, "") {
		if err != nil {
			t.Fatalf("walk: %v", err)
		}
		if info.Name == name {
			t.Fatalf("walk yields %s, which does not exist", name)
		}
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want one that is %q", what, err, want)
	}
}

// listing makes "name size" and "name/" of what a listing yields.
func listing(t *testing.T, s storage.Store, dir string) []string {
	t.Helper()
	var out []string
	for info, err := range s.List(t.Context(), dir) {
		if err != nil {
			t.Fatalf("list %q: %v", dir, err)
		}
		if info.Dir {
			out = append(out, info.Name+"/")
		} else {
			out = append(out, fmt.Sprintf("%s %d", info.Name, info.Size))
		}
	}
	return out
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
