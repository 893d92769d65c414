package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/manifest"
)

// closeTable closes a table also when the command was interrupted.
func closeTable(ctx context.Context, t *engine.Table) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return t.Close(ctx)
}

func (a *app) compactCmd() *cobra.Command {
	var full, watch bool
	w := &watcher{app: a}
	local := &w.local
	c := &cobra.Command{
		Use:   "compact TABLE",
		Short: "Compact a table until nothing is left to do, or tables as they are written",
		Long: `Merge the sorted runs of every bucket as the table's options ask, or with --full everything into the top level. Safe
beside running writers: a compaction that loses against another one is dropped and tried again.

With --watch, compact and expire until interrupted, as a worker of its own beside the writers: all tables of the
warehouse, or those that patterns such as shop.* name, those that are write-only too. Any number of workers may share
tables: a worker claims a bucket by a conditional put before it begins, and renews the claim while it works. One that is
killed costs only what it was doing; its claim is free after --claim-for. Let writers leave compaction to the workers:
compaction.workers: 0 in the configuration of calve serve, or the table option write-only.

With --lookup-cache DIR, what is compacted in tables with a primary key is copied to a folder on local disk, where the same
option of calve get finds it, and compactions that look old rows up (changelog-producer = lookup, deletion vectors,
first-row) find them there.`,
		Example: `  calve compact shop.orders -w file:///data/lake
  calve compact shop.orders -w file:///data/lake --full
  calve compact --watch -w s3://lake/raw --workers 4
  calve compact --watch 'shop.*' 'crm.*' -w s3://lake/raw --rate 100`,
		Args: func(cmd *cobra.Command, args []string) error {
			if watch {
				return nil
			}
			return oneTable(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if watch {
				if full {
					return errors.New("--watch compacts as the tables' options ask: it does not go with --full")
				}
				return w.run(cmd.Context(), args)
			}
			log, err := a.logger()
			if err != nil {
				return err
			}
			st, err := a.table(cmd.Context(), args[0], writes)
			if err != nil {
				return err
			}
			cache, err := local.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, cache.Close()) }()
			var sum engine.CompactInfo
			n := 0
			p := newProgress(a.err, !a.json)
			tab, err := engine.Open(cmd.Context(), st, engine.Settings{Lookups: cache, CopyAll: true, Events: engine.Events{Compacted: func(c engine.CompactInfo) {
				n++
				sum.Snapshot, sum.FilesIn, sum.FilesOut, sum.Moved = c.Snapshot, sum.FilesIn+c.FilesIn, sum.FilesOut+c.FilesOut, sum.Moved+c.Moved
				sum.RowsIn, sum.RowsOut = sum.RowsIn+c.RowsIn, sum.RowsOut+c.RowsOut
				p.add(c.RowsIn, "rows read")
			}}}, engineEnv(log))
			if err != nil {
				return noTable(args[0], st, err)
			}
			defer func() { err = errors.Join(err, closeTable(cmd.Context(), tab)) }()
			start := time.Now()
			err = tab.Compact(cmd.Context(), full)
			p.end()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"compactions": n, "snapshot": sum.Snapshot, "filesIn": sum.FilesIn, "filesOut": sum.FilesOut,
					"filesMoved": sum.Moved, "rowsIn": sum.RowsIn, "rowsOut": sum.RowsOut})
			}
			if n == 0 {
				_, err = fmt.Fprintf(a.out, "%s: nothing to compact\n", args[0])
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s: %s, %s into %d (%d only moved), %s into %d, %s, snapshot %d\n", args[0], count(n, "compaction"),
				count(sum.FilesIn, "file"), sum.FilesOut, sum.Moved, count(sum.RowsIn, "row"), sum.RowsOut, time.Since(start).Round(time.Millisecond), sum.Snapshot)
			return err
		},
	}
	c.Flags().BoolVar(&full, "full", false, "compact everything into the top level")
	c.Flags().BoolVar(&watch, "watch", false, "go on until interrupted, over many tables")
	w.flags(c)
	local.flags(c)
	return c
}

func (a *app) exportCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "export TABLE",
		Short: "Publish the compacted rows as an Iceberg table",
		Long: `Write Iceberg metadata for the files of the top level (all files of an append table) into TABLE/metadata. No data is
copied, and only metadata of what has changed is written. Rows on lower levels are published when they are compacted:
calve compact --full first, to publish everything now.`,
		Example: `  calve export shop.orders -w file:///data/lake
  calve compact shop.orders -w s3://lake/raw --full && calve export shop.orders -w s3://lake/raw --json`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := a.logger()
			if err != nil {
				return err
			}
			st, err := a.table(cmd.Context(), args[0], writes)
			if err != nil {
				return err
			}
			env := engineEnv(log)
			meta := manifest.Open(st, manifest.Env{Now: env.Now, After: env.After, NewID: env.NewID, Rand: env.Rand, Log: log})
			if _, err := meta.LatestSchema(cmd.Context()); err != nil {
				return noTable(args[0], st, err)
			}
			ex := export.New(meta, export.NewDirTarget(st), export.Settings{Env: export.Env{Now: time.Now, NewID: uuid.NewString, After: time.After, Log: log}})
			r, err := ex.Publish(cmd.Context(), 0)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"icebergSnapshot": r.IcebergSnapshot, "published": r.Published, "files": r.Files, "rows": r.Rows,
					"added": r.Added, "removed": r.Removed, "metadata": r.MetadataLocation})
			}
			word := "published"
			if !r.Published {
				word = "up to date at"
			}
			_, err = fmt.Fprintf(a.out, "%s: %s Iceberg snapshot %d: %s, %s (+%d −%d files)\n%s\n", args[0], word, r.IcebergSnapshot, count(r.Files, "file"), count(r.Rows, "row"), r.Added, r.Removed, r.MetadataLocation)
			return err
		},
	}
}
