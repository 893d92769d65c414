package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
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
