package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

func (a *app) tagCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "tag",
		Short: "Name snapshots, so that they can be read as long as the name is there",
		Long: `A tag names a snapshot and keeps its files from expiry, also when the snapshot itself has expired. Tags are Paimon's own:
every engine that reads the table can use them. To read one: calve scan TABLE --tag NAME.`,
	}
	c.AddCommand(a.tagCreateCmd(), a.tagListCmd(), a.tagDeleteCmd())
	return c
}

// tableAndTag checks that a command is given a table and a tag.
func tableAndTag(c *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return fmt.Errorf("%s takes a table and the name of a tag, as in `%[1]s shop.orders 2026-01`; see `%[1]s --help`", c.CommandPath())
}

func (a *app) tagCreateCmd() *cobra.Command {
	var q reader.Query
	var at, keep string
	c := &cobra.Command{
		Use:   "create TABLE NAME",
		Short: "Name the latest snapshot, or another one",
		Long: `Name a snapshot. With --keep, or the table's option tag.default-time-retained, the tag says for how long: expiry deletes
it then if the table has tag.time-expire-enabled. Of two that create one name at the same time only one succeeds.`,
		Example: `  calve tag create shop.orders 2026-01 -w file:///data/lake
  calve tag create shop.orders before-fix --snapshot 7 --keep "30 d" -w file:///data/lake`,
		Args: tableAndTag,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.At, err = optionalTime("--at", at); err != nil {
				return err
			}
			retained := time.Duration(0)
			if keep != "" {
				if retained, err = schema.ParseDuration(keep); err != nil {
					return fmt.Errorf("--keep: %w", err)
				}
			}
			r, err := a.writable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			s, err := r.Snapshot(cmd.Context(), q)
			if err != nil {
				return err
			}
			if err := r.Meta().CreateTag(cmd.Context(), args[1], s, retained); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"tag": args[1], "snapshot": s.ID})
			}
			_, err = fmt.Fprintf(a.out, "%s: tag %s is snapshot %d\n", args[0], args[1], s.ID)
			return err
		},
	}
	c.Flags().Int64Var(&q.Snapshot, "snapshot", 0, "snapshot to name (default: the latest)")
	c.Flags().StringVar(&at, "at", "", "name the latest snapshot made at or before this time")
	c.Flags().StringVar(&keep, "keep", "", "how long the tag is to be kept, such as \"30 d\" (default: as the table says, else until it is deleted)")
	return c
}

func (a *app) tagListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "ls TABLE",
		Short:   "List the tags of a table",
		Example: `  calve tag ls shop.orders -w file:///data/lake`,
		Args:    oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			tags, err := r.Meta().AllTags(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(tagObjects(tags))
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			for _, t := range tags {
				keep := ""
				if t.Retained > 0 {
					keep = fmt.Sprintf("\tkept for %s from %s", t.Retained, t.Created.Format("2006-01-02 15:04:05"))
				}
				fmt.Fprintf(w, "%s\tsnapshot %d\t%s%s\n", t.Name, t.Snapshot.ID, time.UnixMilli(t.Snapshot.TimeMillis).UTC().Format(time.RFC3339), keep)
			}
			if len(tags) == 0 {
				fmt.Fprintf(a.err, "%s has no tags\n", args[0])
			}
			return w.Flush()
		},
	}
}

func tagObjects(tags []manifest.Tag) []map[string]any {
	out := []map[string]any{}
	for _, t := range tags {
		o := map[string]any{"tag": t.Name, "snapshot": t.Snapshot.ID, "timeMillis": t.Snapshot.TimeMillis}
		if t.Retained > 0 {
			o["created"], o["retainedSeconds"] = t.Created.Format("2006-01-02T15:04:05.000000000"), t.Retained.Seconds()
		}
		out = append(out, o)
	}
	return out
}

func (a *app) tagDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "delete TABLE NAME",
		Short:   "Delete a tag, and the files that only it kept",
		Example: `  calve tag delete shop.orders 2026-01 -w file:///data/lake`,
		Args:    tableAndTag,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.writable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			done, err := r.Meta().DeleteTag(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"tag": args[1], "deleted": true, "dataFiles": done.DataFiles, "metadataFiles": done.Metadata})
			}
			_, err = fmt.Fprintf(a.out, "%s: tag %s deleted, with %s and %s that only it kept\n", args[0], args[1],
				count(done.DataFiles, "data file"), count(done.Metadata, "metadata file"))
			return err
		},
	}
}

// writable is reader with the permission to write.
func (a *app) writable(ctx context.Context, name string) (*reader.Reader, error) {
	st, err := a.table(ctx, name, writes)
	if err != nil {
		return nil, err
	}
	log, err := a.logger()
	if err != nil {
		return nil, err
	}
	r := reader.Open(st, readerEnv(log))
	if _, err := r.Meta().LatestSchema(ctx); err != nil {
		return nil, noTable(name, st, err)
	}
	return r, nil
}

// optionalTime reads a time, zero if it is empty.
func optionalTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := reader.ParseTime(text)
	if err != nil {
		return at, fmt.Errorf("%s: %w", flag, err)
	}
	return at, nil
}
