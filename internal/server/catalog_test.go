package server

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/storage"
)

// A server without pipelines serves the catalog until it is told to end.
func TestCatalogAlone(t *testing.T) {
	cfg, err := config.Parse("c", []byte("warehouse: mem://x\nlisten: 127.0.0.1:0\npipelines: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, storage.NewMem(), Options{Version: "test"},
		engine.Env{Now: time.Now, After: time.After, NewID: func() string { return "id" }, Rand: func() uint64 { return 4 }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(a string) { addr <- a }) }()
	resp, err := http.Get("http://" + <-addr + "/iceberg/v1/config")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	select {
	case err := <-done:
		t.Fatalf("ended by itself: %v", err)
	default:
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
