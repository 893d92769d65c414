package ingest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// propPushKnown is the snapshot property that holds what is remembered of requests (pushMemory).
const (
	kindPush      = "push"
	propPushKnown = "calve.push.known"
)

// pushMemory are the newest requests with a key, and the newest one of each client, oldest first. Keys and client names
// are kept as the first 18 bytes of their SHA-256.
type pushMemory struct {
	list []remembered
	at   map[string]int // in list, by id; nil: to be made
}

type remembered struct {
	id       string // identity
	sequence int64  // of a client
	sum      uint32 // of the body
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

func (m *pushMemory) index() map[string]int {
	if m.at == nil {
		m.at = make(map[string]int, len(m.list))
		for i := range m.list {
			m.at[m.list[i].id] = i
		}
	}
	return m.at
}

func (m *pushMemory) clone() pushMemory { return pushMemory{list: slices.Clone(m.list)} }

// find tells whether a request was written, and how it was answered.
func (m *pushMemory) find(q *pushed) (PushAnswer, bool, error) {
	id := q.identity()
	if id == "" {
		return PushAnswer{}, false, nil
	}
	i, ok := m.index()[id]
	if !ok {
		return PushAnswer{}, false, nil
	}
	r := &m.list[i]
	switch {
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

// put remembers a request whose snapshot is to come, and forgets the oldest beyond a number.
func (m *pushMemory) put(q *pushed, a PushAnswer, most int) {
	id := q.identity()
	if id == "" {
		return
	}
	if i, ok := m.index()[id]; ok {
		m.list = slices.Delete(m.list, i, i+1)
	}
	m.list = append(m.list, remembered{id, q.Sequence, q.sum, a})
	if n := len(m.list) - most; n > 0 {
		m.list = slices.Delete(m.list, 0, n)
	}
	m.at = nil
}

// published notes the snapshot of those that had none yet.
func (m *pushMemory) published(snapshot int64) {
	for i := range m.list {
		if m.list[i].answer.Snapshot == 0 {
			m.list[i].answer.Snapshot = snapshot
		}
	}
}

// String is the form in a snapshot: entries of id, sequence, sum, snapshot, accepted and refused. The snapshot of the
// newest is 0: it is the one that the text stands in.
func (m *pushMemory) String() string {
	var b strings.Builder
	for _, r := range m.list {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s,%d,%x,%d,%d,%d", r.id, r.sequence, r.sum, r.answer.Snapshot, r.answer.Accepted, r.answer.Refused)
	}
	return b.String()
}

// maxPushMemory bounds what is read.
const maxPushMemory = 1 << 24

func parsePushMemory(text string) (m pushMemory, err error) {
	if len(text) > maxPushMemory {
		return m, fmt.Errorf("snapshot property %s has %d bytes", propPushKnown, len(text))
	}
	for _, entry := range strings.Fields(text) {
		f := strings.Split(entry, ",")
		if len(f) != 6 || f[0] == "" {
			return m, fmt.Errorf("snapshot property %s: %q is no entry", propPushKnown, entry)
		}
		var n [5]int64
		for i, s := range f[1:] {
			base := 10
			if i == 1 {
				base = 16
			}
			if n[i], err = strconv.ParseInt(s, base, 64); err != nil || n[i] < 0 {
				return m, fmt.Errorf("snapshot property %s: %q is no entry", propPushKnown, entry)
			}
		}
		m.list = append(m.list, remembered{f[0], n[0], uint32(n[1]), PushAnswer{Snapshot: n[2], Accepted: n[3], Refused: n[4]}})
	}
	return m, nil
}
