//go:build interop

package interop

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// guard is an S3 endpoint before the real one that lets no snapshot be overwritten, as if every request that makes one
// carried `If-None-Match: *`. Paimon's Java library looks whether a snapshot is there and then copies its own to that
// name, so without a lock it may overwrite another writer's commit. The guard is a means of this suite alone: it stands
// for a store or a lock that keeps writers apart, so that the rest of both programs can be tried side by side.
type guard struct {
	proxy   *httputil.ReverseProxy
	root    string // folder of the buckets
	mu      sync.Mutex
	refused atomic.Int64 // overwrites that were prevented
	held    atomic.Int64 // so many more unconditional requests are held back until another writer has the name
}

// Guarded is a warehouse of its own on the S3 server, behind a guard.
func (l *Lab) Guarded(ctx context.Context, name string) (*Place, *guard, error) {
	place, err := l.Remote(ctx)
	if err != nil {
		return nil, nil, err
	}
	target, err := url.Parse(place.S3.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	g := &guard{root: filepath.Dir(place.S3.Dir), proxy: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // the signature is over it
		},
	}}
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listen) }() // until the suite ends
	s3 := *place.S3
	s3.Host = listen.Addr().String()
	s3.Endpoint = "http://" + s3.Host
	place.S3 = &s3
	return place.sub(name), g, nil
}

// sub is a warehouse of its own below the one of a place.
func (p *Place) sub(name string) *Place {
	c := *p.Calve
	c.Warehouse += "-" + name
	if p.S3 != nil {
		c.env = p.S3.Env()
	}
	return &Place{Calve: &c, Name: p.Name + "-" + name, Dir: p.Dir + "-" + name, S3: p.S3, lab: p.lab}
}

// ServeHTTP is for the HTTP server.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	dir, file := path.Split(r.URL.Path)
	if r.Method == http.MethodPut && strings.HasSuffix(dir, "/snapshot/") && strings.HasPrefix(file, "snapshot-") {
		object := filepath.Join(g.root, filepath.FromSlash(r.URL.Path))
		unconditional := r.Header.Get("If-None-Match") == ""
		if unconditional && g.held.Add(-1) >= 0 {
			waitForFile(r.Context(), object)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if _, err := os.Stat(object); err == nil && unconditional {
			g.refused.Add(1)
			_, _ = io.Copy(io.Discard, r.Body) // the client has its answer either way
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden) // S3A repeats a request that got 412 for minutes
			_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>`+
				`<Message>A snapshot is not overwritten</Message></Error>`)
			return
		}
	}
	g.proxy.ServeHTTP(w, r)
}

// waitForFile waits some seconds for a file to appear.
func waitForFile(ctx context.Context, name string) {
	for range 50 {
		if _, err := os.Stat(name); err == nil || ctx.Err() != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
