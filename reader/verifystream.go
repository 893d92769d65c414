package reader

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// StreamSpec says which change stream VerifyStream folds, and how.
type StreamSpec struct {
	// From is Earliest, FromSnapshot or FromTag. With the last two the fold begins with the rows of that snapshot as a scan
	// gives them, and the changes after it.
	From  Start
	Until Until // zero: the newest snapshot when it begins
	// BeforeImage folds what a tail with BeforeImage tells.
	BeforeImage bool
	Share       Share
	Every       int64 // hold the fold against every so manyth snapshot, and the last; 0: against every one
	// Memory bounds the folded rows, which take some 20 bytes each, however large they are; default 256 MiB. What does not
	// fit is left to another pass over the stream.
	Memory int64
	// Progress, when not nil, is told how far it is after each snapshot that was held against the table.
	Progress func(StreamReport)
}

const defaultFoldMemory = 256 << 20

// StreamReport is what VerifyStream found.
type StreamReport struct {
	From        int64        `json:"from"`        // the fold began with the rows of this snapshot; 0: with nothing, before the first
	Snapshot    int64        `json:"snapshot"`    // the last one that the stream told; 0: none
	Snapshots   int64        `json:"snapshots"`   // whose changes were folded
	Compared    int64        `json:"compared"`    // of them: held against the table
	Waiting     int64        `json:"waiting"`     // of them: not held against the table, as rows wait in bucket-postpone, which scans do not see
	Expired     int64        `json:"expired"`     // of them: not held against the table, as only long-lived changelogs are left of them
	Rebased     int64        `json:"rebased"`     // of them: streams do not tell their changes, so the fold went on with their rows
	Changes     int64        `json:"changes"`     // told, but for the rows that a stream begins with
	Rows        int64        `json:"rows"`        // of the table when it was compared last
	Passes      int          `json:"passes"`      // over the stream
	Differ      int64        `json:"differ"`      // keys (in tables without key: rows) that differ in the first snapshot where some do, and changes that do not fit
	Differences []Difference `json:"differences"` // the first of these, by key
}

// OK reports whether the stream is right.
func (r *StreamReport) OK() bool { return r.Differ == 0 }

// Difference is a key of which stream and table say different things, or of which the stream tells a change that does not
// fit what it told before.
type Difference struct {
	Snapshot int64           `json:"snapshot"`
	Key      json.RawMessage `json:"key"` // the columns of the primary key; in a table without one the whole row
	What     string          `json:"what"`
	Change   string          `json:"change,omitempty"`   // what does not fit
	Stream   json.RawMessage `json:"stream,omitempty"`   // the row as the stream told it last; absent: it has none
	StreamAt int64           `json:"streamAt,omitempty"` // the snapshot in which the stream told of the key last
	Table    json.RawMessage `json:"table,omitempty"`    // the row as a scan gives it; absent: it has none
}

// maxDifferences is how many of them are shown.
const maxDifferences = 10

// Errors that end a replay.
var (
	errDiffers   = errors.New("stream and table differ")
	errNewSchema = errors.New("the schema of the stream has changed")
)

// VerifyStream folds a change stream and holds the fold against a scan of the table at each snapshot, through the newest
// schema. Where the stream promises rows before changes, each must be the one that was told before: +I of a key without a
// row, -U and -D of the row there was, +U behind a -U. It ends at the first snapshot that differs, and the report says
// where. An error means that it could not look; the report says then how far it came. It holds back expiry in this process
// only: where snapshots expire before it has come to them, the error is a *GapError.
//
// Folded are hashes of keys and rows, 64 bits each. What is compared is what a stream can have told: in tables with
// changelog producer lookup or full-compaction the levels whose rows were told. Splits whose files are the same as in the
// snapshot compared before are not read again. Snapshots that streams pass over (OVERWRITE) are taken over as they are.
func (r *Reader) VerifyStream(ctx context.Context, spec StreamSpec) (*StreamReport, error) {
	c := &streamCheck{r: r, spec: spec, until: spec.Until, rep: &StreamReport{Differences: []Difference{}}}
	c.t.limit = cmp.Or(max(0, spec.Memory), defaultFoldMemory)
	c.spec.Every = max(1, spec.Every)
	if c.until == (Until{}) {
		c.until.Latest = true // a writer may be as fast as this
	}
	if err := c.begin(ctx); err != nil {
		return c.rep, err
	}
	for lo := 0; lo < foldShards && c.rep.OK(); lo = c.t.hi {
		if err := c.pass(ctx, lo); err != nil {
			return c.rep, err
		}
		if c.t.hi == lo {
			return c.rep, fmt.Errorf("%w: %d bytes are too few to fold one part in %d of the table's rows; give more memory", ErrQuery, c.t.limit, foldShards)
		}
	}
	return c.rep, nil
}

// streamCheck is VerifyStream at work.
type streamCheck struct {
	r     *Reader
	spec  StreamSpec
	until Until
	base  *manifest.Snapshot // the fold begins with its rows; nil: with what the tail begins with
	rep   *StreamReport

	t   foldTable // of tables with a primary key
	bag foldBag   // of others
}

// begin finds where the fold begins.
func (c *streamCheck) begin(ctx context.Context) error {
	var err error
	switch from := c.spec.From; from.Mode {
	case Earliest:
	case FromSnapshot:
		c.base, err = c.r.numbered(ctx, from.Snapshot)
	case FromTag:
		c.base, err = c.r.snapshot(ctx, Query{Tag: from.Tag})
	default:
		err = fmt.Errorf("%w: a stream is folded from earliest, snapshot:N or tag:NAME", ErrQuery)
	}
	return err
}

// foldable says why the stream of a table cannot be folded, or nil.
func (v *view) foldable(spec StreamSpec) error {
	if s := spec.Share; s.Of > 1 && v.opts.Bucket <= 0 && (v.keys == nil || v.opts.Bucket == schema.BucketPostpone) {
		return fmt.Errorf("%w: rows of this table do not stay in their share", ErrQuery)
	}
	if v.keys == nil || spec.BeforeImage && !v.opts.TellsBefore() {
		return nil
	}
	if v.opts.Merge.ExpireTime > 0 {
		return fmt.Errorf("%w: rows expire (record-level.expire-time), which streams do not tell", ErrQuery)
	}
	if v.opts.TellsBefore() {
		return nil
	}
	if err := v.newestWins(); err != nil {
		return fmt.Errorf("%w: folding the changes of this table by key does not give its rows: %w", ErrQuery, err)
	}
	if !v.rule.Newest() {
		return fmt.Errorf("%w: folding the changes of this table by key does not give its rows; have the rows before and after them computed (--before-image)", ErrQuery)
	}
	return nil
}

// pass folds the keys from a shard on, as many as there is room for.
func (c *streamCheck) pass(ctx context.Context, lo int) error {
	const tries = 100 // each needs a change of the schema
	passes := c.rep.Passes + 1
	for n := 0; ; n++ {
		c.t.begin(lo)
		if lo == 0 {
			*c.rep = StreamReport{Differences: []Difference{}}
		} else {
			c.until = Until{Snapshot: c.rep.Snapshot}
		}
		c.rep.Passes = passes
		f := &folder{streamCheck: c, first: lo == 0, base: c.base, between: map[uint64]struct{}{}}
		if c.base != nil {
			c.rep.From = c.base.ID
		}
		err := c.replay(ctx, f, c.base, c.until)
		if err == nil {
			err = f.last(ctx)
		}
		if errors.Is(err, errNewSchema) && n < tries {
			continue // again from the start: what was told before cannot be seen through it
		}
		if err != nil && !errors.Is(err, errDiffers) {
			return err
		}
		c.rep.Rows += f.rows
		return nil
	}
}
