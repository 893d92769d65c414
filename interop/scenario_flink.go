//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Flink and calve on one table at the same time. What is safe: calve's own commits are conditional puts; Flink's look
// first and then copy, so that beside any other writer they need a lock, or turns. Where both commit at once, the
// scenarios put a [guard] before the S3 server; "flink-turns" is the arrangement that needs none.
func init() {
	for _, s := range []struct {
		name string
		run  func(*flinkRig, context.Context) error
	}{
		{"flink-inserts", (*flinkRig).inserts},
		{"flink-compacts", (*flinkRig).compacts},
		{"flink-feeds", (*flinkRig).feeds},
		{"flink-follows", (*flinkRig).follows},
		{"flink-turns", (*flinkRig).turns},
		{"flink-vectors", (*flinkRig).vectors},
	} {
		RegisterScenario(Scenario{Name: s.name, Run: func(ctx context.Context, l *Lab, report *Report) {
			report.Check(s.name, "flink", func() error {
				r := &flinkRig{lab: l, report: report, name: s.name, table: "beside." + strings.ReplaceAll(s.name, "-", "_")}
				ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
				defer cancel()
				return errors.Join(s.run(r, ctx), r.close())
			})
		}})
	}
}

// flinkColumns are the columns of all these tables; k is the key.
var flinkColumns = []Column{{"k", "BIGINT NOT NULL"}, {"v", "STRING"}, {"n", "BIGINT"}}

// flinkRig is what a scenario with Flink needs: the table, its model, and calve as a service.
type flinkRig struct {
	lab    *Lab
	report *Report
	name   string
	table  string
	flink  *Flink
	place  *Place
	guard  *guard
	model  *Model

	producer *kgo.Client
	sent     int64
	serve    *Process
	listen   string
}

// prepare starts Flink and makes the table, behind a guard or on a place that is given.
func (r *flinkRig) prepare(ctx context.Context, place *Place, options map[string]string) (err error) {
	if r.flink, err = r.lab.Flink(ctx); err != nil {
		return err
	}
	if r.place = place; place == nil {
		if r.place, r.guard, err = r.lab.Guarded(ctx, "flink"); err != nil {
			return err
		}
	}
	if r.model, err = NewModel(flinkColumns, []string{"k"}); err != nil {
		return err
	}
	return r.place.Create(ctx, r.table, &Case{Name: r.name, Columns: flinkColumns, Key: []string{"k"}, Options: options})
}

// commitInterval leaves Flink's commits room on a slow machine, where one attempt of it takes a second and more: beside a
// writer that publishes as often as that, it loses race after race.
const commitInterval = 3 * time.Second

// startServe starts calve on the table, reading a topic of its own.
func (r *flinkRig) startServe(ctx context.Context, workers int) error {
	kafka, err := r.lab.Kafka(ctx)
	if err != nil {
		return err
	}
	r.producer, err = kgo.NewClient(kgo.SeedBrokers(kafka.Address), kgo.DefaultProduceTopic(r.name), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	topics, err := kadm.NewClient(r.producer).CreateTopics(ctx, 1, 1, nil, r.name)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	r.listen = fmt.Sprintf("127.0.0.1:%d", port)
	s3 := r.place.S3
	config := fmt.Sprintf(`warehouse: %s
listen: %s
s3: {endpoint: %q, region: %q, access-key: %q, secret-key: %q, path-style: true}
pipelines:
  - name: beside
    table: %s
    kafka: {brokers: [%q], topic: %s}
    commit-interval: %s
    compaction: {workers: %d}
    export: {iceberg: false}
`, r.place.Warehouse, r.listen, s3.Endpoint, s3.Region, s3.Access, s3.Secret, r.table, kafka.Address, r.name, commitInterval, workers)
	file := filepath.Join(r.lab.Data, r.name+".yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	r.serve, err = r.lab.Start(r.name+"-serve", exec.Command(r.lab.Binary, "serve", "-c", file))
	if err != nil {
		return err
	}
	return r.serve.WaitReady(ctx, time.Minute, func(ctx context.Context) error {
		s, err := r.status(ctx)
		if err == nil && s.State != "running" {
			err = fmt.Errorf("the pipeline is %s: %s", s.State, s.Error)
		}
		return err
	})
}

// serveStatus is what calve tells about its pipeline.
type serveStatus struct {
	State, Error                                                          string
	Restarts, Records, Commits, Compactions, CompactionsFailed, Conflicts int64
	CommitRaces                                                           int64
}

func (r *flinkRig) status(ctx context.Context) (s serveStatus, err error) {
	text, err := httpGet(ctx, "http://"+r.listen+"/status")
	if err != nil {
		return s, err
	}
	var all struct{ Pipelines []serveStatus }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return s, err
	}
	if len(all.Pipelines) != 1 {
		return s, fmt.Errorf("%d pipelines in %s", len(all.Pipelines), clip(text))
	}
	return all.Pipelines[0], nil
}

// send produces changes and takes them into the model.
func (r *flinkRig) send(ctx context.Context, ops ...Op) error {
	for _, op := range ops {
		row, err := toCalve(op.Row, flinkColumns)
		if err != nil {
			return err
		}
		row["op"] = op.Kind
		value, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if err := r.producer.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return err
		}
		r.sent++
	}
	return r.model.Apply(ops)
}

// until asks again and again until done says so.
func (r *flinkRig) until(ctx context.Context, what string, patience time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v", what, patience)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// finishServe waits until calve has committed everything that was sent, and ends it. It must not have been restarted.
func (r *flinkRig) finishServe(ctx context.Context) (s serveStatus, err error) {
	err = r.until(ctx, "calve commits all records", 2*time.Minute, func() (bool, error) {
		s, err = r.status(ctx)
		return s.Records >= r.sent, errors.Join(err, r.serve.Alive())
	})
	if err != nil {
		return s, err
	}
	if s.Restarts != 0 || s.Records != r.sent || s.State != "running" {
		return s, fmt.Errorf("calve after %d records: %+v", r.sent, s)
	}
	serve := r.serve
	r.serve = nil
	return s, serve.Stop(time.Minute)
}

func (r *flinkRig) close() error {
	if r.producer != nil {
		r.producer.Close()
	}
	if r.serve == nil {
		return nil
	}
	return r.serve.Stop(time.Minute)
}

// agree compares what calve and Flink read with the model and lets calve verify the table, its history included.
func (r *flinkRig) agree(ctx context.Context, when string) error {
	want, err := r.model.Rows()
	if err != nil {
		return err
	}
	got, err := r.place.Scan(ctx, r.table, 0, flinkColumns)
	if err == nil {
		err = want.Compare(got)
	}
	if err != nil {
		return fmt.Errorf("%s, read by calve: %w", when, err)
	}
	got, err = r.flink.Select(ctx, r.place, "SELECT * FROM "+r.table, flinkColumns)
	if err == nil {
		err = want.Compare(got)
	}
	if err != nil {
		return fmt.Errorf("%s, read by Flink: %w", when, err)
	}
	if err := r.place.Verify(ctx, r.table); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}

// history is who made which snapshots.
type history struct {
	calve, flink, flinkCompact int
	turns                      int // times that a snapshot of one follows a snapshot of the other
}

// history reads the snapshot files themselves. None may be missing.
func (r *flinkRig) history() (h history, err error) {
	ids, err := r.place.snapshots(r.table)
	if err != nil {
		return h, err
	}
	before := ""
	for i, id := range ids {
		if id != int64(i)+1 {
			return h, fmt.Errorf("snapshot %d is missing", i+1)
		}
		text, err := os.ReadFile(filepath.Join(r.place.folder(r.table), "snapshot", "snapshot-"+strconv.FormatInt(id, 10)))
		if err != nil {
			return h, err
		}
		var s struct{ CommitUser, CommitKind string }
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&s); err != nil {
			return h, fmt.Errorf("snapshot %d: %w", id, err)
		}
		who := "flink"
		switch {
		case strings.HasPrefix(s.CommitUser, "calve-"):
			who = "calve"
			h.calve++
		case s.CommitKind == "COMPACT":
			h.flinkCompact++
		default:
			h.flink++
		}
		if before != "" && before != who {
			h.turns++
		}
		before = who
	}
	return h, nil
}
