package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// broker is a real Kafka in a process of its own.
type broker struct {
	address string
	cmd     *exec.Cmd
	log     *os.File
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func startBroker(ctx context.Context, jars, dir string) (_ *broker, err error) {
	if _, err := os.Stat(jars); err != nil {
		return nil, fmt.Errorf("no jars of Kafka in %s (run `make interop` once, or name their folder with -kafka-jars): %w", jars, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	controller, err := freePort()
	if err != nil {
		return nil, err
	}
	b := &broker{address: fmt.Sprintf("127.0.0.1:%d", port)}
	text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://%[1]s,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
`, b.address, controller, filepath.Join(dir, "data"))
	name := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return nil, err
	}
	classes := filepath.Join(jars, "*")
	id, err := exec.CommandContext(ctx, "java", "-cp", classes, "kafka.tools.StorageTool", "random-uuid").Output()
	if err == nil {
		err = exec.CommandContext(ctx, "java", "-cp", classes, "kafka.tools.StorageTool", "format", "-t", strings.TrimSpace(string(id)), "-c", name).Run()
	}
	if err != nil {
		return nil, fmt.Errorf("kafka storage: %w", err)
	}
	if b.log, err = os.Create(filepath.Join(dir, "kafka.log")); err != nil {
		return nil, err
	}
	b.cmd = exec.CommandContext(ctx, "java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes, "kafka.Kafka", name)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, b.log.Close())
	}
	return b, nil
}

func (b *broker) stop() error {
	err := b.cmd.Process.Signal(os.Interrupt)
	_ = b.cmd.Wait() // a JVM that is interrupted ends with 130
	return errors.Join(err, b.log.Close())
}

// create makes a topic as soon as the broker answers.
func (b *broker) create(ctx context.Context, topic string, partitions int32) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, topic)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker does not answer (its log: %s): %w", b.log.Name(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// producer sends orders.
type producer struct {
	client *kgo.Client
	r      *rand.Rand
	failed atomic.Pointer[error]
	bytes  int64
}

func (b *broker) produce(topic string) (*producer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(50_000), kgo.ProducerLinger(5*time.Millisecond))
	return &producer{client: client, r: rand.New(rand.NewPCG(7, 11))}, err
}

var cities = [...]string{"Nuuk", "Ilulissat", "Tasiilaq", "Qaanaaq", "Longyearbyen", "Alert", "Barrow", "Ushuaia"}

// send sends the next version of an order.
func (p *producer) send(ctx context.Context, id int64, at time.Time) {
	v := fmt.Appendf(make([]byte, 0, 256), `{"id":%d,"customer":"c%07d","email":"user%d@example.org","product":"product %d","city":"%s","qty":%d,"state":%d,"amount":%d.%02d,"created_at":"%s","active":%t}`,
		id, p.r.IntN(1_000_000), p.r.IntN(1_000_000), p.r.IntN(5000), cities[p.r.IntN(len(cities))], p.r.IntN(100), p.r.IntN(5), p.r.IntN(10000), p.r.IntN(100),
		at.UTC().Format("2006-01-02 15:04:05.000000"), p.r.IntN(2) == 0)
	p.bytes += int64(len(v))
	p.client.Produce(ctx, &kgo.Record{Key: strconv.AppendInt(nil, id, 10), Value: v}, func(_ *kgo.Record, err error) {
		if err != nil {
			p.failed.CompareAndSwap(nil, &err)
		}
	})
}

func (p *producer) close(ctx context.Context) error {
	err := p.client.Flush(ctx)
	p.client.Close()
	if failed := p.failed.Load(); failed != nil {
		err = errors.Join(err, *failed)
	}
	return err
}

// fill sends n messages for random keys and gives their bytes.
func (b *broker) fill(ctx context.Context, topic string, n, keys int) (int64, error) {
	p, err := b.produce(topic)
	if err != nil {
		return 0, err
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		p.send(ctx, p.r.Int64N(int64(keys)), at.Add(time.Duration(i)*time.Millisecond+time.Duration(p.r.IntN(1000))*time.Microsecond))
	}
	return p.bytes, p.close(ctx)
}
