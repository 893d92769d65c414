package server

import (
	"fmt"
	"testing"
)

// TestOwners: all who see the same members agree; each has its share; who comes or goes moves no table but its own.
func TestOwners(t *testing.T) {
	owners := func(self string, live ...string) (out []string) {
		c := &crew{self: self, live: live}
		for i := range 1000 {
			m, mine := c.owner(fmt.Sprint("db.table_", i))
			if mine != (m == self && m != "") {
				t.Fatalf("%s: owner %s, mine %v", self, m, mine)
			}
			out = append(out, m)
		}
		return out
	}
	three, again, two := owners("a", "a", "b", "c"), owners("b", "a", "b", "c"), owners("a", "a", "b")
	count := map[string]int{}
	for i := range three {
		count[three[i]]++
		if three[i] != again[i] {
			t.Fatal("two members disagree")
		}
		if three[i] != "c" && three[i] != two[i] {
			t.Errorf("table %d moves from %s to %s, and neither has gone", i, three[i], two[i])
		}
	}
	for m, n := range count {
		if n < 250 || n > 420 {
			t.Errorf("%s has %d of 1000 tables", m, n)
		}
	}
	if m := owners("")[0]; m != "" {
		t.Errorf("without members %s owns a table", m)
	}
}
