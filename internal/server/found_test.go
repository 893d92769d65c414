package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// columnsOf gives the columns and key of a table.
func (l *lab) columnsOf(path string) string {
	l.t.Helper()
	e := hastyEnv()
	s, err := manifest.Open(storage.Sub(l.store, path), manifest.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log}).LatestSchema(context.Background())
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, f := range s.Fields {
		out = append(out, f.Name+" "+f.Type.String())
	}
	return fmt.Sprint(strings.Join(out, ", "), " key ", s.PrimaryKeys)
}

// TestTablesOfRecords: tables are made of the first records of their topics and of the fields of their keys (here the whole
// value), one of which is empty for a while, and get
// the columns that come later.
func TestTablesOfRecords(t *testing.T) {
	l := newLab(t, "t.a", "t.b")
	l.fill("t.a", 20)
	r := l.start(Options{}, l.family("lake", "raw.{topic}", `topic-pattern: "t[.].*"`, "create: {}"))
	r.awaitRecords("lake:t.a", 20)
	if got, want := l.columnsOf("raw.db/t_a"), "id BIGINT NOT NULL, name STRING NOT NULL, off BIGINT, part INT key [id name]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	l.send("t.a", `{"id":20,"name":"n","extra":{"deep":[true]}}`)
	l.produced["t.a"]++
	l.send("t.b", `{"other":1.5}`)
	r.awaitRecords("lake:t.a", 21)
	r.awaitRecords("lake:t.b", 1)
	if got := l.columnsOf("raw.db/t_a"); !strings.Contains(got, "extra ROW<`deep` ARRAY<BOOLEAN>>") {
		t.Error(got)
	}
	if got := l.columnsOf("raw.db/t_b"); !strings.HasPrefix(got, "other DOUBLE NOT NULL, ") {
		t.Error(got)
	}
	_ = r.end()
}

// TestBagOfEvents: the table of a source without key needs no columns either; hash and number of copies get the types that
// they must have.
func TestBagOfEvents(t *testing.T) {
	l := newLab(t, "ledger")
	event := func(op, before, after string) string {
		return fmt.Sprintf(`{"before":%s,"after":%s,"op":%q}`, before, after, op)
	}
	const one, two = `{"n":1,"word":"x"}`, `{"n":2,"word":null}`
	l.send("ledger", event("c", "null", one), event("c", "null", one), event("c", "null", two), event("u", one, two), event("d", two, "null"))
	section := fmt.Sprintf(`- name: bag
  table: shop.ledger
  kafka: {brokers: [%s], topic: ledger, fields: {row_hash: row-hash, copies: copies}}
  format: {type: debezium-json}
  create: {primary-key: [row_hash], options: {merge-engine: aggregation, fields.copies.aggregate-function: sum}}
  commit-interval: 10ms
  expire-every: 0s
`, strings.Join(l.ListenAddrs(), ","))
	r := l.start(Options{}, section)
	r.awaitRecords("bag", 5)
	if got, want := l.columnsOf("shop.db/ledger"), "n BIGINT, word STRING, copies BIGINT, row_hash BINARY(16) NOT NULL key [row_hash]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	got := map[int64]int64{}
	for rec, err := range l.reader("shop.ledger").Scan(t.Context(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range rec.Column(0).(*array.Int64).Int64Values() {
			got[n] += rec.Column(2).(*array.Int64).Value(i)
		}
	}
	if got[1] != 1 || got[2] != 1 || len(got) != 2 {
		t.Errorf("copies by n: %v", got)
	}
	_ = r.end()
}
