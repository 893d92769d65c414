//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// ledger is the table whose transactions are kept whole: each leaves as many rows as there were.
func ledger() *cdcTable {
	return &cdcTables[slices.IndexFunc(cdcTables, func(t cdcTable) bool { return t.bag })]
}

// cdcAt reads a table at a snapshot.
type cdcAt func(ctx context.Context, t *cdcTable, snapshot int64) (*Rows, error)

// readSnapshots gives how a judge reads the tables at their snapshots, nil if it does not.
func (c *cdc) readSnapshots(j Judge) cdcAt {
	at := func(reader PaimonReader, warehouse string, options map[string]string) cdcAt {
		return func(ctx context.Context, t *cdcTable, snapshot int64) (*Rows, error) {
			return reader.Read(ctx, PaimonTable{Warehouse: warehouse, Name: t.name, Options: options}, snapshot, t.columns)
		}
	}
	switch peer := j.(type) {
	case *pypaimon:
		return at(peer, c.place.Warehouse, c.place.S3.Options())
	case *paimonJava:
		return at(peer, "file://"+c.place.Dir, nil)
	}
	return nil
}

// copiesAt gives how many rows the table without key has at a snapshot.
func copiesAt(ctx context.Context, read cdcAt, snapshot int64) (int64, error) {
	rows, err := read(ctx, ledger(), snapshot)
	if err != nil {
		return 0, fmt.Errorf("%s at snapshot %d: %w", ledger().name, snapshot, err)
	}
	sum, err := rows.total("copies")
	if err != nil || !sum.IsInt64() {
		return 0, fmt.Errorf("%s at snapshot %d: copies come to %s: %w", ledger().name, snapshot, sum, err)
	}
	return sum.Int64(), nil
}

// judgeWhole has calve read every snapshot of the ledger: from the one on that has all rows of before pgbench began, whose
// events are of no transaction, none may fall inside a transaction.
func (c *cdc) judgeWhole(ctx context.Context, report *Report) error {
	ids, err := c.place.snapshots(ledger().name)
	if err != nil {
		return err
	}
	slices.Sort(ids)
	sums := make([]int64, len(ids))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for i, id := range ids {
		group.Go(func() (err error) {
			sums[i], err = copiesAt(gctx, func(ctx context.Context, t *cdcTable, snapshot int64) (*Rows, error) {
				return c.place.Scan(ctx, t.name, snapshot, t.columns)
			}, id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	from := slices.Index(sums, cdcLedger)
	if from < 0 || len(ids)-from < 20 {
		return fmt.Errorf("%d snapshots of %s, with %v rows: that is too little to tell of transactions", len(ids), ledger().name, sums)
	}
	for i, sum := range sums[from:] {
		if sum != cdcLedger {
			return fmt.Errorf("snapshot %d of %s has %d rows, between transactions there are %d: it is inside one; those of all from %d on: %v",
				ids[from+i], ledger().name, sum, cdcLedger, ids[from], sums[from:])
		}
	}
	c.whole = ids[from:]
	report.Note("cdc: no transaction is split by any of %d snapshots of the table without key", len(c.whole))
	return nil
}

// judgeSome has a peer read a few of the snapshots.
func (c *cdc) judgeSome(ctx context.Context, read cdcAt) error {
	for k := range 4 {
		id := c.whole[k*(len(c.whole)-1)/3]
		sum, err := copiesAt(ctx, read, id)
		if err != nil {
			return err
		}
		if sum != cdcLedger {
			return fmt.Errorf("snapshot %d of %s has %d rows, between transactions there are %d", id, ledger().name, sum, cdcLedger)
		}
	}
	return nil
}
