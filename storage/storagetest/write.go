package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"

	"github.com/calve-io/calve/storage"
)

func testPutIfAbsent(t *testing.T, s storage.Store) {
	ctx := t.Context()
	for _, size := range []int{0, 1, 1000, 1 << 20} {
		name := fmt.Sprintf("snapshot/snapshot-%d", size)
		data := randomBytes(1, size)
		given := slices.Clone(data)
		if err := s.PutIfAbsent(ctx, name, given); err != nil {
			t.Fatal(err)
		}
		for i := range given {
			given[i] = 0 // the store may not keep the caller's slice
		}
		wantObject(t, s, name, data)
		for range 3 {
			wantErr(t, "second put of "+name, s.PutIfAbsent(ctx, name, []byte("other")), storage.ErrExists)
		}
		wantObject(t, s, name, data)
	}
	put(t, s, "hint", []byte("h"))
	wantErr(t, "put if absent over a Put", s.PutIfAbsent(ctx, "hint", []byte("x")), storage.ErrExists)
	if err := s.Delete(ctx, "hint"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(ctx, "hint", []byte("again")); err != nil {
		t.Fatalf("put if absent of a deleted name: %v", err)
	}
	wantObject(t, s, "hint", []byte("again"))
}

// writers is how many goroutines race for a name.
const writers = 16

// race lets writers call f at the same moment.
func race(f func(writer int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for w := range writers {
		wg.Go(func() {
			<-start
			f(w)
		})
	}
	close(start)
	wg.Wait()
}

// testPutIfAbsentRace checks that of racing writers at most one is told that it created the object, that the object
// is then its own, and that the others are not told anything wrong.
func testPutIfAbsentRace(t *testing.T, s storage.Store) {
	for round := range 12 {
		name := fmt.Sprintf("race/%d/snapshot-%d", round%3, round)
		size := []int{100, 40_000}[round%2]
		errs := make([]error, writers)
		race(func(w int) { errs[w] = s.PutIfAbsent(t.Context(), name, randomBytes(uint64(w), size)) })
		winner := -1
		for w, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: writers %d and %d were both told that they won", round, winner, w)
			case err == nil:
				winner = w
			case !errors.Is(err, storage.ErrExists) && !errors.Is(err, storage.ErrUnknown):
				t.Fatalf("round %d: writer %d: %v", round, w, err)
			}
		}
		got, err := storage.ReadAll(t.Context(), s, name, 1<<20)
		if err != nil {
			t.Fatalf("round %d: nobody's object is there: %v", round, err)
		}
		if winner >= 0 && !bytes.Equal(got, randomBytes(uint64(winner), size)) {
			t.Fatalf("round %d: the object is not that of writer %d, who won", round, winner)
		}
	}
}

func testPut(t *testing.T, s storage.Store) {
	for _, data := range []string{"1", "22", "", "longer than before"} {
		put(t, s, "snapshot/LATEST", []byte(data))
		wantObject(t, s, "snapshot/LATEST", []byte(data))
	}
	// Readers during writes see a whole content or, for a moment, none.
	const hints = 40
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range hints {
				got, err := storage.ReadAll(t.Context(), s, "snapshot/LATEST", 1<<20)
				if errors.Is(err, storage.ErrNotFound) || string(got) == "longer than before" {
					continue
				}
				if err != nil || len(got) == 0 || !bytes.Equal(got, bytes.Repeat(got[:1], len(got))) {
					t.Errorf("a reader saw %d bytes %.20q, error %v", len(got), got, err)
					return
				}
			}
		})
	}
	for i := range hints {
		put(t, s, "snapshot/LATEST", bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*100))
	}
	wg.Wait()
}

// testPutAll checks that objects of several folders are written, over older ones too, and what is said when one cannot be.
func testPutAll(t *testing.T, s storage.Store) {
	ctx := t.Context()
	if err := storage.PutAll(ctx, s, nil); err != nil {
		t.Error(err)
	}
	for round := range 2 {
		var objects []storage.Object
		for i := range 20 {
			objects = append(objects, storage.Object{Name: fmt.Sprintf("all/%d/o%d", i%3, i), Data: randomBytes(uint64(round*100+i), i*i*300)})
		}
		if err := storage.PutAll(ctx, storage.Sub(s, "in"), objects); err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			data := slices.Clone(o.Data)
			clear(o.Data) // the store may not keep the caller's slice
			wantObject(t, s, "in/"+o.Name, data)
		}
		for i := range 3 {
			if got := listing(t, s, fmt.Sprintf("in/all/%d", i)); len(got) != []int{7, 7, 6}[i] {
				t.Errorf("round %d: folder %d holds %v", round, i, got)
			}
		}
	}
	err := storage.PutAll(ctx, s, []storage.Object{{Name: "good", Data: []byte("1")}, {Name: "bad/../name"}})
	wantErr(t, "put all of a bad name", err, storage.ErrBadName)
	boom := errors.New("boom")
	fails := storage.WithFaults(s, func(op storage.Op) error {
		switch {
		case op.Kind == storage.OpCommit && op.Name == "x/2":
			return storage.LoseReply(boom)
		case op.Kind == storage.OpCreate && op.Name == "x/3":
			return boom
		}
		return nil
	})
	two := []storage.Object{{Name: "x/1"}, {Name: "x/2", Data: []byte("2")}}
	wantErr(t, "put all, a reply lost", storage.PutAll(ctx, fails, two), storage.ErrUnknown)
	wantObject(t, s, "x/2", []byte("2"))
	wantErr(t, "put all, one refused", storage.PutAll(ctx, fails, []storage.Object{{Name: "x/1"}, {Name: "x/3"}}), boom)
	wantMissing(t, s, "x/3")
}

func testUpload(t *testing.T, s storage.Store) {
	const name = "bucket-0/data-1.parquet"
	u := create(t, s, name)
	for range 3 {
		if n, err := u.Write([]byte("abc")); n != 3 || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
		wantMissing(t, s, name)
		if got := listing(t, s, "bucket-0"); len(got) != 0 {
			t.Fatalf("an upload in progress is listed: %v", got)
		}
	}
	if err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	wantObject(t, s, name, []byte("abcabcabc"))
	if _, err := u.Write([]byte("x")); err == nil {
		t.Error("write after Commit succeeded")
	}
	wantErr(t, "second commit", u.Commit(), fs.ErrClosed)
	u.Abort() // does nothing
	wantObject(t, s, name, []byte("abcabcabc"))

	two := create(t, s, name)
	if _, err := two.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	wantObject(t, s, name, []byte("abcabcabc"))
	if err := two.Commit(); err != nil {
		t.Fatal(err)
	}
	wantObject(t, s, name, []byte("new"))
	if got := listing(t, s, "bucket-0"); len(got) != 1 {
		t.Fatalf("the folder holds %v, want the object alone", got)
	}
}

// testUploadSizes uploads around the sizes at which a store changes its way of sending.
func testUploadSizes(t *testing.T, s storage.Store) {
	const part = 8 << 20
	rng := rngFor(t)
	for _, size := range []int{0, 1, 300_000, part - 1, part, 2*part + 12345} {
		name := fmt.Sprintf("up/%d", size)
		data := randomBytes(uint64(size), size)
		u := create(t, s, name)
		buf := make([]byte, 0, 1<<20)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(1<<20))
			buf = append(buf[:0], rest[:n]...)
			if _, err := u.Write(buf); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := u.Commit(); err != nil {
			t.Fatal(err)
		}
		wantObject(t, s, name, data)
	}
}

func testUploadAbort(t *testing.T, s storage.Store) {
	for _, size := range []int{0, 10, 20 << 20} {
		u := create(t, s, "aborted")
		data := randomBytes(3, 1<<20)
		for left := size; left > 0; left -= len(data) {
			if _, err := u.Write(data[:min(left, len(data))]); err != nil {
				t.Fatal(err)
			}
		}
		u.Abort()
		u.Abort()
		if _, err := u.Write([]byte("x")); err == nil {
			t.Error("write after Abort succeeded")
		}
		if err := u.Commit(); err == nil {
			t.Error("commit after Abort succeeded")
		}
		wantMissing(t, s, "aborted")
	}
	if got := listing(t, s, ""); len(got) != 0 {
		t.Errorf("aborted uploads left %v", got)
	}
}

// testUploadContext checks that an upload whose context ends comes to nothing, whatever was written.
func testUploadContext(t *testing.T, s storage.Store) {
	for _, size := range []int{10, 20 << 20} {
		ctx, cancel := context.WithCancel(t.Context())
		u, err := s.Create(ctx, "late")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		cancel()
		_, err = u.Write(make([]byte, size))
		wantErr(t, "write after the context's end", err, context.Canceled)
		wantErr(t, "commit after the context's end", u.Commit(), context.Canceled)
		u.Abort()
		wantMissing(t, s, "late")
	}
}

func testDelete(t *testing.T, s storage.Store) {
	ctx := t.Context()
	put(t, s, "d/e/f", []byte("x"))
	for _, name := range []string{"none", "no/such/folder", "d", "d/e", "d/e/f/g"} {
		if err := s.Delete(ctx, name); err != nil {
			t.Errorf("delete %s, which does not exist: %v", name, err)
		}
	}
	wantObject(t, s, "d/e/f", []byte("x"))
	for range 2 {
		if err := s.Delete(ctx, "d/e/f"); err != nil {
			t.Fatal(err)
		}
		wantMissing(t, s, "d/e/f")
	}
	put(t, s, "d/e/f", []byte("y"))
	wantObject(t, s, "d/e/f", []byte("y"))
}
