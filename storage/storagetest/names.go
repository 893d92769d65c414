package storagetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/calve-io/calve/storage"
)

// operations calls everything that takes a name, by what it is called.
func operations(ctx context.Context, s storage.Store, name string) map[string]error {
	errs := make(map[string]error)
	f, err := s.Open(ctx, name)
	if err == nil {
		f.Close()
	}
	errs["open"] = err
	_, err = storage.ReadAll(ctx, s, name, 1<<20)
	errs["read all"] = err
	u, err := s.Create(ctx, name)
	if err == nil {
		_, err = u.Write([]byte("x"))
		err = errors.Join(err, u.Commit())
	}
	errs["create"] = err
	errs["put if absent"] = s.PutIfAbsent(ctx, name, []byte("x"))
	errs["put"] = s.Put(ctx, name, []byte("x"))
	errs["put all"] = storage.PutAll(ctx, s, []storage.Object{{Name: name, Data: []byte("x")}})
	errs["delete"] = s.Delete(ctx, name)
	for _, err := range s.List(ctx, name) {
		errs["list"] = err
	}
	for _, err := range storage.Walk(ctx, s, name) {
		errs["walk"] = err
	}
	return errs
}

// testNames checks that hostile names are refused by every operation and leave no trace.
func testNames(t *testing.T, s storage.Store) {
	outer := storage.Sub(s, "outer")
	put(t, s, "outer/in", []byte("inside"))
	put(t, s, "secret", []byte("outside"))
	bad := []string{
		"..", "../secret", "../outer/in", "a/../../secret", "a/..", "a/.", ".", "./in", "a/./b", "/in", "/etc/passwd",
		"a//b", "a/", "//", "a\x00b", "a\nb", "\x7f", "a\xffb", "a/.calve-1-2.tmp", ".calve-x.tmp", strings.Repeat("../", 40) + "etc/passwd",
	}
	for _, store := range []storage.Store{s, outer} {
		for _, name := range bad {
			for op, err := range operations(t.Context(), store, name) {
				if !errors.Is(err, storage.ErrBadName) {
					t.Errorf("%s %q: got error %v, want one that is %q", op, name, err, storage.ErrBadName)
				}
			}
			if _, err := storage.PutOnce(t.Context(), store, name, []byte("x")); !errors.Is(err, storage.ErrBadName) {
				t.Errorf("put once %q: got error %v", name, err)
			}
		}
		for op, err := range operations(t.Context(), store, "") {
			if op != "list" && op != "walk" && !errors.Is(err, storage.ErrBadName) {
				t.Errorf("%s of the empty name: got error %v, want one that is %q", op, err, storage.ErrBadName)
			}
		}
	}
	for op, err := range operations(t.Context(), storage.Sub(s, "outer/.."), "secret") {
		if !errors.Is(err, storage.ErrBadName) {
			t.Errorf("%s below a hostile prefix: got error %v", op, err)
		}
	}
	wantObject(t, s, "secret", []byte("outside"))
	wantObject(t, outer, "in", []byte("inside"))
	if got := strings.Join(listing(t, s, ""), ", "); got != "outer/, secret 7" {
		t.Errorf("afterwards the store holds %s", got)
	}
}

// testOddNames checks names that are allowed and easily damaged on their way.
func testOddNames(t *testing.T, s storage.Store) {
	names := []string{
		"p=a%2Fb/bucket-0/data-1.parquet", "p=ü ñ 日本/bucket-0/x", "a b+c&d?e#f'g", "a../b..c/...d/..e", "x__0x2f__y", "~$!@()[]{};:,=\\",
		"-/--", ".hidden/.x.tmp", ".calve-", strings.Repeat("l", 200) + "/" + strings.Repeat("ü", 100),
	}
	for _, name := range names {
		data := []byte("of " + name)
		put(t, s, name, data)
		wantObject(t, s, name, data)
		wantErr(t, "put if absent "+name, s.PutIfAbsent(t.Context(), name, nil), storage.ErrExists)
		u := create(t, s, name+".up")
		if _, err := u.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := u.Commit(); err != nil {
			t.Fatal(err)
		}
		wantObject(t, s, name+".up", data)
		dir, base := "", name
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			dir, base = name[:i], name[i+1:]
		}
		got := strings.Join(listing(t, storage.Sub(s, dir), ""), "\n")
		if dir != "" && (!strings.Contains(got, base+" ") || !strings.Contains(got, base+".up ")) {
			t.Errorf("list %q yields %q, which lacks %q", dir, got, base)
		}
	}
	left := make(map[string]bool)
	for info, err := range storage.Walk(t.Context(), s, "") {
		if err != nil {
			t.Fatal(err)
		}
		left[info.Name] = true
	}
	for _, name := range names {
		if !left[name] || !left[name+".up"] {
			t.Errorf("walk lacks %q", name)
		}
		for _, n := range []string{name, name + ".up"} {
			if err := s.Delete(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			wantMissing(t, s, n)
		}
	}
}

// testContext checks that nothing is done under a context that has ended.
func testContext(t *testing.T, s storage.Store) {
	put(t, s, "there", []byte("1"))
	for op, err := range operations(ended(t), s, "there") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s under an ended context: got error %v", op, err)
		}
	}
	for op, err := range operations(ended(t), s, "new") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s of a new name under an ended context: got error %v", op, err)
		}
	}
	wantObject(t, s, "there", []byte("1"))
	wantMissing(t, s, "new")
}
