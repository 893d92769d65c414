// Package interop judges calve by the programs it must live with: real, pinned releases of pypaimon,
// Paimon Java, Flink, Trino, DuckDB, PyIceberg, Spark and Kafka, and a real S3 server. `make interop` runs it.
// Everything but this file is behind the build tag "interop".
//
// # How it works
//
// The suite is a black box: it drives the calve binary by its command line and (but for random histories,
// see below) does not import calve's packages, so that a mistake in them cannot hide itself here. A [Case] is
// a table, the changes put into it step by step, and nothing else; a model (a map by key) says what each step
// must leave behind. A [Judge] is one peer: it reads what calve wrote and compares. The result is one table,
// case × judge.
// Scenarios that are no plain table (golden tables, kills) fill rows of the same table.
//
// Peers are fetched once into .cache/peers by their ordinary clients, started on free loopback ports and
// stopped by the suite; their logs and the tables stay in .cache/peers/runs until the next run.
//
//   - To add a case: one file case_NAME.go with a call of [RegisterCase].
//   - To add a peer: one file peer_NAME.go with a call of [RegisterJudge]; if it is a program of its own,
//     a reader under peers/ that speaks the line protocol of peers/python/worker.py.
//
// # Random histories
//
// The differential tester (differ_*.go) makes random tables and random histories from a seed and takes them through
// calve and Paimon Java, one committer at a time. After every step the rows, the change stream, older states (by
// snapshot, tag, time and watermark), the changes between two of them, branches, and what consumers and expiry leave must
// be the same to both readers and to a model, whoever wrote last. History i of a run has the seed SEED + i,
// so each can be repeated alone; one that disagrees is shrunk and printed as a script. The closing line tells how many
// histories had each feature: what is not named there was not tried. Only this part calls calve's packages
// (differ_calve.go), because a process for each of some ten thousand calls would take longer than the work.
//
//		make interop ARGS="-run differential/paimon-java -seed 4711 -histories 1"
//
//	  - To add a feature: a line in differ_dimensions.go, or a step in differ_generate.go.
//
// The scenarios merge-ENGINE (scenario_merge.go) do the same for tables whose rows are merged in another way than by the
// last change: random options of each merge engine, random rows of all kinds that it takes. They have no model; both
// readers must agree after each step, and a full compaction of either side must leave the rows as they were.
// The scenarios changelog-ENGINE (scenario_changelog.go) write such histories twice, by calve and by Java, to tables that
// tell their changes: both streams, read by both, are the same, and calve's folds to its table.
//
// # Flink beside calve
//
// Scenarios named flink-… let Flink with Paimon's connector and a running calve work on one table at the same time:
// inserts into other buckets, dedicated compaction, calve's compaction of what Flink writes, streaming reads. Flink's
// commits on S3 are not conditional; where both commit, a guard (service_guard.go) before the S3 server refuses to
// overwrite a snapshot. That is a means of the suite, not an arrangement for users; flink-turns needs none.
//
// # Chaos
//
// `make chaos` (interop/chaos, and a short run as the scenario chaos; chaos*.go) kills `calve serve` again and again: one
// process on a local folder, one on S3, and two on S3 that share their tables and hang now and then. Before the S3 server
// is a saboteur (service_faults.go) that fails requests at random, loses replies, carries requests out when their sender has
// given up or is dead, cuts bodies, and has the process killed at requests worth dying at. Producers repeat records, hold
// them back, and abort transactions; the broker is killed too. In the end the logs, as readers of committed records see
// them, say what each table must hold; tails that have run all the while must come to the same, change by change.
// The seed repeats what is random in the program, not the timing of processes.
//
//   - To add a kind of table: an entry in chaosTables, and its name in chaos.stage.
//   - To add a fault: a case in saboteur.ServeHTTP.
//
// # A database beside calve
//
// The scenario cdc (scenario_cdc.go) has pgbench work on PostgreSQL, whose changes come by Debezium and Kafka to a running
// calve: columns come, go, become wider and get other names, calve is killed and the broker restarts. At the end the
// tables, and what Trino reads of the export, are the database's rows. -live says how long it works. The servers are
// real and fetched as the peers are; PostgreSQL comes in a Python wheel.
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
