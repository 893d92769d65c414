package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
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

// TestLookAfterLoss: a pipeline looks who lives while this process loses its membership, or joins again under another
// name: what it saw does not bring the old membership back.
func TestLookAfterLoss(t *testing.T) {
	for _, now := range []string{"", "me-1"} {
		mem := storage.NewMem()
		var c *crew
		lose := func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.self, c.live = now, nil
		}
		store := storage.WithFaults(mem, func(op storage.Op) error {
			if op.Kind == storage.OpList {
				lose()
			}
			return nil
		})
		c = newCrew(store, time.Minute, hastyEnv(), func() {})
		c.set("me-0", []string{"me-0", "other-0"})
		if err := mem.Put(t.Context(), crewDir+"/me-0/0000000000000000001", []byte(`{"owner":"me","seq":1,"ttlMillis":60000}`)); err != nil {
			t.Fatal(err)
		}
		c.look(t.Context())
		if _, mine := c.owner("db.t"); c.self != now || len(c.live) > 0 || mine {
			t.Errorf("%q: %q, live %v, mine %v", now, c.self, c.live, mine)
		}
	}
}
