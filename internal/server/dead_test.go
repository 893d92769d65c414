package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestDeadLettersPause: refused records are rows of a table that is published as Iceberg too; when there are too many the
// pipeline pauses, says so, and goes on by itself when the table has the column that was missing.
func TestDeadLettersPause(t *testing.T) {
	l := newLab(t, "a")
	r := l.start(Options{}, l.section("a", "a", keyedTable, "dead-letters: {pause-percent: 40, pause-least: 20, table: shop.bad}"))
	l.fill("a", 30)
	r.awaitRecords("a", 30)
	var values []string
	for i := range 100 {
		values = append(values, fmt.Sprintf(`{"id":%d,"name":5`, 1000+i))
	}
	l.send("a", values...)
	st := r.awaitState("a", Paused)
	if !strings.Contains(st.Error, "too many records are refused") {
		t.Errorf("status: %s", st.Error)
	}
	if code, body := r.get("/healthz"); code != 503 || !strings.Contains(body, "paused") {
		t.Errorf("health: %d %s", code, body)
	}
	if _, body := r.get("/metrics"); !strings.Contains(body, `calve_paused{pipeline="a",table="shop.a"} 1`) || !strings.Contains(body, `calve_up{pipeline="a",table="shop.a"} 0`) {
		t.Error("metrics do not tell the pause")
	}
	letters := l.count("shop.bad")
	if letters == 0 || int64(letters) != st.Rejected {
		t.Errorf("%d letters, %d refused", letters, st.Rejected)
	}
	env := hastyEnv()
	meta := manifest.Open(storage.Sub(l.mem, "shop.db/a"), manifest.Env{Now: env.Now, NewID: env.NewID, Rand: env.Rand})
	if _, _, err := meta.AlterSchema(t.Context(), []schema.Change{schema.AddColumn{Path: []string{"w"}, Type: schema.Type{Root: schema.Int}}}); err != nil {
		t.Fatal(err)
	}
	l.fill("a", 200)
	for done := false; !done; { // it may pause once more on its way through what is broken
		st := r.await("a", "end or pause", func(p PipelineStatus) bool { return p.Records == 330 && p.State == Running || p.State == Paused })
		if done = st.State == Running; !done {
			if _, _, err := meta.AlterSchema(t.Context(), []schema.Change{schema.AddColumn{Path: []string{env.NewID()}, Type: schema.Type{Root: schema.Int}}}); err != nil {
				t.Fatal(err)
			}
			r.await("a", "going on", func(p PipelineStatus) bool { return p.State != Paused })
		}
	}
	if n := len(l.ids("shop.a")); n != 230 {
		t.Errorf("%d rows", n)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if n := l.count("shop.bad"); n != 100 {
		t.Errorf("%d letters", n)
	}
	for _, err := range export.Scan(t.Context(), storage.Sub(l.mem, "shop.db/bad"), export.ScanSpec{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}
