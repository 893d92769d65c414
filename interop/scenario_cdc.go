//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

func init() { RegisterScenario(Scenario{Name: "cdc", Run: judgeCDC}) }

// judgeCDC has calve follow a PostgreSQL database by way of Debezium and Kafka while pgbench works on it, tables change,
// calve is killed and the broker restarts. Afterwards the tables, and what is exported of them, must be the database's.
func judgeCDC(ctx context.Context, l *Lab, report *Report) {
	var c *cdc
	report.Always("cdc", "debezium", func() (err error) {
		suite := ctx
		ctx, cancel := context.WithTimeoutCause(ctx, l.Live+6*time.Minute, errors.New("the scenario took too long"))
		defer cancel()
		if c, err = newCDC(ctx, l); err != nil {
			return err
		}
		for _, j := range judges { // those that take long to start do so meanwhile
			if j.Name() == "trino" && report.Filter.Wants("cdc", "trino") {
				go func() { _ = j.ready(suite, l) }() // the error is kept for its check
			}
		}
		return c.play(ctx, report)
	})
	if report.Failed("cdc", "debezium") {
		return
	}
	for _, j := range judges {
		read := c.readBy(j.Judge)
		if read == nil {
			continue
		}
		report.Check("cdc", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errors.New("the check took too long"))
			defer cancel()
			if err := c.compare(ctx, read); err != nil {
				return err
			}
			if read := c.readSnapshots(j.Judge); read != nil {
				return c.judgeSome(ctx, read)
			}
			return nil
		})
	}
}

const (
	cdcPrefix = "live" // of topics
	cdcRate   = 150    // transactions a second
)

// cdcBefore makes what pgbench -i does not: values in a column that will have another name, and a table without key.
var cdcBefore = []string{
	`UPDATE pgbench_tellers SET filler = 'teller ' || tid`,
	`CREATE TABLE ledger (n int, word text)`,
	`ALTER TABLE ledger REPLICA IDENTITY FULL`,
	`INSERT INTO ledger SELECT g % 20, 'first' FROM generate_series(1, ` + strconv.Itoa(cdcLedger) + `) g`,
}

// cdcScript is one of ten of pgbench's transactions: rows of the table without key come, change and go, some copies of many.
// As many go as come, and of those that no other transaction sees, so between transactions the table always has as many.
const cdcScript = `\set n random(0, 30)
\set m random(0, 30)
\set k random(1, 20)
BEGIN;
INSERT INTO ledger SELECT :n, CASE WHEN :m % 5 = 0 THEN NULL ELSE 'word ' || :m % 3 END FROM generate_series(1, :k);
UPDATE ledger SET word = 'changed' WHERE ctid = (SELECT ctid FROM ledger WHERE n = :m LIMIT 1);
UPDATE ledger SET n = :m WHERE xmin = pg_current_xact_id()::xid AND word <> 'changed';
DELETE FROM ledger WHERE ctid = ANY (ARRAY(SELECT ctid FROM ledger WHERE xmin = pg_current_xact_id()::xid LIMIT :k));
END;
`

// cdcLedger is how many rows the table without key has between transactions.
const cdcLedger = 200

// cdcSteps are what happens while pgbench works, and when, in hundredths of its time.
var cdcSteps = []struct {
	at  int
	sql []string
	do  func(c *cdc, ctx context.Context) error
}{
	{at: 20, sql: []string{ // a new column, with values that later events leave out (TOAST), and a new table
		`ALTER TABLE pgbench_accounts ADD COLUMN note text`,
		`ALTER TABLE pgbench_accounts ALTER COLUMN note SET STORAGE EXTERNAL`,
		`UPDATE pgbench_accounts SET note = repeat('note ' || aid || ' ', CASE WHEN aid <= 400 THEN 400 ELSE 1 END) WHERE aid <= 2000`,
		`CREATE TABLE rates (id int PRIMARY KEY, rate numeric(6,2), ok boolean, at timestamptz, day date, name varchar(5))`,
		`INSERT INTO rates SELECT g, g + 0.25, g % 2 = 0, '2026-01-02 03:04:05.678901+02', '2026-02-28', 'r' || g FROM generate_series(1, 50) g`,
	}},
	{at: 30, sql: []string{ // wider types; the sums stay equal
		`ALTER TABLE pgbench_accounts ALTER COLUMN abalance TYPE bigint`,
		`ALTER TABLE pgbench_tellers ALTER COLUMN tbalance TYPE bigint`,
		`ALTER TABLE pgbench_branches ALTER COLUMN bbalance TYPE bigint`,
		`ALTER TABLE pgbench_history ALTER COLUMN delta TYPE bigint`,
		`UPDATE pgbench_accounts SET abalance = abalance + 5000000000 WHERE aid = 77;
		UPDATE pgbench_tellers SET tbalance = tbalance + 5000000000 WHERE tid = 7;
		UPDATE pgbench_branches SET bbalance = bbalance + 5000000000 WHERE bid = 1;
		INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (7, 1, 77, 5000000000, now())`,
	}},
	{at: 40, do: (*cdc).kill},
	{at: 42, sql: []string{ // while calve is not there
		`ALTER TABLE pgbench_branches ADD COLUMN opened date DEFAULT '2026-01-02'`,
		`ALTER TABLE rates ALTER COLUMN rate TYPE numeric(12,2), ALTER COLUMN name TYPE text`,
		`UPDATE rates SET rate = 1234567890.12, name = 'longer than before' WHERE id = 3`,
		`UPDATE rates SET id = 100 WHERE id = 4; DELETE FROM rates WHERE id % 10 = 5`,
	}},
	{at: 46, do: (*cdc).serve},
	{at: 60, do: (*cdc).restartKafka},
	{at: 75, sql: []string{ // a column goes, another has a new name from now on
		`ALTER TABLE pgbench_accounts DROP COLUMN filler`,
		`ALTER TABLE pgbench_tellers RENAME COLUMN filler TO remark`,
		`ALTER TABLE rates DROP COLUMN ok`,
		`UPDATE rates SET day = day + 1 WHERE id < 10`,
	}},
}

// cdcAfter is done when pgbench has ended: all values of the renamed column are told under its new name.
const cdcAfter = `UPDATE pgbench_tellers SET tbalance = tbalance`

type cdc struct {
	lab      *Lab
	place    *Place
	postgres *Postgres
	connect  *Connect
	kafka    *Kafka
	config   string
	server   *Process // calve
	want     map[string]*Rows
	whole    []int64 // snapshots of the ledger from the first on that has all rows of before pgbench began
}

// newCDC starts the services side by side.
func newCDC(ctx context.Context, l *Lab) (*cdc, error) {
	c := &cdc{lab: l, want: map[string]*Rows{}}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if c.place, err = l.Remote(gctx); err != nil {
			return err
		}
		if c.kafka, err = l.Kafka(gctx); err == nil {
			c.connect, err = l.Connect(gctx, c.kafka)
		}
		return err
	})
	group.Go(func() (err error) {
		if c.postgres, err = l.Postgres(gctx); err != nil {
			return err
		}
		if err = c.postgres.Fill(gctx, 1); err == nil {
			err = c.postgres.Do(gctx, cdcBefore...)
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// stop ends the services, whatever state they are in.
func (c *cdc) stop() (err error) {
	if c.server != nil && c.server.Alive() == nil {
		c.server.Kill()
	}
	if c.connect != nil {
		err = c.connect.Stop()
	}
	if c.postgres != nil {
		err = errors.Join(err, c.postgres.Stop())
	}
	return err
}

// play goes through all of it, to tables that are compacted and exported.
func (c *cdc) play(ctx context.Context, report *Report) (err error) {
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.connect.Follow(ctx, c.postgres, cdcPrefix, "public[.]ledger"); err != nil {
		return err
	}
	bench, err := c.bench(ctx)
	if err != nil {
		return err
	}
	if err := c.follow(ctx, bench); err != nil {
		return errors.Join(err, bench.end())
	}
	if err := bench.end(); err != nil {
		return err
	}
	if err := c.postgres.Do(ctx, cdcAfter); err != nil {
		return err
	}
	return c.finish(ctx, report)
}

// follow lets calve follow the database through all steps.
func (c *cdc) follow(ctx context.Context, bench *cdcBench) error {
	if err := c.configure(); err != nil {
		return err
	}
	if err := c.awaitTopics(ctx); err != nil {
		return err
	}
	if err := c.serve(ctx); err != nil {
		return err
	}
	start := time.Now()
	for _, s := range cdcSteps {
		if err := c.await(ctx, bench, start.Add(c.lab.Live*time.Duration(s.at)/100)); err != nil {
			return err
		}
		var err error
		if s.do != nil {
			err = s.do(c, ctx)
		}
		if err = errors.Join(err, c.postgres.Do(ctx, s.sql...)); err != nil {
			return fmt.Errorf("at %d %% of the load: %w", s.at, err)
		}
	}
	return c.await(ctx, bench, start.Add(c.lab.Live))
}

// await waits for a moment up to which pgbench and calve must be there.
func (c *cdc) await(ctx context.Context, bench *cdcBench, until time.Time) error {
	select {
	case <-time.After(time.Until(until)):
	case <-bench.done:
		return errors.New("pgbench has failed") // end says how
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.server == nil { // it was killed
		return nil
	}
	return c.server.Alive()
}

// cdcBench is pgbench working in the background.
type cdcBench struct {
	enough chan struct{}
	done   chan struct{}
	err    error
	once   sync.Once
}

// bench starts it. It works in runs of some seconds, so that it ends in order however long the rest takes.
func (c *cdc) bench(ctx context.Context) (*cdcBench, error) {
	script := filepath.Join(c.lab.Data, "ledger.sql")
	if err := os.WriteFile(script, []byte(cdcScript), 0o644); err != nil {
		return nil, err
	}
	b := &cdcBench{enough: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		for run := uint64(0); ; run++ {
			select {
			case <-b.enough:
				return
			default:
			}
			if b.err = c.postgres.Bench(ctx, c.lab.Seed+run, 5, cdcRate, script); b.err != nil {
				return
			}
		}
	}()
	return b, nil
}

// end ends it in order and gives its error.
func (b *cdcBench) end() error {
	b.once.Do(func() { close(b.enough) })
	<-b.done
	return b.err
}

// awaitTopics waits until the tables that are there at the beginning have topics, so that calve finds them at its first look.
func (c *cdc) awaitTopics(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.kafka.Address))
	if err != nil {
		return err
	}
	defer client.Close()
	return c.connect.process.WaitReady(ctx, 2*time.Minute, func(ctx context.Context) error {
		topics, err := kadm.NewClient(client).ListTopics(ctx)
		if err != nil {
			return err
		}
		for _, t := range cdcTables {
			if name := cdcPrefix + ".public." + t.source; !t.late && !topics.Has(name) {
				return errors.Join(fmt.Errorf("there is no topic %s yet", name), c.connect.Running(ctx, cdcPrefix))
			}
		}
		return nil
	})
}

// configure writes calve's configuration: nothing says what columns there are.
func (c *cdc) configure() error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	s3 := c.place.S3
	text := fmt.Sprintf(`warehouse: %s
listen: 127.0.0.1:%d
s3: {endpoint: %q, region: %q, access-key: %q, secret-key: %q, path-style: true}
pipelines:
  - name: keyed
    table: bank.{1}
    kafka: {brokers: ["%[7]s"], topic-pattern: '%[8]s[.]public[.](?:pgbench_)?(.*)', except-pattern: '.*(history|ledger)'}
    format: {type: debezium-json, evolution: evolve}
    create: {}
  - name: appended
    table: bank.{1}
    kafka: {brokers: ["%[7]s"], topic-pattern: '%[8]s[.]public[.]pgbench_(history)'}
    format: {type: debezium-json, evolution: evolve, drop-repeats: true}
    create: {}
  - name: bags
    table: bank.{1}
    kafka:
      brokers: ["%[7]s"]
      topic-pattern: '%[8]s[.]public[.](ledger)'
      fields: {row_hash: row-hash, copies: copies}
    format: {type: debezium-json, evolution: evolve, drop-repeats: true}
    transactions: whole
    transaction-wait: 15s
    commit-interval: 300ms
    create:
      primary-key: [row_hash]
      options: {merge-engine: aggregation, fields.copies.aggregate-function: sum}
`, c.place.Warehouse, port, s3.Endpoint, s3.Region, s3.Access, s3.Secret, c.kafka.Address, cdcPrefix)
	c.config = filepath.Join(c.lab.Data, "cdc.yaml")
	return os.WriteFile(c.config, []byte(text), 0o644)
}

func (c *cdc) serve(context.Context) (err error) {
	c.server, err = c.lab.Start("cdc-serve", exec.Command(c.lab.Binary, "serve", "-c", c.config))
	return err
}

func (c *cdc) kill(context.Context) error {
	c.server.Kill()
	c.server = nil
	return nil
}

func (c *cdc) restartKafka(ctx context.Context) error { return c.kafka.Restart(ctx, false) }
