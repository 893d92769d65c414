//go:build interop

package interop

import "context"

func init() { RegisterJudge(&duckDB{}) }

// duckDB is DuckDB with its iceberg extension, on the local folder and by REST with files on S3.
type duckDB struct{ icebergWorker }

func (*duckDB) Name() string           { return "duckdb" }
func (*duckDB) Applies(c *Case) string { return c.Refusal }

func (d *duckDB) Start(ctx context.Context, l *Lab) (err error) {
	d.routes = []Route{Directory, RESTS3}
	d.types = map[string]string{"integer": "int", "bigint": "long", "varchar": "string", "blob": "binary",
		"timestamp with time zone": "timestamptz"}
	d.Worker, err = l.Python(ctx, "duckdb", "duckdb_reader.py", nil)
	return err
}

func (d *duckDB) Check(ctx context.Context, s *Subject) error { return checkIceberg(ctx, d, s) }
