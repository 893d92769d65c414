package ingest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// propPushKnown is the snapshot property that holds what is remembered of requests (pushMemory).
const (
	kindPush      = "push"
	propPushKnown = "calve.push.known"
)

// Requests are remembered for pushHorizon, and the newest pushFloor of a kind however old they are.
const (
	pushHorizon = 10 * time.Minute
	pushFloor   = 1000
)

// pushMemory are requests with a key, and the newest one of each client; neither kind drives out the other. Keys and
// client names are kept as the first 18 bytes of their SHA-256.
type pushMemory struct{ keys, clients pushList }

// pushList are requests of one kind, oldest first.
type pushList struct {
	list []remembered
	at   map[string]int // in list, by id; nil: to be made
}

type remembered struct {
	id       string // identity
	sequence int64  // of a client
	sum      uint32 // of the body
	time     int64  // when it was committed, in seconds since 1970
	answer   PushAnswer
}

// identity is under which a request is remembered; "": it is not.
func (q *pushed) identity() string {
	kind, name := "k", q.Key
	switch {
	case q.Client != "":
		kind, name = "c", q.Client
	case q.Key == "":
		return ""
	}
	sum := sha256.Sum256([]byte(name))
	return kind + base64.RawURLEncoding.EncodeToString(sum[:18])
}

// of gives the list that has the requests of an identity's kind.
func (m *pushMemory) of(id string) *pushList {
	if id[0] == 'c' {
		return &m.clients
	}
	return &m.keys
}

func (m *pushMemory) clone() pushMemory {
	return pushMemory{pushList{list: slices.Clone(m.keys.list)}, pushList{list: slices.Clone(m.clients.list)}}
}

func (l *pushList) find(id string) *remembered {
	if l.at == nil {
		l.at = make(map[string]int, len(l.list))
		for i := range l.list {
			l.at[l.list[i].id] = i
		}
	}
	if i, ok := l.at[id]; ok {
		return &l.list[i]
	}
	return nil
}

// find tells whether a request was written, and how it was answered.
func (m *pushMemory) find(q *pushed) (PushAnswer, bool, error) {
	id := q.identity()
	if id == "" {
		return PushAnswer{}, false, nil
	}
	r := m.of(id).find(id)
	switch {
	case r == nil:
		return PushAnswer{}, false, nil
	case q.Client != "" && q.Sequence > r.sequence:
		return PushAnswer{}, false, nil
	case q.Client != "" && q.Sequence < r.sequence:
		return PushAnswer{}, false, fmt.Errorf("%w: the last sequence number of the client is %d, and what came before it was answered", ErrRepeat, r.sequence)
	case q.sum != r.sum:
		return PushAnswer{}, false, fmt.Errorf("%w for a request with another body", ErrRepeat)
	}
	a := r.answer
	a.Repeated = true
	return a, true, nil
}

// young counts the requests that may not be forgotten yet.
func (l *pushList) young(now time.Time) int {
	since := now.Add(-pushHorizon).Unix()
	old, _ := slices.BinarySearchFunc(l.list, since, func(r remembered, t int64) int { return cmp.Compare(r.time, t) })
	return len(l.list) - old
}

// isYoung tells whether a request is one of them.
func (l *pushList) isYoung(id string, now time.Time) bool {
	r := l.find(id)
	return r != nil && r.time >= now.Add(-pushHorizon).Unix()
}

// put remembers a request whose snapshot is to come. Trim comes before anything else then.
func (m *pushMemory) put(q *pushed, a PushAnswer, now time.Time) {
	if id := q.identity(); id != "" {
		l := m.of(id)
		l.list = append(l.list, remembered{id, q.Sequence, q.sum, now.Unix(), a})
	}
}

// trim leaves one entry of each client, and forgets what is old.
func (m *pushMemory) trim(now time.Time, most int) {
	m.keys.trim(now, most)
	m.clients.trim(now, most)
}

func (l *pushList) trim(now time.Time, most int) {
	since, floor := now.Add(-pushHorizon).Unix(), min(most, pushFloor)
	seen := make(map[string]bool, len(l.list))
	to := len(l.list)
	for i := len(l.list) - 1; i >= 0; i-- {
		r := l.list[i]
		r.time = min(r.time, now.Unix()) // a clock was wrong, or is another process's
		if seen[r.id] || r.time < since && len(seen) >= floor {
			continue
		}
		seen[r.id] = true
		to--
		l.list[to] = r
	}
	l.list, l.at = slices.Delete(l.list, 0, to), nil
}

// published notes the snapshot of those that had none yet.
func (m *pushMemory) published(snapshot int64) {
	for _, l := range [][]remembered{m.keys.list, m.clients.list} {
		for i := range l {
			if l[i].answer.Snapshot == 0 {
				l[i].answer.Snapshot = snapshot
			}
		}
	}
}

// String is the form in a snapshot: entries of id, sequence, sum, snapshot, accepted, refused and time. The snapshot of
// the newest is 0: it is the one that the text stands in.
func (m *pushMemory) String() string {
	b := make([]byte, 0, 80*(len(m.keys.list)+len(m.clients.list)))
	for _, l := range [][]remembered{m.keys.list, m.clients.list} {
		for _, r := range l {
			if len(b) > 0 {
				b = append(b, ' ')
			}
			b = append(b, r.id...)
			b = strconv.AppendInt(append(b, ','), r.sequence, 10)
			b = strconv.AppendUint(append(b, ','), uint64(r.sum), 16)
			for _, n := range [...]int64{r.answer.Snapshot, r.answer.Accepted, r.answer.Refused, r.time} {
				b = strconv.AppendInt(append(b, ','), n, 10)
			}
		}
	}
	return string(b)
}

// maxPushMemory bounds what is read.
const maxPushMemory = 1 << 24

// parsePushMemory reads it. Entries of older versions have no time.
func parsePushMemory(text string) (m pushMemory, err error) {
	if len(text) > maxPushMemory {
		return m, fmt.Errorf("snapshot property %s has %d bytes", propPushKnown, len(text))
	}
	for _, entry := range strings.Fields(text) {
		f := strings.Split(entry, ",")
		if len(f) == 6 {
			f = append(f, "0")
		}
		if len(f) != 7 || f[0] == "" {
			return m, fmt.Errorf("snapshot property %s: %q is no entry", propPushKnown, entry)
		}
		var n [6]int64
		for i, s := range f[1:] {
			base := 10
			if i == 1 {
				base = 16
			}
			if n[i], err = strconv.ParseInt(s, base, 64); err != nil || n[i] < 0 {
				return m, fmt.Errorf("snapshot property %s: %q is no entry", propPushKnown, entry)
			}
		}
		l := m.of(f[0])
		l.list = append(l.list, remembered{f[0], n[0], uint32(n[1]), n[5], PushAnswer{Snapshot: n[2], Accepted: n[3], Refused: n[4]}})
	}
	return m, nil
}
