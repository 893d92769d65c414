package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// changeList gathers the changes of several flags in the order in which they were given.
type changeList struct{ changes []schema.Change }

// changeFlag is one of these flags.
type changeFlag struct {
	list  *changeList
	form  string
	parse func(string) (schema.Change, error)
}

// String implements pflag.Value; there is no default.
func (changeFlag) String() string { return "" }

// Type implements pflag.Value: what help shows behind the flag.
func (f changeFlag) Type() string { return f.form }

// Set implements pflag.Value.
func (f changeFlag) Set(text string) error {
	c, err := f.parse(text)
	if err != nil {
		return err
	}
	f.list.changes = append(f.list.changes, c)
	return nil
}

func (a *app) alterCmd() *cobra.Command {
	list := &changeList{}
	c := &cobra.Command{
		Use:   "alter TABLE",
		Short: "Change the columns and options of a table",
		Long: `Change the schema of a table, as one new version of it. No data is rewritten: older rows are read through the new schema.
The changes are made in the order given. What is so already is left alone, so the command can be repeated.

Columns in nested types are named with dots: address.city, tags.element, prices.value. Names with dots or spaces are
quoted with ` + "`" + ` or ". Without a word on nulls, --type leaves them allowed or forbidden as they are.

Running pipelines and tails follow without a restart: a pipeline finishes what it has buffered under the old schema first.`,
		Example: `  calve alter shop.orders -w file:///data/lake --add "note STRING comment 'by the customer' after amount"
  calve alter shop.orders -w file:///data/lake --rename note=remark --type "amount DECIMAL(18, 2)"
  calve alter shop.orders -w file:///data/lake --move "remark last" --nullable remark --comment "remark=free text"
  calve alter shop.orders -w file:///data/lake --drop remark --set snapshot.num-retained.min=20 --unset write-only`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(list.changes) == 0 {
				return fmt.Errorf("nothing to change: give --add, --drop, --rename or another change; see `%s --help`", cmd.CommandPath())
			}
			st, err := a.table(cmd.Context(), args[0], writes)
			if err != nil {
				return err
			}
			log, err := a.logger()
			if err != nil {
				return err
			}
			env := engineEnv(log)
			tab := manifest.Open(st, manifest.Env{Now: env.Now, After: env.After, NewID: env.NewID, Rand: env.Rand, Log: env.Log})
			s, made, err := tab.AlterSchema(cmd.Context(), list.changes)
			if err != nil {
				return noTable(args[0], st, err)
			}
			if a.json {
				return a.printJSON(map[string]any{"table": args[0], "schema": s.ID, "changed": made})
			}
			if !made {
				_, err = fmt.Fprintf(a.out, "%s is so already: schema %d\n", args[0], s.ID)
				return err
			}
			_, err = fmt.Fprintf(a.out, "altered %s: schema %d\n", args[0], s.ID)
			return err
		},
	}
	alterFlags(c, list)
	return c
}

// alterFlags adds the flags that each are one change.
func alterFlags(c *cobra.Command, list *changeList) {
	flag := func(name, form, usage string, parse func(string) (schema.Change, error)) {
		c.Flags().Var(changeFlag{list, form, parse}, name, usage+"; may be repeated")
	}
	flag("add", "column", "add a column: 'name TYPE [comment 'text'] [first|last|after x|before x]'", func(s string) (schema.Change, error) {
		return schema.ParseAddColumn(s)
	})
	flag("drop", "name", "drop a column", func(s string) (schema.Change, error) {
		path, err := schema.ParsePath(s)
		return schema.DropColumn{Path: path}, err
	})
	flag("rename", "old=new", "rename a column", func(s string) (schema.Change, error) {
		path, to, err := schema.ParseAssign(s)
		return schema.RenameColumn{Path: path, To: to}, err
	})
	flag("move", "place", "move a column: 'name first|last|after x|before x'", func(s string) (schema.Change, error) {
		return schema.ParseMove(s)
	})
	flag("type", "column", "change the type of a column: 'name TYPE [null|not null]'", func(s string) (schema.Change, error) {
		return schema.ParseChangeType(s)
	})
	flag("nullable", "name", "allow nulls in a column", func(s string) (schema.Change, error) {
		path, err := schema.ParsePath(s)
		return schema.ChangeNullability{Path: path}, err
	})
	flag("not-null", "name", "forbid nulls in a column", func(s string) (schema.Change, error) {
		path, err := schema.ParsePath(s)
		return schema.ChangeNullability{Path: path, NotNull: true}, err
	})
	flag("comment", "name=text", "set the comment of a column", func(s string) (schema.Change, error) {
		path, text, err := schema.ParseAssign(s)
		return schema.ChangeComment{Path: path, Comment: text}, err
	})
	flag("table-comment", "text", "set the comment of the table", func(s string) (schema.Change, error) {
		return schema.SetTableComment{Comment: s}, nil
	})
	flag("set", "key=value", "set a table option", func(s string) (schema.Change, error) {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("use key=value")
		}
		return schema.SetOption{Name: k, Value: v}, nil
	})
	flag("unset", "key", "remove a table option", func(s string) (schema.Change, error) {
		return schema.RemoveOption{Name: s}, nil
	})
}
