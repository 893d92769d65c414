package storage_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

// cutAnswer hangs up within an answer.
func cutAnswer(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Le")) // what follows was lost
	_ = c.Close()
}

// TestMayPass: what a server that is not there, or not able, says may pass; what it refuses does not.
func TestMayPass(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, x := range map[string]struct {
		refuse func(http.ResponseWriter)
		change func(*storage.Options)
		pass   bool
	}{
		"it is overloaded":   {refuse: func(w http.ResponseWriter) { storagetest.RefuseS3(w, http.StatusServiceUnavailable, "SlowDown") }, pass: true},
		"it has broken":      {refuse: func(w http.ResponseWriter) { storagetest.RefuseS3(w, http.StatusInternalServerError, "InternalError") }, pass: true},
		"it takes long":      {refuse: func(http.ResponseWriter) { time.Sleep(300 * time.Millisecond) }, pass: true},
		"it hangs up":        {refuse: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, pass: true},
		"an answer is cut":   {refuse: cutAnswer, pass: true},
		"nobody listens":     {change: func(o *storage.Options) { o.Endpoint = "http://127.0.0.1:1" }, pass: true},
		"it refuses":         {refuse: func(w http.ResponseWriter) { storagetest.RefuseS3(w, http.StatusForbidden, "InvalidAccessKeyId") }},
		"it has no bucket":   {refuse: func(w http.ResponseWriter) { storagetest.RefuseS3(w, http.StatusNotFound, "NoSuchBucket") }},
		"nobody has a key":   {change: func(o *storage.Options) { o.AccessKey, o.SecretKey = "", "" }},
		"puts are not safe":  {refuse: func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }},
		"it is another kind": {change: func(o *storage.Options) { o.Endpoint = "https" + o.Endpoint[len("http"):] }},
	} {
		f := storagetest.NewFakeS3(t)
		opts := f.Options()
		opts.Unverified = true
		if x.change != nil {
			x.change(&opts)
		}
		s, err := storage.OpenURL(t.Context(), "s3://bucket/w", opts)
		if err != nil {
			t.Fatal(name, err)
		}
		if got := f.Take(); got != "" {
			t.Errorf("%s: opening asked for %s", name, got)
		}
		if x.refuse != nil {
			f.Arm(func(w http.ResponseWriter, _ *http.Request) bool { x.refuse(w); return true }, nil)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err = storage.Verify(ctx, s)
		cancel()
		if err == nil || storage.MayPass(err) != x.pass {
			t.Errorf("%s: %v, which may pass: %v", name, err, storage.MayPass(err))
		}
	}
}
