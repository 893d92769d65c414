package ingest

import (
	"fmt"
	"testing"
)

// hard are the hard inputs by number: streams on which neighbours of calve are known to fail. Each stands in the file of
// what it is about and adds itself here (in an init function).
var hard = map[int]func(*testing.T){}

// hardToo adds a form of a hard input that comes in several, beside what is there by then.
func hardToo(n int, form string, f func(*testing.T)) {
	before := hard[n]
	hard[n] = func(t *testing.T) {
		if before != nil {
			before(t)
		}
		t.Run(form, f)
	}
}

// TestHard runs the hard inputs as TestHard/H1 to TestHard/H25.
func TestHard(t *testing.T) {
	for n := 1; n <= 25; n++ {
		f := hard[n]
		if f == nil {
			f = func(t *testing.T) { t.Fatal("no test says what comes of it") }
		}
		t.Run(fmt.Sprintf("H%d", n), f)
	}
}
