package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/manifest"
)

// acked acknowledges a position of a consumer, and gives the status and the answer.
func (x *shop) acked(consumer, body string) (int, string) {
	x.t.Helper()
	resp, err := http.Post(strings.TrimSuffix(x.url, "changes")+"consumers/"+consumer, "application/json", strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

// lines reads a stream until it has told so many, but for heartbeats, and breaks it off.
func (x *shop) lines(query string, n int) (out []string) {
	x.t.Helper()
	resp := x.get(query)
	in := bufio.NewScanner(resp.Body)
	for len(out) < n && in.Scan() {
		if !strings.Contains(in.Text(), `"idle"`) {
			out = append(out, in.Text())
		}
	}
	if err := in.Err(); err != nil || len(out) < n {
		x.t.Fatal(len(out), err)
	}
	resp.Body.Close()
	return out
}

// ends are the positions at the ends of lines.
func ends(x *shop, lines []string) (out []string) {
	for _, l := range lines {
		var v struct{ At string }
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			x.t.Fatal(l, err)
		}
		out = append(out, v.At)
	}
	return out
}

// TestAcks: a consumer whose client acknowledges is where the client says, whatever was written to it: one that dies in between
// gets again what it had not acknowledged, also the rows that the stream began with, and expiry leaves that.
func TestAcks(t *testing.T) {
	x := newShop(t, nil, "")
	x.write("a", 1, 2)
	x.write("b", 3)
	meta := manifest.Open(x.table(), manifest.Env{NewID: hastyEnv().NewID, Now: time.Now})
	next := func() int64 {
		n, err := meta.Consumer(t.Context(), "web")
		if err != nil {
			return 0
		}
		return n
	}
	const full = "?consumer=web&consumer_ack=client&from=full"
	const on = "?consumer=web&consumer_ack=client"
	told := x.lines(full, 4) // all rows, and their end; then the client dies
	if at := ends(x, told); strings.Join(at, " ") != "2.1.state 2.2.state 2.3.state 3.0" || next() != 0 {
		t.Fatal(told, next())
	}
	if status, text := x.acked("web", `{"at":"2.2.state"}`); status != 200 || text != `{"consumer":"web","next":0}` || next() != 0 {
		t.Fatal(status, text)
	}
	if again := x.lines(full, 4); strings.Join(again, "\n") != strings.Join(told, "\n") {
		t.Fatal(again)
	}
	if status, text := x.acked("web", `{"at":"3.0"}`); status != 200 || text != `{"consumer":"web","next":3}` || next() != 3 {
		t.Fatal(status, text)
	}
	x.write("c", 1, 2, 3)
	x.write("d", 4)
	first := x.lines(on, 6)
	if got := strings.Join(ends(x, first), " "); got != "3.1 3.2 3.3 4.0 4.1 5.0" || next() != 3 {
		t.Fatal(got, next())
	}
	if _, err := meta.Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at   string
		next int64
		told string // after that, by a new stream
	}{
		{"3.1", 3, "3.1 3.2 3.3 4.0 4.1 5.0"}, {"4.0", 4, "4.1 5.0"}, {"3.2", 4, "4.1 5.0"}, {"4.1", 4, "4.1 5.0"},
	} {
		if status, text := x.acked("web", `{"at":"`+step.at+`"}`); status != 200 || next() != step.next {
			t.Fatalf("%s: %d %s, next %d", step.at, status, text, next())
		}
		if got := strings.Join(ends(x, x.lines(on, len(strings.Fields(step.told)))), " "); got != step.told || next() != step.next {
			t.Fatalf("after %s: %s, next %d", step.at, got, next())
		}
	}
	if status, _ := x.acked("web", `{"at":"5.0"}`); status != 200 || next() != 5 {
		t.Fatal(status, next())
	}
	for body, want := range map[string]string{`{"at":"x"}`: "position", `{}`: "position", `{"at":"6.0"}`: "beyond the newest snapshot", `{"at":"5.1"}`: "beyond", `at`: "no position", `{"at":"5.0","x":1}`: "unknown field"} {
		if status, text := x.acked("web", body); status != 400 || !strings.Contains(text, want) || next() != 5 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := x.acked("calve-lease-x", `{"at":"5.0"}`); status != 400 || !strings.Contains(text, "for leases") {
		t.Error(status, text)
	}
	if status, text := x.acked("wbe", `{"at":"5.0"}`); status != 404 || !strings.Contains(text, "consumer_ack=client") { // would hold expiry for ever
		t.Error(status, text)
	}
	if resp := x.get("?consumer_ack=client"); resp.StatusCode != 400 {
		t.Error(resp.Status)
	}
	if resp := x.get("?consumer=web&consumer_ack=me"); resp.StatusCode != 400 {
		t.Error(resp.Status)
	}
	all, err := meta.Consumers(t.Context())
	for range 200 { // the leases of streams that were broken off
		if err != nil || len(all) == 1 {
			break
		}
		time.Sleep(20 * time.Millisecond)
		all, err = meta.Consumers(t.Context())
	}
	if err != nil || len(all) != 1 {
		t.Error(all, err)
	}
}

// TestAcksReconnect: what a client received, as browsers say when they reconnect (Last-Event-ID), and the from of its address are
// no acknowledgements: its consumer stays, and whoever comes back with the name gets what was not acknowledged.
func TestAcksReconnect(t *testing.T) {
	x := newShop(t, nil, "")
	x.write("a", 1, 2)
	meta := manifest.Open(x.table(), manifest.Env{NewID: hastyEnv().NewID, Now: time.Now})
	const on = "?consumer=web&consumer_ack=client"
	if _, err := meta.Consumer(t.Context(), "web"); !errors.Is(err, manifest.ErrNoConsumer) {
		t.Fatal(err)
	}
	// Not registered yet: it is not known whether the rows before the position were dealt with.
	if got := x.text(on+"&follow=false", "Last-Event-ID", "1.0"); !strings.Contains(got, `"item":"a"`) {
		t.Error(got)
	}
	if _, err := meta.Consumer(t.Context(), "web"); !errors.Is(err, manifest.ErrNoConsumer) {
		t.Fatal(err)
	}
	if err := meta.PutConsumer(t.Context(), "web", 1); err != nil {
		t.Fatal(err)
	}
	x.write("b", 3)
	for _, c := range []struct{ query, id, told string }{
		{on, "2.0", `"item":"b"`}, {on, "3.0", ""}, {on + "&from=latest", "", ""}, {on + "&from=full", "", `"item":"b"`}, {on + "&from=snapshot:1", "", `"item":"a"`},
	} {
		var header []string
		if c.id != "" {
			header = []string{"Last-Event-ID", c.id}
		}
		got := x.text(c.query+"&follow=false", header...)
		next, err := meta.Consumer(t.Context(), "web")
		if err != nil || next != 1 || !strings.Contains(got, c.told) || (got == "") != (c.told == "") {
			t.Errorf("%s, last %q: next %d, %v: %s", c.query, c.id, next, err, got)
		}
	}
	if again := strings.Join(x.lines(on, 5), "\n"); !strings.Contains(again, `"item":"a"`) || !strings.Contains(again, `"item":"b"`) {
		t.Errorf("what was not acknowledged does not come again: %s", again)
	}
}
