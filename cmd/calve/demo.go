package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/internal/demo"
	"github.com/calve-io/calve/storage"
)

func (a *app) demoCmd() *cobra.Command {
	var dir string
	var flights, rate int
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run the main job on real flights with an embedded Kafka broker, and check it",
		Long: `Load a part of 100,000 real flights as a batch and play the others as a change stream (scheduled, delayed, corrected,
cancelled) through an embedded Kafka broker into a table in a local folder; tail it, compact it from level 0 to level 2
and export it as an Iceberg table; then compare table, Iceberg table and folded change stream with the truth computed
from the input. It takes some ten seconds.`,
		Example: `  calve demo
  calve demo --dir /tmp/flights --rate 0`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := a.logger()
			if err != nil {
				return err
			}
			if flights < 0 || rate < 0 {
				return fmt.Errorf("--flights %d, --rate %d: neither can be negative", flights, rate)
			}
			if dir == "" {
				if dir, err = os.MkdirTemp("", "calve-demo-"); err != nil {
					return err
				}
			} else if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				return fmt.Errorf("--dir %s is not empty; name a new folder", dir)
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			wh, err := storage.NewLocal(dir)
			if err != nil {
				return err
			}
			res, err := demo.Run(cmd.Context(), demo.Options{Warehouse: wh, Out: a.out, Env: engineEnv(log), Flights: flights, Rate: rate, Live: terminal(a.out)})
			if err != nil {
				return err
			}
			for _, p := range res.Problems {
				fmt.Fprintln(a.out, "problem:", p)
			}
			fmt.Fprint(a.out, howToQuery(os.Args[0], dir))
			fmt.Fprintln(a.out, res)
			if !res.Verified {
				return errReported
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "empty folder for the warehouse (default: a new temporary one, which stays)")
	c.Flags().IntVar(&flights, "flights", 0, "number of flights to play (default: all 100,000)")
	c.Flags().IntVar(&rate, "rate", 20_000, "events a second; 0 for as fast as it goes")
	return c
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// howToQuery says how to look at the result with other tools.
func howToQuery(calve, dir string) string {
	table := filepath.Join(dir, "demo.db", "flights")
	version, _ := os.ReadFile(filepath.Join(table, "metadata", "version-hint.text"))
	meta := filepath.Join(table, "metadata", "v"+strings.TrimSpace(string(version))+".metadata.json")
	return fmt.Sprintf(`
query the result:
  calve      %[4]s scan demo.flights -w file://%[1]s --limit 5
             %[4]s tail demo.flights -w file://%[1]s | head
  DuckDB     INSTALL iceberg; LOAD iceberg;
             SELECT origin, count(*), avg(delay) FROM iceberg_scan('%[2]s') GROUP BY 1 ORDER BY 2 DESC LIMIT 5;
  PyIceberg  from pyiceberg.table import StaticTable
             StaticTable.from_metadata('file://%[2]s').scan().to_arrow()
  Trino      CALL iceberg.system.register_table('demo', 'flights', 'file://%[3]s');
             SELECT count(*) FROM iceberg.demo.flights;

`, dir, meta, table, calve)
}
