package storage_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

// TestS3WritesInDoubt: uploads and deletes whose first try got no answer and whose second one is refused are in doubt.
func TestS3WritesInDoubt(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "2")
	for _, c := range []struct {
		name, method string
		do           func(storage.Store) error
	}{
		{"small upload", http.MethodPut, func(s storage.Store) error { return upload(t, s, "u", 1) }},
		{"upload in parts", http.MethodPost, func(s storage.Store) error { return upload(t, s, "u", 20<<20) }},
		{"delete", http.MethodDelete, func(s storage.Store) error { return s.Delete(t.Context(), "there") }},
	} {
		f := storagetest.NewFakeS3(t)
		s := f.Open("w")
		must(t, s.Put(t.Context(), "there", nil))
		n := 0
		mine := func(r *http.Request) bool {
			return r.Method == c.method && (c.method != http.MethodPost || r.URL.Query().Has("uploadId"))
		}
		f.Arm(func(w http.ResponseWriter, r *http.Request) bool {
			if !mine(r) {
				return false
			}
			n++
			if n == 2 && c.method != http.MethodPost { // there the server itself says NoSuchUpload
				storagetest.RefuseS3(w, 403, "AccessDenied")
				return true
			}
			return false
		}, func(w http.ResponseWriter, r *http.Request) bool {
			if mine(r) && n == 1 {
				storagetest.HangUp(w)
				return true
			}
			return false
		})
		if err := c.do(s); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s was carried out, which its error does not allow for: %v", c.name, err)
		}
	}
}

func upload(t *testing.T, s storage.Store, name string, n int) error {
	u, err := s.Create(t.Context(), name)
	must(t, err)
	_, err = u.Write(make([]byte, n))
	must(t, err)
	return u.Commit()
}
