package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// errReported: the command has said what is wrong; only the exit code is left to set.
var errReported = errors.New("already reported")

// errMissing: some keys have no row, which was said; the exit status is 2.
var errMissing = errors.New("keys without a row")

// app is what all commands share: the world and the global flags.
type app struct {
	in       io.Reader
	out, err io.Writer

	warehouse string
	s3        storage.Options
	pathStyle bool
	json      bool
	logLevel  string
}

func newApp(in io.Reader, out, errw io.Writer) *app { return &app{in: in, out: out, err: errw} }

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "calve",
		Short: "Snow in, icebergs out: streams into Paimon tables, compacted and published as Iceberg tables",
		Long: `calve writes streams into Apache Paimon tables on a local folder or an object store, compacts them in the background,
lets readers tail what changed, and publishes the compacted rows as Iceberg tables, without copying data.

Start with:   calve demo
Every table command needs the warehouse: --warehouse file:///path or s3://bucket/prefix, or $CALVE_WAREHOUSE.
A table is named database.table; without a database it is in the database "default".`,
		SilenceUsage: true, SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.warehouse, "warehouse", "w", os.Getenv("CALVE_WAREHOUSE"), "folder or bucket with the tables: file:///path or s3://bucket/prefix ($CALVE_WAREHOUSE)")
	f.BoolVar(&a.json, "json", false, "print JSON for machines")
	f.StringVar(&a.logLevel, "log-level", "warn", "least level of log lines on standard error: debug, info, warn or error")
	f.StringVar(&a.s3.Endpoint, "s3-endpoint", "", "URL of the S3 service (default: AWS)")
	f.StringVar(&a.s3.Region, "s3-region", "", "region of the bucket (default: $AWS_REGION)")
	f.BoolVar(&a.pathStyle, "s3-path-style", false, "put the bucket into the path instead of the host name")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())
	})
	root.AddCommand(a.createCmd(), a.alterCmd(), a.lsCmd(), a.describeCmd(), a.putCmd(), a.scanCmd(), a.getCmd(), a.tailCmd(), a.compactCmd(),
		a.tagCmd(), a.consumerCmd(), a.deadCmd(), a.exportCmd(), a.verifyCmd(), a.serveCmd(), a.resumeCmd(), a.resetCmd(), a.configCmd(),
		a.demoCmd(), a.versionCmd())
	return root
}

// oneTable checks that a command is given the name of one table and nothing else.
func oneTable(c *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("%s takes one table, as in `%[1]s shop.orders`, not %d arguments; see `%[1]s --help`", c.CommandPath(), len(args))
}

// noArgs checks that a command is given nothing but flags.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments, not %q; see `%[1]s --help`", c.CommandPath(), args)
}

// count names a number of things: "1 file", "2 files".
func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (a *app) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", a.logLevel)
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level})), nil
}

func engineEnv(log *slog.Logger) engine.Env {
	return engine.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: log}
}

func readerEnv(log *slog.Logger) reader.Env {
	return reader.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: log}
}

// access says what a command does with the warehouse.
type access bool

const (
	reads  access = true
	writes access = false
)

// open opens the warehouse. To read, no permission to write is needed.
func (a *app) open(ctx context.Context, how access) (storage.Store, error) {
	if a.warehouse == "" {
		return nil, errors.New("no warehouse: say --warehouse file:///path (or s3://bucket/prefix), or set $CALVE_WAREHOUSE")
	}
	opts := a.s3
	opts.ReadOnly = how == reads
	if a.pathStyle {
		opts.PathStyle = &a.pathStyle
	}
	return storage.OpenURL(ctx, a.warehouse, opts)
}

// table opens the folder of a table.
func (a *app) table(ctx context.Context, name string, how access) (storage.Store, error) {
	path, err := config.TablePath(name)
	if err != nil {
		return nil, err
	}
	wh, err := a.open(ctx, how)
	if err != nil {
		return nil, err
	}
	return storage.Sub(wh, path), nil
}

// reader opens a table for reading, and says so clearly when it is not there.
func (a *app) reader(ctx context.Context, name string) (*reader.Reader, error) {
	full := name
	name, branch := config.CutBranch(full)
	st, err := a.table(ctx, name, reads)
	if err != nil {
		return nil, err
	}
	log, err := a.logger()
	if err != nil {
		return nil, err
	}
	r := reader.Open(st, readerEnv(log))
	if branch != "" {
		return branchReader(ctx, r, st, full, branch, readerEnv(log))
	}
	if _, err := r.Meta().LatestSchema(ctx); err != nil {
		return nil, noTable(name, st, err)
	}
	return r, nil
}

// branchReader opens a branch of the table that r reads.
func branchReader(ctx context.Context, r *reader.Reader, st storage.Store, name, branch string, env reader.Env) (*reader.Reader, error) {
	b, err := reader.OpenBranch(st, branch, env)
	if err != nil {
		return nil, err
	}
	if _, err := b.Meta().LatestSchema(ctx); !errors.Is(err, manifest.ErrNoTable) {
		return b, err
	}
	names, err := r.Meta().Branches(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no %s: the table is not there or has no branches", name)
	}
	return nil, fmt.Errorf("no %s; the table has the branches main, %s", name, strings.Join(names, ", "))
}

// noTable turns the error of a table that is not there into one for people. The warehouse is named by the store's URL,
// for the flag's may hold credentials.
func noTable(name string, st storage.Store, err error) error {
	if !errors.Is(err, manifest.ErrNoTable) {
		return err
	}
	warehouse := st.URL("")
	if path, err := config.TablePath(name); err == nil {
		warehouse = strings.TrimSuffix(warehouse, "/"+path)
	}
	return fmt.Errorf("no table %s in %s; `calve ls` shows what is there, `calve create` makes one", name, warehouse)
}

// printJSON prints one JSON document on a line.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
