//go:build interop

package interop

// Columns that small cases share.
var plainColumns = []Column{{"id", "BIGINT NOT NULL"}, {"name", "STRING"}, {"amount", "DECIMAL(12, 2)"}, {"ok", "BOOLEAN"}}

// rowsOf makes rows from values in the columns' order.
func rowsOf(columns []Column, values ...[]any) []map[string]any {
	rows := make([]map[string]any, len(values))
	for i, line := range values {
		rows[i] = map[string]any{}
		for j, c := range columns {
			rows[i][c.Name] = line[j]
		}
	}
	return rows
}

// puts makes an upsert of each row.
func puts(rows []map[string]any) []Op {
	ops := make([]Op, len(rows))
	for i, row := range rows {
		ops[i] = Put(row)
	}
	return ops
}

// deletes makes a delete of each row.
func deletes(rows []map[string]any) []Op {
	ops := make([]Op, len(rows))
	for i, row := range rows {
		ops[i] = Del(row)
	}
	return ops
}

func init() {
	RegisterCase(&Case{
		Name: "empty", About: "a table that nothing was put into, published",
		Columns: plainColumns, Key: []string{"id"}, Options: map[string]string{"bucket": "2"},
		Steps: []Step{Publish},
	})
	one := rowsOf(plainColumns, []any{1, "one", "1.00", true})
	RegisterCase(&Case{
		Name: "one_row", About: "a single row",
		Columns: plainColumns, Key: []string{"id"}, Options: map[string]string{"bucket": "1"},
		Steps: []Step{{Ops: puts(one), Compact: true, Export: true}},
	})
	some := rowsOf(plainColumns, []any{1, "a", "1.00", true}, []any{2, "b", "-2.50", false}, []any{3, nil, nil, nil},
		[]any{4, "d", "0.00", true}, []any{-5, "e", "9999999999.99", nil})
	RegisterCase(&Case{
		Name: "all_deleted", About: "rows published, then every one deleted and published again, then a key comes back",
		Columns: plainColumns, Key: []string{"id"}, Options: map[string]string{"bucket": "2"},
		Steps: []Step{
			{Ops: puts(some), Compact: true, Export: true},
			{Ops: deletes(some[:2])},
			{Ops: append(deletes(some), Del(map[string]any{"id": 77, "name": nil, "amount": nil, "ok": nil})), Compact: true, Export: true},
			{Ops: puts(some[3:4])},
			{Ops: deletes(some[3:4]), Compact: true, Export: true},
		},
	})
	wide := []Column{{"k", "INT NOT NULL"}, {"b", "BOOLEAN"}, {"i", "INT"}, {"l", "BIGINT"}, {"f", "FLOAT"}, {"d", "DOUBLE"},
		{"n", "DECIMAL(20, 5)"}, {"s", "STRING"}, {"x", "BYTES"}, {"day", "DATE"}, {"at", "TIMESTAMP(6)"},
		{"z", "TIMESTAMP(6) WITH LOCAL TIME ZONE"}}
	nothing := func(k int) []any { return append([]any{k}, make([]any, len(wide)-1)...) }
	mixed := []any{3, true, 1, 2, 1.5, 2.5, "3.00000", "s", "00ff", "2020-02-29", "2020-02-29T12:00:00.000001000", "2020-02-29T12:00:00.000001000"}
	RegisterCase(&Case{
		Name: "nulls", About: "every column but the key null, in all rows of a file and mixed with values",
		Columns: wide, Key: []string{"k"}, Options: map[string]string{"bucket": "1"},
		Steps: []Step{
			{Ops: puts(rowsOf(wide, nothing(1), nothing(2))), Compact: true, Export: true},
			{Ops: puts(rowsOf(wide, mixed, nothing(4))), Compact: true, Export: true},
			{Ops: puts(rowsOf(wide, nothing(3))), Compact: true, Export: true},
		},
	})
}
