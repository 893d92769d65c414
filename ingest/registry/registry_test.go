package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry/registrytest"
)

func schemas() *registrytest.Registry {
	return registrytest.New(
		registrytest.Schema{Subject: "base", Version: 1, ID: 1, Type: "AVRO", Text: `{"type":"record","name":"Base","fields":[]}`},
		registrytest.Schema{Subject: "mid", Version: 3, ID: 2, Type: "AVRO", Text: `{"type":"record","name":"Mid","fields":[{"name":"b","type":"Base"}]}`, References: []registrytest.Reference{{Name: "Base", Subject: "base", Version: 1}}},
		registrytest.Schema{Subject: "t-value", Version: 1, ID: 3, Text: `"int"`},
		registrytest.Schema{Subject: "t-value", Version: 2, ID: 4, Type: "AVRO", Text: `"Mid"`, References: []registrytest.Reference{{Name: "Mid", Subject: "mid", Version: 3}, {Name: "Base", Subject: "base", Version: 1}}},
		registrytest.Schema{Subject: "lost", Version: 1, ID: 5, Type: "PROTOBUF", Text: `x`, References: []registrytest.Reference{{Name: "gone", Subject: "gone", Version: 1}}},
		registrytest.Schema{Subject: "self", Version: 1, ID: 6, Type: "JSON", Text: `{}`, References: []registrytest.Reference{{Name: "self", Subject: "self", Version: 1}}},
	)
}

func client(t *testing.T, s Settings) *Client {
	t.Helper()
	c, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestSchema: ids and what they refer to are fetched once; what the registry does not know is told from what fails.
func TestSchema(t *testing.T) {
	reg := schemas()
	srv := httptest.NewServer(reg)
	defer srv.Close()
	ctx := context.Background()
	c := client(t, Settings{URLs: []string{"http://127.0.0.1:1", srv.URL}})
	for range 2 {
		w, err := c.Schema(ctx, 4)
		if err != nil || w.Kind != decode.AvroSchema || w.Text != `"Mid"` || len(w.References) != 2 || w.References[0].Name != "Base" || w.References[1].Name != "Mid" {
			t.Fatalf("%+v %v", w, err)
		}
	}
	if n := reg.Asked("/schemas/ids/4") + reg.Asked("/subjects/base/versions/1"); n != 2 {
		t.Errorf("%d requests", n)
	}
	if w, err := c.Latest(ctx, "t-value"); err != nil || w.Text != `"Mid"` {
		t.Errorf("latest: %+v %v", w, err)
	}
	if w, err := c.Schema(ctx, 6); err != nil || w.Kind != decode.JSONSchema || len(w.References) != 1 {
		t.Errorf("a schema that refers to itself: %+v %v", w, err)
	}
	for _, f := range []func() (decode.WriterSchema, error){
		func() (decode.WriterSchema, error) { return c.Schema(ctx, 9) },
		func() (decode.WriterSchema, error) { return c.Schema(ctx, 5) },
		func() (decode.WriterSchema, error) { return c.Latest(ctx, "none") },
	} {
		if _, err := f(); !errors.Is(err, decode.ErrNoSchema) {
			t.Errorf("unknown: %v", err)
		}
	}
	reg.Down(true)
	if _, err := c.Schema(ctx, 3); err == nil || errors.Is(err, decode.ErrNoSchema) || !strings.Contains(err.Error(), "status 503") {
		t.Errorf("down: %v", err)
	}
	proxy := httptest.NewServer(http.NotFoundHandler()) // a 404 that no registry wrote
	defer proxy.Close()
	if _, err := client(t, Settings{URLs: []string{proxy.URL}}).Schema(ctx, 3); err == nil || errors.Is(err, decode.ErrNoSchema) {
		t.Errorf("no registry: %v", err)
	}
}

// TestAccess: both ways to say who we are, and TLS; secrets are in no error.
func TestAccess(t *testing.T) {
	reg := schemas()
	srv := httptest.NewTLSServer(reg)
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	ctx := context.Background()
	for _, c := range []struct {
		allow string
		s     Settings
	}{
		{"Basic " + base64.StdEncoding.EncodeToString([]byte("me:hidden")), Settings{User: "me", Password: "hidden"}},
		{"Bearer hidden", Settings{Token: "hidden"}},
	} {
		c.s.URLs, c.s.TLS = []string{srv.URL}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		reg.Allow(c.allow)
		if _, err := client(t, c.s).Schema(ctx, 3); err != nil {
			t.Error(err)
		}
		reg.Allow("other")
		if _, err := client(t, c.s).Schema(ctx, 3); err == nil || errors.Is(err, decode.ErrNoSchema) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("refused: %v", err)
		}
	}
	if _, err := client(t, Settings{URLs: []string{srv.URL}}).Schema(ctx, 3); err == nil {
		t.Error("an unknown authority was trusted")
	}
	for _, s := range []Settings{{}, {URLs: []string{"host:1"}}, {URLs: []string{"ftp://x"}}, {URLs: []string{"http://me:hidden@x"}}, {URLs: []string{"me:hidden@x:8081"}},
		{URLs: []string{"htp://me:hidden@x"}}, {URLs: []string{"http://me:hidden@x:y"}}, {URLs: []string{"//x?token=hidden"}}, {URLs: []string{"http:me:hidden?more@x"}}, {URLs: []string{"http://x"}, User: "u", Token: "t"}} {
		if _, err := New(s); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v: %v", s, err)
		}
	}
}
