package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/internal/changes"
	"github.com/calve-io/calve/reader"
)

// tailFlags are the flags of tail.
type tailFlags struct {
	from, until, share, onGap, order, format, to string
	positions                                    bool
	spec                                         reader.TailSpec
	copies                                       localCopies
}

const tailLong = `Print one change a line: {"snapshot":N,"kind":"+I","row":{…}}. Kinds are +I (insert), -U and +U (before and after an
update) and -D (delete). In a table without changelog an update is told as +I or +U of the new row alone, unless
--before-image looks rows up in the snapshot before: then the changes are exactly those of the merged rows, updates that
change nothing are left out, and compactions and overwrites are told where they change a row. --lookup-cache DIR copies data
files in which few of many rows are looked up to a folder on local disk, where that is quicker.

--format debezium prints Debezium envelopes (before, after, source, op), csv a line of names and then snapshot, kind and
columns (nothing between commas is null, "" an empty text), and arrow an Arrow IPC stream with the columns _snapshot and
_kind in front. When the columns of the table change, csv has another line of names, and arrow another stream; json and
debezium tell the new schema, and the stream goes on.

--from earliest tells everything from the first snapshot that is left (its rows first, when older ones have expired),
latest only what comes after now, full the rows of the newest snapshot and then what comes after it, tag:NAME the rows of
a tag's snapshot and then what came after it, time:T what was committed at or after a time, and snapshot:N the changes of
snapshot N and later ones: to resume, use the last snapshot that was dealt with, plus one. With --positions each line has
a position "at", and --from at:POSITION resumes behind it, also in the middle of a snapshot. The default is earliest, and
with --follow latest.

--until snapshot:N ends with a snapshot, time:T before the first one made after a time, latest with the newest there is now.

--consumer NAME keeps the position in the table, as Paimon's consumers do: what the reader has yet to read does not expire,
and the next tail with that name goes on where this one ended, unless it has --from. Expiry drops consumers that have
ended for longer than the table's option consumer.expiration-time. With --before-image the snapshot before the next one is
kept too, and an engine of Paimon that takes the consumer over begins with it.

--on-gap says what happens when snapshots expired before they were told: fail ends with an error that names them, rescan
tells a gap, which voids what was told before, and then the rows of the newest snapshot.

--where tells the changes of those rows for which a condition is true (its language: calve scan --help): a row that comes
to fulfil it is an insert, one that ceases to a delete. In tables without changelog, or with that of the input, any row
that does not fulfil it is a -D of its key, as an older one may have, unless the key itself rules the condition out or
--before-image tells what was there.

--order arrival tells the changes of each snapshot as its writer took them, across keys and buckets, where they otherwise come
bucket by bucket and by key: rows of one partition of a topic then come as they were in it. It holds for what calve wrote,
and for snapshots of other writers whose changes are in one bucket; others are refused, since their writers number each
bucket for itself, and so are --before-image and changelogs made by compactions (lookup, full-compaction), where a delete
does not say when it came. Of rows of one key that came for one commit, a table without changelog may tell the last alone;
with a changelog of the input all are told as they came, also where sequence.field lets an earlier one win.
The rows of a whole snapshot (--from full) have no such order.

--to kafka://BROKER,BROKER/TOPIC writes into a topic instead, each change exactly once for readers of committed records:
records and position are in one transaction, and the next run goes on behind it (--from is for the first). The keys are the
primary key as JSON; with --format json values are rows, and null for a row that is gone; with debezium envelopes. After
"?" may follow id=NAME, the transactional id (default: calve-tail-TABLE-TOPIC), of which the later of two processes goes on;
tls=true; sasl=PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 with user=NAME and password-env=VARIABLE; max-message-bytes=N for
records of more than a megabyte; and begin=true, to begin in a topic that has records already. A topic that has some and no
position of this id is refused: brokers forget a position when nothing was written for offsets.retention.minutes. With
--consumer, what is yet to be written does not expire; its position counts once it is further than that of the topic. Values
are rows as they are, so that tables that merge rows need a changelog or --before-image for --format json. --on-gap rescan
needs a topic with one partition.

--share I/N tells only the buckets whose number leaves I when divided by N, so that N readers share the work; with
--consumer each has its own position.`

func (a *app) tailCmd() *cobra.Command {
	var t tailFlags
	c := &cobra.Command{
		Use:   "tail TABLE",
		Short: "Print the changes of a table as they are committed",
		Long:  tailLong,
		Example: `  calve tail shop.orders -w file:///data/lake
  calve tail shop.orders -w file:///data/lake --follow
  calve tail shop.orders -w file:///data/lake --follow --consumer audit --on-gap rescan
  calve tail shop.orders -w file:///data/lake --from full --where "amount > 100" --follow
  calve tail shop.orders -w file:///data/lake --from tag:monday --until time:2026-05-14T12:00:00Z
  calve tail shop.orders -w file:///data/lake --from snapshot:42 --columns id,amount
  calve tail shop.orders -w file:///data/lake --before-image --format debezium
  calve tail shop.orders -w file:///data/lake --follow --consumer kafka --from full --to kafka://localhost:9092/orders
  calve tail shop.orders -w file:///data/lake --format arrow | python -c 'import sys, pyarrow as pa
  for batch in pa.ipc.open_stream(sys.stdin.buffer): print(batch.to_pydict())'`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.resolve(cmd); err != nil {
				return err
			}
			if t.spec.BeforeImage {
				cache, err := t.copies.open()
				if err != nil {
					return err
				}
				defer func() { _ = cache.Close() }() // of files that were only read
				t.spec.Lookups = cache
			} else if t.copies.dir != "" {
				return errors.New("--lookup-cache: only --before-image looks rows up")
			}
			open := a.reader
			if t.spec.Consumer != "" {
				open = a.writable
			}
			r, err := open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if t.to != "" {
				return a.tailTo(cmd.Context(), r, args[0], &t)
			}
			return a.tail(cmd.Context(), r, args[0], &t)
		},
	}
	t.flags(c)
	return c
}

// flags gives the command its flags.
func (t *tailFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.format, "format", changes.JSON, "how to print: "+strings.Join(changes.Formats, ", "))
	f.BoolVar(&t.positions, "positions", false, "with json and arrow: tell with each row where a reader that has dealt with it resumes")
	f.StringVar(&t.from, "from", "", "where to begin: earliest, latest, full, tag:NAME, time:T, snapshot:N or at:POSITION")
	f.StringVar(&t.until, "until", "", "where to end: latest, time:T or snapshot:N (default: at the newest snapshot, with --follow never)")
	f.BoolVarP(&t.spec.Follow, "follow", "f", false, "wait for new snapshots until interrupted")
	f.DurationVar(&t.spec.Poll, "poll", 200*time.Millisecond, "pause between two looks for a new snapshot; it grows while nothing comes, up to 5s")
	f.StringSliceVar(&t.spec.Columns, "columns", nil, "columns to print (default: all)")
	f.StringVar(&t.spec.Where, "where", "", "only changes of rows for which this condition is true")
	f.StringVar(&t.spec.Consumer, "consumer", "", "name of a consumer that keeps the position and holds expiry back (needs the right to write)")
	f.BoolVar(&t.spec.BeforeImage, "before-image", false, "in a table without changelog: tell updates with the row before (-U and +U) and deletes with the row that was there")
	f.StringVar(&t.onGap, "on-gap", "fail", "when snapshots have expired before they were told: fail or rescan")
	f.StringVar(&t.order, "order", "stored", "order of the changes of a snapshot: stored (by bucket and key) or arrival (as they were written)")
	f.StringVar(&t.to, "to", "", "topic to write to: kafka://BROKER,BROKER/TOPIC?id=NAME")
	f.StringVar(&t.share, "share", "", "part of the buckets: I/N, with I from 0 to N-1")
	t.copies.flags(c)
}

// resolve checks the flags.
func (t *tailFlags) resolve(cmd *cobra.Command) (err error) {
	from := t.from
	if from == "" {
		if from = "earliest"; t.spec.Follow {
			from = "latest"
		}
	}
	if t.spec.From, err = reader.ParseStart(from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if t.spec.Until, err = reader.ParseUntil(t.until); err != nil {
		return fmt.Errorf("--until: %w", err)
	}
	if t.spec.Share, err = reader.ParseShare(t.share); err != nil {
		return fmt.Errorf("--share: %w", err)
	}
	if t.spec.OnGap, err = reader.ParseOnGap(t.onGap); err != nil {
		return fmt.Errorf("--on-gap: %w", err)
	}
	if t.spec.Order, err = reader.ParseOrder(t.order); err != nil {
		return fmt.Errorf("--order: %w", err)
	}
	if t.positions && t.format != changes.JSON && t.format != changes.Arrow {
		return fmt.Errorf("--positions: %s has no place for them; use json or arrow", t.format)
	}
	t.spec.IgnoreProgress = cmd.Flags().Changed("from")
	return nil
}

// tail writes the stream.
func (a *app) tail(ctx context.Context, r *reader.Reader, name string, t *tailFlags) error {
	w := bufio.NewWriterSize(a.out, 1<<16)
	enc, err := changes.New(t.format, w, changes.Options{Source: sourceOf(name), Positions: t.positions})
	if err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	for c, err := range r.Tail(ctx, t.spec) {
		if err != nil {
			return errors.Join(err, w.Flush())
		}
		if err := enc.Write(c); err != nil {
			return err
		}
		if c.Complete {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(enc.Close(), w.Flush())
}

// sourceOf splits the name of a table.
func sourceOf(name string) changes.Source {
	database, table, ok := strings.Cut(name, ".")
	if !ok {
		database, table = "default", name
	}
	return changes.Source{Database: database, Table: table}
}
