package engine

import (
	"slices"
	"sync"

	"github.com/calve-io/calve/manifest"
)

// watchers are the subscribers of newly published snapshots.
type watchers struct {
	mu   sync.Mutex
	subs map[chan int64]bool // true: of those that may show something else on the highest level
	done bool
	// Since WatchTop was last told: the highest level has changed, and the schema then.
	top    bool
	schema int64
}

// Watch returns a channel that holds the newest snapshot id published by this process; ids in between may be skipped.
// The second result ends the subscription; the channel is closed then, or when the table is closed.
func (t *Table) Watch() (<-chan int64, func()) { return t.watch.subscribe(false) }

// WatchTop is Watch for who shows only the highest level of a table with a primary key, as export does. It leaves out
// snapshots that change nothing there, which are most of them: no file of that level was added or removed since the last
// one that was told, by whomever, this process has expired no snapshot (of others it is not known), and the schema is the same.
// In tables without key it is Watch.
func (t *Table) WatchTop() (<-chan int64, func()) { return t.watch.subscribe(true) }

func (w *watchers) subscribe(top bool) (<-chan int64, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := make(chan int64, 1)
	if w.done {
		close(ch)
		return ch, func() {}
	}
	if w.subs == nil {
		w.subs = map[chan int64]bool{}
	}
	w.subs[ch], w.top = top, true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, ok := w.subs[ch]; ok {
			delete(w.subs, ch)
			close(ch)
		}
	}
}

// shown notes that what WatchTop is for may have changed: the next snapshot is told.
func (w *watchers) shown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.top = true
}

// applied notes so for entries of a table whose highest level this is; below 0: it has no key.
func (w *watchers) applied(entries []manifest.Entry, highest int) {
	if slices.ContainsFunc(entries, func(e manifest.Entry) bool { return highest < 0 || e.File.Level == highest }) {
		w.shown()
	}
}

func (w *watchers) publish(id, schema int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.top = w.top || w.schema != schema
	for ch, top := range w.subs {
		if top && !w.top {
			continue
		}
		select {
		case <-ch: // drop the older id
		default:
		}
		ch <- id // has room: only publish sends, under mu
	}
	w.top, w.schema = false, schema
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	for ch := range w.subs {
		delete(w.subs, ch)
		close(ch)
	}
}
