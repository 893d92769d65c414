package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func (a *app) lsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [DATABASE]",
		Short: "List the tables of a warehouse",
		Example: `  calve ls -w file:///data/lake
  calve ls shop -w s3://lake/raw --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wh, err := a.open(cmd.Context(), reads)
			if err != nil {
				return err
			}
			names, err := tables(cmd.Context(), wh, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"warehouse": wh.URL(""), "tables": names})
			}
			for _, n := range names {
				fmt.Fprintln(a.out, n)
			}
			if len(names) == 0 {
				fmt.Fprintf(a.err, "no tables in %s\n", wh.URL(""))
			}
			return nil
		},
	}
}

// tables lists database.table names; only one database if it is not empty.
func tables(ctx context.Context, wh storage.Store, only string) ([]string, error) {
	names := []string{}
	for db, err := range wh.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		name, ok := strings.CutSuffix(db.Name, ".db")
		if !db.Dir || !ok || only != "" && name != only {
			continue
		}
		for t, err := range wh.List(ctx, db.Name) {
			if err != nil {
				return nil, err
			}
			if t.Dir {
				names = append(names, name+"."+t.Name[len(db.Name)+1:])
			}
		}
	}
	sort.Strings(names)
	return names, nil
}

// description is what `calve describe` tells.
type description struct {
	Table        string             `json:"table"`
	Location     string             `json:"location"`
	Schema       *schema.Schema     `json:"schema"`
	Snapshot     *manifest.Snapshot `json:"snapshot,omitempty"`
	Files        int                `json:"files"`
	Bytes        int64              `json:"bytes"`
	FileRows     int64              `json:"fileRows"`
	FilesByLevel []int              `json:"filesPerLevel"`
	Buckets      int                `json:"buckets"`
}

func (a *app) describeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "describe TABLE",
		Short: "Show a table's schema, options, latest snapshot and files",
		Example: `  calve describe shop.orders -w file:///data/lake
  calve describe shop.orders -w file:///data/lake --json | jq .snapshot.id`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := describe(cmd.Context(), r, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(d)
			}
			return a.printDescription(d)
		},
	}
}

// maxLevels bounds what a damaged manifest can make of the list of levels.
const maxLevels = 1000

func describe(ctx context.Context, r *reader.Reader, name string) (*description, error) {
	s, err := r.Meta().LatestSchema(ctx)
	if err != nil {
		return nil, err
	}
	d := &description{Table: name, Location: r.Meta().Store().URL(""), Schema: s, FilesByLevel: []int{}}
	snap, err := r.Meta().Latest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	d.Snapshot = snap
	entries, err := r.Meta().Live(ctx, snap, nil)
	if err != nil {
		return nil, err
	}
	buckets := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		d.Files++
		d.Bytes += e.File.Size
		d.FileRows += e.File.Rows
		if e.File.Level >= maxLevels {
			return nil, fmt.Errorf("%s: file %s is on level %d; `calve verify %s` looks for damage", d.Location, e.File.Name, e.File.Level, name)
		}
		for len(d.FilesByLevel) <= e.File.Level {
			d.FilesByLevel = append(d.FilesByLevel, 0)
		}
		d.FilesByLevel[e.File.Level]++
		buckets[fmt.Sprint(string(e.Partition), e.Bucket)] = true
	}
	d.Buckets = len(buckets)
	return d, nil
}

func (a *app) printDescription(d *description) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "table\t%s\nlocation\t%s\n", d.Table, d.Location)
	for i, f := range d.Schema.Fields {
		label := ""
		if i == 0 {
			label = "columns"
		}
		fmt.Fprintf(w, "%s\t%s %s\n", label, f.Name, f.Type)
	}
	if len(d.Schema.PrimaryKeys) > 0 {
		fmt.Fprintf(w, "primary key\t%s\n", strings.Join(d.Schema.PrimaryKeys, ", "))
	}
	if len(d.Schema.PartitionKeys) > 0 {
		fmt.Fprintf(w, "partitioned by\t%s\n", strings.Join(d.Schema.PartitionKeys, ", "))
	}
	keys := make([]string, 0, len(d.Schema.Options))
	for k := range d.Schema.Options {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for i, k := range keys {
		label := ""
		if i == 0 {
			label = "options"
		}
		fmt.Fprintf(w, "%s\t%s = %s\n", label, k, d.Schema.Options[k])
	}
	if d.Snapshot == nil {
		fmt.Fprintf(w, "snapshot\tnone yet\n")
		return w.Flush()
	}
	fmt.Fprintf(w, "snapshot\t%d (%s, %s)\n", d.Snapshot.ID, d.Snapshot.CommitKind, time.UnixMilli(d.Snapshot.TimeMillis).UTC().Format(time.RFC3339))
	fmt.Fprintf(w, "files\t%s in %s, %s, with %s (older versions and deletes included)\n",
		count(d.Files, "file"), count(d.Buckets, "bucket"), count(d.Bytes, "byte"), count(d.FileRows, "row"))
	for l, n := range d.FilesByLevel {
		fmt.Fprintf(w, "\tlevel %d: %s\n", l, count(n, "file"))
	}
	return w.Flush()
}

func (a *app) verifyCmd() *cobra.Command {
	var quick bool
	var stream streamFlags
	c := &cobra.Command{
		Use:   "verify TABLE",
		Short: "Check what is on storage against the table's metadata",
		Long: `Check the latest snapshot: every named file exists with the stated size and row count, no file is named twice, the
levels do not overlap, keys are in order, counts add up along the snapshots, and folding the change stream from the
earliest snapshot gives the rows of the table. Exits with 1 when something is wrong.

With --stream, fold the change stream and hold it against a scan of the table at every snapshot. Where a stream promises rows
before changes (changelog producers lookup and full-compaction, --before-image), each must be the one that was told before.
The first snapshot that differs ends it: its first keys are printed with what stream and table say of them. Of the rows only
hashes are kept, within --memory. Snapshots that streams pass over (OVERWRITE) are taken over as they are (rebased=), and
those whose rows wait in bucket-postpone, or of which only long-lived changelogs are left, are not compared (waiting=, expired=).`,
		Example: `  calve verify shop.orders -w file:///data/lake
  calve verify shop.orders -w s3://lake/raw --quick --json
  calve verify shop.orders -w file:///data/lake --stream
  calve verify shop.orders -w s3://lake/raw --stream --before-image --from snapshot:40 --every 10`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := stream.resolve(cmd, quick); err != nil {
				return err
			}
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if stream.on {
				return a.verifyStream(cmd.Context(), r, args[0], &stream)
			}
			rep, err := r.Verify(cmd.Context(), reader.VerifySpec{Data: !quick, Fold: !quick})
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(struct {
					OK bool `json:"ok"`
					*reader.Report
				}{rep.OK(), rep})
			} else {
				err = a.printReport(args[0], rep)
			}
			if err == nil && !rep.OK() {
				err = errReported
			}
			return err
		},
	}
	c.Flags().BoolVar(&quick, "quick", false, "read only metadata, sizes and row counts, not the rows")
	stream.flags(c)
	return c
}

func (a *app) printReport(name string, r *reader.Report) error {
	for _, p := range r.Problems {
		fmt.Fprintf(a.out, "problem: %s\n", p)
	}
	fold := "change stream not folded"
	switch {
	case r.Folded:
		fold = fmt.Sprintf("%s in the stream fold to the table's %s", count(r.Changes, "change"), count(r.Rows, "row"))
	case r.NotFolded != "":
		fold += ": " + r.NotFolded
	}
	word := "sound"
	if !r.OK() {
		word = "NOT SOUND"
	}
	if r.Snapshot == 0 {
		_, err := fmt.Fprintf(a.out, "%s: no snapshot yet, nothing to check\n", name)
		return err
	}
	_, err := fmt.Fprintf(a.out, "%s: %s at snapshot %d: %s, %s, files per level %v; %s\n", name, word, r.Snapshot, count(r.Files, "file"), count(r.Bytes, "byte"), r.Levels, fold)
	return err
}
