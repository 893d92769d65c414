package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

func TestOpenURLLocal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b%20c?d")
	t.Chdir(t.TempDir())
	wd, err := os.Getwd()
	must(t, err)
	for url, want := range map[string]string{
		dir:                       "file://" + dir,
		dir + "/":                 "file://" + dir,
		"file://" + dir:           "file://" + dir,
		"file:" + dir:             "file://" + dir,
		"file://localhost" + dir:  "file://" + dir,
		"FILE://" + dir + "/../x": "file://" + filepath.Dir(dir) + "/x",
		"rel/house":               "file://" + wd + "/rel/house",
		"./rel":                   "file://" + wd + "/rel",
		".":                       "file://" + wd,
		"/":                       "file:///",
	} {
		s, err := storage.OpenURL(t.Context(), url, storage.Options{})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := s.URL(""); got != want {
			t.Errorf("%s opens %s, want %s", url, got, want)
		}
		if got, want := s.URL("t/x"), strings.TrimSuffix(want, "/")+"/t/x"; got != want {
			t.Errorf("%s: URL of t/x is %s, want %s", url, got, want)
		}
	}
	s, err := storage.OpenURL(t.Context(), "file://"+dir, storage.Options{})
	must(t, err)
	must(t, s.PutIfAbsent(t.Context(), "x", []byte("1")))
	if got, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(got) != "1" {
		t.Errorf("the path is not taken literally: %q, %v", got, err)
	}
	ro, err := storage.OpenURL(t.Context(), dir, storage.Options{ReadOnly: true})
	must(t, err)
	if got, err := storage.ReadAll(t.Context(), ro, "x", 1); err != nil || string(got) != "1" {
		t.Errorf("read-only: %q, %v", got, err)
	}
	if got := contents(t, ro); len(got) != 1 {
		t.Errorf("read-only: %v", got)
	}
	_, cerr := ro.Create(t.Context(), "y")
	_, oerr := storage.PutOnce(t.Context(), ro, "y", nil)
	for what, err := range map[string]error{
		"create": cerr, "put once": oerr, "put": ro.Put(t.Context(), "y", nil),
		"put if absent": ro.PutIfAbsent(t.Context(), "y", nil), "delete": ro.Delete(t.Context(), "x"),
	} {
		if !errors.Is(err, storage.ErrReadOnly) {
			t.Errorf("%s on a read-only store: %v", what, err)
		}
	}
	if got := contents(t, s); len(got) != 1 {
		t.Errorf("a read-only store was written to: %v", got)
	}
}

func TestOpenURLMem(t *testing.T) {
	a, err := storage.OpenURL(t.Context(), "mem://", storage.Options{})
	must(t, err)
	b, err := storage.OpenURL(t.Context(), "mem://", storage.Options{})
	must(t, err)
	must(t, a.Put(t.Context(), "x", nil))
	if got := contents(t, b); len(got) != 0 {
		t.Errorf("two stores in memory share %v", got)
	}
}

func TestOpenURLRefuses(t *testing.T) {
	f := storagetest.NewFakeS3(t)
	for _, key := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		t.Setenv(key, "")
		os.Unsetenv(key)
	}
	const secret = "hidden-secret"
	for url, want := range map[string]string{
		"":                                      "give the path of a folder",
		"file://relative/path":                  "absolute path",
		"file://":                               "absolute path",
		"gs://bucket/x":                         `unknown kind of store "gs"`,
		"mem://name":                            "mem://",
		"s3://":                                 "bucket is missing",
		"s3:///prefix":                          "bucket is missing",
		"s3://bucket/a/../b":                    `".."`,
		"s3://bucket/a//b":                      "empty part",
		"s3://bucket/x":                         "region is missing",
		"s3://bucket/x?colour=red":              `unknown parameter "colour": use access_key, endpoint`,
		"s3://bucket/x?path_style=7":            "true or false",
		"s3://bucket/x?endpoint=127.0.0.1:9000": "http://host:port",
		"s3://bucket/x?region=r&access_key=a":   "secret key",
		"s3://bucket/x?region=r&secret_key=" + secret:                                             "access key",
		"s3://bucket/x?secret_key=" + secret + "%zz":                                              "not a URL query",
		"s3://nobucket/x?access_key=a&secret_key=" + secret + "&endpoint=" + f.Options().Endpoint: "NoSuchBucket",
	} {
		_, err := storage.OpenURL(t.Context(), url, storage.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one that says %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the error gives the secret away: %v", url, err)
		}
	}
}
