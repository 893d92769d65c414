package manifest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Env is what the package takes from the world outside.
type Env struct {
	Now   func() time.Time // wall clock, for the time of snapshots
	NewID func() string    // a new UUID; file names are made of them
	Rand  func() uint64    // jitter of waits between tries
	// After gives a channel that is sent to after a time, as time.After does. Nil: retries do not wait.
	After func(d time.Duration) <-chan time.Time
	Log   *slog.Logger // nil: silent
	Holds *Holds       // of the table in this process; nil: of this Table only
}

// Table is a table's metadata. Its methods are safe for concurrent use; commits of one Table are done one after the
// other, so a process should hold one Table for a table.
//
// A Table remembers the last snapshot it saw together with its manifests, so that a commit with no foreign writer in
// between reads no metadata. What it remembers is bounded by the number of manifests, and once something was
// compacted by the number of live files (see index).
type Table struct {
	store  storage.Store
	env    Env
	branch string // "": main

	// Held by Commit and by Expire. Channels, so that waiting ends with the context.
	commits, expiry chan struct{}

	mu      sync.Mutex
	schemas map[int64]*schema.Schema
	newest  int64     // highest schema id seen, -1: none yet
	known   *Snapshot // newest snapshot seen, nil: none yet

	// Owned by the holder of commits.
	head      *head               // what the last commit left behind, nil: to be read
	undecided *Snapshot           // what a commit may have published without learning so, nil: nothing
	indexes   indexList           // content of the index manifest seen last
	frozen    map[string]struct{} // ` manifests that must not be rewritten, because they hold more than Entry can

	swept bool // owned by the holder of expiry: snapshots below the earliest, and expiries that were not ended, were looked for
}

// Open gives the table whose folder is the root of store. Nothing is read: a missing table shows at first use.
func Open(store storage.Store, env Env) *Table {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Rand == nil {
		env.Rand = func() uint64 { return 0 }
	}
	if env.Holds == nil {
		env.Holds = NewHolds()
	}
	return &Table{
		store: store, env: env, commits: make(chan struct{}, 1), expiry: make(chan struct{}, 1),
		schemas: map[int64]*schema.Schema{}, newest: -1, frozen: map[string]struct{}{},
	}
}

// Create makes a table by writing its first schema. Creating the same table with the very same schema again succeeds,
// so that a caller who lost the reply can repeat it.
func Create(ctx context.Context, store storage.Store, s *schema.Schema) error {
	if s.ID != 0 {
		return fmt.Errorf("create table: the first schema has id %d, it must be 0", s.ID)
	}
	data, err := s.Encode()
	if err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	won, err := storage.PutOnce(ctx, store, schemaName(0), data)
	if err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	if !won {
		return fmt.Errorf("create table at %s: %w", store.URL(""), ErrTableExists)
	}
	return nil
}

// acquire takes one of the table's locks; the caller must release it.
func acquire(ctx context.Context, lock chan struct{}) error {
	select {
	case lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release gives a lock back.
func release(lock chan struct{}) { <-lock }

// Store is the table's folder.
func (t *Table) Store() storage.Store { return t.store }

// maxSchemaSize bounds a schema file: thousands of columns with comments.
const maxSchemaSize = 16 << 20

func schemaName(id int64) string { return "schema/schema-" + strconv.FormatInt(id, 10) }

// Schema gives one version of the schema. Versions never change, so each is read once.
func (t *Table) Schema(ctx context.Context, id int64) (*schema.Schema, error) {
	t.mu.Lock()
	s, ok := t.schemas[id]
	t.mu.Unlock()
	if ok {
		return s, nil
	}
	data, err := storage.ReadAll(ctx, t.store, schemaName(id), maxSchemaSize)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", id, err)
	}
	s, err = schema.Parse(data)
	if err != nil {
		return nil, &CorruptError{Name: t.store.URL(schemaName(id)), Offset: jsonOffset(err, nil), Reason: "not a usable schema", Err: err}
	}
	if s.ID != id {
		return nil, &CorruptError{Name: t.store.URL(schemaName(id)), Reason: fmt.Sprintf("the file says that it is schema %d", s.ID)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schemas[id] = s
	t.newest = max(t.newest, id)
	return s, nil
}

// LatestSchema gives the newest version of the schema. The folder is listed the first time only; later one look for
// the next version is enough, because schemas are never deleted.
func (t *Table) LatestSchema(ctx context.Context) (*schema.Schema, error) {
	t.mu.Lock()
	id := t.newest
	t.mu.Unlock()
	if id < 0 {
		for info, err := range t.store.List(ctx, "schema") {
			if err != nil {
				return nil, fmt.Errorf("latest schema: %w", err)
			}
			if n, ok := numbered(path.Base(info.Name), "schema-"); ok {
				id = max(id, n)
			}
		}
		if id < 0 {
			return nil, fmt.Errorf("%w at %s: it has no schema file; create it first", ErrNoTable, t.store.URL(""))
		}
	}
	for {
		_, err := t.Schema(ctx, id+1)
		if errors.Is(err, storage.ErrNotFound) {
			return t.Schema(ctx, id)
		}
		if err != nil {
			return nil, err
		}
		id++
	}
}

// numbered takes the number off a file name such as snapshot-17.
func numbered(base, prefix string) (int64, bool) {
	digits, ok := strings.CutPrefix(base, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return 0, false
	}
	return n, true
}

// DataDir is the folder of a bucket's files, relative to the table: "dt=2024-05-14/bucket-3" (paimon-format §1, §7.3).
// partition is the serialized partition row.
func DataDir(s *schema.Schema, opt schema.Options, partition []byte, bucket int) (string, error) {
	dir := ""
	if cols := s.PartitionColumns(); len(cols) > 0 {
		types := s.Types(cols)
		vals, err := binrow.Decode(fill(partition), types)
		if err != nil {
			return "", fmt.Errorf("partition of a data file: %w", err)
		}
		dir, err = binrow.PartitionPath(s.PartitionKeys, types, vals, opt.LegacyPartitionName, opt.DefaultPartitionName)
		if err != nil {
			return "", fmt.Errorf("partition of a data file: %w", err)
		}
	}
	if opt.DataFileDirectory != "" {
		dir = strings.Trim(opt.DataFileDirectory, "/") + "/" + dir
	}
	if bucket == schema.BucketPostpone {
		return dir + "bucket-postpone", nil
	}
	return dir + "bucket-" + strconv.Itoa(bucket), nil
}
