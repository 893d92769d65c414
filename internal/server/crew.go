package server

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/claim"
	"github.com/calve-io/calve/storage"
)

// crewDir holds a chain of objects for each process that shares the tables of a warehouse.
const crewDir = "calve/crew"

// crew knows which processes share the tables. Each gives a sign of life in the warehouse; the owner of a table is the
// live process for which a hash of both is the highest, so that all who see the same processes agree, and a process that
// comes or goes moves no tables but its own.
//
// None of it is what keeps a table right: two processes may disagree for a while. Who opens a table's job fences whoever
// wrote before, and who is fenced asks here whether the table is still its own.
type crew struct {
	claims *claim.Claims
	id     string
	ttl    time.Duration
	env    engine.Env
	placed func() // called without locks when owners may have changed

	mu   sync.Mutex // guards what follows
	self string     // "": this process is no member at the moment
	live []string   // sorted
}

func newCrew(warehouse storage.Store, ttl time.Duration, env engine.Env, placed func()) *crew {
	id := env.NewID()
	ttl = min(max(ttl, time.Second), time.Hour)
	return &crew{claims: claim.New(warehouse, crewDir, id, ttl, claim.Env{Now: env.Now, After: env.After}), id: id, ttl: ttl, env: env, placed: placed}
}

// run gives signs of life and looks for those of others until ctx ends. A process that could not give one in time has lost
// all its tables, and joins again under another name.
func (c *crew) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d", c.id, n)
		_, err := c.claims.Hold(ctx, name, func(ctx context.Context) error {
			c.env.Log.Info("this process shares the tables of the warehouse", "member", name)
			c.mu.Lock()
			c.self = name
			c.mu.Unlock()
			for ctx.Err() == nil {
				c.look(ctx)
				select {
				case <-ctx.Done():
				case <-c.env.After(c.ttl / 5):
				}
			}
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		c.env.Log.Warn("this process could not tell others that it lives; they may take its tables", "member", name, "error", err)
		c.set("", nil)
		select {
		case <-ctx.Done():
		case <-c.env.After(time.Second):
		}
	}
}

// look sees who lives. While the storage does not answer, what was seen last holds: the fence keeps the tables right.
func (c *crew) look(ctx context.Context) {
	c.mu.Lock()
	self := c.self
	c.mu.Unlock()
	live, err := c.claims.Live(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.env.Log.Warn("cannot see which processes share the tables", "error", err)
		}
		return
	}
	if self == "" {
		return
	}
	c.mu.Lock()
	if c.self != self { // pipelines look too: this process has left, or joined again, since it asked
		c.mu.Unlock()
		return
	}
	changed := c.setLocked(self, live)
	c.mu.Unlock()
	c.tell(changed, len(live))
}

func (c *crew) set(self string, live []string) {
	c.mu.Lock()
	changed := c.setLocked(self, live)
	c.mu.Unlock()
	c.tell(changed, len(live))
}

// setLocked reports whether anything changed; mu is held.
func (c *crew) setLocked(self string, live []string) bool {
	changed := c.self != self || !slices.Equal(c.live, live)
	c.self, c.live = self, live
	return changed
}

func (c *crew) tell(changed bool, members int) {
	if changed {
		c.env.Log.Info("processes that share the tables", "members", members)
	}
	c.placed() // also where nothing changed: a pipeline may have come in between
}

// owner says which live process owns a table, and whether it is this one.
func (c *crew) owner(table string) (member string, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best uint64
	for _, m := range c.live {
		if w := weight(m, table); member == "" || w > best {
			member, best = m, w
		}
	}
	return member, member != "" && member == c.self
}

// weight is the hash of a process and a table, all bits of which depend on all bytes.
func weight(member, table string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, member+"\x00"+table) // it does not fail
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
