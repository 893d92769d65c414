package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/reader"
)

// streamFlags are the flags of `calve verify --stream`.
type streamFlags struct {
	on                 bool
	from, until, share string
	memory             int64 // MiB
	spec               reader.StreamSpec
}

// ofStream are the flags that mean nothing without --stream.
var ofStream = []string{"from", "until", "share", "every", "memory", "before-image"}

func (s *streamFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&s.on, "stream", false, "fold the change stream and hold it against the table at every snapshot")
	f.StringVar(&s.from, "from", "earliest", "with --stream: where to begin: earliest, or with the rows of snapshot:N or tag:NAME")
	f.StringVar(&s.until, "until", "", "with --stream: where to end: time:T or snapshot:N (default: at what is the newest snapshot when it begins)")
	f.StringVar(&s.share, "share", "", "with --stream: part of the buckets: I/N, with I from 0 to N-1")
	f.Int64Var(&s.spec.Every, "every", 1, "with --stream: hold it against the table at one in so many snapshots, and the last")
	f.Int64Var(&s.memory, "memory", 256, "with --stream: MiB for the folded rows, some 20 bytes each; the stream is read again for those that do not fit")
	f.BoolVar(&s.spec.BeforeImage, "before-image", false, "with --stream: fold what `calve tail --before-image` tells")
}

// resolve checks the flags.
func (s *streamFlags) resolve(cmd *cobra.Command, quick bool) (err error) {
	if !s.on {
		for _, name := range ofStream {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s belongs to --stream", name)
			}
		}
		return nil
	}
	if quick {
		return errors.New("--quick does not go with --stream, which reads the rows")
	}
	if s.spec.From, err = reader.ParseStart(s.from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if s.spec.Until, err = reader.ParseUntil(s.until); err != nil {
		return fmt.Errorf("--until: %w", err)
	}
	if s.spec.Share, err = reader.ParseShare(s.share); err != nil {
		return fmt.Errorf("--share: %w", err)
	}
	const most = 1 << 24
	if s.spec.Every < 1 || s.memory < 1 || s.memory > most {
		return fmt.Errorf("--every must be at least 1, --memory from 1 to %d", most)
	}
	s.spec.Memory = s.memory << 20
	return nil
}

// verifyStream verifies a change stream.
func (a *app) verifyStream(ctx context.Context, r *reader.Reader, name string, s *streamFlags) error {
	steady, stop := context.WithCancel(ctx)
	tick, done := time.NewTicker(100*time.Millisecond), make(chan struct{})
	go func() { defer close(done); steadyMemory(steady, tick.C) }()
	defer func() { stop(); <-done; tick.Stop() }()
	p := newProgress(a.err, !a.json)
	told := int64(0)
	s.spec.Progress = func(rep reader.StreamReport) {
		p.add(rep.Changes-told, fmt.Sprintf("changes up to snapshot %d", rep.Snapshot))
		told = rep.Changes
	}
	rep, err := r.VerifyStream(ctx, s.spec)
	p.end()
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			OK bool `json:"ok"`
			*reader.StreamReport
		}{rep.OK(), rep})
	} else {
		err = a.printStreamReport(name, rep)
	}
	if err == nil && !rep.OK() {
		err = errReported
	}
	return err
}

func (a *app) printStreamReport(name string, r *reader.StreamReport) error {
	for i := range r.Differences {
		d := &r.Differences[i]
		fmt.Fprintf(a.out, "snapshot %d, %s: %s\n", d.Snapshot, d.Key, d.What)
		if d.Change != "" {
			fmt.Fprintf(a.out, "  change: %s\n", d.Change)
		}
		told := "nothing"
		if d.Stream != nil {
			told = string(d.Stream)
		}
		if d.StreamAt > 0 {
			told += fmt.Sprintf(" (told in snapshot %d)", d.StreamAt)
		}
		fmt.Fprintf(a.out, "  stream: %s\n", told)
		if d.Change == "" {
			table := "nothing"
			if d.Table != nil {
				table = string(d.Table)
			}
			fmt.Fprintf(a.out, "  table:  %s\n", table)
		}
	}
	if more := r.Differ - int64(len(r.Differences)); more > 0 {
		fmt.Fprintf(a.out, "and %d more\n", more)
	}
	word := "the stream folds to the table"
	if !r.OK() {
		word = "STREAM AND TABLE DIFFER"
	}
	var notes []string
	for _, n := range []struct {
		n    int64
		text string
	}{{r.Rebased, "rebased"}, {r.Waiting, "waiting"}, {r.Expired, "expired"}} {
		if n.n > 0 {
			notes = append(notes, fmt.Sprintf(" %s=%d", n.text, n.n))
		}
	}
	_, err := fmt.Fprintf(a.out, "%s: %s: from=%d to=%d snapshots=%d compared=%d%s changes=%d rows=%d passes=%d differ=%d\n", name, word,
		r.From, r.Snapshot, r.Snapshots, r.Compared, strings.Join(notes, ""), r.Changes, r.Rows, r.Passes, r.Differ)
	return err
}
