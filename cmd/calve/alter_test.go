package main

import (
	"strings"
	"testing"
)

// TestAlter: changes in the order given, old rows through the new columns, and the same again changes nothing.
func TestAlter(t *testing.T) {
	c := withOrders(t)
	args := []string{"alter", "shop.orders", "--add", "note STRING comment 'x' after id", "--rename", "item=what", "--type", "price DECIMAL(12, 3)",
		"--set", "snapshot.num-retained.min=20", "--table-comment", "all orders"}
	if got := c.ok("", args...); got != "altered shop.orders: schema 1\n" {
		t.Errorf("alter: %s", got)
	}
	if got := c.ok("", args...); got != "shop.orders is so already: schema 1\n" {
		t.Errorf("alter again: %s", got)
	}
	if got := c.object(append(args, "--json")...); got["changed"] != false || got["schema"] != 1.0 {
		t.Errorf("alter --json: %v", got)
	}
	if got, want := c.ok("", "scan", "shop.orders"), `{"id":1,"note":null,"what":"ice","price":"2.500"}
{"id":3,"note":null,"what":"hail","price":"7.000"}
`; got != want {
		t.Errorf("scan:\n%s", got)
	}
	c.ok(`{"id":1,"what":"ice","note":"cold","price":1}`+"\n", "put", "shop.orders")
	c.ok("", "compact", "shop.orders", "--full")
	if got, want := c.ok("", "scan", "shop.orders", "--snapshot", "2"), `{"id":1,"item":"ice","price":"2.50"}
{"id":3,"item":"hail","price":"7.00"}
`; got != want {
		t.Errorf("scan of an old snapshot:\n%s", got)
	}
	if got := c.object("alter", "shop.orders", "--drop", "note", "--move", "price first", "--comment", "what=item", "--unset", "snapshot.num-retained.min", "--json"); got["changed"] != true || got["schema"] != 2.0 {
		t.Errorf("alter --json: %v", got)
	}
	if got := c.ok("", "scan", "shop.orders"); got != `{"price":"1.000","id":1,"what":"ice"}`+"\n"+`{"price":"7.000","id":3,"what":"hail"}`+"\n" {
		t.Errorf("scan:\n%s", got)
	}
	if got := c.ok("", "verify", "shop.orders"); !strings.Contains(got, "sound at snapshot") {
		t.Errorf("verify: %s", got)
	}
	c.fails("", []string{"alter", "shop.orders"}, "nothing to change", "calve alter --help")
	c.fails("", []string{"alter", "shop.none", "--drop", "a"}, "no table shop.none")
	c.fails("", []string{"alter", "shop.orders", "--drop", "id"}, "schema change refused", "primary key column")
	c.fails("", []string{"alter", "shop.orders", "--add", "x"}, "--add")
	c.fails("", []string{"alter", "shop.orders", "--set", "nonsense"}, "key=value")
}
