package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/internal/server"
	"github.com/calve-io/calve/storage"
)

func (a *app) deadCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "dead",
		Short: "See refused records, and decode them again",
		Long: `Records that a table could not take are rows of a table beside it: TABLE__dead, which calve also knows as TABLE$dead, unless
dead-letters.table of the pipeline says another one (--dead). It is a table as any other: calve scan, tail, get and every
engine read it. Its columns: source, topic, partition, offset (its key), timestamp, headers, key, value, size, truncated,
code, message, attempt, time, job. The codes:
  malformed  the bytes are not of the form they should have     operation  a row kind that the table does not take
  too-large  more bytes than the limit of a record              key        a key column is missing or null
  record     well formed, but no record of the format           null       a NOT NULL column is missing or null
  schema     needs a schema that cannot be had                  value      a column cannot hold the value
  rule       the table's merge engine cannot take the row`,
	}
	c.AddCommand(a.deadListCmd(), a.deadShowCmd(), a.deadReplayCmd())
	return c
}

// deadName adds the flag of the table of dead letters; the function it returns gives its name.
func deadName(c *cobra.Command) func(table string) string {
	var name string
	c.Flags().StringVar(&name, "dead", "", "table of the dead letters (default: TABLE__dead)")
	return func(table string) string { return cmp.Or(name, config.DeadTable(strings.TrimSuffix(table, "$dead"))) }
}

func (a *app) letters(ctx context.Context, name string, q ingest.LetterQuery) (iter.Seq2[ingest.Letter, error], error) {
	st, err := a.table(ctx, name, reads)
	if err != nil {
		return nil, err
	}
	log, err := a.logger()
	if err != nil {
		return nil, err
	}
	return ingest.ReadDeadLetters(ctx, st, q, engineEnv(log)), nil
}

func (a *app) deadListCmd() *cobra.Command {
	var where string
	var newest int
	c := &cobra.Command{
		Use:   "ls TABLE",
		Short: "Count refused records by reason, and list the newest",
		Example: `  calve dead ls shop.orders -w file:///data/lake
  calve dead ls shop.orders -w file:///data/lake --where "code = 'value' AND topic = 'orders'" --newest 100 --json`,
		Args: oneTable,
	}
	name := deadName(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		letters, err := a.letters(cmd.Context(), name(args[0]), ingest.LetterQuery{Bare: true, Where: where})
		if err != nil {
			return err
		}
		counts, last := map[decode.Code]int64{}, []ingest.Letter{}
		byTime := func(x, y ingest.Letter) int { return y.Time.Compare(x.Time) }
		for l, err := range letters {
			if err != nil {
				return err
			}
			counts[l.Code]++
			if last = append(last, l); len(last) >= 2*newest+1000 {
				slices.SortStableFunc(last, byTime)
				last = last[:min(newest, len(last))]
			}
		}
		slices.SortStableFunc(last, byTime)
		return a.printLetters(args[0], counts, last[:min(newest, len(last))])
	}
	c.Flags().StringVar(&where, "where", "", "only letters for which this condition is true, as in calve scan")
	c.Flags().IntVar(&newest, "newest", 10, "how many of the newest are listed")
	return c
}

func (a *app) printLetters(table string, counts map[decode.Code]int64, newest []ingest.Letter) error {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if a.json {
		return a.printJSON(map[string]any{"letters": total, "codes": counts, "newest": newest})
	}
	if total == 0 {
		_, err := fmt.Fprintf(a.out, "%s: no refused records\n", table)
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n", count(total, "refused record"))
	codes := make([]decode.Code, 0, len(counts))
	for code := range counts {
		codes = append(codes, code)
	}
	slices.SortFunc(codes, func(x, y decode.Code) int { return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y)) })
	for _, code := range codes {
		fmt.Fprintf(w, "  %s\t%d\n", code, counts[code])
	}
	fmt.Fprintln(w)
	for _, l := range newest {
		fmt.Fprintf(w, "%s\t%s/%d@%d\t%s\tattempt %d\t%s\n", l.Time.UTC().Format(time.RFC3339), l.Topic, l.Partition, l.Offset, l.Code, l.Attempt, l.Reason)
	}
	return w.Flush()
}

func (a *app) deadShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "show TABLE TOPIC/PARTITION@OFFSET",
		Short: "Print refused records whole",
		Long: `Print a refused record whole: what is known of it, its headers, key and value. Bytes that are no text are printed as in a
Go string. The place is as calve dead ls prints it; of lines, the partition is 0 and the offset the line.`,
		Example: `  calve dead show shop.orders orders/3@1742 -w file:///data/lake
  calve dead show shop.orders stdin/0@12 -w file:///data/lake --json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return fmt.Errorf("%s takes a table and a place, as in `%[1]s shop.orders orders/3@1742`; see `%[1]s --help`", c.CommandPath())
		},
	}
	name := deadName(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		where, err := placeOf(args[1])
		if err != nil {
			return err
		}
		letters, err := a.letters(cmd.Context(), name(args[0]), ingest.LetterQuery{Where: where})
		if err != nil {
			return err
		}
		n := 0
		for l, err := range letters {
			if err != nil {
				return err
			}
			n++
			if a.json {
				err = a.printJSON(l)
			} else {
				err = a.printLetter(&l)
			}
			if err != nil {
				return err
			}
		}
		if n == 0 {
			return fmt.Errorf("no refused record at %s; `calve dead ls %s` lists what is there", args[1], args[0])
		}
		return nil
	}
	return c
}

// placeOf makes a condition of a place such as orders/3@1742.
func placeOf(place string) (string, error) {
	at, slash := strings.LastIndexByte(place, '@'), strings.LastIndexByte(place, '/')
	if slash > 0 && at > slash {
		part, err1 := strconv.ParseInt(place[slash+1:at], 10, 32)
		off, err2 := strconv.ParseInt(place[at+1:], 10, 64)
		if err1 == nil && err2 == nil {
			return fmt.Sprintf(`topic = '%s' AND "partition" = %d AND "offset" = %d`, strings.ReplaceAll(place[:slash], "'", "''"), part, off), nil
		}
	}
	return "", fmt.Errorf("place %q: want TOPIC/PARTITION@OFFSET, as in orders/3@1742", place)
}

func (a *app) printLetter(l *ingest.Letter) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "record\t%s/%d@%d of %s\n", l.Topic, l.Partition, l.Offset, l.Source)
	if l.Timestamp != 0 {
		fmt.Fprintf(w, "timestamp\t%s\n", time.UnixMilli(l.Timestamp).UTC().Format(time.RFC3339Nano))
	}
	fmt.Fprintf(w, "refused\t%s, attempt %d", l.Time.UTC().Format(time.RFC3339), l.Attempt)
	if l.Job != "" {
		fmt.Fprintf(w, ", by %s", l.Job)
	}
	fmt.Fprintf(w, "\nreason\t%s: %s\n", l.Code, l.Reason)
	for _, h := range l.Headers {
		fmt.Fprintf(w, "header\t%s: %s\n", h.Name, readable(h.Value))
	}
	fmt.Fprintf(w, "key\t%s\n", readable(l.Key))
	size := count(l.Size, "byte")
	if l.Truncated {
		size += ", of which only the beginning was kept"
	}
	fmt.Fprintf(w, "value\t%s\n%s\n", size, readable(l.Raw))
	return w.Flush()
}

// readable gives text as it is and other bytes quoted.
func readable(b []byte) string {
	if b == nil {
		return "null"
	}
	if utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
		return string(b)
	}
	return strconv.Quote(string(b))
}

func (a *app) deadReplayCmd() *cobra.Command {
	var cfg ingest.ReplayConfig
	var file, format, op, evolution, unknown string
	var fields map[string]string
	c := &cobra.Command{
		Use:   "replay TABLE",
		Short: "Decode refused records again and write what has become right",
		Long: `Decode refused records again, by the table's schema of today and the options of their pipeline (--config, or the flags), and
write those that have become right. They are removed from the dead letters; those refused again stay, with the new reason
and one attempt more. It may be killed anywhere: called again it goes on, and every record is a row once, or a letter.

Rows are written as of now. In a table with a primary key they win over what came to their key since the record was
refused, unless the table has a sequence.field that orders them.

If a replay was killed just between its two commits, and the snapshots that would tell whether rows were written expired
before the next one, it says so; look at the table and say --unknown write or --unknown drop.`,
		Example: `  calve dead replay shop.orders -w file:///data/lake --config calve.yaml
  calve dead replay shop.orders -w file:///data/lake --where "code = 'value'" --limit 1000
  calve dead replay shop.events -w file:///data/lake --format debezium-json --field off=offset --field part=partition`,
		Args: oneTable,
	}
	name := deadName(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		table := strings.TrimSuffix(args[0], "$dead")
		dead := name(table)
		cfg.Decode = decode.Config{Format: decode.Format(format), OpField: op, Metadata: fields, Evolution: decode.Evolution(evolution)}
		if file != "" {
			c, p, err := pipelineOf(file, table)
			if err != nil {
				return err
			}
			reg, err := server.NewRegistry(c.Registry)
			if err != nil {
				return err
			}
			if reg != nil {
				defer reg.Close()
				cfg.Registry = reg
			}
			cfg.Decode = server.Decoding(p)
			if !cmd.Flags().Changed("dead") {
				dead = p.DeadTable()
			}
		}
		cfg.Unknown = ingest.Unknown(unknown)
		if !slices.Contains([]ingest.Unknown{ingest.UnknownFail, ingest.UnknownWrite, ingest.UnknownDrop}, cfg.Unknown) {
			return fmt.Errorf("--unknown %q: use write or drop", unknown)
		}
		return a.replay(cmd.Context(), table, dead, cfg)
	}
	f := c.Flags()
	f.StringVarP(&file, "config", "c", "", "configuration file of calve serve; the pipeline of the table says how records are decoded")
	f.StringVar(&cfg.Where, "where", "", "only letters for which this condition is true, as in calve scan")
	f.Int64Var(&cfg.Limit, "limit", 0, "most letters to decode (default: all)")
	f.StringVar(&format, "format", "json", "without --config: json, debezium-json or debezium-flat-json")
	f.StringVar(&op, "op", "", `without --config: field with the row kind; "-" for none (default "op", unless it is a column)`)
	f.StringToStringVar(&fields, "field", nil, "without --config: column filled from the record itself, COLUMN=topic, partition, offset, timestamp or key")
	f.StringVar(&evolution, "evolution", "", "without --config: what records may do to the table's schema: freeze, dead-letter, add-only or evolve (default freeze)")
	f.StringVar(&unknown, "unknown", "", "write or drop the records of an interrupted replay of which it is not known whether they were written")
	return c
}

// pipelineOf finds the pipeline of a table, and the configuration around it.
func pipelineOf(file, table string) (*config.Config, *config.Pipeline, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, nil, err
	}
	for i := range cfg.Pipelines {
		if cfg.Pipelines[i].Table == table {
			return cfg, &cfg.Pipelines[i], nil
		}
	}
	for i := range cfg.Pipelines {
		if p := cfg.Pipelines[i]; p.Makes(table) {
			p.Table, p.Dead.Table = table, ""
			return cfg, &p, nil
		}
	}
	return nil, nil, fmt.Errorf("%s has no pipeline with the table %s", file, table)
}

func (a *app) replay(ctx context.Context, table, dead string, cfg ingest.ReplayConfig) error {
	log, err := a.logger()
	if err != nil {
		return err
	}
	var stores [2]storage.Store
	for i, name := range []string{table, dead} {
		if stores[i], err = a.table(ctx, name, writes); err != nil {
			return err
		}
	}
	res, err := ingest.Replay(ctx, stores[0], stores[1], cfg, engineEnv(log))
	if err != nil {
		return noTable(table, stores[0], err)
	}
	if a.json {
		return a.printJSON(res)
	}
	fmt.Fprintf(a.out, "%s: %s replayed, which made %s; %d refused again\n", table, count(res.Replayed+res.Recovered, "record"), count(res.Rows, "row"), res.Refused)
	var notes []error
	if res.Recovered > 0 {
		notes = append(notes, fmt.Errorf("%s written by a replay that was interrupted", count(res.Recovered, "record")))
	}
	if res.Waiting > 0 {
		notes = append(notes, fmt.Errorf("%s left alone: their pipeline has not passed them yet and may read them itself", count(res.Waiting, "record")))
	}
	if res.Truncated > 0 {
		notes = append(notes, fmt.Errorf("%s left alone: only their beginning was kept", count(res.Truncated, "record")))
	}
	if err := errors.Join(notes...); err != nil {
		fmt.Fprintln(a.out, err)
	}
	return nil
}
