package schema

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// TestCanCast: the matrix is that of Paimon's library (internal/testdata/casts.jsonl is what it said).
func TestCanCast(t *testing.T) {
	f, err := os.Open("../internal/testdata/casts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for ; in.Scan(); n++ {
		var line struct {
			From, To           string
			Implicit, Explicit bool
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		from, err := ParseType(line.From)
		if err != nil {
			t.Fatal(err)
		}
		to, err := ParseType(line.To)
		if err != nil {
			t.Fatal(err)
		}
		if got := CanCast(from, to, false); got != line.Implicit {
			t.Errorf("%s as %s, implicit: %t", from, to, got)
		}
		if got := CanCast(from, to, true); got != line.Explicit {
			t.Errorf("%s as %s, explicit: %t", from, to, got)
		}
	}
	if n < 700 {
		t.Errorf("only %d pairs", n)
	}
}
