package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

func (a *app) createCmd() *cobra.Command {
	var columns, comment, avroFile, avroRow, parquetFile string
	var key, partition, options []string
	var ifNotExists bool
	c := &cobra.Command{
		Use:   "create TABLE",
		Short: "Create a table",
		Long: `Create a Paimon table. With a primary key a later row replaces an earlier one of the same key; without one the table
only grows.

Types: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), CHAR(n), VARCHAR(n), STRING, BINARY(n),
VARBINARY(n), BYTES, DATE, TIME(p), TIMESTAMP(p), TIMESTAMP_LTZ(p); NOT NULL after a type forbids nulls.`,
		Example: `  calve create shop.orders -w file:///data/lake \
      --columns "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12, 2), at TIMESTAMP(6)" --primary-key id
  calve create shop.clicks -w s3://lake/raw --columns "url STRING, day DATE" --partition day
  calve create shop.orders -w file:///data/lake --columns "…" --primary-key id --option bucket=4 --if-not-exists
  calve create shop.orders -w file:///data/lake --avro orders.avsc --primary-key id
  calve create shop.clicks -w file:///data/lake --parquet part-0.parquet`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.table(cmd.Context(), args[0], writes)
			if err != nil {
				return err
			}
			cols, err := columnsOf(columns, avroFile, avroRow, parquetFile)
			if err != nil {
				return err
			}
			opts, err := parseOptions(options)
			if err != nil {
				return err
			}
			s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: key, PartitionKeys: partition, Options: opts, Comment: comment, TimeMillis: time.Now().UnixMilli()})
			if err != nil {
				return err
			}
			existed := false
			if err := engine.Create(cmd.Context(), st, s); err != nil {
				if !errors.Is(err, manifest.ErrTableExists) {
					return err
				}
				if !ifNotExists {
					return fmt.Errorf("%w; --if-not-exists leaves it as it is, `calve describe %s` shows it", err, args[0])
				}
				existed = true
			}
			if a.json {
				return a.printJSON(map[string]any{"table": args[0], "location": st.URL(""), "created": !existed})
			}
			word := "created"
			if existed {
				word = "exists already:"
			}
			_, err = fmt.Fprintf(a.out, "%s %s at %s\n", word, args[0], st.URL(""))
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&columns, "columns", "", "columns as in SQL, e.g. \"id INT NOT NULL, tags ARRAY<STRING>, at ROW<x DOUBLE, y DOUBLE>\"")
	f.StringSliceVar(&key, "primary-key", nil, "columns of the primary key; partition columns must be among them")
	f.StringSliceVar(&partition, "partition", nil, "partition columns")
	f.StringArrayVar(&options, "option", nil, "Paimon table option as key=value; may be repeated")
	f.StringVar(&comment, "comment", "", "comment on the table")
	f.BoolVar(&ifNotExists, "if-not-exists", false, "do nothing when the table exists")
	f.StringVar(&avroFile, "avro", "", "file with an Avro schema (*.avsc) to take the columns from")
	f.StringVar(&avroRow, "avro-field", "", `with --avro: field whose record is the row, "after" for envelopes of Debezium`)
	f.StringVar(&parquetFile, "parquet", "", "Parquet file to take the columns from")
	c.MarkFlagsOneRequired("columns", "avro", "parquet")
	c.MarkFlagsMutuallyExclusive("columns", "avro", "parquet")
	return c
}

// columnsOf gives the columns that are given as in SQL, in a file as an Avro schema, or those of a Parquet file.
func columnsOf(text, avroFile, avroRow, parquetFile string) ([]schema.Column, error) {
	if parquetFile != "" {
		f, err := os.Open(parquetFile)
		if err != nil {
			return nil, fmt.Errorf("--parquet: %w", err)
		}
		defer f.Close()
		cols, err := ingest.ParquetColumns(f)
		if err != nil {
			return nil, fmt.Errorf("--parquet %s: %w", parquetFile, err)
		}
		return cols, nil
	}
	if avroFile == "" {
		cols, err := schema.ParseColumns(text)
		if err != nil {
			err = fmt.Errorf("--columns: %w", err)
		}
		return cols, err
	}
	avro, err := os.ReadFile(avroFile)
	if err != nil {
		return nil, fmt.Errorf("--avro: %w", err)
	}
	cols, err := decode.ColumnsOfAvro(decode.WriterSchema{Kind: decode.AvroSchema, Text: string(avro)}, avroRow)
	if err != nil {
		return nil, fmt.Errorf("--avro %s: %w", avroFile, err)
	}
	return cols, nil
}

func parseOptions(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, o := range list {
		k, v, ok := strings.Cut(o, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("--option %q: use key=value", o)
		}
		out[k] = v
	}
	return out, nil
}
