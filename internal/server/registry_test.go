package server

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/internal/config"
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

func TestRegistrySettings(t *testing.T) {
	t.Setenv("CALVE_TEST_EMPTY", "")
	for want, c := range map[string]config.Registry{
		"CALVE_TEST_EMPTY is empty": {URLs: []string{"http://x"}, TokenEnv: "CALVE_TEST_EMPTY"},
		"registry.ca":               {URLs: []string{"http://x"}, CA: "/nowhere"},
		"is no URL":                 {URLs: []string{"x"}},
	} {
		if _, err := newRegistry(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
