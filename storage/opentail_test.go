package storage_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

// TestOpenTail: the end that is asked for comes with the request that opens the object, through all that may be around the store.
func TestOpenTail(t *testing.T) {
	f := storagetest.NewFakeS3(t)
	s := f.Open("w")
	data := make([]byte, 300<<10)
	for i := range data {
		data[i] = byte(i % 251)
	}
	if err := s.PutIfAbsent(t.Context(), "sub/x", data); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tail, read int64
		more       string
	}{{200 << 10, 200 << 10, ""}, {0, 60 << 10, ""}, {100 << 10, 200 << 10, "GET bytes=102400-204799"}, {1 << 20, 300 << 10, ""}} {
		counter := storage.WithCounter(storage.Sub(s, "sub"))
		f.Take()
		file, err := storage.OpenTail(t.Context(), counter, "x", c.tail)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Take(); strings.Count(got, "GET bytes=-") != 1 || strings.Contains(got, ",") {
			t.Errorf("opened by %q", got)
		}
		buf := make([]byte, c.read)
		if _, err := file.ReadAt(buf, file.Size()-c.read); err != nil || !bytes.Equal(buf, data[int64(len(data))-c.read:]) {
			t.Error(err)
		}
		if got := f.Take(); got != c.more {
			t.Errorf("tail of %d: reading %d cost %q, want %q", c.tail, c.read, got, c.more)
		}
		if err := file.Close(); err != nil || counter.Counts().Of(storage.OpOpen).Calls != 1 {
			t.Error(err, counter.Counts())
		}
	}
}
