package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/internal/server"
	"github.com/calve-io/calve/storage"
)

func (a *app) serveCmd() *cobra.Command {
	var file string
	var reset []string
	var check bool
	c := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Run pipelines, compaction, export and the Iceberg REST catalog",
		Long: `Run the pipelines of a configuration file until SIGTERM or SIGINT; then everything read is flushed and committed. A
pipeline that fails is restarted from its last snapshot; one that needs a person (a topic that was created again, a
second process for the same pipeline) stops, and the others go on. A warehouse that does not answer at start is waited for;
one that refuses (credentials, a bucket that is not there) ends the process, and so does --check in both cases.

HTTP: / shows the pipelines, /status the same as JSON, /metrics is for Prometheus, /healthz for probes, and /iceberg is
the Iceberg REST catalog of the warehouse.

GET /v1/tables/DATABASE/TABLE/changes is calve tail over HTTP: JSON lines, server-sent events (Accept: text/event-stream)
or an Arrow stream (Accept: application/vnd.apache.arrow.stream), compressed as Accept-Encoding allows. Parameters, as the
flags of calve tail: from, until, follow (true), columns, where, share, consumer, consumer_ack, on_gap, order. Each row tells a position; from=at:
POSITION, or the header Last-Event-ID, goes on behind it, and every row comes once. A consumer moves when a snapshot was
written to the connection, so who reads with one keeps the position of the last row too; with consumer_ack=client the server
only renews it, and it moves when the client says what it has dealt with: POST /v1/tables/DATABASE/TABLE/consumers/NAME with
{"at": POSITION}, as often as it likes; a name that is not registered and that no stream has had is refused. Who comes
back with the name then gets what it did not acknowledge; from and Last-Event-ID say only what is told, and calve consumer
reset moves it otherwise. Tokens (http.token-env and http.token-file in the configuration) are sent as Authorization: Bearer
TOKEN; without any, /v1 answers on loopback addresses only.

POST /v1/tables/DATABASE/TABLE/rows writes JSON lines into a table whose pipeline has push as its source, and answers when a
snapshot has them. /v1/openapi.json describes all of /v1.`,
		Example: `  calve serve -c calve.yaml
  calve serve -c calve.yaml --check           # brokers, topics, warehouse and tables: can they be worked with?
  calve config schema > calve.schema.json     # for completion in an editor
  calve config check -c calve.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("warehouse") {
				cfg.Warehouse = a.warehouse
			}
			log := a.serveLogger(cfg, cmd.Flags().Changed("log-level"))
			opts := storage.Options{Endpoint: cfg.S3.Endpoint, Region: cfg.S3.Region, AccessKey: cfg.S3.AccessKey, SecretKey: cfg.S3.SecretKey}
			if cfg.S3.PathStyle {
				opts.PathStyle = &cfg.S3.PathStyle
			}
			opts.Unverified = !check // a service waits for a store that does not answer
			wh, err := storage.OpenURL(cmd.Context(), cfg.Warehouse, opts)
			if err != nil {
				return err
			}
			server.ShareProcs()
			s, err := server.New(cfg, wh, server.Options{Version: version, Reset: reset, Verify: func(ctx context.Context) error { return storage.Verify(ctx, wh) }}, engineEnv(log))
			if err != nil {
				return err
			}
			if check {
				return a.reportFindings(s.Probe(cmd.Context()))
			}
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			go steadyMemory(ctx, tick.C)
			return s.Run(cmd.Context(), func(addr string) {
				scheme := "http://"
				if cfg.HTTP.Certificate != "" {
					scheme = "https://"
				}
				log.Info("listening", "url", scheme+addr+"/", "iceberg_catalog", scheme+addr+"/iceberg")
			})
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "calve.yaml", "configuration file")
	c.Flags().StringSliceVar(&reset, "reset", nil, "pipelines that may begin again although their topic was re-created or cut")
	c.Flags().BoolVar(&check, "check", false, "ask everything that the configuration names whether it can be worked with, and end; the exit status is 1 if something cannot")
	return c
}

// reportFindings prints what a check found, a line each.
func (a *app) reportFindings(found []server.Finding) error {
	bad := 0
	for _, f := range found {
		if !f.OK {
			bad++
		}
	}
	if a.json {
		if err := a.printJSON(map[string]any{"ok": bad == 0, "findings": found}); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			mark := "ok  "
			if !f.OK {
				mark = "FAIL"
			}
			if _, err := fmt.Fprintf(a.out, "%s  %s: %s\n", mark, f.What, f.Detail); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return errReported
	}
	return nil
}

// serveLogger logs as the configuration says; the flag goes first when it is given.
func (a *app) serveLogger(cfg *config.Config, flagSet bool) *slog.Logger {
	text := cfg.Log.Level
	if flagSet {
		text = a.logLevel
	}
	var level slog.Level
	_ = level.UnmarshalText([]byte(text)) // the configuration was checked; a wrong flag means info
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.err, opts))
	}
	return slog.New(slog.NewTextHandler(a.err, opts))
}

func (a *app) configCmd() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check a configuration file or print its schema"}
	var file string
	check := &cobra.Command{
		Use: "check -c FILE", Short: "Check a configuration file",
		Example: "  calve config check -c calve.yaml",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := config.Load(file)
			if err == nil {
				err = server.Check(cfg)
			}
			if err != nil {
				return err
			}
			warehouse, _, _ := strings.Cut(cfg.Warehouse, "?") // what follows may hold credentials
			if a.json {
				return a.printJSON(map[string]any{"ok": true, "warehouse": warehouse, "pipelines": len(cfg.Pipelines)})
			}
			_, err = fmt.Fprintf(a.out, "%s is fine: %s into %s\n", file, count(len(cfg.Pipelines), "pipeline"), warehouse)
			return err
		},
	}
	check.Flags().StringVarP(&file, "config", "c", "calve.yaml", "configuration file")
	c.AddCommand(check, &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of the configuration file",
		Example: "  calve config schema > calve.schema.json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			enc := json.NewEncoder(a.out)
			enc.SetIndent("", "  ")
			return enc.Encode(config.Schema())
		},
	})
	return c
}

// version is set when the binary is built.
var version = "unknown"

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version",
		Example: "  calve version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]string{"version": version})
			}
			_, err := fmt.Fprintln(a.out, "calve", version)
			return err
		},
	}
}
