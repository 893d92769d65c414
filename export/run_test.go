package export

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// TestRun publishes at the start, at each wake-up and after a failure, and ends with its context or its wake channel.
func TestRun(t *testing.T) {
	mem := storage.NewMem()
	var mu sync.Mutex
	failing := false
	store := storage.WithFaults(mem, func(op storage.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if failing && op.Kind == storage.OpPutIfAbsent {
			return errInjected
		}
		return nil
	})
	setFailing := func(v bool) {
		mu.Lock()
		defer mu.Unlock()
		failing = v
	}
	type outcome struct {
		r   Result
		err error
	}
	w := newWorld(t, store, keyed(t))
	published, waits, timer := make(chan outcome, 1), make(chan time.Duration, 1), make(chan time.Time)
	env := w.env()
	env.After = func(d time.Duration) <-chan time.Time {
		waits <- d
		return timer
	}
	e := New(w.table, NewDirTarget(store), Settings{RetryAfter: time.Second, Env: env,
		Published: func(r Result, err error) { published <- outcome{r, err} }})
	wake, ended := make(chan int64, 1), make(chan error, 1)
	go func() { ended <- e.Run(context.Background(), wake) }()

	rests := func() {
		t.Helper()
		if d := <-waits; d != lookAgain {
			t.Errorf("without a wake-up it looks after %v", d)
		}
	}
	if o := <-published; o.err != nil || !o.r.Published {
		t.Fatalf("at the start: %+v", o)
	}
	rests()
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	wake <- 1
	if o := <-published; o.err != nil || o.r.IcebergSnapshot != 1 {
		t.Fatalf("after a wake-up: %+v", o)
	}
	rests()
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	setFailing(true)
	wake <- 2
	for i := range 3 {
		if o := <-published; !errors.Is(o.err, errInjected) {
			t.Fatalf("on a failing storage: %+v", o)
		}
		if d := <-waits; d != time.Second<<i {
			t.Errorf("wait %d is %v", i, d)
		}
		if i < 2 {
			timer <- time.Time{}
		}
	}
	setFailing(false)
	timer <- time.Time{}
	if o := <-published; o.err != nil || o.r.IcebergSnapshot != 2 {
		t.Fatalf("after the failure: %+v", o)
	}
	rests()
	// Another process expires what is shown, and nobody wakes it.
	if gone, err := w.table.Expire(context.Background(), manifest.Retention{Min: 1, Max: 1}, w.now); err != nil || gone.Snapshots == 0 {
		t.Fatal(gone, err)
	}
	for i := range 2 {
		timer <- time.Time{}
		if o := <-published; o.err != nil || o.r.Published != (i == 0) {
			t.Fatalf("look %d after an expiry: %+v", i, o)
		}
		rests()
	}
	close(wake)
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	w.check()
}

// TestRunInterval: after a version with other files Run rests, however often it is woken, and what came meanwhile is one version;
// when the table is closed the last one does not wait.
func TestRunInterval(t *testing.T) {
	w := newWorld(t, storage.NewMem(), keyed(t))
	published, waits, timer := make(chan Result, 1), make(chan time.Duration), make(chan time.Time)
	env := w.env()
	env.After = func(d time.Duration) <-chan time.Time {
		waits <- d
		return timer
	}
	e := New(w.table, NewDirTarget(w.store), Settings{Interval: time.Minute, Env: env, Published: func(r Result, err error) {
		if err != nil {
			t.Error(err)
		}
		published <- r
	}})
	wake, ended := make(chan int64), make(chan error, 1) // a wake-up that was sent is taken
	go func() { ended <- e.Run(context.Background(), wake) }()
	wants := func(what string, files int, wait time.Duration) {
		t.Helper()
		if r := <-published; r.Files != files {
			t.Errorf("%s: %+v, want %d files", what, r, files)
		}
		if d := <-waits; d != wait {
			t.Errorf("%s: it waits %v, want %v", what, d, wait)
		}
	}
	files := 0
	commit := func() {
		w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
		files++
		wake <- 1
	}
	wants("an empty table", 0, lookAgain)
	commit()
	wants("the first files", 1, time.Minute)
	commit()
	commit()
	select {
	case r := <-published:
		t.Errorf("published too soon: %+v", r)
	default:
	}
	timer <- time.Time{}
	wants("after the rest", 3, time.Minute)
	timer <- time.Time{}
	if d := <-waits; d != lookAgain {
		t.Errorf("with nothing to do it waits %v", d)
	}
	commit()
	wants("not too soon", 4, time.Minute)
	commit()
	close(wake)
	wants("the last", 5, time.Minute)
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	w.check()
}

// TestRunExpired: where the snapshot that is shown expires while Run rests, it does not rest any longer, as files may be gone; nor when its context
// has ended.
func TestRunExpired(t *testing.T) {
	w := newWorld(t, storage.NewMem(), keyed(t))
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	published, waits := make(chan Result, 1), make(chan time.Duration, 8)
	env := w.env()
	env.After = func(d time.Duration) <-chan time.Time {
		waits <- d
		return make(chan time.Time)
	}
	e := New(w.table, NewDirTarget(w.store), Settings{Interval: time.Hour, Env: env, Published: func(r Result, err error) {
		if err != nil {
			t.Error(err)
		}
		published <- r
	}})
	wake, ended := make(chan int64), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- e.Run(ctx, wake) }()
	for i := range 2 {
		if r := <-published; r.Files != 1+2*i {
			t.Errorf("%+v", r)
		}
		if d := <-waits; d != lookAgain {
			t.Errorf("it looks after %v", d)
		}
		if i > 0 {
			break
		}
		wake <- 1 // of nothing new: it rests
		w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
		w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
		if gone, err := w.table.Expire(context.Background(), manifest.Retention{Min: 1, Max: 1}, w.now); err != nil || gone.Snapshots == 0 {
			t.Fatal(gone, err)
		}
		wake <- 2
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	w.check()
}

// TestCancel ends a Publish that hangs in the storage, and one that waits for another.
func TestCancel(t *testing.T) {
	mem := storage.NewMem()
	w := newWorld(t, mem, keyed(t))
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	reached := make(chan struct{})
	var once sync.Once
	hanging := storage.WithFaults(mem, func(op storage.Op) error {
		if op.Kind != storage.OpCommit {
			return nil
		}
		once.Do(func() { close(reached) })
		return storage.ErrHang
	})
	e := New(manifest.Open(hanging, manifest.Env{Now: w.clock, NewID: w.id}), NewDirTarget(hanging), Settings{Env: w.env()})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { _, err := e.Publish(ctx, 0); ended <- err }()
	<-reached
	waiting, stop := context.WithCancel(context.Background())
	go func() { _, err := e.Publish(waiting, 0); ended <- err }()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiting Publish: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the hanging Publish: %v", err)
	}
	w.publish(w.exporter(), 0)
	w.check()
}
