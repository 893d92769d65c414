package server

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/reader"
)

// TestRegistry: a table whose columns come from the registry, once that knows the topic.
func TestRegistry(t *testing.T) {
	l := newLab(t, "events")
	reg := registrytest.New()
	reg.Allow("Bearer secret")
	srv := httptest.NewServer(reg)
	defer srv.Close()
	t.Setenv("CALVE_TEST_TOKEN", "secret")
	r := l.start(Options{}, l.section("a", "events", "format: {type: avro}", "create: {primary-key: [id]}"),
		"registry: {urls: ["+srv.URL+"], token-env: CALVE_TEST_TOKEN}\n")
	r.awaitState("a", Waiting)
	reg.Add(registrytest.Schema{Subject: "events-value", Version: 1, ID: 3,
		Text: `{"type":"record","name":"E","fields":[{"name":"id","type":"long"},{"name":"part","type":"int"},{"name":"off","type":"long"}]}`})
	for i := range byte(5) {
		l.send("events", string([]byte{0, 0, 0, 0, 3, 2 * i, 0, 0}))
	}
	r.awaitRecords("a", 5)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if got := l.ids("shop.a"); len(got) != 5 {
		t.Errorf("ids %v", got)
	}
}

// TestRegistryForms: Protobuf, with a column of the record itself, and JSON with a schema, whose key the records have.
func TestRegistryForms(t *testing.T) {
	l := newLab(t, "protos", "jsons")
	srv := httptest.NewServer(registrytest.New(
		registrytest.Schema{Subject: "protos-value", Version: 1, ID: 3, Type: "PROTOBUF", Text: `syntax = "proto3"; message E { int64 id = 1; int32 part = 2; }`},
		registrytest.Schema{Subject: "jsons-value", Version: 1, ID: 4, Type: "JSON", Text: `{"type":"object","properties":{"id":{"type":"integer"},"at":{"type":"string","format":"date-time"}}}`}))
	defer srv.Close()
	r := l.start(Options{}, l.section("a", "protos", "format: {type: protobuf}", "create: {primary-key: [id]}")+l.section("b", "jsons", "format: {type: json-schema}", "create: {}"),
		"registry: {urls: ["+srv.URL+"]}\n")
	for i := range byte(5) {
		l.send("protos", string([]byte{0, 0, 0, 0, 3, 0, 8, i}))
		l.send("jsons", "\x00\x00\x00\x00\x04"+`{"id":`+string('0'+i)+`,"at":"2024-02-29T00:00:00Z"}`)
	}
	r.awaitRecords("a", 5)
	r.awaitRecords("b", 5)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"shop.a", "shop.b"} {
		if got := l.ids(table); len(got) != 5 {
			t.Errorf("%s: ids %v", table, got)
		}
	}
	for rec, err := range l.reader("shop.b").Scan(context.Background(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := rec.Schema().FieldsByName("at"); !ok || at[0].Type.String() != "timestamp[us, tz=UTC]" {
			t.Errorf("columns %v", rec.Schema())
		}
	}
}

func TestRegistrySettings(t *testing.T) {
	t.Setenv("CALVE_TEST_EMPTY", "")
	for want, c := range map[string]config.Registry{
		"CALVE_TEST_EMPTY is empty": {URLs: []string{"http://x"}, TokenEnv: "CALVE_TEST_EMPTY"},
		"registry.ca":               {URLs: []string{"http://x"}, CA: "/nowhere"},
		"is no URL":                 {URLs: []string{"x"}},
	} {
		if _, err := NewRegistry(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
