// Package claim lets processes that know nothing of each other share work on one storage: who has claimed a thing works
// on it, the others look for something else. A claim saves work and nothing more: what is done under it must be right
// even when two processes hold it for a while, as happens when one of them hangs and comes back.
//
// A claim is a chain of small objects DIR/NAME/SEQ, each made by a conditional put; the highest number counts. Its holder
// puts the next one again and again while it works, and a last one that sets the thing free. A chain that has not moved
// for the time its holder promised is dead, and whoever has watched it that long may put the next object. No clock is
// compared with another process's.
package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/calve-io/calve/storage"
)

// ErrLost: another process has taken the claim over, because this one did not renew it in time.
var ErrLost = errors.New("claim was taken over by another process")

// Env is what claims take from the world. All fields are required.
type Env struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Claims are the claims of one process below a folder. They are safe for concurrent use, but a thing is claimed by one
// goroutine at a time.
type Claims struct {
	store storage.Store
	dir   string
	owner string
	ttl   time.Duration
	env   Env

	mu   sync.Mutex // held for moments, never over I/O
	seen map[string]sighting
}

// sighting is since when this process sees a chain end with a number.
type sighting struct {
	seq   int64
	since time.Time
}

// Bounds of the time within which a holder promises to move its chain, and of an object of a chain.
const (
	minTTL    = time.Second
	maxTTL    = time.Hour
	maxRecord = 4 << 10
	maxSeq    = 1 << 62
)

// record is the content of an object of a chain. Owner and sequence number make it unique.
type record struct {
	Owner     string `json:"owner"`
	Seq       int64  `json:"seq"`
	TTLMillis int64  `json:"ttlMillis"`
	Free      bool   `json:"free,omitempty"`
}

// New gives the claims of the process owner, a name that no other process has or ever had, below the folder dir. A claim
// whose holder was killed is free for others after ttl, which is between a second and an hour.
func New(store storage.Store, dir, owner string, ttl time.Duration, env Env) *Claims {
	return &Claims{store: store, dir: dir, owner: owner, ttl: min(max(ttl, minTTL), maxTTL), env: env, seen: map[string]sighting{}}
}

// Hold claims name, calls work and sets name free again. held is false, and nothing was done, when another process has
// it. The context of work ends when the claim is lost; Hold's error then matches ErrLost. Name is a relative path.
func (c *Claims) Hold(ctx context.Context, name string, work func(context.Context) error) (held bool, err error) {
	seq, ok, err := c.take(ctx, name)
	if err != nil || !ok {
		return false, err
	}
	within, cancel := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		seq, err = c.keep(within, name, seq)
		if err != nil {
			cancel(err)
		}
	}()
	done := work(within)
	cancel(nil)
	<-kept // seq and err are this goroutine's again
	if err != nil {
		return true, errors.Join(err, done)
	}
	// The work is done: that others must wait for ttl, if the claim cannot be set free, is no error of it.
	_, _ = c.put(context.WithoutCancel(ctx), name, seq+1, true)
	return true, done
}

// keep moves the chain on until ctx ends, and returns its last number. A failure of the storage is no loss while the
// promised time is not over.
func (c *Claims) keep(ctx context.Context, name string, seq int64) (int64, error) {
	renewed := c.env.Now()
	for {
		select {
		case <-ctx.Done():
			return seq, nil
		case <-c.env.After(c.ttl / 3):
		}
		began := c.env.Now()
		if began.Sub(renewed) >= c.ttl { // others may have taken it since, and a number that is free again does not tell
			return seq, fmt.Errorf("%s: %w", c.store.URL(c.folder(name)), ErrLost)
		}
		won, err := c.put(ctx, name, seq+1, false)
		switch {
		case ctx.Err() != nil:
			if won {
				seq++
			}
			return seq, nil
		case err == nil && !won:
			return seq, fmt.Errorf("%s: %w", c.store.URL(c.folder(name)), ErrLost)
		case err == nil:
			seq++
			renewed = began
		case c.env.Now().Sub(renewed) >= c.ttl:
			return seq, fmt.Errorf("%s: %w: %w", c.store.URL(c.folder(name)), ErrLost, err)
		}
	}
}

func (c *Claims) folder(name string) string { return path.Join(c.dir, name) }

// object is the name of a chain's object. The numbers have a fixed width, so that names sort as numbers do.
func (c *Claims) object(name string, seq int64) string {
	return path.Join(c.folder(name), fmt.Sprintf("%019d", seq))
}

// take puts the next object of a chain that is free or dead.
func (c *Claims) take(ctx context.Context, name string) (int64, bool, error) {
	seqs, err := c.chain(ctx, name)
	if err != nil {
		return 0, false, err
	}
	last := int64(0)
	if len(seqs) > 0 {
		last = seqs[len(seqs)-1]
		free, err := c.free(ctx, name, last)
		if errors.Is(err, errNoRecord) { // whatever it promised, it is over then
			free, err = c.still(name, last, maxTTL), nil
		}
		if err != nil || !free {
			return 0, false, err
		}
	}
	won, err := c.put(ctx, name, last+1, false)
	if err != nil || !won {
		return 0, false, err
	}
	for _, old := range seqs {
		if old < last { // put has removed the last one
			_ = c.store.Delete(ctx, c.object(name, old)) // what stays is removed by the next
		}
	}
	return last + 1, true, nil
}

// chain gives the numbers of a chain's objects, ascending.
func (c *Claims) chain(ctx context.Context, name string) ([]int64, error) {
	var out []int64
	for info, err := range c.store.List(ctx, c.folder(name)) {
		if err != nil {
			return nil, fmt.Errorf("claims: %w", err)
		}
		if n, err := strconv.ParseInt(path.Base(info.Name), 10, 64); err == nil && n > 0 && n < maxSeq && !info.Dir {
			out = append(out, n)
		}
	}
	return out, nil
}

// errNoRecord: an object of a chain is none that a holder makes.
var errNoRecord = errors.New("not a record of a claim")

// free reads the last object of a chain and says whether the next may be put.
func (c *Claims) free(ctx context.Context, name string, seq int64) (bool, error) {
	data, err := storage.ReadAll(ctx, c.store, c.object(name, seq), maxRecord)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil // it has moved on
	}
	if errors.Is(err, storage.ErrTooLarge) {
		return false, fmt.Errorf("claims: %w: %w", errNoRecord, err)
	}
	if err != nil {
		return false, fmt.Errorf("claims: %w", err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return false, fmt.Errorf("claims: %s: %w: %w", c.store.URL(c.object(name, seq)), errNoRecord, err)
	}
	if r.Owner == "" || r.Seq != seq {
		return false, fmt.Errorf("claims: %s: %w: it names the owner %q and the number %d", c.store.URL(c.object(name, seq)), errNoRecord, r.Owner, r.Seq)
	}
	ttl := min(max(time.Duration(min(r.TTLMillis, maxTTL.Milliseconds()))*time.Millisecond, minTTL), maxTTL)
	if r.Free {
		c.mu.Lock()
		delete(c.seen, name)
		c.mu.Unlock()
		return true, nil
	}
	return c.still(name, seq, ttl), nil
}

// last finds the highest of a chain's numbers, which ascend, that is one of a record, and what free says of it. If there is none
// the error is errNoRecord.
func (c *Claims) last(ctx context.Context, name string, seqs []int64) (seq int64, free bool, err error) {
	for _, seq = range slices.Backward(seqs) {
		if free, err = c.free(ctx, name, seq); !errors.Is(err, errNoRecord) {
			break
		}
	}
	return seq, free, err
}

// still reports whether this process has seen a chain end with a number for ttl or longer.
func (c *Claims) still(name string, seq int64, ttl time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.seen[name]
	if !ok || s.seq != seq {
		c.seen[name] = sighting{seq, c.env.Now()}
		return false
	}
	return c.env.Now().Sub(s.since) >= ttl
}

// put makes an object of the chain and removes the one before it. won is false when another process made it.
func (c *Claims) put(ctx context.Context, name string, seq int64, free bool) (won bool, err error) {
	data, err := json.Marshal(record{Owner: c.owner, Seq: seq, TTLMillis: c.ttl.Milliseconds(), Free: free})
	if err != nil {
		return false, err
	}
	won, err = storage.PutOnce(ctx, c.store, c.object(name, seq), data)
	if err != nil {
		return false, fmt.Errorf("claims: %w", err)
	}
	if won && seq > 1 {
		_ = c.store.Delete(ctx, c.object(name, seq-1)) // what stays is removed by the next
	}
	return won, nil
}

// forgetAfter is for how many times its promise a chain must not have moved before it is removed.
const forgetAfter = 10

// Live gives the names of the chains below the folder whose holders work, sorted: those that have moved within the time
// that their holders promised, as far as this process has watched. One that it has not seen before counts. Of a chain
// whose last object cannot be read, its numbers tell whether it moves, and its holder is taken to have promised what this
// process does. What is readable and no record of a holder, or lies elsewhere than chains do, is not one, and hides no lower
// number of a chain. Chains that were set free, or are dead for long, are removed.
func (c *Claims) Live(ctx context.Context) ([]string, error) {
	chains := map[string][]int64{}
	for info, err := range storage.Walk(ctx, c.store, c.dir) {
		if err != nil {
			return nil, fmt.Errorf("claims: %w", err)
		}
		n, err := strconv.ParseInt(path.Base(info.Name), 10, 64)
		if err != nil || n <= 0 || n >= maxSeq {
			continue
		}
		name := path.Base(path.Dir(info.Name))
		if info.Name != c.object(name, n) {
			continue
		}
		chains[name] = append(chains[name], n)
	}
	var out []string
	for name, seqs := range chains {
		slices.Sort(seqs)
		seq, dead, err := c.last(ctx, name, seqs)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("claims: %w", ctx.Err())
		}
		if errors.Is(err, errNoRecord) {
			continue
		}
		if err != nil {
			dead = c.still(name, seq, c.ttl)
		}
		if !dead {
			out = append(out, name)
			continue
		}
		c.mu.Lock()
		s, watched := c.seen[name] // free forgets chains that were set free
		c.mu.Unlock()
		if watched && c.env.Now().Sub(s.since) < forgetAfter*c.ttl {
			continue
		}
		if c.store.Delete(ctx, c.object(name, seq)) != nil {
			continue // the next removes it; forgotten, it would count as one not seen before
		}
		c.mu.Lock()
		delete(c.seen, name)
		c.mu.Unlock()
	}
	slices.Sort(out)
	return out, nil
}
