package main

import (
	"errors"
	"strings"
	"testing"
)

// TestGet looks keys up in all the forms that a command line can say them in.
func TestGet(t *testing.T) {
	c := withOrders(t)
	one := `{"id":1,"item":"ice","price":"2.50"}` + "\n"
	hail := `{"id":3,"item":"hail","price":"7.00"}` + "\n"
	for _, args := range [][]string{{"1"}, {"id=1"}, {`{"id":1}`}, {`{"id":"1"}`}} {
		if got := c.ok("", append([]string{"get", "shop.orders"}, args...)...); got != one {
			t.Errorf("get %v: %q", args, got)
		}
	}
	if got := c.ok("", "get", "shop.orders", "3", "1"); got != hail+one {
		t.Errorf("two keys: %q", got)
	}
	if got := c.ok("", "get", "shop.orders", "3", "--columns", "price"); got != `{"price":"7.00"}`+"\n" {
		t.Errorf("one column: %q", got)
	}
	if got := c.ok("", "get", "shop.orders", "2", "--snapshot", "1"); !strings.HasPrefix(got, `{"id":2,"item":"snow"`) {
		t.Errorf("an older snapshot: %q", got)
	}
	r := c.run("", "get", "shop.orders", "2", "1", "99")
	if !errors.Is(r.failed, errMissing) || r.out != one || r.err != "not found: {\"id\":2}\nnot found: {\"id\":99}\n" {
		t.Errorf("keys that are not there: %+v", r)
	}
	r = c.run("", "get", "shop.orders", "2", "1", "--json")
	if want := `{"key":{"id":2},"row":null}` + "\n" + `{"key":{"id":1},"row":` + strings.TrimSuffix(one, "\n") + "}\n"; !errors.Is(r.failed, errMissing) || r.out != want || r.err != "" {
		t.Errorf("as JSON: %+v", r)
	}
	r = c.run(one+"\n"+`{"id":5}`, "get", "shop.orders", "--keys-from", "-")
	if !errors.Is(r.failed, errMissing) || r.out != one || r.err != "not found: {\"id\":5}\n" {
		t.Errorf("keys from standard input: %+v", r)
	}
	if r = c.run(one, "get", "shop.orders", "--keys-from", "-", "--lookup-cache", t.TempDir(), "--lookup-cache-bytes", "1 mb"); r.out != one || r.failed != nil {
		t.Errorf("with a cache: %+v", r)
	}
	c.fails(one, []string{"get", "shop.orders", "--keys-from", "-", "--lookup-cache", "x", "--lookup-cache-bytes", "many"}, "--lookup-cache-bytes", "many")
	c.fails("", []string{"compact", "shop.orders", "--lookup-cache", "x", "--lookup-cache-bytes", "many"}, "--lookup-cache-bytes", "many")
	c.fails("", []string{"get", "shop.orders", "x"}, "key x", "id")
	c.fails("", []string{"get", "shop.orders"}, "takes a table and keys")
	c.fails("", []string{"get", "shop.orders", "1", "--keys-from", "-"}, "takes a table and keys")
	c.fails("{}\n", []string{"get", "shop.orders", "--keys-from", "-"}, "line 1", "id")

	c.ok("", "create", "shop.visits", "--columns", "day DATE NOT NULL, who STRING NOT NULL, n INT", "--primary-key", "day,who", "--partition", "day")
	c.ok(`{"day":"2026-05-14","who":"ann, b","n":1}`+"\n"+`{"day":"2026-05-15","who":"ann","n":2}`+"\n", "put", "shop.visits")
	if got := c.ok("", "get", "shop.visits", "who=ann,day=2026-05-15", `{"day":"2026-05-14","who":"ann, b"}`); got != `{"day":"2026-05-15","who":"ann","n":2}`+"\n"+`{"day":"2026-05-14","who":"ann, b","n":1}`+"\n" {
		t.Errorf("a key of two columns: %q", got)
	}
	for arg, want := range map[string]string{"ann": "has the columns day, who", "day=2026-05-14": `"who"`, "day=2026-05-14,who=a,n=1": `column "n" does not belong`} {
		c.fails("", []string{"get", "shop.visits", arg}, want)
	}
}

// TestTailBeforeImage: an update is told with the row before it, one that changes nothing is not told.
func TestTailBeforeImage(t *testing.T) {
	c := withOrders(t)
	c.ok(`{"id":1,"item":"ice","price":"2.50"}`+"\n", "put", "shop.orders")
	got := c.ok("", "tail", "shop.orders", "--from", "snapshot:2", "--before-image")
	for _, want := range []string{
		`"kind":"-D","row":{"id":2,"item":"snow","price":"0.10"}`,
		`"kind":"-U","row":{"id":3,"item":"hail","price":null}`,
		`"kind":"+U","row":{"id":3,"item":"hail","price":"7.00"}`,
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("not once %s in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 3 {
		t.Errorf("%d changes:\n%s", n, got)
	}
}
