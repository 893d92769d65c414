// Package engine owns one open table on its write side: routing rows to buckets, the memory they wait in, flushing,
// committing, background compaction and expiry. It owns every goroutine of the write side.
//
// A row's way: Write routes the rows of a batch to buckets and keeps the batch; a full buffer, or Commit, has each
// bucket's rows sorted and written as level-0 files (lsm.Flush); Commit publishes them in one snapshot together with
// the writer's progress. Compaction runs beside it (lsm.Pick, lsm.Compact) and is installed as snapshots of its own.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/calve-io/calve/internal/lookup"
	"github.com/calve-io/calve/manifest"
)

var (
	// ErrFenced: another process has opened the table for the same job. This one must stop: the other owns the job now.
	ErrFenced = errors.New("fenced by a newer epoch of the same job")
	// ErrPoisoned: an earlier failure left the state of the table unknown to this process. Open the table again.
	ErrPoisoned = errors.New("table handle is unusable after an earlier failure")
	// ErrClosed: the table was closed.
	ErrClosed = errors.New("table is closed")
	// ErrRows: rows break a rule of the table (a null in a NOT NULL column, a delete in a table without key).
	ErrRows = errors.New("rows do not fit the table")
	// ErrUnsupported: calve does not know how to write this table; the error names the option or type.
	ErrUnsupported = errors.New("table cannot be written by calve")
	// ErrNewSchema: the table has a newer schema, whose columns rows that wait for their commit do not have.
	ErrNewSchema = errors.New("the table has a newer schema than its rows were made for")
	// ErrProgressLost: the job ran before, but no snapshot is left that says how far it came.
	ErrProgressLost = errors.New("progress of the job is lost")
)

// Env is everything the engine takes from the world. All fields are required.
type Env struct {
	Now   func() time.Time                     // wall clock
	After func(time.Duration) <-chan time.Time // timers
	NewID func() string                        // unique ids for file names (UUIDs)
	Rand  func() uint64                        // jitter of retries
	Log   *slog.Logger
}

func (e Env) manifest() manifest.Env {
	return manifest.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log}
}

// Settings are the numbers a user tunes. The zero value of each field means its default.
type Settings struct {
	// Job names the writing job, for example "kafka-orders". It becomes the commit user of the snapshots, must stay the
	// same over restarts, and lets only one process write for the job at a time: a newer one fences an older one.
	// Empty: a single-use writer (a batch) that keeps no progress.
	Job string
	// BufferBytes is the size of the write buffer that starts a flush between commits. Default 32 MiB.
	BufferBytes int64
	// Budget, if set, is the memory that the write buffers of this and other tables share.
	Budget *Budget
	// Parallel is the number of goroutines that sort and encode at once in a flush. Default 2.
	Parallel int
	// Compaction is how many compactions of the table may run at once in the background, not counting those that writers
	// wait for; 0: somebody else compacts the table.
	Compaction int
	// Compactor runs them, together with those of other tables. Nil: the table has one of its own, with Compaction workers.
	Compactor *Compactor
	// Dedicated compacts and expires tables that are write-only too: their writers leave it to this process.
	Dedicated bool
	// Claim, when not nil, is asked before a background compaction of a bucket, named by its folder, and before an expiry,
	// named "expire": it calls work if no other process is at it, and says whether it did. What is compacted without a
	// claim, or after it was lost, costs work that is done twice and nothing else: the later result finds a conflict and is
	// dropped.
	Claim func(ctx context.Context, name string, work func(context.Context) error) (held bool, err error)
	// ExpireEvery is the time between two expiries of old snapshots; 0: never by this process.
	ExpireEvery time.Duration
	// FollowEvery is the time between two looks for snapshots of other writers while this process commits nothing; what
	// they wrote is then compacted here. 0: only commits and compactions look.
	FollowEvery time.Duration
	// IndexKeys is about how many keys of a table with dynamic buckets stay in memory, about 20 bytes each, beside those
	// of the partitions that rows are being written to. Default 4 Mi.
	IndexKeys int64
	// Lookups, if set, has a folder on local disk for copies of data files (lookup.CacheConfig): compactions that look rows up
	// use them, and copy what they write. It is closed after the table.
	Lookups *lookup.Cache
	// CopyAll copies what compactions of a table with primary key write even if they look nothing up themselves.
	CopyAll bool
	// Restart has a job begin anew whose progress is lost, where Open would give ErrProgressLost: for those who know what
	// it can have been.
	Restart bool
	// Holds, if set, are what reads of the table in this process need, also those by handles that were opened before this one.
	Holds *manifest.Holds
	// Events are called on what happens; nil functions are skipped.
	Events Events
}

func (s Settings) withDefaults() Settings {
	if s.BufferBytes <= 0 {
		s.BufferBytes = 32 << 20
	}
	if s.Parallel <= 0 {
		s.Parallel = 2
	}
	if s.IndexKeys <= 0 {
		s.IndexKeys = 4 << 20
	}
	return s
}

// Events are callbacks on the life of a table. They run on the engine's goroutines and must return quickly.
type Events struct {
	Committed  func(CommitInfo)
	Compacted  func(CompactInfo)
	Background func(op string, err error) // a background operation failed; it is tried again later
}

// CommitInfo tells about one published snapshot.
type CommitInfo struct {
	Snapshot int64
	Kind     manifest.CommitKind
	Rows     int64 // rows in the added files
	Files    int
	Took     time.Duration
}

// CompactInfo tells about one compaction that was installed.
type CompactInfo struct {
	Snapshot          int64
	Bucket            string // folder of the bucket
	Output            int    // level
	FilesIn, FilesOut int
	RowsIn, RowsOut   int64
	BytesIn, BytesOut int64
	Moved             int // files that only changed their level
	Took              time.Duration
}

// Progress is what a writer wants to find again after a restart: it is stored in the snapshot that publishes the rows.
type Progress struct {
	Properties map[string]string // keys start with "calve."
	Watermark  *int64
}
