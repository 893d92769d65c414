package reader_test

import (
	"context"
	"fmt"
	"log"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// The changes of a table, as an iterator: from its beginning, of some rows and columns, with a consumer that keeps the
// position, so that the next run goes on behind it and what it has yet to read does not expire.
func ExampleReader_Tail() {
	ctx := context.Background()
	store := storage.NewMem() // or storage.OpenURL(ctx, "s3://lake/raw/shop.db/orders", storage.Options{})
	fillOrders(ctx, store)

	r := reader.Open(store, env())
	spec := reader.TailSpec{From: reader.Start{Mode: reader.Earliest}, Consumer: "example", Columns: []string{"id", "price"}, Where: "price > 1"}
	for c, err := range r.Tail(ctx, spec) {
		switch {
		case err != nil:
			log.Fatal(err)
		case c.Complete:
			fmt.Printf("snapshot %d is told, resume at %s\n", c.Snapshot, c.After(0))
		case c.Rec != nil:
			ids, prices := c.Rec.Column(0).(*array.Int64), c.Rec.Column(1).(*array.Float64)
			for i := range int(c.Rec.NumRows()) {
				kind := schema.Insert
				if c.RowKinds != nil {
					kind = c.RowKinds[i]
				}
				fmt.Println(kind, ids.Value(i), prices.Value(i))
			}
		}
	}
	// Output:
	// +I 1 2.5
	// -D 2 0.5
	// snapshot 1 is told, resume at 2.0
	// -D 1 0.75
	// snapshot 2 is told, resume at 3.0
}

// fillOrders makes the table and two commits.
func fillOrders(ctx context.Context, store storage.Store) {
	cols, err := schema.ParseColumns("id BIGINT NOT NULL, item STRING, price DOUBLE")
	if err != nil {
		log.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}})
	if err != nil {
		log.Fatal(err)
	}
	if err := engine.Create(ctx, store, s); err != nil {
		log.Fatal(err)
	}
	e := env()
	tab, err := engine.Open(ctx, store, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		log.Fatal(err)
	}
	for _, prices := range [][]float64{{2.5, 0.5}, {0.75}} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		for i, price := range prices {
			b.Field(0).(*array.Int64Builder).Append(int64(i) + 1)
			b.Field(1).(*array.StringBuilder).Append("ice")
			b.Field(2).(*array.Float64Builder).Append(price)
		}
		if err := tab.Write(ctx, schema.Batch{Rec: b.NewRecordBatch()}); err != nil {
			log.Fatal(err)
		}
		if _, err := tab.Commit(ctx, engine.Progress{}); err != nil {
			log.Fatal(err)
		}
	}
	if err := tab.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
