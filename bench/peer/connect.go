package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// connect is Kafka Connect with Iceberg's sink: it appends the messages to a table, as the sink knows no updates. Its
// figures tell of less work than the others do.
type connect struct {
	classes string
	within  time.Duration // how long all rows may take
}

// connectInterval is the time between its commits, as Flink's.
const connectInterval = 10 * time.Second

// compileConnect fetches what Kafka Connect needs, and compiles ConnectTable.java.
func (g ingest) compileConnect(ctx context.Context, dir string) (c connect, err error) {
	if err := fetchJars(ctx, "connect-pom.xml", g.connectJars); err != nil {
		return c, err
	}
	out := filepath.Join(dir, "connect-classes")
	c.classes, c.within = strings.Join([]string{out, filepath.Join(g.connectJars, "*")}, ":"), 10*time.Minute
	compile := exec.CommandContext(ctx, "javac", "-d", out, "-cp", c.classes, filepath.Join("bench", "peer", "java", "ConnectTable.java"))
	if text, err := compile.CombinedOutput(); err != nil {
		return c, fmt.Errorf("javac: %w: %s", err, text)
	}
	return c, nil
}

// ingest runs a worker until its snapshots hold all messages.
func (c connect) ingest(ctx context.Context, broker, dir string, messages int) (u used, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return u, err
	}
	name, err := c.configure(broker, dir)
	if err != nil {
		return u, err
	}
	if text, err := exec.CommandContext(ctx, "java", "-cp", c.classes, "ConnectTable", "file://"+dir).CombinedOutput(); err != nil {
		return u, fmt.Errorf("java: %w: %s", err, text)
	}
	log, err := os.Create(filepath.Join(dir, "connect.log"))
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.CommandContext(ctx, "java", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", c.classes,
		"org.apache.kafka.connect.cli.ConnectStandalone", name+"-worker", name+"-sink")
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return u, err
	}
	ended := make(chan struct{})
	var died error // once ended is closed
	go func() {
		died = cmd.Wait()
		close(ended)
	}()
	done := c.wait(ctx, dir, messages, ended)
	if done != nil {
		text, _ := os.ReadFile(log.Name())
		done = fmt.Errorf("%w: %s", done, text[max(0, len(text)-4000):])
	}
	select {
	case <-ended:
		done = errors.Join(done, died)
	default:
		done = errors.Join(done, cmd.Process.Signal(syscall.SIGKILL)) // what it takes to stop does not count
		<-ended
	}
	return usedBy(cmd.ProcessState, began), done
}

// wait polls the table until it has all messages.
func (c connect) wait(ctx context.Context, dir string, messages int, ended <-chan struct{}) error {
	for end := time.Now().Add(c.within); ; {
		n, err := icebergRows(filepath.Join(dir, "db", "t"))
		switch {
		case err != nil:
			return err
		case n == messages:
			return nil
		case n > messages:
			return fmt.Errorf("the table has %d rows of %d messages", n, messages)
		case time.Now().After(end):
			return fmt.Errorf("not done in %s: the table has %d rows of %d messages", c.within, n, messages)
		}
		select {
		case <-ended:
			return errors.New("the worker ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// configure writes the configurations of the worker and the sink, and gives what their names begin with.
func (c connect) configure(broker, dir string) (string, error) {
	name := filepath.Join(dir, "connect")
	rest, err := freePort()
	if err != nil {
		return "", err
	}
	for file, text := range map[string]string{
		name + "-worker": fmt.Sprintf(`bootstrap.servers=%s
listeners=http://127.0.0.1:%d
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename=%s.offsets
connector.client.config.override.policy=All
`, broker, rest, name),
		name + "-sink": fmt.Sprintf(`name=iceberg-%[1]s
connector.class=org.apache.iceberg.connect.IcebergSinkConnector
tasks.max=2
topics=%[2]s
consumer.override.auto.offset.reset=earliest
iceberg.tables=db.t
iceberg.catalog.type=hadoop
iceberg.catalog.warehouse=file://%[3]s
iceberg.control.topic=control-%[1]s
iceberg.control.commit.interval-ms=%[4]d
`, filepath.Base(dir), ingestTopic, dir, connectInterval.Milliseconds()),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return name, nil
}

// icebergRows reads from the metadata of a table of a Hadoop catalog how many rows its snapshot has; 0 without one.
func icebergRows(dir string) (int, error) {
	hint, err := os.ReadFile(filepath.Join(dir, "metadata", "version-hint.text"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // it is being replaced
	}
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "metadata", "v"+strings.TrimSpace(string(hint))+".metadata.json"))
	if err != nil {
		return 0, err
	}
	var meta struct {
		Current   int64 `json:"current-snapshot-id"`
		Snapshots []struct {
			ID      int64             `json:"snapshot-id"`
			Summary map[string]string `json:"summary"`
		} `json:"snapshots"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return 0, err
	}
	for _, s := range meta.Snapshots {
		if s.ID == meta.Current {
			return strconv.Atoi(s.Summary["total-records"])
		}
	}
	return 0, nil
}
