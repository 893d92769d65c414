//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Kafka is a real broker.
type Kafka struct {
	Address string
	start   func() (*Process, error)
	process *Process
}

// Restart ends the broker, as a crash would or in order, and waits until it is there again.
func (k *Kafka) Restart(ctx context.Context, crash bool) (err error) {
	if crash {
		k.process.Kill()
	} else {
		_ = k.process.Stop(30 * time.Second) // it ends with the status of the signal, or is killed
	}
	if k.process, err = k.start(); err != nil {
		return err
	}
	return k.process.WaitReady(ctx, 2*time.Minute, probeTCP(k.Address))
}

// Kafka starts a broker when it is first asked for.
func (l *Lab) Kafka(ctx context.Context) (*Kafka, error) {
	return l.kafka.get(func() (*Kafka, error) {
		jars, err := l.Cache.Jars(ctx, "kafka", "org.apache.kafka:kafka_2.13:4.1.1", "org.slf4j:slf4j-simple:1.7.36")
		if err != nil {
			return nil, err
		}
		client, err := FreePort()
		if err != nil {
			return nil, err
		}
		controller, err := FreePort()
		if err != nil {
			return nil, err
		}
		config, err := l.kafkaConfig(client, controller)
		if err != nil {
			return nil, err
		}
		classes := filepath.Join(jars, "*")
		storage := func(args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, "java",
				append([]string{"-cp", classes, "kafka.tools.StorageTool"}, args...)...).Output()
			return strings.TrimSpace(string(out)), err
		}
		id, err := storage("random-uuid")
		if err != nil {
			return nil, fmt.Errorf("kafka storage id: %w", err)
		}
		if _, err := storage("format", "-t", id, "-c", config); err != nil {
			return nil, fmt.Errorf("kafka storage format: %w", err)
		}
		k := &Kafka{Address: fmt.Sprintf("127.0.0.1:%d", client)}
		k.start = func() (*Process, error) {
			return l.Start("kafka", exec.Command("java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
				"-cp", classes, "kafka.Kafka", config))
		}
		if k.process, err = k.start(); err != nil {
			return nil, err
		}
		return k, k.process.WaitReady(ctx, 2*time.Minute, probeTCP(k.Address))
	})
}

func (l *Lab) kafkaConfig(client, controller int) (string, error) {
	dir := filepath.Join(l.Data, "kafka")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
`, client, controller, filepath.Join(dir, "data"))
	path := filepath.Join(dir, "server.properties")
	return path, os.WriteFile(path, []byte(text), 0o644)
}
