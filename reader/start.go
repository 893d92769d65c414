package reader

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/calve-io/calve/schema"
)

// Start says where a tail begins.
type Start struct {
	Mode     StartMode
	Snapshot int64     // with FromSnapshot
	Time     time.Time // with FromTime
	Tag      string    // with FromTag
	At       Position  // with FromPosition
}

// StartMode is the kind of a Start.
type StartMode int

// Where a tail can begin.
const (
	// Earliest: everything that can still be told. When the first snapshot is still there, all changes from it on; else
	// the rows of the earliest snapshot as inserts, then all changes after it. Folding the stream always gives the table.
	Earliest StartMode = iota
	// Latest: only changes after the present snapshot.
	Latest
	// FromSnapshot: the changes of snapshot Start.Snapshot and all later ones. This is how a reader resumes.
	FromSnapshot
	// FromTime: the changes of the first snapshot made at or after Start.Time and of all later ones.
	FromTime
	// Full: the rows of the newest snapshot, or of the last one that Until allows, as inserts, then all changes after it
	// (Paimon's `latest-full`).
	Full
	// FromTag: the rows of the snapshot that Start.Tag names as inserts, then all changes after it.
	FromTag
	// FromPosition: what comes after Start.At. The rows before it in its snapshot are read again but not told.
	FromPosition
)

// Position is a place in a stream: so many rows of a snapshot have been told. A stream that is asked for the same rows
// (condition, share, order) tells them in the same order again, so that a reader can resume at any row.
type Position struct {
	Snapshot int64
	Rows     int64 // of the snapshot
	State    bool  // they are rows of the whole snapshot, not changes of it
	Arrival  bool  // they were told in the order of their arrival (TailSpec.Order)
}

// String writes a position as ParsePosition reads it: "12.5", "12.5.state" or "12.5.arrival".
func (p Position) String() string { return string(p.Append(nil)) }

// Append appends a position as String writes it.
func (p Position) Append(dst []byte) []byte {
	dst = append(strconv.AppendInt(dst, p.Snapshot, 10), '.')
	if dst = strconv.AppendInt(dst, p.Rows, 10); p.State {
		dst = append(dst, ".state"...)
	}
	if p.Arrival {
		dst = append(dst, ".arrival"...)
	}
	return dst
}

// ParsePosition reads a position.
func ParsePosition(s string) (Position, error) {
	text, arrival := strings.CutSuffix(s, ".arrival")
	text, state := strings.CutSuffix(text, ".state")
	snap, rows, ok := strings.Cut(text, ".")
	id, err1 := strconv.ParseInt(snap, 10, 64)
	n, err2 := strconv.ParseInt(rows, 10, 64)
	if !ok || err1 != nil || err2 != nil || id < 1 || n < 0 || state && arrival {
		return Position{}, fmt.Errorf("%w: position %q: use one that a stream has told, such as 12.5, 12.5.state or 12.5.arrival", ErrQuery, s)
	}
	return Position{Snapshot: id, Rows: n, State: state, Arrival: arrival}, nil
}

// ParseStart reads "earliest", "latest", "full", "snapshot:N", "time:T", T as ParseTime reads it, "tag:NAME" or "at:P", P as
// ParsePosition reads it.
func ParseStart(s string) (Start, error) {
	switch s {
	case "earliest":
		return Start{Mode: Earliest}, nil
	case "latest":
		return Start{Mode: Latest}, nil
	case "full":
		return Start{Mode: Full}, nil
	}
	if n, ok := strings.CutPrefix(s, "snapshot:"); ok {
		if id, err := strconv.ParseInt(n, 10, 64); err == nil && id > 0 {
			return Start{Mode: FromSnapshot, Snapshot: id}, nil
		}
	}
	if text, ok := strings.CutPrefix(s, "time:"); ok {
		at, err := ParseTime(text)
		return Start{Mode: FromTime, Time: at}, err
	}
	if name, ok := strings.CutPrefix(s, "tag:"); ok && name != "" {
		return Start{Mode: FromTag, Tag: name}, nil
	}
	if text, ok := strings.CutPrefix(s, "at:"); ok {
		at, err := ParsePosition(text)
		return Start{Mode: FromPosition, At: at}, err
	}
	return Start{}, fmt.Errorf("%w: start %q: use earliest, latest, full, time:2024-05-14T12:00:00Z, tag:NAME or snapshot:N with N ≥ 1", ErrQuery, s)
}

// Until says where a tail ends. The zero value is never: at the newest snapshot, or with Follow when its context does.
type Until struct {
	Snapshot int64     // with it; 0: no such bound
	Time     time.Time // before the first snapshot made after it; zero: no such bound
	Latest   bool      // with what is the newest snapshot when the tail begins
}

// ParseUntil reads "", "latest", "snapshot:N" or "time:T", T as ParseTime reads it.
func ParseUntil(s string) (Until, error) {
	switch s {
	case "":
		return Until{}, nil
	case "latest":
		return Until{Latest: true}, nil
	}
	if n, ok := strings.CutPrefix(s, "snapshot:"); ok {
		if id, err := strconv.ParseInt(n, 10, 64); err == nil && id > 0 {
			return Until{Snapshot: id}, nil
		}
	}
	if text, ok := strings.CutPrefix(s, "time:"); ok {
		at, err := ParseTime(text)
		return Until{Time: at}, err
	}
	return Until{}, fmt.Errorf("%w: end %q: use latest, time:2024-05-14T12:00:00Z or snapshot:N with N ≥ 1", ErrQuery, s)
}

// Share is a part of a table's buckets: those whose number leaves Index when it is divided by Of. Readers of all shares
// together read everything once, and each key comes to one of them only. Of tables without key and buckets the files are
// shared, by a hash of their names, so that the rows of a whole snapshot cannot be. The zero value is everything.
type Share struct{ Index, Of int }

const maxShares = 1 << 16

// ParseShare reads "I/N", I from 0 to N-1; "" is everything.
func ParseShare(s string) (Share, error) {
	if s == "" {
		return Share{}, nil
	}
	i, n, ok := strings.Cut(s, "/")
	index, err1 := strconv.Atoi(i)
	of, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || index < 0 || index >= of || of > maxShares {
		return Share{}, fmt.Errorf("%w: share %q: use I/N with I from 0 to N-1, such as 0/4", ErrQuery, s)
	}
	return Share{Index: index, Of: of}, nil
}

// Consumer is the name under which a reader of a share keeps its position: Paimon's consumers have one position each.
func (s Share) Consumer(id string) string {
	if id == "" || s.Of <= 1 {
		return id
	}
	return fmt.Sprintf("%s.%d-of-%d", id, s.Index, s.Of)
}

// has reports whether a file belongs to the share. Postponed buckets, whose numbers are negative, are of the first one.
func (s Share) has(v *view, bucket int, file string) bool {
	if s.Of <= 1 {
		return true
	}
	if v.keys == nil && v.opts.Bucket == schema.BucketDynamic {
		h := fnv.New32a()
		_, _ = h.Write([]byte(file)) // it never fails
		return int(h.Sum32()%uint32(s.Of)) == s.Index
	}
	return max(0, bucket)%s.Of == s.Index
}

// ParseTime reads a time: milliseconds since 1970, RFC 3339, or a date and maybe a time of day, in UTC.
func ParseTime(s string) (time.Time, error) {
	if millis, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(millis).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: time %q: use 2024-05-14T12:00:00Z, 2024-05-14 12:00:00 (UTC) or milliseconds since 1970", ErrQuery, s)
}
