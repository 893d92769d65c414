// Package interop judges calve by the programs it must live with: real, pinned releases of pypaimon,
// Paimon Java, Trino, DuckDB, PyIceberg, Spark and Kafka, and a real S3 server. `make interop` runs it.
// Everything but this file is behind the build tag "interop".
//
// # How it works
//
// The suite is a black box: it drives the calve binary by its command line and never imports calve's
// packages, so that a mistake in them cannot hide itself here. A [Case] is a table, the changes put into it
// step by step, and nothing else; a model (a map by key) says what each step must leave behind. A [Judge]
// is one peer: it reads what calve wrote and compares. The result is one table, case × judge.
// Scenarios that are no plain table (golden tables, kills) fill rows of the same table.
//
// Peers are fetched once into .cache/peers by their ordinary clients, started on free loopback ports and
// stopped by the suite; their logs and the tables stay in .cache/peers/runs until the next run.
//
//   - To add a case: one file case_NAME.go with a call of [RegisterCase].
//   - To add a peer: one file peer_NAME.go with a call of [RegisterJudge]; if it is a program of its own,
//     a reader under peers/ that speaks the line protocol of peers/python/worker.py.
//
// # The normal form
//
// Values pass between programs as JSON lines, one object a row with every column by name:
//
//	BOOLEAN                   true, false
//	TINYINT … BIGINT          number
//	FLOAT, DOUBLE             number, or "NaN", "Infinity", "-Infinity"
//	DECIMAL                   string, plain digits
//	CHAR, VARCHAR             string
//	BINARY, VARBINARY         string, hex
//	DATE                      string, 1969-12-31
//	TIME                      number, milliseconds of the day
//	TIMESTAMP, TIMESTAMP_LTZ  string, 1969-12-31T23:59:59.123456789 (LTZ in UTC)
//	null                      null
//
// This is the form of the golden tables. Readers of a row set sort it, so order means nothing. What reads the
// form is lenient on shape (numbers as strings, a space for the T, fewer fraction digits) and strict on value.
package interop
