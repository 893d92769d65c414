package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// TestVerifyStreamCommand: what the command says of a stream that is right and of a table that has lost rows.
func TestVerifyStreamCommand(t *testing.T) {
	c := withOrders(t)
	c.ok("", "compact", "shop.orders", "--full")
	if got, want := c.ok("", "verify", "shop.orders", "--stream"), "shop.orders: the stream folds to the table: from=0 to=3 snapshots=3 compared=3 changes=5 rows=2 passes=1 differ=0\n"; got != want {
		t.Errorf("verify: %s", got)
	}
	if got := c.ok("", "verify", "shop.orders", "--stream", "--before-image", "--from", "snapshot:1"); !strings.Contains(got, " from=1 to=3 snapshots=2 compared=2 changes=3 rows=2 ") {
		t.Errorf("verify: %s", got)
	}
	for _, x := range []struct{ args, want string }{
		{"--from snapshot:1", "--from belongs to --stream"},
		{"--stream --quick", "--quick does not go with --stream"},
		{"--stream --from latest", "earliest, snapshot:N or tag:NAME"},
		{"--stream --memory 0", "--memory"},
	} {
		c.fails("", append([]string{"verify", "shop.orders"}, strings.Fields(x.args)...), x.want)
	}

	st, err := storage.NewLocal(c.dir + "/shop.db/orders")
	if err != nil {
		t.Fatal(err)
	}
	meta := reader.Open(st, readerEnv(slog.New(slog.DiscardHandler))).Meta()
	snap, err := meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost, err := meta.Live(t.Context(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lost {
		lost[i].Kind = manifest.Remove
	}
	if _, err := meta.Commit(t.Context(), manifest.Commit{Kind: manifest.Compact, User: "thief", Identifier: 1, Entries: lost}); err != nil {
		t.Fatal(err)
	}
	c.fails("", []string{"verify", "shop.orders", "--stream"}, `snapshot 4, {"id":1}: the table has no row that the stream has
  stream: {"id":1,"item":"ice","price":"2.50"} (told in snapshot 1)
  table:  nothing
snapshot 4, {"id":3}: the table has no row that the stream has
  stream: {"id":3,"item":"hail","price":"7.00"} (told in snapshot 2)
  table:  nothing
shop.orders: STREAM AND TABLE DIFFER: from=0 to=4 snapshots=4 compared=4 changes=5 rows=0 passes=1 differ=2
`)
	r := c.run("", "verify", "shop.orders", "--stream", "--json")
	if !errors.Is(r.failed, errReported) || !strings.Contains(r.out, `{"ok":false,"from":0,"snapshot":4,`) || !strings.Contains(r.out, `"key":{"id":1},"what":"the table has no row that the stream has","stream":{"id":1,"item":"ice","price":"2.50"},"streamAt":1}`) {
		t.Errorf("%v %s", r.failed, r.out)
	}
}
