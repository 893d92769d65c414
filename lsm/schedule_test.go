package lsm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// parseWork reads "NAME shape runs=6 stop=8 mb=10 waited=20s table=1 limit=1".
func parseWork(t *testing.T, line string) (string, Work) {
	t.Helper()
	words := strings.Fields(line)
	if len(words) < 2 {
		t.Fatalf("%q is no work", line)
	}
	w := Work{Runs: 5, Stop: 8, Limit: 100, Bytes: 1 << 20}
	switch words[1] {
	case "aged":
		w.Reason = Aged
	case "shape":
		w.Reason = Shape
	case "cold":
		w.Reason = Cold
	default:
		t.Fatalf("%q: no reason %s", line, words[1])
	}
	for _, a := range words[2:] {
		if a == "begun" {
			w.Begun = true
			continue
		}
		k, v, _ := strings.Cut(a, "=")
		if k == "waited" {
			w.Waited = duration(t, v)
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch k {
		case "runs":
			w.Runs = n
		case "stop":
			w.Stop = n
		case "mb":
			w.Bytes = int64(n) << 20
		case "kb":
			w.Bytes = int64(n) << 10
		case "table":
			w.Table = n
		case "limit":
			w.Limit = n
		default:
			t.Fatalf("%q: unknown %s", line, k)
		}
	}
	return words[0], w
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSchedule answers the commands of testdata/schedule-*.txt.
//
//	schedule workers=1 borrowed=1     works that run, a line "--", and works that wait: which begin, and which pause then
//	meter rate=10                     lines "AT spend BYTES": how long to wait after each, in virtual time
//	aged target=60s takes=5s          lines with ages: how long the compaction can wait
//	levels, young                     as in TestPicker; young busy=a,b
func TestSchedule(t *testing.T) {
	runConversations(t, "testdata/schedule-*.txt", func(t *testing.T) func(d *directive) string {
		var l *Levels
		return func(d *directive) string {
			switch d.cmd {
			case "schedule":
				return schedule(t, d)
			case "meter":
				return meter(t, d)
			case "aged":
				var out []string
				for _, line := range d.input {
					in := AgedIn(duration(t, line), duration(t, d.args["target"]), duration(t, d.args["takes"]))
					out = append(out, fmt.Sprintf("%s: %s", line, in))
				}
				return strings.Join(out, "\n")
			case "levels":
				var err error
				if l, err = NewLevels(bigintKeys(t), 3, parseFiles(t, d.input)); err != nil {
					t.Fatal(err)
				}
				return describeRuns(l)
			case "young":
				return describeJob(PickYoung(l, policyOf(t, d), func(name string) bool { return strings.Contains(","+d.args["busy"]+",", ","+name+",") }))
			}
			t.Fatalf("line %d: unknown command %s", d.line, d.cmd)
			return ""
		}
	})
}

func schedule(t *testing.T, d *directive) string {
	b := Budget{Workers: d.int(t, "workers", 1), Borrowed: d.int(t, "borrowed", 0) > 0}
	var running, waiting []Work
	var runs, waits []string
	begun := true
	for _, line := range d.input {
		if line == "--" {
			begun = false
			continue
		}
		name, w := parseWork(t, line)
		if begun {
			running, runs = append(running, w), append(runs, name)
		} else {
			waiting, waits = append(waiting, w), append(waits, name)
		}
	}
	var out []string
	for {
		i := Next(waiting, running, b)
		if i < 0 {
			break
		}
		out = append(out, "begins "+waits[i])
		running, runs = append(running, waiting[i]), append(runs, waits[i])
		waiting, waits = append(waiting[:i:i], waiting[i+1:]...), append(waits[:i:i], waits[i+1:]...)
	}
	moving := 0
	for i := range running {
		if Pauses(running, i, b) {
			out = append(out, "pauses "+runs[i])
		} else if !running[i].small() {
			moving++
		}
	}
	if moving > b.Workers {
		t.Errorf("line %d: %d works make progress", d.line, moving)
	}
	for _, w := range waits {
		out = append(out, "waits "+w)
	}
	return strings.Join(out, "\n")
}

func meter(t *testing.T, d *directive) string {
	m := Meter{Rate: int64(d.int(t, "rate", 0))}
	var out []string
	for _, line := range d.input {
		w := strings.Fields(line)
		n, err := strconv.ParseInt(w[2], 10, 64)
		if err != nil || w[1] != "spend" {
			t.Fatalf("%q: %v", line, err)
		}
		now := time.Unix(1000, 0).Add(duration(t, w[0]))
		m.Spend(now, n)
		out = append(out, fmt.Sprintf("%s: wait %s", line, m.Wait(now).Round(time.Millisecond)))
	}
	return strings.Join(out, "\n")
}
