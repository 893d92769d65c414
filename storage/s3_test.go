package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

func TestS3(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		f := storagetest.NewFakeS3(t)
		s := f.Open("warehouse/prefix")
		must(t, s.Delete(t.Context(), "calve/conditional-put"))
		t.Cleanup(func() {
			f.Lock()
			defer f.Unlock()
			if len(f.Parts) > 0 {
				t.Errorf("%d multipart uploads are left unfinished", len(f.Parts))
			}
			for key := range f.Keys {
				if !strings.HasPrefix(key, "warehouse/prefix/") {
					t.Errorf("an object outside of the prefix: %q", key)
				}
			}
		})
		return s
	})
}

// TestS3Costs holds the requests that each operation makes, as the store's comment states them.
func TestS3Costs(t *testing.T) {
	f := storagetest.NewFakeS3(t)
	ctx := t.Context()
	s := f.Open("w")
	cost := func(what, want string, do func() error) {
		t.Helper()
		f.Take()
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := f.Take(); got != want {
			t.Errorf("%s cost %q, want %q", what, got, want)
		}
	}
	read := func(n int, off int64, name string) func() error {
		return func() error {
			file, err := s.Open(ctx, name)
			if err != nil {
				return err
			}
			f.Take()
			_, err = file.ReadAt(make([]byte, n), off)
			return errors.Join(err, file.Close())
		}
	}
	small, large := bytes.Repeat([]byte("s"), 1000), bytes.Repeat([]byte("l"), 1<<20)
	cost("put if absent", "PUT if absent", func() error { return s.PutIfAbsent(ctx, "small", small) })
	cost("put", "PUT", func() error { return s.Put(ctx, "large", large) })
	cost("a large put if absent", "PUT if absent", func() error { return s.PutIfAbsent(ctx, "huge", make([]byte, 20<<20)) })
	cost("read all", "GET", func() error { _, err := storage.ReadAll(ctx, s, "large", 1<<20); return err })
	cost("open", "GET bytes=-65536", func() error { _, err := s.Open(ctx, "large"); return err })
	cost("read of a small object", "", read(1000, 0, "small"))
	cost("read near the end", "", read(65536, 1<<20-65536, "large"))
	cost("read elsewhere", "GET bytes=100-299", read(200, 100, "large"))
	cost("read over the border", "GET bytes=983035-983039", read(10, 983035, "large"))
	cost("delete", "DELETE", func() error { return s.Delete(ctx, "huge") })
	cost("upload", "PUT", func() error {
		u, err := s.Create(ctx, "u")
		if err != nil {
			return err
		}
		_, err = u.Write(large)
		return errors.Join(err, u.Commit())
	})
	cost("list", "GET list-type", func() error {
		for _, err := range s.List(ctx, "") {
			return err
		}
		return nil
	})
	cost("open again", "PUT if absent", func() error { f.Open("w"); return nil })
}

// TestS3Probe checks that a server is refused that does not honour conditional puts, unless only reading is wanted.
func TestS3Probe(t *testing.T) {
	f := storagetest.NewFakeS3(t)
	f.IgnoreConditions = true
	_, err := storage.OpenURL(t.Context(), "s3://bucket/w", f.Options())
	if !errors.Is(err, storage.ErrUnsafe) || !strings.Contains(err.Error(), "s3://bucket/w") {
		t.Errorf("a server that ignores conditions: %v", err)
	}
	opts := f.Options()
	opts.ReadOnly = true
	f.Take()
	s, err := storage.OpenURL(t.Context(), "s3://bucket/w", opts)
	must(t, err)
	if got := f.Take(); got != "" {
		t.Errorf("opening for reading cost %q", got)
	}
	if err := s.PutIfAbsent(t.Context(), "x", nil); !errors.Is(err, storage.ErrReadOnly) {
		t.Errorf("a put into a read-only store: %v", err)
	}
	for _, err := range s.List(t.Context(), "") {
		must(t, err)
	}
	f.Arm(func(w http.ResponseWriter, r *http.Request) bool {
		storagetest.RefuseS3(w, http.StatusForbidden, "AccessDenied")
		return true
	}, nil)
	_, err = storage.OpenURL(t.Context(), "s3://bucket/w", f.Options())
	if err == nil || errors.Is(err, storage.ErrUnsafe) || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("a server that refuses: %v", err)
	}
}

// times makes a hook that answers the first n requests of a method.
func times(n int64, method string, answer func(http.ResponseWriter)) func() storagetest.S3Hook {
	return func() storagetest.S3Hook {
		var seen atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method || seen.Add(1) > n {
				return false
			}
			answer(w)
			return true
		}
	}
}

// inTurn makes hooks that answer the first requests to write, one each; nil lets one go on.
func inTurn(answers ...func(http.ResponseWriter)) func() storagetest.S3Hook {
	return func() storagetest.S3Hook {
		var seen atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut {
				return false
			}
			n := int(seen.Add(1)) - 1
			if n >= len(answers) || answers[n] == nil {
				return false
			}
			answers[n](w)
			return true
		}
	}
}

// status answers with an error of S3.
func status(code int, name string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { storagetest.RefuseS3(w, code, name) }
}

// TestS3WriteOutcomes checks what is said of a conditional put when the server or the line fails.
func TestS3WriteOutcomes(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "2")
	f := storagetest.NewFakeS3(t)
	s := f.Open("w")
	refused := errors.New("neither done nor unknown")
	const put, always = http.MethodPut, 1000
	for i, c := range []struct {
		name          string
		before, after func() storagetest.S3Hook
		err           error // of PutIfAbsent
		won           bool  // of PutOnce, without error
	}{
		{name: "fine", won: true},
		{name: "busy once", before: times(1, put, status(503, "SlowDown")), won: true},
		{name: "conflict once", before: times(1, put, status(409, "ConditionalRequestConflict")), won: true},
		{name: "reply lost, the retry finds its own object", after: times(1, put, storagetest.HangUp), err: storage.ErrExists, won: true},
		{name: "reply lost in all attempts", after: times(2, put, storagetest.HangUp), err: storage.ErrUnknown, won: true},
		{name: "request lost in all attempts", before: times(2, put, storagetest.HangUp), err: storage.ErrUnknown, won: true},
		{name: "down", before: times(always, put, status(500, "InternalError")), err: storage.ErrUnknown},
		{name: "refused", before: times(always, put, status(403, "AccessDenied")), err: refused},
		{name: "reply lost, the retry is refused", before: inTurn(nil, status(403, "ExpiredToken")), after: times(1, put, storagetest.HangUp), err: storage.ErrUnknown, won: true},
		{name: "request on its way, the retry is refused", before: inTurn(storagetest.HangUp, status(403, "ExpiredToken")), err: storage.ErrUnknown, won: true},
		{name: "conflicts, then refused", before: inTurn(status(409, "ConditionalRequestConflict"), status(403, "ExpiredToken")), err: refused},
	} {
		arm := func() {
			var before, after storagetest.S3Hook
			if c.before != nil {
				before = c.before()
			}
			if c.after != nil {
				after = c.after()
			}
			f.Arm(before, after)
		}
		arm()
		err := s.PutIfAbsent(t.Context(), fmt.Sprintf("put-%d", i), []byte("mine"))
		switch {
		case c.err == refused:
			if err == nil || errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrExists) {
				t.Errorf("%s: got error %v, want one that is %v", c.name, err, refused)
			}
		case !errors.Is(err, c.err) || (err != nil && c.err == nil):
			t.Errorf("%s: got error %v, want %v", c.name, err, c.err)
		}
		arm()
		won, err := storage.PutOnce(t.Context(), s, fmt.Sprintf("once-%d", i), []byte("mine"))
		if won != c.won || (err == nil) != c.won || errors.Is(err, storage.ErrUnknown) != (c.err == storage.ErrUnknown && !c.won) {
			t.Errorf("%s: put once won %v, error %v; want %v", c.name, won, err, c.won)
		}
	}
}

// TestS3UploadOutcomes checks that an upload that fails is reported, and that its parts go.
func TestS3UploadOutcomes(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	f := storagetest.NewFakeS3(t)
	s := f.Open("w")
	var puts atomic.Int64
	f.Arm(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && puts.Add(1) == 2 {
			storagetest.RefuseS3(w, http.StatusInsufficientStorage, "QuotaExceeded")
			return true
		}
		return false
	}, nil)
	u, err := s.Create(t.Context(), "u")
	must(t, err)
	var werr error
	for range 100 { // the upload runs beside, so that a later Write or Commit meets the failure
		if _, werr = u.Write(make([]byte, 1<<20)); werr != nil {
			break
		}
	}
	if werr == nil || !strings.Contains(werr.Error(), "QuotaExceeded") {
		t.Errorf("write to a full store: %v", werr)
	}
	if err := u.Commit(); err == nil || !strings.Contains(err.Error(), "QuotaExceeded") {
		t.Errorf("commit to a full store: %v", err)
	}
	f.Lock()
	defer f.Unlock()
	if len(f.Parts) != 0 || f.Keys["w/u"] != nil {
		t.Errorf("a failed upload leaves %d unfinished uploads and %d bytes", len(f.Parts), len(f.Keys["w/u"]))
	}
}

// breakOff sends the beginning of what was asked for and then hangs up.
func breakOff(data []byte) storagetest.S3Hook {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		var first, last int
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
			first, last = 0, len(data)-1
			if back := strings.TrimPrefix(r.Header.Get("Range"), "bytes=-"); back != "" {
				first = len(data) - min(len(data), 65536)
			}
		}
		part := data[first : last+1]
		w.Header().Set("ETag", storagetest.ETag(data))
		w.Header().Set("Content-Length", fmt.Sprint(len(part)))
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(data)))
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(part[:len(part)*2/3])
		return true // the server closes the connection of an answer cut short
	}
}

// TestS3BrokenBodies checks that a body that breaks off is asked for again from where it broke.
func TestS3BrokenBodies(t *testing.T) {
	f := storagetest.NewFakeS3(t)
	ctx := t.Context()
	s := f.Open("w")
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	must(t, s.Put(ctx, "f", data))
	broken := func(n int64) {
		cut := breakOff(data)
		var seen atomic.Int64
		f.Arm(func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodGet && seen.Add(1) <= n && cut(w, r)
		}, nil)
		f.Take()
	}
	broken(2)
	got, err := storage.ReadAll(ctx, s, "f", 1<<20)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("read all: %d bytes, %v", len(got), err)
	}
	broken(2)
	file, err := s.Open(ctx, "f")
	must(t, err)
	defer file.Close()
	broken(2)
	p := make([]byte, 90_000)
	if n, err := file.ReadAt(p, 1000); err != nil || !bytes.Equal(p[:n], data[1000:91_000]) {
		t.Errorf("read: %d bytes, %v", n, err)
	}
	if got, want := f.Take(), "GET bytes=1000-90999, GET bytes=61000-90999, GET bytes=81000-90999"; got != want {
		t.Errorf("a read that broke off twice cost %q, want %q", got, want)
	}
	broken(1000)
	if _, err := storage.ReadAll(ctx, s, "f", 1<<20); err == nil || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("read all, broken for good: %v", err)
	}
	if n, err := file.ReadAt(p, 1000); err == nil || n == 0 || !bytes.Equal(p[:n], data[1000:1000+n]) {
		t.Errorf("read, broken for good: %d bytes, %v", n, err)
	}
}

// TestS3Changes checks that a read never mixes versions of an object and never trusts an answer that does not fit.
func TestS3Changes(t *testing.T) {
	f := storagetest.NewFakeS3(t)
	ctx := t.Context()
	s := f.Open("w")
	must(t, s.Put(ctx, "f", bytes.Repeat([]byte("1"), 200_000)))
	file, err := s.Open(ctx, "f")
	must(t, err)
	defer file.Close()
	must(t, s.Put(ctx, "f", bytes.Repeat([]byte("2"), 200_000)))
	if n, err := file.ReadAt(make([]byte, 10), 0); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("read of an object replaced meanwhile: %d bytes, %v", n, err)
	}
	must(t, s.Delete(ctx, "f"))
	if _, err := file.ReadAt(make([]byte, 10), 0); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("read of an object deleted meanwhile: %v", err)
	}

	f.IgnoreRanges = true
	must(t, s.Put(ctx, "whole", bytes.Repeat([]byte("3"), 200_000)))
	whole, err := s.Open(ctx, "whole")
	must(t, err)
	defer whole.Close()
	if n, err := whole.ReadAt(make([]byte, 10), 5); err == nil {
		t.Errorf("a server that ignores ranges gave %d bytes", n)
	}
	must(t, s.Put(ctx, "small", []byte("0123456789")))
	small, err := s.Open(ctx, "small")
	must(t, err)
	defer small.Close()
	p := make([]byte, 4)
	if _, err := small.ReadAt(p, 3); err != nil || string(p) != "3456" {
		t.Errorf("a small object from a server that ignores ranges: %q, %v", p, err)
	}
}

// TestS3Markers checks that what Hadoop and consoles leave for empty folders is no object.
func TestS3Markers(t *testing.T) {
	f := storagetest.NewFakeS3(t)
	s := f.Open("w")
	must(t, s.Delete(t.Context(), "calve/conditional-put"))
	f.Lock()
	for _, key := range []string{"w/", "w/dir/", "w/dir/x", "w/empty/", "w//odd", "other"} {
		f.Keys[key] = nil
	}
	f.Unlock()
	var got []string
	for info, err := range s.List(t.Context(), "") {
		must(t, err)
		got = append(got, info.Name)
	}
	for info, err := range s.List(t.Context(), "dir") {
		must(t, err)
		got = append(got, info.Name)
	}
	for info, err := range storage.Walk(t.Context(), s, "") {
		must(t, err)
		got = append(got, "walk "+info.Name)
	}
	if want := "dir empty dir/x walk dir/x"; strings.Join(got, " ") != want {
		t.Errorf("listed %q, want %q", got, want)
	}
}
