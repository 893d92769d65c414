//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Connect is a worker of Kafka Connect that has Debezium's connector for PostgreSQL.
type Connect struct {
	address string // http://host:port
	process *Process
}

// Connect starts a worker. It is to be stopped by who asked for it.
func (l *Lab) Connect(ctx context.Context, kafka *Kafka) (*Connect, error) {
	jars, err := l.Cache.Jars(ctx, "connect", "org.apache.kafka:connect-runtime:4.1.1", "org.apache.kafka:connect-json:4.1.1",
		"io.debezium:debezium-connector-postgres:3.3.1.Final", "org.slf4j:slf4j-simple:1.7.36")
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	c := &Connect{address: fmt.Sprintf("http://127.0.0.1:%d", port)}
	config := filepath.Join(l.Data, "connect.properties")
	// A repeat that the producer makes itself, when brokers go, would be one of the same event at the same place.
	text := fmt.Sprintf(`bootstrap.servers=%s
listeners=%s
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename=%s
offset.flush.interval.ms=1000
topic.creation.enable=true
producer.enable.idempotence=true
producer.compression.type=lz4
`, kafka.Address, c.address, filepath.Join(l.Data, "connect.offsets"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	c.process, err = l.Start("connect", exec.Command("java", "-Xmx768m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", filepath.Join(jars, "*"), "org.apache.kafka.connect.cli.ConnectStandalone", config))
	if err != nil {
		return nil, err
	}
	return c, c.process.WaitReady(ctx, 2*time.Minute, probeHTTP(c.address+"/connectors", nil))
}

// Stop ends the worker.
func (c *Connect) Stop() error {
	if c.process.Alive() != nil {
		return nil
	}
	err := c.process.Stop(20 * time.Second)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // a JVM tells by its status that a signal ended it
	}
	return err
}

// Follow has the connector read a database into topics PREFIX.SCHEMA.TABLE, whose events tell their transaction; that of one
// table has a single partition, in which the events of a transaction stand together.
func (c *Connect) Follow(ctx context.Context, pg *Postgres, prefix, whole string) error {
	config := map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
		"database.hostname": "127.0.0.1", "database.port": fmt.Sprint(pg.Port), "database.user": "postgres",
		"database.password": "unused", "database.dbname": database, "topic.prefix": prefix, "slot.name": prefix, "publication.name": prefix,
		"skipped.operations": "none", "poll.interval.ms": "50",
		"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true",
		"key.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
		"topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "1",
		"provide.transaction.metadata": "true", "topic.creation.groups": "whole",
		"topic.creation.whole.include": prefix + "[.]" + whole, "topic.creation.whole.partitions": "1", "topic.creation.whole.replication.factor": "1",
	}
	body, err := json.Marshal(config)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.address+"/connectors/"+prefix+"/config", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer strings.Builder
	if _, err := copyLimited(&answer, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("connector %s: %s: %s", prefix, resp.Status, tailOf([]byte(answer.String())))
	}
	return nil
}

// Running is nil while the connector works; else it says what keeps it from that.
func (c *Connect) Running(ctx context.Context, name string) error {
	if err := c.process.Alive(); err != nil {
		return err
	}
	text, err := httpGet(ctx, c.address+"/connectors/"+name+"/status")
	if err != nil {
		return err
	}
	var status struct {
		Tasks []struct{ State, Trace string }
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return err
	}
	for _, t := range status.Tasks {
		if t.State != "RUNNING" {
			return fmt.Errorf("the connector's task is %s: %s", t.State, tailOf([]byte(t.Trace)))
		}
	}
	if len(status.Tasks) == 0 {
		return fmt.Errorf("the connector has no task yet")
	}
	return nil
}
