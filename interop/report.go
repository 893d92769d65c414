//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Result is one field of the table.
type Result struct {
	Case    string  `json:"case"`
	Peer    string  `json:"peer"`
	Status  string  `json:"status"` // pass, fail, skip
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail,omitempty"` // why it failed or was left out
}

// Report gathers results while checks run side by side.
type Report struct {
	Filter  Filter
	Log     func(format string, args ...any)
	mu      sync.Mutex
	results []Result
	notes   []string
}

// Note keeps a line that is printed below the table.
func (r *Report) Note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
	r.Log(format, args...)
}

// Check runs one check if the filter wants it and keeps its result.
func (r *Report) Check(name, peer string, check func() error) {
	if r.Filter.Wants(name, peer) {
		r.Always(name, peer, check)
	}
}

// Always runs a check that others build on, whatever the filter says of its peer.
func (r *Report) Always(name, peer string, check func() error) {
	start := time.Now()
	err := check()
	res := Result{Case: name, Peer: peer, Status: "pass", Seconds: time.Since(start).Seconds()}
	if err != nil {
		res.Status, res.Detail = "fail", err.Error()
	}
	r.add(res)
}

// Skip notes why a peer has nothing to say about a case.
func (r *Report) Skip(name, peer, why string) {
	if r.Filter.Wants(name, peer) {
		r.add(Result{Case: name, Peer: peer, Status: "skip", Detail: why})
	}
}

func (r *Report) add(res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
	switch res.Status {
	case "fail":
		r.Log("FAIL %s × %s (%.1fs): %s", res.Case, res.Peer, res.Seconds, res.Detail)
	case "pass":
		r.Log("ok   %s × %s (%.1fs)", res.Case, res.Peer, res.Seconds)
	}
}

// Failed reports whether a check of a case by a peer has failed.
func (r *Report) Failed(name, peer string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.results, func(x Result) bool {
		return x.Case == name && x.Peer == peer && x.Status == "fail"
	})
}

// Count gives the numbers of the closing line.
func (r *Report) Count() (passed, failed, skipped int) {
	for _, x := range r.results {
		switch x.Status {
		case "pass":
			passed++
		case "fail":
			failed++
		default:
			skipped++
		}
	}
	return passed, failed, skipped
}

// PrintJSON prints one object a result and one with the counts.
func (r *Report) PrintJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	for _, x := range r.results {
		if err := enc.Encode(x); err != nil {
			return err
		}
	}
	passed, failed, skipped := r.Count()
	return enc.Encode(map[string]int{"passed": passed, "failed": failed, "skipped": skipped})
}

// Print prints failures, the table and the closing line.
func (r *Report) Print(w io.Writer) {
	peers, cases := r.axes()
	for _, x := range r.results {
		if x.Status == "fail" {
			fmt.Fprintf(w, "\nFAIL %s × %s\n  %s\n", x.Case, x.Peer, strings.ReplaceAll(x.Detail, "\n", "\n  "))
		}
	}
	fmt.Fprintln(w)
	r.grid(w, peers, cases)
	for _, n := range r.notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	passed, failed, skipped := r.Count()
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped)
}

// axes gives the peers and cases that occur, in order of first appearance of the registered ones.
func (r *Report) axes() (peers, cases []string) {
	for _, j := range judges {
		peers = append(peers, j.Name())
	}
	for _, x := range r.results {
		if !slices.Contains(peers, x.Peer) {
			peers = append(peers, x.Peer)
		}
		if !slices.Contains(cases, x.Case) {
			cases = append(cases, x.Case)
		}
	}
	return peers, cases
}

func (r *Report) grid(w io.Writer, peers, cases []string) {
	lines := [][]string{append([]string{"case × peer"}, peers...)}
	for _, c := range cases {
		line := []string{c}
		for _, p := range peers {
			line = append(line, r.field(c, p))
		}
		lines = append(lines, line)
	}
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, f := range line {
			width[i] = max(width[i], len([]rune(f)))
		}
	}
	for _, line := range lines {
		for i, f := range line {
			fmt.Fprintf(w, "%s%s", f, strings.Repeat(" ", width[i]-len([]rune(f))+2))
		}
		fmt.Fprintln(w)
	}
}

func (r *Report) field(name, peer string) string {
	for _, x := range r.results {
		if x.Case != name || x.Peer != peer {
			continue
		}
		switch x.Status {
		case "pass":
			return fmt.Sprintf("ok %.1fs", x.Seconds)
		case "fail":
			return "FAIL"
		}
	}
	return "·"
}

// Filter chooses fields of the table as `go test -run` chooses subtests: "case" or "case/peer", each a pattern.
type Filter struct{ name, peer *regexp.Regexp }

// ParseFilter reads a filter; the empty one wants everything.
func ParseFilter(s string) (Filter, error) {
	name, peer, _ := strings.Cut(s, "/")
	n, err := regexp.Compile(name)
	if err != nil {
		return Filter{}, err
	}
	p, err := regexp.Compile(peer)
	return Filter{n, p}, err
}

// Wants reports whether a field is chosen.
func (f Filter) Wants(name, peer string) bool { return f.WantsCase(name) && f.peer.MatchString(peer) }

// WantsCase reports whether any field of a case may be chosen.
func (f Filter) WantsCase(name string) bool { return f.name.MatchString(name) }

// WantsPeer reports whether any field of a peer may be chosen.
func (f Filter) WantsPeer(peer string) bool { return f.peer.MatchString(peer) }
