package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/claim"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// claimsDir is where workers claim buckets, below the folder of a table.
const claimsDir = "calve/claims"

// watcher compacts many tables as they are written: calve compact --watch.
type watcher struct {
	app *app
	// Flags.
	workers       int
	rate          int64 // MiB a second; 0: no bound
	look, follow  time.Duration
	ttl, expiries time.Duration

	local localCopies

	log       *slog.Logger
	warehouse storage.Store
	cache     *reader.LookupCache
	owner     string
	compactor *engine.Compactor
	open      map[string]*engine.Table
	failed    map[string]string // tables that could not be opened, and why

	mu sync.Mutex // guards writing to app.out
}

func (w *watcher) flags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&w.workers, "workers", 2, "with --watch: compactions at the same time")
	f.Int64Var(&w.rate, "rate", 0, "with --watch: MiB a second that compactions read (default: no bound)")
	f.DurationVar(&w.look, "look-every", 30*time.Second, "with --watch: time between two looks for new tables")
	f.DurationVar(&w.follow, "follow-every", 2*time.Second, "with --watch: time between two looks for new snapshots of a table")
	f.DurationVar(&w.expiries, "expire-every", time.Minute, "with --watch: time between two expiries of a table's old snapshots; 0 for none")
	f.DurationVar(&w.ttl, "claim-for", 30*time.Second, "with --watch: time after which the claim of a worker that was killed is free")
}

// run works until ctx ends.
func (w *watcher) run(ctx context.Context, patterns []string) (err error) {
	for _, p := range patterns {
		if _, err := path.Match(p, "db.table"); err != nil {
			return fmt.Errorf("pattern %q: %w; use * for any characters and ? for one", p, err)
		}
	}
	if w.workers < 1 || w.rate < 0 || w.look <= 0 || w.follow <= 0 || w.expiries < 0 || w.ttl < time.Second {
		return errors.New("--workers, --look-every and --follow-every must be positive, --claim-for at least a second, --rate and --expire-every not negative")
	}
	if w.log, err = w.app.logger(); err != nil {
		return err
	}
	if w.warehouse, err = w.app.open(ctx, writes); err != nil {
		return err
	}
	if w.cache, err = w.local.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.cache.Close()) }()
	w.owner, w.open, w.failed = uuid.NewString(), map[string]*engine.Table{}, map[string]string{}
	w.compactor = engine.NewCompactor(engine.CompactorSettings{Workers: w.workers, BytesPerSecond: w.rate << 20}, engineEnv(w.log))
	defer w.compactor.Close()
	defer func() {
		for name, t := range w.open {
			if cerr := closeTable(ctx, t); cerr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, cerr))
			}
		}
	}()
	for told := false; ; {
		if err := w.discover(ctx, patterns); err != nil && ctx.Err() == nil {
			w.log.Warn("looking for tables failed, will try again", "warehouse", w.warehouse.URL(""), "error", err)
		}
		if !told && !w.app.json { // people would take silence for a hang
			told = true
			fmt.Fprintf(w.app.err, "watching %s in %s; interrupt to stop\n", count(len(w.open), "table"), w.warehouse.URL(""))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.look):
		}
	}
}

// discover opens the tables that are new and closes those that are gone.
func (w *watcher) discover(ctx context.Context, patterns []string) error {
	names, err := tables(ctx, w.warehouse, "")
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range names {
		if !matches(name, patterns) {
			continue
		}
		there[name] = true
		if t := w.open[name]; t != nil && !w.tend(ctx, name, t) {
			delete(w.open, name)
			if cerr := closeTable(ctx, t); cerr != nil {
				w.log.Warn("closing a table failed", "table", name, "error", cerr)
			}
		}
		if w.open[name] != nil {
			continue
		}
		t, err := w.openTable(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if w.failed[name] != err.Error() { // say it once
				w.log.Warn("table is left alone", "table", name, "error", err)
			}
			w.failed[name] = err.Error()
			continue
		}
		delete(w.failed, name)
		w.open[name] = t
		w.log.Info("watching", "table", name)
	}
	for name, t := range w.open {
		if !there[name] {
			delete(w.open, name)
			err = errors.Join(err, closeTable(ctx, t))
		}
	}
	return err
}

// tend has an open table go on with its newest schema and options. It reports false if the table has to be opened again.
func (w *watcher) tend(ctx context.Context, name string, t *engine.Table) bool {
	err := t.Err()
	if err == nil {
		s, lerr := t.LookForSchema(ctx)
		if lerr != nil {
			w.log.Warn("looking for a newer schema failed, will try again", "table", name, "error", lerr)
			return true
		}
		if s == nil {
			return true
		}
		err = t.Follow(ctx, s)
	}
	if err != nil {
		w.log.Warn("table is opened again", "table", name, "error", err)
	}
	return err == nil
}

func matches(name string, patterns []string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return len(patterns) == 0
}

func (w *watcher) openTable(ctx context.Context, name string) (*engine.Table, error) {
	dir, err := config.TablePath(name)
	if err != nil {
		return nil, err
	}
	st, env := storage.Sub(w.warehouse, dir), engineEnv(w.log.With("table", name))
	claims := claim.New(st, claimsDir, w.owner, w.ttl, claim.Env{Now: env.Now, After: env.After})
	return engine.Open(ctx, st, engine.Settings{
		Compaction: w.workers, Compactor: w.compactor, Dedicated: true, Claim: claims.Hold,
		FollowEvery: w.follow, ExpireEvery: w.expiries, Lookups: w.cache, CopyAll: true,
		Events: engine.Events{Compacted: func(c engine.CompactInfo) { w.print(name, c) }},
	}, env)
}

// print tells of a compaction, in the words of calve compact.
func (w *watcher) print(name string, c engine.CompactInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.app.json {
		_ = w.app.printJSON(map[string]any{"table": name, "snapshot": c.Snapshot, "bucket": c.Bucket, "level": c.Output, "filesIn": c.FilesIn,
			"filesOut": c.FilesOut, "filesMoved": c.Moved, "rowsIn": c.RowsIn, "rowsOut": c.RowsOut, "bytesIn": c.BytesIn, "bytesOut": c.BytesOut})
		return
	}
	fmt.Fprintf(w.app.out, "%s %s: %s into %d on level %d (%d only moved), %s into %d, %s, snapshot %d\n", name, c.Bucket,
		count(c.FilesIn, "file"), c.FilesOut, c.Output, c.Moved, count(c.RowsIn, "row"), c.RowsOut, c.Took.Round(time.Millisecond), c.Snapshot)
}
