package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
)

func (a *app) scanCmd() *cobra.Command {
	var limit int64
	var count, lease bool
	var t travel
	q := &t.q
	c := &cobra.Command{
		Use:   "scan TABLE",
		Short: "Print the rows of a table as JSON lines",
		Long: `Print the rows of a snapshot, merged by key, one JSON object a line. Decimals are strings with their exact digits and
binaries are base64, so that what scan prints, put reads.

The snapshot is the latest, or one by number (--snapshot), by tag (--tag), the latest at a time (--at) or the first that
reached a watermark (--watermark). A table name such as shop.orders$branch_test reads a branch.

With --lease expiry leaves the snapshot, and all after it, while it is read.

With --between START,END the changes after START up to END are printed as calve tail prints them. START and END are two
snapshots, two tags or, with --times, two times. --mode says how: delta (what appends wrote), changelog (the table's
changelog), diff (the rows that differ), or auto: diff between tags, changelog where the table has one, else delta.
With --where those changes are printed whose own row the condition is true for.

--where takes a condition, of which only the rows are printed for which it is true; files and parts of files that by
their partition, bucket, statistics or index cannot have such rows are not read. In the words of SQL:
  a AND b, a OR b, NOT a, (a), TRUE, FALSE
  column = literal, also <> != < <= > >=; [NOT] BETWEEN literal AND literal; [NOT] IN (literal, …)
  column [NOT] LIKE 'pattern' (% any text, _ one character, \ before one of them); IS [NOT] NULL, TRUE or FALSE
  literals: 12, -1.5, 1e3, 'text' (a quote twice), X'00ff', TRUE, DATE '2026-01-31', TIME '12:00:00',
  TIMESTAMP '2026-01-31 12:00:00.5' (UTC, or with a zone such as +02:00, where the column is WITH LOCAL TIME ZONE)
Columns are written as in the table, in double quotes where they are no plain names. Numbers compare exactly; NaN,
written 'NaN', is greater than all numbers and equal to itself.`,
		Example: `  calve scan shop.orders -w file:///data/lake
  calve scan shop.orders -w file:///data/lake --snapshot 7 --columns id,amount --limit 10
  calve scan shop.orders -w file:///data/lake --at "2026-05-14 12:00:00"
  calve scan shop.orders -w file:///data/lake --between monday,tuesday --mode diff --where "amount > 100"
  calve scan shop.orders -w file:///data/lake --where "amount >= 10.5 AND (kind IN ('a', 'b') OR name LIKE 'x%')"
  calve scan shop.orders -w file:///data/lake --where "at < TIMESTAMP '2026-01-01 00:00:00'" --count
  calve scan shop.orders -w file:///data/lake --count`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) (failed error) {
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := t.resolve(cmd, count); err != nil {
				return err
			}
			if t.between != "" {
				return a.scanChanges(cmd, r, t.changes, limit)
			}
			if lease {
				release, err := a.leaseScan(cmd.Context(), args[0], r, q)
				if err != nil {
					return err
				}
				defer func() { failed = errors.Join(failed, release(cmd.Context())) }()
			}
			if count {
				return a.countRows(cmd, r, *q)
			}
			w := bufio.NewWriterSize(a.out, 1<<16)
			var line []byte
			left := limit
			for rec, err := range r.Scan(cmd.Context(), *q) {
				if err != nil {
					return errors.Join(err, w.Flush())
				}
				enc := rowjson.NewEncoder(rec.Schema())
				for i := range int(rec.NumRows()) {
					if limit > 0 && left == 0 {
						return w.Flush()
					}
					left--
					line = append(enc.Append(line[:0], rec, i), '\n')
					if _, err := w.Write(line); err != nil {
						return err
					}
				}
			}
			return w.Flush()
		},
	}
	t.flags(c)
	c.Flags().Int64Var(&limit, "limit", 0, "most rows to print (default: all)")
	c.Flags().StringSliceVar(&q.Columns, "columns", nil, "columns to print (default: all)")
	c.Flags().StringVar(&q.Where, "where", "", "only rows for which this condition is true, e.g. \"id > 5 AND name IS NOT NULL\"")
	c.Flags().BoolVar(&count, "count", false, "print only the number of rows")
	c.Flags().BoolVar(&lease, "lease", false, "keep the snapshot from expiry while it is read, by a consumer that is deleted in the end (needs the right to write)")
	return c
}

// leaseScan settles which snapshot is read and keeps it until release is called.
func (a *app) leaseScan(ctx context.Context, name string, r *reader.Reader, q *reader.Query) (release func(context.Context) error, err error) {
	s, err := r.Snapshot(ctx, *q)
	if errors.Is(err, manifest.ErrNoSnapshot) || err == nil && q.Tag != "" { // a tag is a lease itself
		return func(context.Context) error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	w, err := a.writable(ctx, name)
	if err != nil {
		return nil, err
	}
	if release, err = w.Lease(ctx, s.ID); err != nil {
		return nil, err
	}
	return release, nil
}

// countRows prints the number of rows; for a table with a primary key only the key columns are read,
// and those of the condition.
func (a *app) countRows(cmd *cobra.Command, r *reader.Reader, q reader.Query) error {
	s, err := r.Meta().LatestSchema(cmd.Context())
	if err != nil {
		return err
	}
	q.Columns, q.Parallel = []string{s.Fields[0].Name}, 2
	if k := s.KeyColumns(); len(k) > 0 {
		q.Columns = s.Names(k)
	}
	n := int64(0)
	for rec, err := range r.Scan(cmd.Context(), q) {
		if err != nil {
			return err
		}
		n += rec.NumRows()
	}
	if a.json {
		return a.printJSON(map[string]any{"rows": n})
	}
	_, err = fmt.Fprintln(a.out, n)
	return err
}
