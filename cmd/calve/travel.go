package main

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/internal/changes"
	"github.com/calve-io/calve/reader"
)

// travel are the flags of scan that choose what of the table's past is read.
type travel struct {
	q         reader.Query
	at        string
	watermark int64
	between   string
	times     bool
	mode      string
	changes   reader.Between
}

func (t *travel) flags(c *cobra.Command) {
	t.snapshotFlags(c)
	f := c.Flags()
	f.StringVar(&t.between, "between", "", "print the changes after the first up to the second of two snapshots or tags: START,END")
	f.BoolVar(&t.times, "times", false, "with --between: the two are times")
	f.StringVar(&t.mode, "mode", string(reader.Auto), "with --between: auto, delta, changelog or diff")
}

// snapshotFlags are those that choose one snapshot.
func (t *travel) snapshotFlags(c *cobra.Command) {
	f := c.Flags()
	f.Int64Var(&t.q.Snapshot, "snapshot", 0, "snapshot to read (default: the latest)")
	f.StringVar(&t.q.Tag, "tag", "", "read the snapshot of this tag")
	f.StringVar(&t.at, "at", "", "read the latest snapshot made at or before this time: 2026-05-14T12:00:00Z, or \"2026-05-14 12:00:00\" in UTC")
	f.Int64Var(&t.watermark, "watermark", 0, "read the first snapshot with this watermark (milliseconds) or a later one")
}

// resolve checks the flags and fills q and changes.
func (t *travel) resolve(cmd *cobra.Command, count bool) (err error) {
	if t.q.At, err = optionalTime("--at", t.at); err != nil {
		return err
	}
	if cmd.Flags().Changed("watermark") {
		t.q.Watermark = &t.watermark
	}
	if t.between == "" {
		if t.times || cmd.Flags().Changed("mode") {
			return errors.New("--times and --mode belong to --between")
		}
		return nil
	}
	if t.q.Snapshot != 0 || t.q.Tag != "" || t.at != "" || t.q.Watermark != nil || count {
		return errors.New("--between goes with --columns, --where, --limit, --times and --mode only")
	}
	if t.changes, err = reader.ParseBetween(t.between); err != nil {
		return err
	}
	t.changes.Times, t.changes.Mode, t.changes.Columns = t.times, reader.BetweenMode(t.mode), t.q.Columns
	t.changes.Where = t.q.Where
	return nil
}

// scanChanges prints changes as tail does.
func (a *app) scanChanges(cmd *cobra.Command, r *reader.Reader, b reader.Between, limit int64) error {
	w := bufio.NewWriterSize(a.out, 1<<16)
	enc, err := changes.New(changes.JSON, w, changes.Options{})
	if err != nil {
		return err
	}
	left := limit
	for c, err := range r.Changes(cmd.Context(), b) {
		if err != nil {
			return errors.Join(err, w.Flush())
		}
		if limit > 0 && c.Rec.NumRows() > left {
			c.Rec = c.Rec.NewSlice(0, left)
		}
		left -= c.Rec.NumRows()
		if err := enc.Write(c); err != nil {
			return err
		}
		if limit > 0 && left == 0 {
			break
		}
	}
	return w.Flush()
}
