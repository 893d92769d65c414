package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func mustQuery(t *testing.T, text string) url.Values {
	t.Helper()
	q, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestView: of many pipelines those that need help come first; a client asks for some by name and state.
func TestView(t *testing.T) {
	var all []PipelineStatus
	for i, s := range []State{Running, Failed, Running, Waiting, Elsewhere, Paused} {
		all = append(all, PipelineStatus{Name: fmt.Sprint("p", i), Table: fmt.Sprint("db.t", i), State: s, LagBytes: int64(i)})
	}
	all[0].Stalled = true
	for _, tc := range []struct{ query, want string }{
		{"", "p0 p1 p2 p3 p4 p5 of 6"}, {"sort=worst", "p1 p5 p3 p0 p2 p4 of 6"}, {"sort=worst&limit=2", "p1 p5 of 6"},
		{"state=failed,paused", "p1 p5 of 2"}, {"name=db.t2", "p2 of 1"}, {"name=p&state=running&sort=worst", "p0 p2 of 2"}, {"name=none", "of 0"},
	} {
		q := mustQuery(t, tc.query)
		v, err := viewOf(q, view{})
		if err != nil {
			t.Fatal(err)
		}
		got, found := v.pick(all)
		var names []string
		for _, p := range got {
			names = append(names, p.Name)
		}
		if s := strings.TrimSpace(strings.Join(names, " ") + fmt.Sprint(" of ", found)); s != tc.want {
			t.Errorf("%s: %s, want %s", tc.query, s, tc.want)
		}
	}
	for _, bad := range []string{"sort=best", "limit=x", "limit=-1"} {
		if _, err := viewOf(mustQuery(t, bad), view{}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestStatusOfMany: page and JSON show what is asked for, how many are in which state, and what went wrong last.
func TestStatusOfMany(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	l.fill("a", 5)
	l.fill("b", 5)
	r := l.start(Options{}, l.section("one", "a", appendTable), l.section("two", "b", appendTable), l.section("lost", "c"))
	r.awaitRecords("one", 5)
	r.awaitRecords("two", 5)
	r.awaitState("lost", Failed)
	st := r.getJSON("/status?sort=worst&limit=1")
	p := st["pipelines"].([]any)
	first := p[0].(map[string]any)
	if len(p) != 1 || st["found"] != 3.0 || first["name"] != "lost" || first["lastError"] == nil || fmt.Sprint(st["states"]) != "map[failed:1 running:2]" {
		t.Errorf("status %v", st)
	}
	if code, _ := r.get("/status?sort=x"); code != http.StatusBadRequest {
		t.Errorf("a parameter that is unknown: %d", code)
	}
	if _, page := r.get("/?name=two"); !strings.Contains(page, "shop.two") || strings.Contains(page, "shop.one") || !strings.Contains(page, "failed") {
		t.Error("the page does not filter")
	}
	_, metrics := r.get("/metrics")
	for _, want := range []string{`calve_waits_for_person{pipeline="lost",table="shop.lost"} 1`, `calve_lag_bytes{pipeline="one",table="shop.one"} 0`,
		`calve_last_commit_age_seconds{pipeline="one",table="shop.one"}`, `calve_last_error_timestamp_seconds{pipeline="one",table="shop.one"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics: no %s", want)
		}
	}
	_ = r.end()
}
