package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/schema"
)

// content sums a table up: its number of rows, and a sum over them that does not depend on their order.
type content struct {
	rows int64
	sum  uint64
}

// rows is what a table holds: of each key the version of its row, 0 where there is none.
type rows struct {
	versions []int64
	content
}

func newRows(keys int) *rows { return &rows{versions: make([]int64, keys)} }

// put gives a key a version, or takes its row away with 0.
func (r *rows) put(key, version int64) error {
	if key < 0 || key >= int64(len(r.versions)) {
		return fmt.Errorf("key %d: keys are below %d", key, len(r.versions))
	}
	if old := r.versions[key]; old != 0 {
		r.rows--
		r.sum -= mix(key, old)
	}
	if version != 0 {
		r.rows++
		r.sum += mix(key, version)
	}
	r.versions[key] = version
	return nil
}

// mix makes a number of a key and its version in which every bit depends on both (SplitMix64's finalizer).
func mix(key, version int64) uint64 {
	x := uint64(key)*0x9e3779b97f4a7c15 ^ uint64(version)*0xd1342543de82ef95
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fold applies rows of the soak's table, kinds nil being inserts, and looks at every cell of them.
func (r *rows) fold(rec arrow.RecordBatch, kinds []schema.RowKind) error {
	keys, versions := rec.Column(0).(*array.Int64), rec.Column(1).(*array.Int64)
	names, amounts := rec.Column(2).(*array.String), rec.Column(3).(*array.Decimal128)
	var want []byte
	for i := range int(rec.NumRows()) {
		k, v := keys.Value(i), versions.Value(i)
		if kinds != nil && !kinds[i].IsAdd() {
			v = 0
		} else if want = name(want[:0], v); names.Value(i) != string(want) || amounts.Value(i) != amount(v) {
			return fmt.Errorf("key %d, version %d: name %q and amount %v belong to another row", k, v, names.Value(i), amounts.Value(i))
		}
		if err := r.put(k, v); err != nil {
			return err
		}
	}
	return nil
}

// history knows what each snapshot must hold. Its lock is held for moments only.
type history struct {
	mu    sync.Mutex
	at    []recorded // ascending
	ended bool       // no more rows come
	known chan struct{}
}

type recorded struct {
	snapshot int64
	content
}

func newHistory() *history { return &history{known: make(chan struct{})} }

// note says what the table holds from a snapshot on, and wakes who waits.
func (h *history) note(snapshot int64, c content) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = append(h.at, recorded{snapshot, c})
	close(h.known)
	h.known = make(chan struct{})
}

// end says that later snapshots hold what the last one noted does.
func (h *history) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	close(h.known)
	h.known = make(chan struct{})
}

// of waits until it is known what a snapshot must hold. A snapshot may be seen before its commit has returned, and a
// compaction's holds what the one before it does: so a later one must be known.
func (h *history) of(ctx context.Context, snapshot int64) (content, error) {
	for {
		h.mu.Lock()
		wait := h.known
		for i := len(h.at) - 1; i >= 0 && (h.ended || h.at[len(h.at)-1].snapshot >= snapshot); i-- {
			if h.at[i].snapshot <= snapshot {
				c := h.at[i].content
				h.mu.Unlock()
				return c, nil
			}
		}
		early := len(h.at) > 0 && h.at[0].snapshot > snapshot
		h.mu.Unlock()
		if early {
			return content{}, nil // before the first rows
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return content{}, ctx.Err()
		}
	}
}

// check compares what was read of a snapshot.
func (h *history) check(ctx context.Context, who string, snapshot int64, got content) error {
	want, err := h.of(ctx, snapshot)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s at snapshot %d: %d rows with sum %x, want %d with %x", who, snapshot, got.rows, got.sum, want.rows, want.sum)
	}
	return nil
}
