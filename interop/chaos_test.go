//go:build interop

package interop

import (
	"bytes"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// objects is a server that keeps what is put into it.
type objects struct {
	mu     sync.Mutex
	text   map[string]string
	before func(path string) // of a put, with the lock held
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Method == http.MethodPut && err == nil {
		if o.before != nil {
			o.before(r.URL.Path)
		}
		o.text[r.URL.Path] = string(body)
		return
	}
	_, _ = io.WriteString(w, o.text[r.URL.Path])
}

func (o *objects) get(path string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text[path]
}

func put(ctx context.Context, url, text string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader([]byte(text)))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// TestSaboteur looks at what each fault does, and what its sender hears.
func TestSaboteur(t *testing.T) {
	store := &objects{text: map[string]string{}}
	server := httptest.NewServer(store)
	defer server.Close()
	for i, c := range []struct {
		kind        string
		done, heard bool // the object is there in the end; the sender got an answer
		ok          bool // and that is a good one
	}{
		{faultError, false, true, false}, {faultLie, true, true, false}, {faultSlow, true, true, true}, {faultDrop, false, false, false},
		{faultLost, true, false, false}, {faultLate, true, false, false}, {faultCutBody, false, false, false},
	} {
		s, err := startSaboteur(server.URL, 1)
		if err != nil {
			t.Fatal(err)
		}
		s.always = c.kind
		path, text := fmt.Sprintf("/%d", i), strings.Repeat("text", 100_000)
		status, err := put(t.Context(), s.Endpoint+path, text)
		if heard := err == nil; heard != c.heard || heard && (status == http.StatusOK) != c.ok {
			t.Errorf("%s: the sender got status %d, %v", c.kind, status, err)
		}
		for n := 0; c.done && store.get(path) != text && n < 100; n++ {
			time.Sleep(50 * time.Millisecond)
		}
		if done := store.get(path) == text; done != c.done {
			t.Errorf("%s: carried out: %v", c.kind, done)
		}
		if n := s.Counts()[c.kind]; n != 1 {
			t.Errorf("%s: counted %d times", c.kind, n)
		}
		s.Calm()
		if status, err := put(t.Context(), s.Endpoint+path, "calm"); err != nil || status != http.StatusOK || store.get(path) != "calm" {
			t.Errorf("calm after %s: %d %v", c.kind, status, err)
		}
		s.Close()
	}
}

func TestSaboteurCutsAnswersAndStrikes(t *testing.T) {
	store := &objects{text: map[string]string{"/a": strings.Repeat("text", 100_000)}}
	server := httptest.NewServer(store)
	defer server.Close()
	s, err := startSaboteur(server.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.always = faultCutAnswer
	resp, err := http.Get(s.Endpoint + "/a")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil || len(text) == 0 || len(text) >= 400_000 {
		t.Errorf("%d bytes of a cut answer, %v", len(text), err)
	}
	for _, fate := range []string{faultDrop, faultLost, faultLate} {
		a := &aim{method: http.MethodPut, part: "/aim", fate: fate, hit: make(chan struct{}), dead: make(chan struct{})}
		s.Aim(a)
		path := "/aim/" + fate
		answered := make(chan error)
		go func() {
			_, err := put(t.Context(), s.Endpoint+path, "x")
			answered <- err
		}()
		<-a.hit
		if now := store.get(path) == "x"; now != (fate == faultLost) {
			t.Errorf("%s: carried out before the kill: %v", fate, now)
		}
		close(a.dead)
		if err := <-answered; err == nil {
			t.Errorf("%s: the sender got an answer", fate)
		}
		for n := 0; fate != faultDrop && store.get(path) != "x" && n < 120; n++ {
			time.Sleep(50 * time.Millisecond)
		}
		if then := store.get(path) == "x"; then != (fate != faultDrop) {
			t.Errorf("%s: carried out in the end: %v", fate, then)
		}
	}
	s.always, s.calm = "", true
	late, err := http.NewRequest(http.MethodPut, s.Endpoint+"/met", nil)
	if err != nil {
		t.Fatal(err)
	}
	late.RequestURI = "/met"
	s.later(late, []byte("late"), time.Minute, true)
	var seen string
	store.mu.Lock()
	store.before = func(path string) { seen = store.text[path] }
	store.mu.Unlock()
	if status, err := put(t.Context(), s.Endpoint+"/met", "new"); err != nil || status != http.StatusOK || seen != "late" || store.get("/met") != "new" {
		t.Errorf("the new request met %q, and got %d %v", seen, status, err)
	}
}

// TestChaosJudge makes each mistake that the judge must see.
func TestChaosJudge(t *testing.T) {
	log := []chaosRecord{
		{chaosEvent: chaosEvent{Op: "U", ID: 1, K: 1, P: "b", V: "x", TS: 10}, off: 0},
		{chaosEvent: chaosEvent{Op: "U", ID: 2, K: 1, P: "b", V: "y", TS: 5}, off: 1},
		{chaosEvent: chaosEvent{ID: 3}, off: 2, broken: true},
		{chaosEvent: chaosEvent{Op: "U", ID: 4, K: 2, P: "c", V: "z", TS: 7}, part: 2, off: 0},
		{chaosEvent: chaosEvent{Op: "D", ID: 5, K: 2, P: "c", V: "z", TS: 8}, part: 2, off: 1},
	}
	truth := newChaosTruth(log, log)
	lines := map[string][]string{
		"appended": {`{"id":1,"k":1,"v":"x","part":0,"off":0}`, `{"id":2,"k":1,"v":"y","part":0,"off":1}`, `{"id":4,"k":2,"v":"z","part":2,"off":0}`, `{"id":5,"k":2,"v":"z","part":2,"off":1}`},
		"keyed":    {`{"k":1,"id":2,"v":"y","ts":5}`},
		"newest":   {`{"k":1,"id":1,"v":"x","ts":10}`, `{"k":2,"id":5,"v":"z","ts":8}`},
		"summed":   {`{"k":1,"one":2,"id":3}`, `{"k":2,"one":2,"id":9}`},
	}
	for _, c := range []struct {
		table                  string
		with                   func([]string) []string
		lost, doubled, strange int
	}{
		{"appended", func(l []string) []string { return l }, 0, 0, 0},
		{"appended", func(l []string) []string { return l[1:] }, 1, 0, 0},
		{"appended", func(l []string) []string { return append(l, l[0]) }, 0, 1, 0},
		{"appended", func(l []string) []string { return append(l, `{"id":3,"k":0,"v":"","part":0,"off":2}`) }, 0, 0, 1},
		{"keyed", func(l []string) []string { return l }, 0, 0, 0},
		{"keyed", func([]string) []string { return nil }, 1, 0, 0},
		{"keyed", func([]string) []string { return []string{`{"k":1,"id":1,"v":"x","ts":10}`} }, 1, 0, 0},
		{"keyed", func(l []string) []string { return append(l, `{"k":2,"id":4,"v":"z","ts":7}`) }, 1, 0, 0},
		{"newest", func(l []string) []string { return l }, 0, 0, 0},
		{"newest", func(l []string) []string { return append(l[1:], `{"k":1,"id":2,"v":"y","ts":5}`) }, 1, 0, 0},
		{"summed", func(l []string) []string { return l }, 0, 0, 0},
		{"summed", func(l []string) []string { return append(l[1:], `{"k":1,"one":1,"id":1}`) }, 1, 0, 0},
		{"summed", func(l []string) []string { return append(l[1:], `{"k":1,"one":3,"id":4}`) }, 0, 1, 0},
	} {
		for _, table := range chaosTables {
			if table.name != c.table {
				continue
			}
			got := rows(t, table.columns, strings.Join(c.with(append([]string{}, lines[c.table]...)), "\n"))
			v := table.judge(truth.rows[table.name], got)
			if v.lost != c.lost || v.doubled != c.doubled || v.strange != c.strange || (v.err() == nil) != (c.lost+c.doubled+c.strange == 0) {
				t.Errorf("%s: %d lost, %d doubled, %d strange, expected %d, %d, %d: %v", c.table, v.lost, v.doubled, v.strange, c.lost, c.doubled, c.strange, v.err())
			}
		}
	}
	if l := truth.letters[true]; len(l) != 1 || l[0] != "0/2" {
		t.Errorf("broken records: %v", l)
	}
}

// TestPlants: what chaos is proved with fits into today's sources.
func TestPlants(t *testing.T) {
	for i := range plants {
		sources, err := plants[i].patched("..")
		if err != nil {
			t.Error(err)
		}
		for file, text := range sources {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
				t.Errorf("plant %s: %v", plants[i].name, err)
			}
		}
	}
}

// TestChaosEnough: also a run of few kills must have seen commits.
func TestChaosEnough(t *testing.T) {
	for _, c := range []struct {
		progress, kills int
		ok              bool
	}{{0, 1, false}, {1, 1, true}, {0, 5, false}, {1, 8, true}, {24, 150, false}, {25, 150, true}} {
		if err := enough(c.progress, c.kills); (err == nil) != c.ok {
			t.Errorf("%d of %d lives: %v", c.progress, c.kills, err)
		}
	}
}
