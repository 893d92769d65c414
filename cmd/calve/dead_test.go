package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDead(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "shop.t", "--columns", "id INT NOT NULL, v INT", "--primary-key", "id")
	if got := c.ok("", "dead", "ls", "shop.t"); got != "shop.t: no refused records\n" {
		t.Errorf("ls: %s", got)
	}
	c.fails(`{"id":1,"v":1}`+"\n"+`{"id":2,"v":3000000000}`+"\n"+"{\"id\":\"\x01\n"+`{"id":4,"v":"x"}`, []string{"put", "shop.t"}, "3 lines refused and kept in the table shop.t__dead")
	out := c.ok("", "dead", "ls", "shop.t")
	for _, want := range []string{"3 refused records\n", "value      2\n", "malformed  1\n", "stdin/0@2  value      attempt 1  column \"v\": "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if got := c.object("dead", "ls", "shop.t$dead", "--where", "code = 'value'", "--newest", "1", "--json"); got["letters"] != 2.0 || len(got["newest"].([]any)) != 1 {
		t.Errorf("ls --json: %v", got)
	}
	out = c.ok("", "dead", "show", "shop.t", "stdin/0@2")
	for _, want := range []string{"reason   value: column \"v\"", "value    23 bytes\n{\"id\":2,\"v\":3000000000}\n", "key      null\n", "attempt 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if out = c.ok("", "dead", "show", "shop.t", "stdin/0@3"); !strings.Contains(out, `"{\"id\":\"\x01"`) {
		t.Errorf("show: %s", out)
	}
	c.fails("", []string{"dead", "show", "shop.t", "stdin/0@9"}, "no refused record at stdin/0@9")
	c.fails("", []string{"dead", "show", "shop.t", "stdin"}, "TOPIC/PARTITION@OFFSET")
	c.ok("", "alter", "shop.t", "--type", "v BIGINT")
	cfg := filepath.Join(t.TempDir(), "calve.yaml")
	if err := os.WriteFile(cfg, []byte("warehouse: file://"+c.dir+"\npipelines:\n- {name: t, table: shop.t, kafka: {brokers: [b:1], topic: t}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.ok("", "dead", "replay", "shop.t", "--config", cfg); got != "shop.t: 1 record replayed, which made 1 row; 2 refused again\n" {
		t.Errorf("replay: %s", got)
	}
	if got := c.object("dead", "replay", "shop.t", "--json"); got["refused"] != 2.0 || got["replayed"] != 0.0 {
		t.Errorf("replay: %v", got)
	}
	if got := c.ok("", "scan", "shop.t$dead", "--columns", "offset,attempt,headers"); got != `{"offset":3,"attempt":3,"headers":null}`+"\n"+`{"offset":4,"attempt":3,"headers":null}`+"\n" {
		t.Errorf("scan: %s", got)
	}
	c.fails("", []string{"dead", "replay", "shop.none"}, "no table shop.none")
	c.fails("", []string{"dead", "replay", "shop.t", "--config", cfg, "--unknown", "x"}, "write or drop")
	c.fails("", []string{"dead", "ls", "shop.t", "--dead", "shop.t"}, "no table of dead letters")
}
