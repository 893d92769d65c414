package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzName checks that whatever name a local store accepts stays below its root and comes back as it was.
func FuzzName(f *testing.F) {
	for _, name := range []string{"a", "a/b", "../x", "a/../x", "/x", "a//b", "p=a%2Fb/x", "a\x00b", "..a/...", "\xff", "ü", "a/.calve-1.tmp", "a\\..\\b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		dir := t.TempDir()
		l, err := NewLocal(filepath.Join(dir, "root"))
		if err != nil {
			t.Fatal(err)
		}
		err = l.Put(t.Context(), name, []byte("x"))
		outside, lerr := os.ReadDir(dir)
		if lerr != nil {
			t.Fatal(lerr)
		}
		for _, e := range outside {
			if e.Name() != "root" {
				t.Fatalf("%q made %s outside of the root", name, e.Name())
			}
		}
		if err != nil {
			if !errors.Is(err, ErrBadName) && len(name) < 100 {
				t.Fatalf("%q: %v", name, err)
			}
			return
		}
		if !utf8.ValidString(name) || strings.Contains("/"+name+"/", "/../") {
			t.Fatalf("%q was accepted", name)
		}
		n := 0
		for info, err := range Walk(t.Context(), l, "") {
			if err != nil || info.Name != name {
				t.Fatalf("%q is listed as %q, %v", name, info.Name, err)
			}
			n++
		}
		if n != 1 {
			t.Fatalf("%q is listed %d times", name, n)
		}
	})
}
