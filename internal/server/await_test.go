package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func fetched(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestWarehouseAway: a warehouse that does not answer at start is waited for, and said so; then everything runs.
func TestWarehouseAway(t *testing.T) {
	l := newLab(t, "a")
	l.fill("a", 5)
	var there atomic.Bool
	verify := func(context.Context) error {
		if there.Load() {
			return nil
		}
		return fmt.Errorf("open s3://bucket: %w", &net.OpError{Op: "dial", Err: errors.New("nobody listens")})
	}
	r := l.start(Options{Verify: verify}, l.section("p", "a", appendTable))
	awaitf(t, func() bool {
		code, text := fetched(t, r.url+"/status")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "nobody listens") && strings.Contains(text, `"starting": 1`)
	}, func() string { return "the status does not tell that the warehouse is away" })
	if code, text := fetched(t, r.url+"/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "nobody listens") {
		t.Errorf("health %d %s", code, text)
	}
	if _, text := fetched(t, r.url+"/metrics"); !strings.Contains(text, "calve_warehouse_up 0") {
		t.Error("no metric tells that the warehouse is away")
	}
	for _, path := range []string{"/v1/tables/default/a/changes?consumer=c", "/iceberg/v1/config"} { // neither waits, nor writes
		if code, text := fetched(t, r.url+path); code != http.StatusServiceUnavailable || !strings.Contains(text, "nobody listens") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	there.Store(true)
	r.await("p", "rows", func(p PipelineStatus) bool { return p.Rows == 5 })
	if code, text := fetched(t, r.url+"/status"); code != http.StatusOK || strings.Contains(text, "problems") {
		t.Errorf("status %d %s", code, text)
	}
	if _, text := fetched(t, r.url+"/metrics"); !strings.Contains(text, "calve_warehouse_up 1") {
		t.Error("no metric tells that the warehouse is there")
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	there.Store(false)
	r = l.start(Options{Verify: verify}, l.section("p", "a", appendTable))
	if err := r.end(); err != nil {
		t.Errorf("told to end while it waits: %v", err)
	}
}

// TestWarehouseRefuses: what waiting does not mend ends the server at once.
func TestWarehouseRefuses(t *testing.T) {
	l := newLab(t, "a")
	refused := errors.New("no such key")
	r := l.start(Options{Verify: func(context.Context) error { return refused }}, l.section("p", "a", appendTable))
	if err := <-r.done; !errors.Is(err, refused) {
		t.Error(err)
	}
}
