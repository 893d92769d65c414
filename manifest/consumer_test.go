package manifest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
)

// TestConsumer: a consumer is the file that Paimon writes, moves, and is gone when it is dropped.
func TestConsumer(t *testing.T) {
	ctx := t.Context()
	store := storage.NewMem()
	tab := newKeyed(t, store, nil)
	if _, err := tab.Consumer(ctx, "job"); !errors.Is(err, ErrNoConsumer) {
		t.Fatal(err)
	}
	for _, bad := range []string{"", " ", "a/b", ".."} {
		if err := tab.PutConsumer(ctx, bad, 1); err == nil {
			t.Errorf("the name %q is taken", bad)
		}
	}
	if err := tab.PutConsumer(ctx, "job", 0); err == nil {
		t.Error("snapshot 0 is taken")
	}
	if err := errors.Join(tab.PutConsumer(ctx, "job", 9), tab.PutConsumer(ctx, "job", 3)); err != nil {
		t.Fatal(err)
	}
	got, err := storage.ReadAll(ctx, store, "consumer/consumer-job", 100)
	want, err2 := os.ReadFile(filepath.Join("..", "internal", "testdata", "golden", "golden.db", "pk_tag_branch_consumer", "consumer", "consumer-my-consumer"))
	if err = errors.Join(err, err2); err != nil || string(got) != string(want) {
		t.Errorf("wrote %q, Paimon writes %q (%v)", got, want, err)
	}
	if all, err := tab.AllConsumers(ctx); err != nil || len(all) != 1 || all[0].ID != "job" || all[0].Next != 3 || all[0].Renewed.IsZero() {
		t.Error(all, err)
	}
	// One that keeps an earlier snapshot, and what becomes of it when Paimon writes it.
	if err := tab.PutConsumerKeeping(ctx, "job", 3, 4); err == nil {
		t.Error("a consumer that does not keep what it reads next")
	}
	if err := tab.PutConsumerKeeping(ctx, "job", 9, 8); err != nil {
		t.Fatal(err)
	}
	if all, err := tab.AllConsumers(ctx); err != nil || all[0].Next != 9 || all[0].Keeps != 8 {
		t.Error(all, err)
	}
	if next, err := tab.Consumer(ctx, "job"); err != nil || next != 9 {
		t.Error(next, err)
	}
	if err := store.Put(ctx, "consumer/consumer-job", want); err != nil {
		t.Fatal(err)
	}
	if all, err := tab.AllConsumers(ctx); err != nil || all[0].Next != 3 || all[0].Keeps != 3 {
		t.Error(all, err)
	}
	if err := tab.DropConsumer(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	if all, err := tab.Consumers(ctx); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}

// TestExpireConsumers: dead consumers are dropped before the snapshots are looked at, leases without a reader always, and
// the living hold back what they want.
func TestExpireConsumers(t *testing.T) {
	ctx := t.Context()
	tab := newKeyed(t, storage.NewMem(), nil)
	history(t, tab, rand.New(rand.NewPCG(1, 1)), 20)
	if err := errors.Join(tab.PutConsumer(ctx, "slow", 4), tab.PutConsumer(ctx, LeasePrefix+"x", 2)); err != nil {
		t.Fatal(err)
	}
	all, err := tab.AllConsumers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	renewed := all[1].Renewed
	keep := Retention{Min: 1, Max: 1}
	expire := func(now time.Time, consumers int, earliest int64) {
		t.Helper()
		done, err := tab.Expire(ctx, keep, now)
		if err != nil || done.Consumers != consumers || done.Earliest != earliest {
			t.Fatal(done, err)
		}
	}
	expire(renewed.Add(LeaseTime), 0, 2)
	expire(renewed.Add(LeaseTime+time.Second), 1, 4) // the lease is dead
	keep.Consumers = time.Hour
	expire(renewed.Add(time.Hour), 0, 4)
	release, again := tab.Hold(7), tab.Hold(7)
	release()
	release()                                        // the second time it does nothing
	expire(renewed.Add(time.Hour+time.Second), 1, 7) // slow is dead, but something reads 7
	again()
	expire(renewed.Add(time.Hour), 0, 20)
}

// TestExpireRaces: a consumer that is renewed, and a tag that is replaced under its name, while an expiry is on its way.
func TestExpireRaces(t *testing.T) {
	ctx := t.Context()
	mem := storage.NewMem()
	tab := newKeyed(t, mem, nil)
	history(t, tab, rand.New(rand.NewPCG(1, 1)), 20)
	all := goldenSnapshots(t, tab)
	if err := errors.Join(tab.PutConsumer(ctx, "a", 4), tab.PutConsumer(ctx, "b", 5), tab.CreateTag(ctx, "moves", all[19], 0)); err != nil {
		t.Fatal(err)
	}
	consumers, err := tab.AllConsumers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dies := consumers[1].Renewed.Add(time.Hour + time.Millisecond)
	renewed, replaced := false, false
	other := Open(storage.WithFaults(mem, func(op storage.Op) error {
		switch {
		case op.Kind == storage.OpDelete && op.Name == consumerName("a") && !renewed:
			renewed = true
			for range 2 { // the clock of the store goes on by a millisecond a write
				if err := mem.Put(ctx, "consumer/.clock", nil); err != nil {
					return err
				}
			}
			return tab.PutConsumer(ctx, "b", 5)
		case strings.HasPrefix(op.Name, "manifest/") && renewed && !replaced:
			replaced = true
			return errors.Join(mem.Delete(ctx, tagName("moves")), tab.CreateTag(ctx, "moves", all[1], 0))
		}
		return nil
	}), testEnv(1))
	done, err := other.Expire(ctx, Retention{Min: 1, Max: 1, Consumers: time.Hour}, dies)
	if err != nil || !renewed || !replaced || done.Consumers != 1 || done.Earliest != 1 {
		t.Fatal(done, err, renewed, replaced)
	}
	if done, err = other.Expire(ctx, Retention{Min: 1, Max: 1}, dies); err != nil || done.Earliest != 5 {
		t.Fatal(done, err)
	}
	wantExactly(t, tab, append([]*Snapshot{all[1]}, all[4:]...))
}

// TestHolds: what a read holds by a handle from before is held by one that shares its Holds, and by no other.
func TestHolds(t *testing.T) {
	store := storage.NewMem()
	history(t, newKeyed(t, store, nil), rand.New(rand.NewPCG(1, 1)), 9)
	env := testEnv(1)
	env.Holds = NewHolds()
	release := Open(store, env).Hold(4)
	again := env
	again.Holds = nil
	for _, c := range []struct {
		env  Env
		want int64
	}{{env, 4}, {again, 8}} {
		done, err := Open(store, c.env).Expire(t.Context(), Retention{Min: 2, Max: 2}, farFuture)
		if err != nil || done.Earliest != c.want {
			t.Fatal(done, err)
		}
	}
	release()
	release() // does nothing
	if done, err := Open(store, env).Expire(t.Context(), Retention{Min: 1, Max: 1}, farFuture); err != nil || done.Earliest != 9 {
		t.Fatal(done, err)
	}
}

// TestExpireKilled: wherever an expiry is killed, what consumers, reads and tags want is whole, and the next expiry
// leaves what is named and nothing else.
func TestExpireKilled(t *testing.T) {
	sd := seed(t)
	ctx := context.Background()
	for at := 1; ; at += 17 {
		store := storage.NewMem()
		tab := newKeyed(t, store, nil)
		history(t, tab, rand.New(rand.NewPCG(sd, uint64(at))), 30)
		all := goldenSnapshots(t, tab)
		if err := errors.Join(tab.CreateTag(ctx, "kept", all[9], 0), tab.PutConsumer(ctx, "reader", 16)); err != nil {
			t.Fatal(err)
		}
		n, killed := 0, false
		var mu sync.Mutex
		dying := Open(storage.WithFaults(store, func(storage.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n >= at {
				killed = true
				return errInjected
			}
			return nil
		}), testEnv(1))
		if _, err := dying.Expire(ctx, Retention{Min: 1, Max: 1}, farFuture); err != nil && !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		whole(t, tab, 16, 30)
		// In the meantime someone else comes to want a snapshot that the expiry was about to delete.
		late := fmt.Sprint("late at ", at)
		want := append([]*Snapshot{all[9]}, all[15:]...)
		if err := tab.CreateTag(ctx, late, all[12], 0); err == nil {
			want = append(want, all[12])
		} else if !errors.Is(err, ErrSnapshotExpired) {
			t.Fatal(err)
		}
		if done, err := Open(store, testEnv(1)).Expire(ctx, Retention{Min: 1, Max: 1}, farFuture); err != nil || done.Earliest != 16 {
			t.Fatal(at, done, err)
		}
		wantExactly(t, tab, want)
		for _, name := range listing(t, store) {
			if filepath.Dir(name) == expiryDir {
				t.Fatalf("killed at call %d: %s is left", at, name)
			}
		}
		if !killed {
			return
		}
	}
}

// TestExpireTags: a tag goes when its time is over, with the files that only it kept, also when that is cut short.
func TestExpireTags(t *testing.T) {
	sd := seed(t)
	ctx := context.Background()
	for at := 1; ; at += 3 {
		store := storage.NewMem()
		tab := newKeyed(t, store, nil)
		history(t, tab, rand.New(rand.NewPCG(sd, 3)), 20)
		all := goldenSnapshots(t, tab)
		if err := errors.Join(tab.CreateTag(ctx, "hour", all[3], time.Hour), tab.CreateTag(ctx, "ever", all[5], 0)); err != nil {
			t.Fatal(err)
		}
		keep := Retention{Min: 2, Max: 2, Tags: true}
		tag, err := tab.Tag(ctx, "hour")
		if err != nil {
			t.Fatal(err)
		}
		made := time.Date(tag.Created.Year(), tag.Created.Month(), tag.Created.Day(), tag.Created.Hour(), tag.Created.Minute(), tag.Created.Second(), tag.Created.Nanosecond(), time.Local)
		if done, err := tab.Expire(ctx, keep, made.Add(time.Hour)); err != nil || done.Tags != 0 {
			t.Fatal(done, err)
		}
		n, killed := 0, false
		var mu sync.Mutex
		dying := Open(storage.WithFaults(store, func(storage.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n >= at {
				killed = true
				return errInjected
			}
			return nil
		}), testEnv(1))
		later := made.Add(time.Hour + time.Millisecond)
		if _, err := dying.Expire(ctx, keep, later); err != nil && !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		if _, err := Open(store, testEnv(2)).Expire(ctx, keep, later); err != nil {
			t.Fatal(at, err)
		}
		wantExactly(t, tab, append([]*Snapshot{all[5]}, all[18:]...))
		if !killed {
			return
		}
	}
}
