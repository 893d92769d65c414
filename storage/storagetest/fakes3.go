package storagetest

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
)

// FakeS3 is as much of an S3 server as the store asks of one, in this process, so that requests can be counted and
// made to fail. What a real server does is tested against one under the build tag interop.
type FakeS3 struct {
	sync.Mutex                           // guards what follows
	Keys       map[string][]byte         // objects of the bucket "bucket"
	Parts      map[string]map[int][]byte // by upload id
	// IgnoreConditions and IgnoreRanges make a server that does not know If-None-Match, or Range.
	IgnoreConditions bool
	IgnoreRanges     bool

	t             *testing.T
	url           string
	nextID        int
	log           []string
	before, after S3Hook
}

// S3Hook is something that happens to a request. When it returns true it has answered.
type S3Hook func(w http.ResponseWriter, r *http.Request) bool

// Arm sets what happens to requests before they have their effect, and after it instead of the answer; nil for nothing.
func (f *FakeS3) Arm(before, after S3Hook) {
	f.Lock()
	defer f.Unlock()
	f.before, f.after = before, after
}

// NewFakeS3 starts a server that ends with the test.
func NewFakeS3(t *testing.T) *FakeS3 {
	t.Helper()
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	f := &FakeS3{t: t, Keys: make(map[string][]byte), Parts: make(map[string]map[int][]byte)}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// Options are those with which stores on the server are opened.
func (f *FakeS3) Options() storage.Options {
	return storage.Options{Endpoint: f.url, AccessKey: "key", SecretKey: "secret"}
}

// Open opens a store on the server.
func (f *FakeS3) Open(prefix string) storage.Store {
	f.t.Helper()
	s, err := storage.OpenURL(f.t.Context(), "s3://bucket/"+prefix, f.Options())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// Take returns the requests since the last call.
func (f *FakeS3) Take() string {
	f.Lock()
	defer f.Unlock()
	defer func() { f.log = nil }()
	return strings.Join(f.log, ", ")
}

// ServeHTTP implements http.Handler.
func (f *FakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	f.Lock()
	f.log = append(f.log, describe(r))
	before, after := f.before, f.after
	f.Unlock()
	if before != nil && before(w, r) {
		return
	}
	answer := httptest.NewRecorder()
	f.Lock()
	f.serve(answer, r, body)
	f.Unlock()
	if after != nil && after(w, r) {
		return
	}
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.Code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// describe names a request: its method and what tells it apart.
func describe(r *http.Request) string {
	d := r.Method
	q := r.URL.Query()
	for _, k := range []string{"list-type", "uploads", "uploadId"} {
		if q.Has(k) {
			d += " " + k
		}
	}
	if rng := r.Header.Get("Range"); rng != "" {
		d += " " + rng
	}
	if r.Header.Get("If-None-Match") != "" {
		d += " if absent"
	}
	return d
}

func (f *FakeS3) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket/")
	if !ok && r.URL.Path != "/bucket" {
		RefuseS3(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && q.Has("list-type"):
		f.list(w, q.Get("prefix"), q.Get("delimiter"), q.Get("continuation-token"))
	case r.Method == http.MethodPost && q.Has("uploads"):
		f.nextID++
		id := strconv.Itoa(f.nextID)
		f.Parts[id] = make(map[int][]byte)
		reply(w, struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string
		}{UploadId: id})
	case q.Has("uploadId"):
		f.multipart(w, r, key, q.Get("uploadId"), q.Get("partNumber"), body)
	case r.Method == http.MethodPut:
		f.put(w, r, key, body)
	case r.Method == http.MethodDelete:
		delete(f.Keys, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.get(w, r, key)
	}
}

func (f *FakeS3) put(w http.ResponseWriter, r *http.Request, key string, body []byte) bool {
	if _, taken := f.Keys[key]; taken && r.Header.Get("If-None-Match") == "*" && !f.IgnoreConditions {
		RefuseS3(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return false
	}
	f.Keys[key] = body
	w.Header().Set("ETag", ETag(body))
	return true
}

func (f *FakeS3) multipart(w http.ResponseWriter, r *http.Request, key, id, part string, body []byte) {
	parts, ok := f.Parts[id]
	if !ok {
		RefuseS3(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		n, _ := strconv.Atoi(part)
		parts[n] = body
		w.Header().Set("ETag", ETag(body))
	case http.MethodDelete:
		delete(f.Parts, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		var whole []byte
		for n := range len(parts) {
			whole = append(whole, parts[n+1]...)
		}
		if f.put(w, r, key, whole) {
			delete(f.Parts, id)
			reply(w, struct {
				XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
				ETag    string
			}{ETag: ETag(whole)})
		}
	}
}

func (f *FakeS3) get(w http.ResponseWriter, r *http.Request, key string) {
	data, ok := f.Keys[key]
	if !ok {
		RefuseS3(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if m := r.Header.Get("If-Match"); m != "" && m != ETag(data) {
		RefuseS3(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	if r.Header.Get("Range") != "" && len(data) == 0 {
		RefuseS3(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	if f.IgnoreRanges {
		r.Header.Del("Range")
	}
	r.Header.Del("If-Match")
	w.Header().Set("ETag", ETag(data))
	http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(data))
}

func (f *FakeS3) list(w http.ResponseWriter, prefix, delimiter, from string) {
	type object struct {
		Key          string
		Size         int
		LastModified string
	}
	type folder struct{ Prefix string }
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []object
		CommonPrefixes        []folder
	}
	var entries []string
	for key := range f.Keys {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if i := strings.Index(rest, delimiter); delimiter != "" && i >= 0 {
			key = prefix + rest[:i+1]
		}
		entries = append(entries, key)
	}
	slices.Sort(entries)
	entries = slices.DeleteFunc(slices.Compact(entries), func(e string) bool { return e <= from })
	if len(entries) > 1000 {
		entries, out.IsTruncated, out.NextContinuationToken = entries[:1000], true, entries[999]
	}
	for _, e := range entries {
		if data, ok := f.Keys[e]; ok && (delimiter == "" || !strings.HasSuffix(e, "/") || e == prefix) {
			out.Contents = append(out.Contents, object{e, len(data), "2026-01-02T03:04:05Z"})
		} else {
			out.CommonPrefixes = append(out.CommonPrefixes, folder{e})
		}
	}
	reply(w, out)
}

// ETag is the entity tag of an object.
func ETag(data []byte) string {
	sum := md5.Sum(data)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v)
}

// RefuseS3 answers with an error of S3.
func RefuseS3(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>by the fake</Message></Error>", code)
}

// HangUp ends a request without an answer.
func HangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}
