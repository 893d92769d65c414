package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// keysAtOnce is how many keys of a stream are looked up together.
const keysAtOnce = 4096

func (a *app) getCmd() *cobra.Command {
	var t travel
	var from string
	var local localCopies
	c := &cobra.Command{
		Use:   "get TABLE KEY...",
		Short: "Print the rows of some keys",
		Long: `Print the rows that some primary keys have, as scan prints them, in the order of the keys. No more of the table is read than
what may have them. Of tables of merge engines too: what is printed is what scan would print of the key.

A KEY is the value of the primary key's column, or name=value,name=value for a primary key of several columns, or a JSON
object such as {"id":7} with values as put reads them, which is the only form for values with a comma. With --keys-from FILE
keys come from a file, or with - from standard input: one JSON object a line, of which columns that do not belong to the
primary key are ignored, so that lines of scan are keys too.

Keys that have no row are named on standard error, one JSON object a line, and the exit status is 2 then; it is 0 if all
were found and 1 if something went wrong. With --json each key makes one line, {"key":{…},"row":{…}}, whose row is null if
there is none.

With --lookup-cache DIR, and keys from a file, data files in which many keys are looked up are copied to a folder on local
disk, from where a lookup takes microseconds; later runs, of other processes too, find them there. --lookup-cache-bytes
bounds the folder, in which anything may be deleted at any time.

The snapshot is the latest or one that --snapshot, --tag, --at or --watermark tells, as with scan.`,
		Example: `  calve get shop.orders 7 8 9 -w file:///data/lake
  calve get shop.orders '{"id":7}' -w file:///data/lake --columns id,price --tag monday
  calve get shop.visits day=2026-05-14,user=ann -w file:///data/lake
  calve scan shop.orders -w file:///data/lake --snapshot 5 | calve get shop.orders -w file:///data/lake --keys-from - --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || (len(args) == 1) == (from == "") {
				return fmt.Errorf("%s takes a table and keys, or a table and --keys-from; see `%[1]s --help`", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := t.resolve(cmd, false); err != nil {
				return err
			}
			g := &getter{a: a, r: r, q: t.q, out: bufio.NewWriterSize(a.out, 1<<16)}
			defer g.close()
			if g.cache, err = local.open(); err != nil {
				return err
			}
			if from == "" {
				err = g.args(cmd.Context(), args[1:])
			} else {
				err = g.lines(cmd.Context(), from)
			}
			if err := errors.Join(err, g.out.Flush()); err != nil {
				return err
			}
			if g.missing > 0 {
				return errMissing
			}
			return nil
		},
	}
	t.snapshotFlags(c)
	c.Flags().StringSliceVar(&t.q.Columns, "columns", nil, "columns to print (default: all)")
	local.flags(c)
	c.Flags().StringVar(&from, "keys-from", "", "file with keys as JSON lines, - for standard input")
	return c
}

// getter looks keys up and prints what it finds.
type getter struct {
	a       *app
	r       *reader.Reader
	q       reader.Query
	out     *bufio.Writer
	cache   *reader.LookupCache
	lookup  *reader.Lookup
	keys    decode.Decoder
	names   []string // of the primary key
	types   []schema.Type
	line    []byte
	missing int
}

func (g *getter) close() {
	if g.cache != nil {
		_ = g.cache.Close() // files that were only read
	}
}

// prepare finds out what keys of the table look like.
func (g *getter) prepare(ctx context.Context) error {
	s, err := g.schema(ctx)
	if err != nil {
		return err
	}
	if !s.Keyed() {
		return errors.New("the table has no primary key to look rows up by; `calve scan --where` finds rows by their values")
	}
	only := &schema.Schema{Version: s.Version, ID: s.ID, HighestFieldID: s.HighestFieldID, Options: map[string]string{}}
	for _, name := range s.PrimaryKeys {
		c, _ := s.Field(name)
		only.Fields = append(only.Fields, s.Fields[c])
		g.names, g.types = append(g.names, name), append(g.types, s.Fields[c].Type)
	}
	g.keys, err = decode.New(decode.Config{Schema: only, OpField: "-", BatchRows: keysAtOnce})
	return err
}

// schema is the one of the snapshot that is asked for.
func (g *getter) schema(ctx context.Context) (*schema.Schema, error) {
	if g.q.Snapshot == 0 && g.q.Tag == "" && g.q.At.IsZero() && g.q.Watermark == nil {
		return g.r.Meta().LatestSchema(ctx)
	}
	snap, err := g.r.Snapshot(ctx, g.q)
	if err != nil {
		return nil, err
	}
	return g.r.Meta().Schema(ctx, snap.SchemaID)
}

// args looks keys of the command line up.
func (g *getter) args(ctx context.Context, args []string) error {
	if err := g.prepare(ctx); err != nil {
		return err
	}
	for _, arg := range args {
		text, err := g.object(arg)
		if err == nil {
			err = g.keys.Decode(&decode.Record{Value: text})
		}
		if err != nil {
			return fmt.Errorf("key %s: %w", arg, err)
		}
	}
	keys := g.keys.Take().Rec
	f, err := g.r.Get(ctx, g.q, keys, g.cache)
	if err != nil {
		return err
	}
	return g.print(keys, f)
}

// object gives a key of the command line as a JSON object.
func (g *getter) object(arg string) ([]byte, error) {
	if strings.HasPrefix(strings.TrimSpace(arg), "{") {
		return []byte(arg), nil
	}
	vals := map[string]string{}
	if len(g.names) == 1 {
		if v, ok := strings.CutPrefix(arg, g.names[0]+"="); ok {
			arg = v
		}
		vals[g.names[0]] = arg
	} else {
		for _, part := range strings.Split(arg, ",") {
			name, v, ok := strings.Cut(part, "=")
			if _, twice := vals[name]; !ok || twice {
				return nil, fmt.Errorf("the primary key has the columns %s: say %s=…,%s=…, or a JSON object", strings.Join(g.names, ", "), g.names[0], g.names[1])
			}
			vals[name] = v
		}
	}
	out := []byte{'{'}
	for i, name := range g.names {
		v, ok := vals[name]
		if !ok {
			return nil, fmt.Errorf("column %q of the primary key is missing", name)
		}
		delete(vals, name)
		if i > 0 {
			out = append(out, ',')
		}
		out = append(rowjson.AppendString(out, name), ':')
		if root := g.types[i].Root; root == schema.Boolean {
			out = append(out, v...)
		} else {
			out = rowjson.AppendString(out, v)
		}
	}
	for name := range vals {
		return nil, fmt.Errorf("column %q does not belong to the primary key, which has %s", name, strings.Join(g.names, ", "))
	}
	return append(out, '}'), nil
}

// lines looks keys of a file up.
func (g *getter) lines(ctx context.Context, from string) error {
	if err := g.prepare(ctx); err != nil {
		return err
	}
	in := g.a.in
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	var err error
	if g.lookup, err = g.r.OpenLookup(ctx, g.q, g.cache); err != nil {
		return err
	}
	sc := bufio.NewReaderSize(in, 1<<16)
	for n := int64(1); ; n++ {
		line, err := readLine(sc)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if len(strings.TrimSpace(string(line))) > 0 {
			if err := g.keys.Decode(&decode.Record{Value: line, Offset: n}); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if g.keys.Rows() > 0 && (g.keys.Full() || err != nil || sc.Buffered() == 0) {
			keys := g.keys.Take().Rec
			f, gerr := g.lookup.Get(ctx, keys)
			if gerr == nil {
				gerr = g.print(keys, f)
			}
			if gerr = errors.Join(gerr, g.out.Flush()); gerr != nil {
				return gerr
			}
		}
		if err != nil {
			return nil
		}
	}
}

// longestKey bounds a line with a key.
const longestKey = 16 << 20

func readLine(r *bufio.Reader) ([]byte, error) {
	var out []byte
	for {
		part, err := r.ReadSlice('\n')
		out = append(out, part...)
		if len(out) > longestKey {
			return nil, fmt.Errorf("a key of more than %d bytes", longestKey)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return out, err
		}
	}
}

// print prints what was found of some keys.
func (g *getter) print(keys arrow.RecordBatch, f reader.Found) error {
	key, row := rowjson.NewEncoder(keys.Schema()), rowjson.NewEncoder(f.Rows.Schema())
	for i, at := range f.At {
		line := g.line[:0]
		switch {
		case g.a.json:
			line = key.Append(append(line, `{"key":`...), keys, i)
			line = append(line, `,"row":`...)
			if at >= 0 {
				line = row.Append(line, f.Rows, int(at))
			} else {
				line = append(line, "null"...)
			}
			line = append(line, '}')
		case at >= 0:
			line = row.Append(line, f.Rows, int(at))
		}
		if at < 0 {
			g.missing++
		}
		if len(line) > 0 {
			if _, err := g.out.Write(append(line, '\n')); err != nil {
				return err
			}
		} else if _, err := fmt.Fprintf(g.a.err, "not found: %s\n", key.Append(nil, keys, i)); err != nil {
			return err
		}
		g.line = line
	}
	return nil
}
