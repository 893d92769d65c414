package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calve-io/calve/storage"
)

const ttl = 30 * time.Second

var realTime = Env{Now: time.Now, After: time.After} // within a bubble of synctest it is not real

func claims(s storage.Store, owner string) *Claims {
	return New(s, "calve/claims", owner, ttl, realTime)
}

func objects(t *testing.T, s storage.Store) (n int) {
	t.Helper()
	for _, err := range storage.Walk(t.Context(), s, "calve") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestOneHolder: while one works, however long, another cannot; afterwards it can, at once. The chain stays short.
func TestOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storage.NewMem()
		a, b := claims(s, "a"), claims(s, "b")
		held, err := a.Hold(t.Context(), "x=1/bucket-0", func(ctx context.Context) error {
			for range 20 {
				time.Sleep(ttl / 2)
				if held, err := b.Hold(ctx, "x=1/bucket-0", nil); held || err != nil {
					t.Errorf("b: %v, %v while a works", held, err)
				}
				if n := objects(t, s); n != 1 && n != 2 { // the last one, and perhaps the one before
					t.Errorf("%d objects", n)
				}
			}
			other, err := b.Hold(ctx, "x=1/bucket-1", func(context.Context) error { return nil })
			if !other || err != nil {
				t.Errorf("another bucket: %v, %v", other, err)
			}
			return ctx.Err()
		})
		if !held || err != nil {
			t.Fatal(held, err)
		}
		mine := errors.New("of the work")
		if held, err := b.Hold(t.Context(), "x=1/bucket-0", func(context.Context) error { return mine }); !held || !errors.Is(err, mine) {
			t.Errorf("b after a: %v, %v", held, err)
		}
		if held, err := a.Hold(t.Context(), "x=1/bucket-0", func(context.Context) error { return nil }); !held || err != nil {
			t.Errorf("a after work that failed: %v, %v", held, err)
		}
	})
}

// TestKilled: the claim of a process that was killed is free for one that has watched it for its time, not sooner.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storage.NewMem()
		if _, ok, err := claims(s, "dead").take(t.Context(), "b"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(10 * ttl) // nobody watched
		b := claims(s, "b")
		for i := range 4 {
			held, err := b.Hold(t.Context(), "b", func(context.Context) error { return nil })
			if want := i == 3; held != want || err != nil {
				t.Errorf("try %d: %v, %v", i, held, err)
			}
			time.Sleep(ttl / 3)
		}
	})
}

// TestHangs: one that hangs for longer than its time loses the claim to another and is told so when it comes back; what
// it does then does not take the claim from the other.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storage.NewMem()
		var hangs atomic.Bool
		slow := storage.WithFaults(s, func(op storage.Op) error {
			if hangs.Load() {
				return errors.New("no answer")
			}
			return nil
		})
		a, b := claims(slow, "a"), claims(s, "b")
		held, err := a.Hold(t.Context(), "b", func(ctx context.Context) error {
			hangs.Store(true)
			for {
				held, err := b.Hold(t.Context(), "b", func(context.Context) error {
					hangs.Store(false)
					<-ctx.Done()
					time.Sleep(ttl)
					if held, err := a.Hold(t.Context(), "b", nil); held || err != nil {
						t.Errorf("a: %v, %v while b works", held, err)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if held {
					return ctx.Err()
				}
				time.Sleep(time.Second)
			}
		})
		if !held || !errors.Is(err, ErrLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("a: %v, %v", held, err)
		}
	})
}

// TestStopped: one that was stopped for so long that another has taken the claim and renewed it has lost it, although the
// number that it would put next is free again.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storage.NewMem()
		stopped := Env{Now: time.Now, After: func(time.Duration) <-chan time.Time { return time.After(4 * ttl) }}
		a, b := New(s, "calve/claims", "a", ttl, stopped), claims(s, "b")
		taken, begin := make(chan struct{}), time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			<-taken
			for held := false; !held; time.Sleep(time.Second) {
				var err error
				held, err = b.Hold(t.Context(), "b", func(ctx context.Context) error {
					time.Sleep(6 * ttl)
					return ctx.Err()
				})
				if err != nil {
					t.Errorf("b: %v", err)
				}
			}
		})
		held, err := a.Hold(t.Context(), "b", func(ctx context.Context) error {
			close(taken)
			<-ctx.Done()
			return nil
		})
		if took := time.Since(begin); !held || !errors.Is(err, ErrLost) || took > 5*ttl {
			t.Errorf("a: %v, %v after %s", held, err, took)
		}
		wg.Wait()
	})
}

// TestRaces: of many that try at once on a storage that loses replies, never two work on one thing.
func TestRaces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		s := storage.NewMem()
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 1))
		roll := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(n)
		}
		lossy := storage.WithFaults(s, func(op storage.Op) error {
			if op.Kind == storage.OpPutIfAbsent && roll(10) == 0 {
				return storage.LoseReply(errors.New("lost"))
			}
			return nil
		})
		var at [3]atomic.Int32
		var times [3]atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			c := claims(lossy, fmt.Sprint("worker ", i))
			wg.Go(func() {
				for range 60 {
					thing := roll(len(at))
					_, err := c.Hold(t.Context(), fmt.Sprint("bucket-", thing), func(context.Context) error {
						if n := at[thing].Add(1); n != 1 {
							t.Errorf("%d at once", n)
						}
						time.Sleep(time.Duration(roll(60)) * time.Second)
						at[thing].Add(-1)
						times[thing].Add(1)
						return nil
					})
					if err != nil && !errors.Is(err, storage.ErrUnknown) {
						t.Error(err)
					}
					time.Sleep(time.Duration(roll(20)) * time.Second)
				}
			})
		}
		wg.Wait()
		for i := range times {
			if times[i].Load() < 5 {
				t.Errorf("bucket %d was worked on %d times", i, times[i].Load())
			}
		}
	})
}

// TestGarbage: what does not belong into a chain is passed over, and a record that cannot be read holds for the longest
// time a claim may have.
func TestGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storage.NewMem()
		for name, data := range map[string]string{"readme": "x", "-5": "x", "9223372036854775807": "x", "0000000000000000007": "{"} {
			if err := s.PutIfAbsent(t.Context(), "calve/claims/b/"+name, []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		c := claims(s, "c")
		for _, wait := range []time.Duration{0, maxTTL - 1, 1} {
			time.Sleep(wait)
			held, err := c.Hold(t.Context(), "b", func(context.Context) error { return nil })
			if want := wait == 1; held != want || err != nil {
				t.Errorf("after %s: %v, %v", wait, held, err)
			}
		}
		if n := objects(t, s); n != 4 {
			t.Errorf("%d objects, want what was there before and the end of the chain", n)
		}
	})
}

// TestLive: processes that hold a chain are seen until they set it free, or until it has not moved for the promised time.
func TestLive(t *testing.T) {
	store := storage.NewMem()
	var now atomic.Int64 // seconds
	env := Env{Now: func() time.Time { return time.Unix(now.Load(), 0) }, After: func(time.Duration) <-chan time.Time { return make(chan time.Time) }}
	members := func(owner string) *Claims { return New(store, "crew", owner, 10*time.Second, env) }
	watcher := members("w")
	expect := func(want string) {
		t.Helper()
		live, err := watcher.Live(t.Context())
		if err != nil || fmt.Sprint(live) != want {
			t.Errorf("live: %v %v, want %s", live, err, want)
		}
	}
	expect("[]")
	held, err := members("a").Hold(t.Context(), "a", func(ctx context.Context) error {
		expect("[a]")
		_, err := members("b").Hold(ctx, "b", func(context.Context) error {
			expect("[a b]")
			now.Add(9)
			expect("[a b]")
			now.Add(1)
			expect("[]") // neither has moved
			return nil
		})
		expect("[]")
		return err
	})
	if !held || err != nil {
		t.Fatal(held, err)
	}
	expect("[]")
	for info, err := range storage.Walk(t.Context(), store, "") {
		t.Errorf("%s is left behind (%v)", info.Name, err)
	}
}

// TestLiveBelow: what is no record, with a higher number, does not hide the chain of a process that lives and moves it.
func TestLiveBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storage.NewMem()
		a, b := claims(s, "a"), claims(s, "b")
		held, err := a.Hold(t.Context(), "me", func(ctx context.Context) error {
			if err := s.Put(ctx, "calve/claims/me/0000000000000009999", []byte("{}")); err != nil {
				return err
			}
			for i := range 5 {
				time.Sleep(ttl)
				if live, err := b.Live(ctx); err != nil || fmt.Sprint(live) != "[me]" {
					t.Errorf("after %d ttl: %v, %v", i+1, live, err)
				}
			}
			return ctx.Err()
		})
		if !held || err != nil {
			t.Fatal(held, err)
		}
		if live, err := b.Live(t.Context()); err != nil || len(live) > 0 {
			t.Errorf("when it has been set free: %v, %v", live, err)
		}
	})
}

// TestLiveUnreadable: a chain whose last object cannot be read hides no other; it counts until it has not moved for the time
// that this process promises, and does not count again because it cannot be removed. What others have put there, which is
// no record, never counts.
func TestLiveUnreadable(t *testing.T) {
	mem := storage.NewMem()
	for name, data := range map[string]string{"denied": "{}", "large": strings.Repeat("x", maxRecord+1), "other": `{"free":true,"seq":"x"}`, "nobody": "{}"} {
		if err := mem.Put(t.Context(), "crew/"+name+"/0000000000000000007", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"5", "deep/er/0000000000000000007", "me-2/7"} {
		if err := mem.Put(t.Context(), "crew/"+name, []byte(`{"owner":"x","seq":7,"ttlMillis":1000}`)); err != nil {
			t.Fatal(err)
		}
	}
	store := storage.WithFaults(mem, func(op storage.Op) error {
		if op.Kind != storage.OpList && strings.Contains(op.Name, "denied") {
			return errors.New("denied")
		}
		return nil
	})
	var now atomic.Int64 // seconds
	env := Env{Now: func() time.Time { return time.Unix(now.Load(), 0) }, After: func(time.Duration) <-chan time.Time { return make(chan time.Time) }}
	c := New(store, "crew", "me", 10*time.Second, env)
	expect := func(want string) {
		t.Helper()
		live, err := c.Live(t.Context())
		if err != nil || fmt.Sprint(live) != want {
			t.Errorf("live at %d s: %v %v, want %s", now.Load(), live, err, want)
		}
	}
	held, err := c.Hold(t.Context(), "me", func(ctx context.Context) error {
		expect("[denied me]")
		if err := mem.Put(ctx, "crew/denied/0000000000000000008", []byte("{}")); err != nil {
			return err
		}
		now.Add(9)
		expect("[denied me]")
		now.Add(1)
		expect("[denied]") // which has moved
		now.Add(9)
		expect("[]")
		now.Add(200)
		expect("[]")
		expect("[]")
		return nil
	})
	if !held || err != nil {
		t.Error(held, err)
	}
	for _, name := range []string{"large", "other"} {
		if err := mem.Put(t.Context(), "crew/"+name+"/0000000000000000009", []byte(strings.Repeat("x", maxRecord+1))); err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{false, true} { // the longest promise is over
			if held, err := c.Hold(t.Context(), name, func(context.Context) error { return nil }); held != want || err != nil {
				t.Error(name, held, err)
			}
			now.Add(3600)
		}
	}
}
