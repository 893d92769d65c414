package storagetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/storage"
)

func testList(t *testing.T, s storage.Store) {
	for _, dir := range []string{"", "none", "no/such"} {
		if got := listing(t, s, dir); len(got) != 0 {
			t.Errorf("an empty store lists %q as %v", dir, got)
		}
	}
	// Listed by key, "a-b" and "a.b" come before what is in folder "a", and "B" before "a".
	for _, name := range []string{"a/x", "a/y/z", "a/y/zz", "a-b", "a.b/c", "a0", "aa", "B", "b"} {
		put(t, s, name, []byte(name))
	}
	for dir, want := range map[string]string{
		"":      "B 1, a/, a-b 3, a.b/, a0 2, aa 2, b 1",
		"a":     "a/x 3, a/y/",
		"a/y":   "a/y/z 5, a/y/zz 6",
		"a.b":   "a.b/c 5",
		"a/x":   "",
		"a/y/z": "",
		"A":     "",
	} {
		if got := strings.Join(listing(t, s, dir), ", "); got != want {
			t.Errorf("list %q: got %q, want %q", dir, got, want)
		}
	}
	n := 0
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.ModTime.IsZero() && !info.Dir {
			t.Errorf("%s has no time", info.Name)
		}
		if n++; n == 2 {
			break // the caller may stop
		}
	}
}

// testListMany lists more than object stores put into one answer.
func testListMany(t *testing.T, s storage.Store) {
	const files, folders = 1050, 3
	want := make([]string, 0, files+folders)
	for i := range files {
		name := fmt.Sprintf("many/data-%04d", i)
		put(t, s, name, nil)
		want = append(want, name+" 0")
	}
	for i := range folders {
		put(t, s, fmt.Sprintf("many/data-%04d-dir/x", i*500), nil)
		want = append(want, fmt.Sprintf("many/data-%04d-dir/", i*500))
	}
	got := listing(t, s, "many")
	// Compare by name alone: the space and the slash that listing adds do not sort as the names do.
	slices.SortFunc(want, func(a, b string) int {
		return strings.Compare(strings.TrimRight(a, " 0/")+a, strings.TrimRight(b, " 0/")+b)
	})
	byName := slices.Clone(got)
	slices.SortFunc(byName, func(a, b string) int {
		return strings.Compare(strings.TrimRight(a, " 0/")+a, strings.TrimRight(b, " 0/")+b)
	})
	if !slices.Equal(byName, want) {
		t.Fatalf("listed %d children, want %d", len(got), len(want))
	}
	last := ""
	for info, err := range s.List(t.Context(), "many") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Name <= last {
			t.Fatalf("%s is listed after %s", info.Name, last)
		}
		last = info.Name
	}
	n := 0
	for _, err := range storage.Walk(t.Context(), s, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != files+folders {
		t.Fatalf("walked %d objects, want %d", n, files+folders)
	}
}

func testWalk(t *testing.T, s storage.Store) {
	names := []string{"t/a", "t/b/c", "t/b/d/e", "t/b-x", "t2/f", "u"}
	for _, name := range names {
		put(t, s, name, []byte(name))
	}
	for dir, want := range map[string][]string{"": names, "t": names[:4], "t/b": names[1:3], "t/a": nil, "none": nil} {
		var got []string
		for info, err := range storage.Walk(t.Context(), s, dir) {
			if err != nil {
				t.Fatal(err)
			}
			if info.Dir || info.Size != int64(len(info.Name)) || info.ModTime.IsZero() {
				t.Errorf("walk yields %+v", info)
			}
			got = append(got, info.Name)
		}
		slices.Sort(got)
		want = slices.Sorted(slices.Values(want))
		if !slices.Equal(got, want) {
			t.Errorf("walk %q: got %v, want %v", dir, got, want)
		}
	}
	for range storage.Walk(t.Context(), s, "") {
		break // the caller may stop
	}
	for _, err := range storage.Walk(ended(t), s, "") {
		wantErr(t, "walk under an ended context", err, context.Canceled)
	}
}

func testURL(t *testing.T, s storage.Store) {
	root := s.URL("")
	if !strings.Contains(root, "://") {
		t.Errorf("the root's URL is %q", root)
	}
	for _, name := range []string{"a", "a/b%20c d", "p=ü/x"} {
		if got, want := s.URL(name), strings.TrimRight(root, "/")+"/"+name; got != want && got != root+name {
			t.Errorf("URL(%q) is %q, want %q", name, got, want)
		}
		if got, want := storage.Sub(s, "db.db/t").URL(name), s.URL("db.db/t/"+name); got != want {
			t.Errorf("URL(%q) below db.db/t is %q, want %q", name, got, want)
		}
	}
	if got, want := storage.Sub(s, "t").URL(""), s.URL("t"); got != want {
		t.Errorf("the URL of a sub-store is %q, want %q", got, want)
	}
	if strings.Contains(root, "?") || strings.Contains(root, "secret") {
		t.Errorf("the URL %q gives away how the store was opened", root)
	}
}

func testSub(t *testing.T, s storage.Store) {
	ctx := t.Context()
	sub := storage.Sub(storage.Sub(s, "db.db"), "t")
	if err := sub.PutIfAbsent(ctx, "snapshot/snapshot-1", []byte("1")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "put if absent", s.PutIfAbsent(ctx, "db.db/t/snapshot/snapshot-1", nil), storage.ErrExists)
	u := create(t, sub, "bucket-0/d")
	if _, err := u.Write([]byte("dd")); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	put(t, sub, "hint", []byte("h"))
	put(t, s, "db.db/t2/other", []byte("o"))
	wantObject(t, s, "db.db/t/bucket-0/d", []byte("dd"))
	wantObject(t, sub, "bucket-0/d", []byte("dd"))
	if got := strings.Join(listing(t, sub, ""), ", "); got != "bucket-0/, hint 1, snapshot/" {
		t.Errorf("the sub-store lists %s", got)
	}
	if got := strings.Join(listing(t, sub, "snapshot"), ", "); got != "snapshot/snapshot-1 1" {
		t.Errorf("the sub-store's folder lists %s", got)
	}
	n := 0
	for info, err := range storage.Walk(ctx, sub, "") {
		if err != nil || strings.HasPrefix(info.Name, "db.db") {
			t.Errorf("walk yields %v, %v", info, err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("walk yields %d objects, want 3", n)
	}
	if err := sub.Delete(ctx, "hint"); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, sub, "hint")
	_, err := sub.Open(ctx, "hint")
	if err == nil || !strings.Contains(err.Error(), s.URL("db.db/t/hint")) {
		t.Errorf("error %v does not name the whole URL", err)
	}
	if storage.Sub(s, "") != s {
		t.Error("a sub-store without prefix is not the store itself")
	}
}
