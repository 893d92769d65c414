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
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() { RegisterScenario(Scenario{Name: "registry", Run: judgeRegistry}) }

const registryOrders = 3000

// registryForms are the topics and what their schemas make of an order.
var registryForms = []struct {
	topic, format, table string
	columns              []Column
}{
	{"orders-avro", "avro", "registered.avro", registryColumns("DECIMAL(10, 2)", "TIMESTAMP_LTZ(6)")},
	{"orders-protobuf", "protobuf", "registered.protobuf", registryColumns("DOUBLE", "TIMESTAMP_LTZ(9)")},
	{"orders-json", "json-schema", "registered.json", registryColumns("DOUBLE", "TIMESTAMP_LTZ(6)")},
}

func registryColumns(price, at string) []Column {
	return []Column{{"id", "BIGINT"}, {"customer", "STRING"}, {"price", price}, {"at", at}, {"state", "STRING"},
		{"tags", "ARRAY<STRING>"}, {"place", "ROW<`city` STRING, `lat` DOUBLE>"}, {"quantity", "INT"}}
}

// judgeRegistry has Confluent's own serializers write orders by a registry, in three forms and two versions of the schema
// each, while calve follows. The tables, whose columns nobody has declared, must hold what was written last of each key.
func judgeRegistry(ctx context.Context, l *Lab, report *Report) {
	r := &registryRun{lab: l, place: l.Local(), want: map[string]*Rows{}}
	report.Always("registry", "confluent", func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, 6*time.Minute, errors.New("the scenario took too long"))
		defer cancel()
		return r.run(ctx)
	})
	if report.Failed("registry", "confluent") {
		return
	}
	for _, j := range judges {
		reader, ok := j.Judge.(PaimonReader)
		if !ok {
			continue
		}
		report.Check("registry", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errors.New("the check took too long"))
			defer cancel()
			for _, f := range registryForms {
				got, err := reader.Read(ctx, PaimonTable{Warehouse: r.place.Warehouse, Name: f.table}, 0, f.columns)
				if err == nil {
					err = r.want[f.topic].Compare(got)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", f.format, err)
				}
			}
			return nil
		})
	}
}

type registryRun struct {
	lab      *Lab
	place    *Place
	kafka    *Kafka
	registry *Registry
	want     map[string]*Rows // by topic
}

func (r *registryRun) run(ctx context.Context) (err error) {
	python, err := r.lab.Cache.Venv(ctx, "registry", r.lab.Peers("python", "registry.txt"))
	if err != nil {
		return err
	}
	if r.kafka, err = r.lab.Kafka(ctx); err != nil {
		return err
	}
	if r.registry, err = r.lab.Registry(ctx); err != nil {
		return err
	}
	defer r.registry.Stop()
	if err := r.createTopics(ctx); err != nil {
		return err
	}
	server, status, err := r.serve()
	if err != nil {
		return err
	}
	if err := r.produce(ctx, python); err != nil {
		return errors.Join(err, server.Stop(30*time.Second))
	}
	err = server.WaitReady(ctx, 2*time.Minute, func(ctx context.Context) error { return r.caughtUp(ctx, status) })
	return errors.Join(err, server.Stop(30*time.Second))
}

func (r *registryRun) createTopics(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Address))
	if err != nil {
		return err
	}
	defer client.Close()
	for _, f := range registryForms {
		if _, err := kadm.NewClient(client).CreateTopic(ctx, 2, 1, nil, f.topic); err != nil {
			return err
		}
	}
	return nil
}

// serve starts calve with a pipeline for each topic, and gives the address of its status.
func (r *registryRun) serve() (*Process, string, error) {
	port, err := FreePort()
	if err != nil {
		return nil, "", err
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	text := fmt.Sprintf("warehouse: %s\nlisten: %s\nregistry: {urls: [%q]}\npipelines:\n", r.place.Warehouse, listen, r.registry.URL)
	for _, f := range registryForms {
		message := ""
		if f.format == "protobuf" {
			message = ", message: Order"
		}
		text += fmt.Sprintf("- name: %s\n  table: %s\n  kafka: {brokers: [%q], topic: %s}\n  format: {type: %[1]s, evolution: evolve}\n  create: {primary-key: [id]%[5]s}\n",
			f.format, f.table, r.kafka.Address, f.topic, message)
	}
	file := filepath.Join(r.lab.Data, "registry.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, "", err
	}
	p, err := r.lab.Start("registry-serve", exec.Command(r.lab.Binary, "serve", "-c", file))
	return p, "http://" + listen + "/status", err
}

// produce writes the orders, and learns what they end in.
func (r *registryRun) produce(ctx context.Context, python string) error {
	cmd := exec.CommandContext(ctx, python, r.lab.Peers("python", "registry_produce.py"), r.kafka.Address, r.registry.URL,
		fmt.Sprint(registryOrders), fmt.Sprint(r.lab.Seed))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("registry_produce.py: %w: %s", err, tailOf(errs.Bytes()))
	}
	var all map[string][]json.RawMessage
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		return err
	}
	for _, f := range registryForms {
		rows, err := ReadRows(bytes.NewReader(bytes.Join(rawLines(all[f.topic]), []byte("\n"))), f.columns)
		if err != nil {
			return err
		}
		if len(rows.Cells) == 0 {
			return fmt.Errorf("no orders were written into %s", f.topic)
		}
		r.want[f.topic] = rows
	}
	return nil
}

func rawLines(raw []json.RawMessage) [][]byte {
	lines := make([][]byte, len(raw))
	for i := range raw {
		lines[i] = raw[i]
	}
	return lines
}

// caughtUp is nil when all orders are in the tables and nothing was refused.
func (r *registryRun) caughtUp(ctx context.Context, status string) error {
	text, err := httpGet(ctx, status)
	if err != nil {
		return err
	}
	var st struct {
		Pipelines []struct {
			Name, Error                          string
			Records, Rejected, BufferedRows, Lag int64
		}
	}
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		return err
	}
	for _, p := range st.Pipelines {
		if p.Error != "" || p.Rejected > 0 || p.Records < registryOrders || p.BufferedRows > 0 {
			return fmt.Errorf("pipeline %s has read %d of %d records, %d rows wait, %d were refused: %s", p.Name, p.Records, registryOrders, p.BufferedRows, p.Rejected, p.Error)
		}
	}
	if len(st.Pipelines) != len(registryForms) {
		return fmt.Errorf("%d pipelines run", len(st.Pipelines))
	}
	return nil
}
