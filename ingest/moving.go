package ingest

import (
	"time"

	"github.com/calve-io/calve/ingest/decode"
)

// A row whose key changes comes as a delete under the old key and an insert under the new one, and the insert may leave
// out values that it had before (see holes.go). So both go into one unit, and no commit falls between them: the row under
// the old key may have come just before, and be in no snapshot of its own. Where the insert does not follow (it may be in
// another partition), or the unit is full, it goes on without it, and the old row is looked for in the snapshots before.

// Headers that Debezium gives the events of a changed key.
const (
	headerNewKey = "__debezium.newkey" // of the delete, and of the tombstone behind it
	headerOldKey = "__debezium.oldkey" // of the insert
)

// movingPatience is how long inserts are waited for, from the first delete of those that still lack theirs on: whoever sends
// nothing but such deletes holds no unit for longer.
const movingPatience = 200 * time.Millisecond

// moving counts the rows that were deleted under their old key and are not yet there under the new one.
type moving struct {
	rows  int
	since time.Time // the first of them was deleted
}

// saw notes a record.
func (m *moving) saw(r *decode.Record, env Env) {
	if r.Value == nil || len(r.Headers) == 0 {
		return
	}
	if _, ok := r.Header(headerNewKey); ok {
		if m.rows++; m.rows == 1 {
			m.since = env.Now()
		}
	} else if m.rows > 0 {
		if _, ok := r.Header(headerOldKey); ok {
			m.rows--
		}
	}
}

// left is how long to wait for the insert; 0: not at all.
func (m *moving) left(env Env) time.Duration {
	if m.rows == 0 {
		return 0
	}
	left := movingPatience - env.Now().Sub(m.since)
	if left <= 0 {
		m.rows = 0
	}
	return max(0, left)
}
