package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestControl: resume and reset send what the server expects, with the token, and tell what it answers.
func TestControl(t *testing.T) {
	t.Setenv("CALVE_TOKEN", "open sesame")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer open sesame":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost && r.URL.Path == "/v1/pipelines/lake:a.b/reset":
			_, _ = w.Write([]byte(`{"name":"lake:a.b","state":"failed"}`))
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error":{"what":"it is running","do":"nothing"}}`))
		}
	}))
	defer srv.Close()
	st, err := control(t.Context(), srv.URL+"/", "open sesame", "reset", "lake:a.b")
	if err != nil || st["state"] != "failed" {
		t.Error(st, err)
	}
	for want, call := range map[string][2]string{"x: it is running (nothing)": {"open sesame", "resume"}, "401 Unauthorized": {"", "resume"}} {
		if _, err := control(t.Context(), srv.URL, call[0], call[1], "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := control(t.Context(), "http://127.0.0.1:1", "", "resume", "x"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Error(err)
	}
}
