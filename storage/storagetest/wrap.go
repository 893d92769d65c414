package storagetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/calve-io/calve/storage"
)

// testFaults checks what callers see of each fault, and that the store behind it holds what it should.
func testFaults(t *testing.T, s storage.Store) {
	ctx := t.Context()
	boom := errors.New("boom")
	data := randomBytes(5, 200_000)
	put(t, s, "there", data)

	for op, err := range operations(ctx, storage.WithFaults(s, func(storage.Op) error { return boom }), "there") {
		if !errors.Is(err, boom) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s under a fault: got error %v", op, err)
		}
	}
	wantObject(t, s, "there", data)

	f, err := storage.WithFaults(s, script(storage.OpRead, storage.Partial(7, io.ErrUnexpectedEOF))).Open(ctx, "there")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	n, err := f.ReadAt(p, 50)
	if n != 7 || !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(p[:7], data[50:57]) {
		t.Errorf("a partial read gave %d bytes, error %v", n, err)
	}
	if err := wantRange(f, data, 50, 100); err != nil {
		t.Error(err)
	}
	f.Close()

	full := storage.WithFaults(s, script(storage.OpWrite, nil, storage.Partial(2, boom)))
	u := create(t, full, "full")
	if _, err := u.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	n, err = u.Write([]byte("second"))
	if n != 2 || !errors.Is(err, boom) {
		t.Errorf("a partial write took %d bytes, error %v", n, err)
	}
	wantErr(t, "commit after a write failed", u.Commit(), boom)
	wantMissing(t, s, "full")

	lost := storage.LoseReply(boom)
	u = create(t, storage.WithFaults(s, script(storage.OpCommit, lost)), "up")
	wantErr(t, "commit, reply lost", u.Commit(), storage.ErrUnknown)
	wantObject(t, s, "up", nil)
	u = create(t, storage.WithFaults(s, script(storage.OpCommit, boom)), "up2")
	wantErr(t, "commit, not made", u.Commit(), boom)
	u.Abort()
	wantMissing(t, s, "up2")
	wantErr(t, "delete, reply lost", storage.WithFaults(s, script(storage.OpDelete, lost)).Delete(ctx, "up"), storage.ErrUnknown)
	wantMissing(t, s, "up")

	for _, fault := range []error{storage.ErrHang, storage.LoseReply(storage.ErrHang)} {
		hctx, cancel := context.WithCancel(ctx)
		hang := storage.WithFaults(s, func(storage.Op) error { cancel(); return fault })
		wantErr(t, "put, hanging", hang.Put(hctx, "hung", nil), context.Canceled)
		if fault == storage.ErrHang {
			wantMissing(t, s, "hung")
		}
	}
}

func testCounter(t *testing.T, s storage.Store) {
	ctx := t.Context()
	c := storage.WithCounter(s)
	if got := c.Counts(); got != (storage.Counts{}) || got.String() != "nothing" {
		t.Fatalf("a new counter says %v", got)
	}
	put(t, c, "a", []byte("12345"))
	if err := c.PutIfAbsent(ctx, "b/c", []byte("123")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "put if absent", c.PutIfAbsent(ctx, "b/c", []byte("123")), storage.ErrExists)
	before := c.Counts()
	wantObject(t, c, "a", []byte("12345"))
	u := create(t, c, "u")
	if _, err := u.Write(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	listing(t, c, "")
	for range storage.Walk(ctx, c, "") {
		continue
	}
	if err := c.Delete(ctx, "u"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Open(ctx, "u")
	wantErr(t, "open", err, storage.ErrNotFound)

	const since = "open 2 (1 failed), read 1 (5 B), read all 1 (5 B), create 1, write 1 (10 B), commit 1, list 1, walk 1, delete 1"
	if got := c.Counts().Since(before).String(); got != since {
		t.Errorf("counted %s\nwant    %s", got, since)
	}
	if got := before.String(); got != "put if absent 2 (3 B) (1 failed), put 1 (5 B)" {
		t.Errorf("counted %s before", got)
	}
	if got := c.Counts().Of(storage.OpPutIfAbsent); got != (storage.Stat{Calls: 2, Errors: 1, Bytes: 3}) {
		t.Errorf("counted %+v of put if absent", got)
	}
	if got := c.Counts().Total(); got.Calls != 13 || got.Bytes != 28 {
		t.Errorf("counted %+v in all", got)
	}
}
