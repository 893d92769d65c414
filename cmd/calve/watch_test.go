package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCompactWatch: two workers share the tables of a warehouse, new ones too, while they are written. What they compact
// they compact once, and all rows are there in the end. Tables that no pattern names are left alone.
func TestCompactWatch(t *testing.T) {
	c := newCLI(t)
	create := func(name string) {
		c.ok("", "create", name, "--columns", "id INT NOT NULL, p INT NOT NULL, n INT", "--primary-key", "id,p", "--partition", "p",
			"--option", "bucket=1", "--option", "write-only=true", "--option", "num-sorted-run.compaction-trigger=3")
	}
	create("shop.a")
	create("other.c")
	var workers []*background
	for range 2 {
		workers = append(workers, c.background("compact", "--watch", "shop.*", "--json", "--follow-every", "20ms", "--look-every", "30ms", "--claim-for", "2s", "--log-level", "error"))
	}
	create("shop.b")
	const puts = 12
	for n := range puts {
		var lines strings.Builder
		for p := range 4 {
			fmt.Fprintf(&lines, "{\"id\":%d,\"p\":%d,\"n\":%d}\n{\"id\":0,\"p\":%d,\"n\":%d}\n", n+1, p, n, p, n)
		}
		for _, table := range []string{"shop.a", "shop.b", "other.c"} {
			c.ok(lines.String(), "put", table)
		}
	}
	low := func(table string) float64 {
		return c.object("describe", table, "--json")["filesPerLevel"].([]any)[0].(float64)
	}
	for deadline := time.Now().Add(time.Minute); low("shop.a") >= 12 || low("shop.b") >= 12; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("level 0 has %v and %v files; the workers say\n%s\n%s", low("shop.a"), low("shop.b"), workers[0], workers[1])
		}
	}
	snapshots := map[string]bool{}
	for _, w := range workers {
		w.cancel()
		if err := <-w.done; err != nil {
			t.Errorf("an interrupted worker fails: %v", err)
		}
		for line := range strings.Lines(w.String()) {
			var done struct {
				Table    string
				Snapshot int64
				Bucket   string
			}
			if err := json.Unmarshal([]byte(line), &done); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			at := fmt.Sprint(done.Table, done.Snapshot)
			if snapshots[at] || !strings.HasPrefix(done.Table, "shop.") || !strings.HasPrefix(done.Bucket, "p=") {
				t.Errorf("worker says %s", line)
			}
			snapshots[at] = true
		}
	}
	if len(snapshots) < 8 {
		t.Errorf("only %d compactions of 8 buckets", len(snapshots))
	}
	if low("other.c") != 4*puts {
		t.Errorf("a table that was not named has %v files on level 0", low("other.c"))
	}
	for _, table := range []string{"shop.a", "shop.b"} {
		if got := c.ok("", "scan", table, "--count"); got != fmt.Sprintln(4*(puts+1)) {
			t.Errorf("%s has %s rows", table, got)
		}
		c.ok("", "verify", table)
	}
	c.fails("", []string{"compact", "--watch", "--full"}, "it does not go with --full")
	c.fails("", []string{"compact", "--watch", "[x"}, "pattern \"[x\"")
}
