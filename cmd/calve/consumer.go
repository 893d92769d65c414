package main

import (
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/manifest"
)

func (a *app) consumerCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "consumer",
		Short: "See, move and drop the readers that hold back expiry",
		Long: `A consumer is the position of a reader of a table's changes: the next snapshot it reads. Expiry leaves that one and all
after it, and for a tail with --before-image the one before it. Consumers are Paimon's own; calve tail --consumer NAME makes and moves one.`,
	}
	c.AddCommand(a.consumerListCmd(), a.consumerResetCmd(), a.consumerDropCmd())
	return c
}

func (a *app) consumerListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "ls TABLE",
		Short:   "List the consumers of a table",
		Example: `  calve consumer ls shop.orders -w file:///data/lake`,
		Args:    oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := r.Meta().AllConsumers(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(consumerObjects(all))
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			for _, c := range all {
				fmt.Fprintf(w, "%s\tnext snapshot %d\trenewed %s\n", c.ID, c.Next, c.Renewed.UTC().Format(time.RFC3339))
			}
			if len(all) == 0 {
				fmt.Fprintf(a.err, "%s has no consumers\n", args[0])
			}
			return w.Flush()
		},
	}
}

func consumerObjects(all []manifest.Consumer) []map[string]any {
	out := []map[string]any{}
	for _, c := range all {
		out = append(out, map[string]any{"consumer": c.ID, "nextSnapshot": c.Next, "renewedMillis": c.Renewed.UnixMilli()})
	}
	return out
}

func (a *app) consumerResetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "reset TABLE NAME SNAPSHOT",
		Short: "Have a consumer read from a snapshot on",
		Long: `Have a consumer read from a snapshot on; if it is not there it is made. A tail that runs with this name moves it again.
One that writes into a topic goes on behind its last record there, if that is further.`,
		Example: `  calve consumer reset shop.orders audit 42 -w file:///data/lake`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return fmt.Errorf("%s takes a table, the name of a consumer and a snapshot, as in `%[1]s shop.orders audit 42`; see `%[1]s --help`", c.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			next, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil || next < 1 {
				return fmt.Errorf("snapshot %q: use its number, 1 or more", args[2])
			}
			r, err := a.writable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := r.Meta().PutConsumer(cmd.Context(), args[1], next); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"consumer": args[1], "nextSnapshot": next})
			}
			_, err = fmt.Fprintf(a.out, "%s: consumer %s reads snapshot %d next\n", args[0], args[1], next)
			return err
		},
	}
}

func (a *app) consumerDropCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "drop TABLE NAME",
		Short:   "Forget a consumer; expiry no longer waits for it",
		Example: `  calve consumer drop shop.orders audit -w file:///data/lake`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return fmt.Errorf("%s takes a table and the name of a consumer, as in `%[1]s shop.orders audit`; see `%[1]s --help`", c.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.writable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := r.Meta().Consumer(cmd.Context(), args[1]); errors.Is(err, manifest.ErrNoConsumer) {
				return err // one whose file is damaged can be dropped
			}
			if err := r.Meta().DropConsumer(cmd.Context(), args[1]); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"consumer": args[1], "dropped": true})
			}
			_, err = fmt.Fprintf(a.out, "%s: consumer %s dropped\n", args[0], args[1])
			return err
		},
	}
}
