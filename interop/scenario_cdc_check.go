//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// cdcTable is a table of the database and what calve makes of it.
type cdcTable struct {
	source, name string
	columns      []Column
	gone         []string // columns that the database has no longer
	bag          bool     // rows are counted in a column "copies"
	late         bool     // made while pgbench works
	sum          string   // column that is summed
}

var cdcTables = []cdcTable{
	{source: "pgbench_branches", name: "bank.branches", sum: "bbalance",
		columns: []Column{{"bid", "INT"}, {"bbalance", "BIGINT"}, {"filler", "STRING"}, {"opened", "DATE"}}},
	{source: "pgbench_tellers", name: "bank.tellers", sum: "tbalance", gone: []string{"filler"},
		columns: []Column{{"tid", "INT"}, {"bid", "INT"}, {"tbalance", "BIGINT"}, {"filler", "STRING"}, {"remark", "STRING"}}},
	{source: "ledger", name: "bank.ledger", bag: true,
		columns: []Column{{"n", "INT"}, {"word", "STRING"}, {"row_hash", "BYTES"}, {"copies", "BIGINT"}}, gone: []string{"row_hash", "copies"}},
	{source: "rates", name: "bank.rates", late: true, gone: []string{"ok"},
		columns: []Column{{"id", "INT"}, {"rate", "DECIMAL(12, 2)"}, {"ok", "BOOLEAN"}, {"at", "TIMESTAMP_LTZ(6)"}, {"day", "DATE"}, {"name", "STRING"}}},
	{source: "pgbench_history", name: "bank.history", sum: "delta",
		columns: []Column{{"tid", "INT"}, {"bid", "INT"}, {"aid", "INT"}, {"delta", "BIGINT"}, {"mtime", "TIMESTAMP(6)"}, {"filler", "STRING"}}},
	{source: "pgbench_accounts", name: "bank.accounts", sum: "abalance", gone: []string{"filler"},
		columns: []Column{{"aid", "INT"}, {"bid", "INT"}, {"abalance", "BIGINT"}, {"filler", "STRING"}, {"note", "STRING"}}},
}

// source columns are those that the database has.
func (t *cdcTable) sourceColumns() []Column {
	return slices.DeleteFunc(slices.Clone(t.columns), func(c Column) bool { return slices.Contains(t.gone, c.Name) })
}

// rows gives the rows of the database that a reader's rows stand for.
func (t *cdcTable) rows(got *Rows) (*Rows, error) {
	out, err := NewRows(t.sourceColumns())
	if err != nil {
		return nil, err
	}
	var keep []int
	for i, c := range got.Columns {
		if !slices.Contains(t.gone, c.Name) {
			keep = append(keep, i)
		}
	}
	for _, cells := range got.Cells {
		row := make([]Cell, len(keep))
		for i, c := range keep {
			row[i] = cells[c]
		}
		copies := int64(1)
		if t.bag {
			n, ok := new(big.Int).SetString(cells[got.index("copies")].Text, 10)
			if !ok || !n.IsInt64() || n.Int64() > 1e6 {
				return nil, fmt.Errorf("copies = %q", cells[got.index("copies")].Text)
			}
			copies = n.Int64()
		}
		for range copies {
			out.Cells = append(out.Cells, row)
		}
	}
	return out, nil
}

// total sums a column; null is nothing.
func (r *Rows) total(column string) (*big.Int, error) {
	sum := new(big.Int)
	at := r.index(column)
	for _, row := range r.Cells {
		if row[at].Null {
			continue
		}
		n, ok := new(big.Int).SetString(row[at].Text, 10)
		if !ok {
			return nil, fmt.Errorf("%s = %q is no integer", column, row[at].Text)
		}
		sum.Add(sum, n)
	}
	return sum, nil
}

// cdcReader reads a table of calve by one peer.
type cdcReader func(ctx context.Context, t *cdcTable) (*Rows, error)

// readBy gives how a judge reads the tables, nil if it does not.
func (c *cdc) readBy(j Judge) cdcReader {
	paimon := func(reader PaimonReader, warehouse string, options map[string]string) cdcReader {
		return func(ctx context.Context, t *cdcTable) (*Rows, error) {
			return reader.Read(ctx, PaimonTable{Warehouse: warehouse, Name: t.name, Options: options}, 0, t.columns)
		}
	}
	switch peer := j.(type) {
	case *pypaimon:
		return paimon(peer, c.place.Warehouse, c.place.S3.Options())
	case *paimonJava: // it has no S3: the server keeps objects as files
		return paimon(peer, "file://"+c.place.Dir, nil)
	case *trino:
		return func(ctx context.Context, t *cdcTable) (*Rows, error) {
			catalog, err := c.place.Catalog(ctx)
			if err != nil {
				return nil, err
			}
			namespace, name, _ := strings.Cut(t.name, ".")
			return peer.Read(ctx, IcebergTable{Route: RESTS3, Catalog: catalog, Namespace: namespace, Name: name, S3: c.place.S3}, 0, t.columns)
		}
	}
	return nil
}

// compare holds all tables against the database, row by row and in pgbench's sums.
func (c *cdc) compare(ctx context.Context, read cdcReader) error {
	sums := map[string]*big.Int{}
	for i := range cdcTables {
		t := &cdcTables[i]
		got, err := read(ctx, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if got, err = t.rows(got); err == nil {
			err = c.want[t.name].Compare(got)
		}
		if err == nil && t.sum != "" {
			sums[t.sum], err = got.total(t.sum)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	for name, sum := range sums {
		if sum.Cmp(sums["delta"]) != 0 {
			return fmt.Errorf("the sum of %s is %s, that of delta %s", name, sum, sums["delta"])
		}
	}
	return nil
}

// finish waits until calve has everything, ends it in order, compacts, exports and checks the tables.
func (c *cdc) finish(ctx context.Context, report *Report) error {
	for i := range cdcTables {
		t := &cdcTables[i]
		var err error
		if c.want[t.name], err = c.postgres.Rows(ctx, t.source, t.sourceColumns()); err != nil {
			return err
		}
	}
	start := time.Now()
	scan := func(ctx context.Context, t *cdcTable) (*Rows, error) { return c.place.Scan(ctx, t.name, 0, t.columns) }
	if err := c.server.WaitReady(ctx, 90*time.Second, func(ctx context.Context) error { return c.compare(ctx, scan) }); err != nil {
		return errors.Join(err, c.connect.Running(ctx, cdcPrefix), c.refused(ctx))
	}
	late := time.Since(start)
	if err := errors.Join(c.connect.Running(ctx, cdcPrefix), c.refused(ctx)); err != nil {
		return err
	}
	if err := c.server.Stop(30 * time.Second); err != nil {
		return fmt.Errorf("serve after SIGTERM: %w", err)
	}
	for _, t := range cdcTables {
		for _, args := range [][]string{{"compact", t.name, "--full"}, {"export", t.name}, {"verify", t.name}} {
			if _, err := c.place.Run(ctx, nil, args...); err != nil {
				return err
			}
		}
	}
	if err := c.judgeWhole(ctx, report); err != nil {
		return err
	}
	history := c.want["bank.history"]
	sum, err := history.total("delta")
	report.Note("cdc: %d transactions of pgbench in %v, %d rows of a table without key, sums %s, all there %.1fs after the last commit",
		len(history.Cells), c.lab.Live, len(c.want["bank.ledger"].Cells), sum, late.Seconds())
	return err
}

// refused says which records are dead letters; there must be none.
func (c *cdc) refused(ctx context.Context) error {
	var errs []error
	for _, t := range cdcTables {
		out, err := c.place.Run(ctx, nil, "dead", "ls", t.name, "--json")
		var answer struct{ Letters int64 }
		if err == nil {
			err = json.Unmarshal(out, &answer)
		}
		if err == nil && answer.Letters != 0 {
			err = fmt.Errorf("%s has %d dead letters: %s", t.name, answer.Letters, tailOf(out))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
