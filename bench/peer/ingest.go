package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// ingest measures the whole way from a topic of a real broker into a primary-key table of two buckets that is compacted as
// it grows: the binary `calve serve`, and a Flink job with Paimon's connector and its usual commits every ten seconds. Both
// are processes of their own, measured from their start to their end, and must leave the same rows.
type ingest struct {
	messages, keys int
	jars, more     string // of the broker, and what Flink needs to read it
	rate           int
	latency        time.Duration
}

// The table and the work of both sides.
const (
	ingestTopic      = "orders"
	ingestPartitions = 4
	ingestColumns    = "id BIGINT NOT NULL, customer STRING, email STRING, product STRING, city STRING, qty INT, state INT, amount DECIMAL(10, 2), created_at TIMESTAMP(6), active BOOLEAN"
	ingestInterval   = time.Second
)

// used is what a process took from its start to its end.
type used struct {
	wall, cpu time.Duration
	rss       int64 // most bytes that were resident
}

func usedBy(state *os.ProcessState, began time.Time) used {
	u := used{wall: time.Since(began), cpu: state.UserTime() + state.SystemTime()}
	if ru, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.rss = ru.Maxrss << 10
	}
	return u
}

func (u used) rate(rows int) float64 { return float64(rows) / u.cpu.Seconds() }

func (g ingest) run(ctx context.Context, cfg config, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(cfg.scratch, "calve-ingest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := startBroker(ctx, g.jars, filepath.Join(dir, "kafka"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	bin := filepath.Join(dir, "calve")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/calve").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, text)
	}
	flink, err := g.compileFlink(ctx, cfg, dir)
	if err != nil {
		return err
	}
	if err := b.create(ctx, ingestTopic, ingestPartitions); err != nil {
		return err
	}
	bytes, err := b.fill(ctx, ingestTopic, g.messages, g.keys)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ingest: %d messages of %d bytes are in the topic\n", g.messages, bytes/int64(g.messages))
	text, err := g.rounds(ctx, cfg, dir, out, func(ctx context.Context, dir string) (used, error) { return g.calve(ctx, bin, b.address, dir) },
		func(ctx context.Context, dir string) (used, error) { return flink.ingest(ctx, b.address, dir) })
	if err != nil {
		return err
	}
	for _, interval := range cfg.follow.intervals {
		if g.latency == 0 {
			break
		}
		line, err := g.latencies(ctx, bin, b, filepath.Join(dir, "latency-"+interval.String()), interval)
		if err != nil {
			return err
		}
		fmt.Fprint(out, line)
		text += line
	}
	if cfg.out == "" {
		return nil
	}
	return saveLines(ctx, cfg.out, "ingest", text)
}

// rounds lets both sides read the topic in turn. The first round warms up the disk and the broker and does not count.
func (g ingest) rounds(ctx context.Context, cfg config, dir string, out io.Writer, sides ...func(context.Context, string) (used, error)) (text string, err error) {
	names := []string{"calve", "flink"}
	rates, most := make([][]float64, len(sides)), make([]int64, len(sides))
	var ratios []float64
	for round := range cfg.rounds + 1 {
		var sums [2]sum
		var now [2]float64
		for i, side := range sides {
			place := filepath.Join(dir, fmt.Sprintf("%s-%d", names[i], round))
			u, err := side(ctx, place)
			if err != nil {
				return "", fmt.Errorf("%s: %w", names[i], err)
			}
			if sums[i], err = readAll(ctx, filepath.Join(place, "db.db", "t")); err == nil {
				err = os.RemoveAll(place)
			}
			if err != nil {
				return "", err
			}
			now[i] = u.rate(g.messages)
			line := fmt.Sprintf("ingest: round=%d side=%s wall_s=%.1f cpu_s=%.1f rows_per_cpu_s=%.0f rss_mib=%d\n", round, names[i], u.wall.Seconds(), u.cpu.Seconds(), now[i], u.rss>>20)
			fmt.Fprint(out, line)
			text += line
			if round > 0 {
				rates[i], most[i] = append(rates[i], now[i]), max(most[i], u.rss)
			}
		}
		if sums[0] != sums[1] {
			return "", fmt.Errorf("the tables differ: rows and checksum are %v in calve's, %v in Flink's", sums[0], sums[1])
		}
		if round > 0 {
			ratios = append(ratios, now[0]/now[1])
		}
	}
	line := fmt.Sprintf("ingest: messages=%d%s calve_rows_per_cpu_s=%.0f flink_rows_per_cpu_s=%.0f calve_rss_mib=%d flink_rss_mib=%d\n", g.messages,
		ratioText("ingest_vs_flink", spreadOf(ratios)), spreadOf(rates[0]).median, spreadOf(rates[1]).median, most[0]>>20, most[1]>>20)
	fmt.Fprint(out, line)
	return text + line, nil
}

// readAll reads a table of either side.
func readAll(ctx context.Context, dir string) (s sum, err error) {
	st, err := storage.NewLocal(dir)
	if err != nil {
		return s, err
	}
	for rec, err := range lab.Reader(st).Scan(ctx, reader.Query{}) {
		if err != nil {
			return s, err
		}
		s.add(rec)
	}
	return s, nil
}

// server is a `calve serve` with one pipeline from the topic into db.t.
type server struct {
	cmd   *exec.Cmd
	log   *os.File
	url   string
	began time.Time
}

func (g ingest) serve(ctx context.Context, bin, broker, topic, dir string, interval time.Duration) (_ *server, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`warehouse: file://%s
listen: 127.0.0.1:%d
pipelines:
- name: orders
  table: db.t
  kafka: {brokers: [%q], topic: %s}
  commit-interval: %s
  export: {iceberg: false}
  create:
    columns: %s
    primary-key: [id]
    options: {bucket: "2"}
`, dir, port, broker, topic, interval, ingestColumns)
	name := filepath.Join(dir, "calve.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return nil, err
	}
	s := &server{cmd: exec.CommandContext(ctx, bin, "serve", "-c", name), url: fmt.Sprintf("http://127.0.0.1:%d/status", port)}
	if s.log, err = os.Create(filepath.Join(dir, "calve.log")); err != nil {
		return nil, err
	}
	s.cmd.Stderr = s.log
	s.began = time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	return s, nil
}

// stop ends the server in order.
func (s *server) stop() (used, error) {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	err = errors.Join(err, s.cmd.Wait(), s.log.Close())
	u := usedBy(s.cmd.ProcessState, s.began)
	if err != nil {
		text, _ := os.ReadFile(s.log.Name())
		err = fmt.Errorf("calve serve: %w: %s", err, text[max(0, len(text)-4000):])
	}
	return u, err
}

// pipelineState is what the status tells of the pipeline.
type pipelineState struct {
	Records, Lag, BufferedRows, CompactionDebtBytes int64
	Error                                           string
}

func (s *server) status(ctx context.Context) (st pipelineState, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return st, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	var all struct{ Pipelines []pipelineState }
	if err := json.NewDecoder(res.Body).Decode(&all); err != nil {
		return st, err
	}
	if len(all.Pipelines) != 1 {
		return st, fmt.Errorf("the status tells of %d pipelines", len(all.Pipelines))
	}
	if st = all.Pipelines[0]; st.Error != "" {
		err = fmt.Errorf("the pipeline failed: %s", st.Error)
	}
	return st, err
}

// calve runs the server until it has read and committed the topic, and owes no compaction.
func (g ingest) calve(ctx context.Context, bin, broker, dir string) (u used, err error) {
	s, err := g.serve(ctx, bin, broker, ingestTopic, dir, ingestInterval)
	if err != nil {
		return u, err
	}
	for end := time.Now().Add(10 * time.Minute); ; {
		st, err := s.status(ctx)
		var refused *os.SyscallError
		if err != nil && !errors.As(err, &refused) { // it begins to listen when it is ready
			_, serr := s.stop()
			return u, errors.Join(err, serr)
		}
		if st.Records == int64(g.messages) && st.BufferedRows == 0 && st.CompactionDebtBytes == 0 {
			return s.stop()
		}
		if time.Now().After(end) {
			_, serr := s.stop()
			return u, errors.Join(fmt.Errorf("not done in ten minutes: %+v", st), serr)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// flinkIngest is the compiled program.
type flinkIngest struct{ classes string }

// compileFlink fetches what Flink needs to read a topic, and compiles FlinkIngest.java.
func (g ingest) compileFlink(ctx context.Context, cfg config, dir string) (f flinkIngest, err error) {
	if _, err := os.Stat(cfg.follow.jars); err != nil {
		return f, fmt.Errorf("no jars of Flink in %s (run `make interop` once, or name their folder with -flink-jars): %w", cfg.follow.jars, err)
	}
	if _, err := os.Stat(g.more); errors.Is(err, os.ErrNotExist) {
		to, err := filepath.Abs(g.more)
		if err != nil {
			return f, err
		}
		fetch := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join("bench", "peer", "java", "ingest-pom.xml"),
			"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+to)
		if text, err := fetch.CombinedOutput(); err != nil {
			return f, errors.Join(fmt.Errorf("mvn: %w: %s", err, text), os.RemoveAll(g.more))
		}
	}
	out := filepath.Join(dir, "classes")
	f.classes = strings.Join([]string{out, filepath.Join(cfg.follow.jars, "*"), filepath.Join(g.more, "*")}, ":")
	compile := exec.CommandContext(ctx, "javac", "-d", out, "-cp", f.classes, filepath.Join("bench", "peer", "java", "FlinkIngest.java"))
	if text, err := compile.CombinedOutput(); err != nil {
		return f, fmt.Errorf("javac: %w: %s", err, text)
	}
	return f, nil
}

// ingest runs one job to its end.
func (f flinkIngest) ingest(ctx context.Context, broker, dir string) (u used, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return u, err
	}
	args := []string{"-Xmx2g"}
	for _, p := range flinkOpens {
		args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	cmd := exec.CommandContext(ctx, "java", append(args, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f.classes, "FlinkIngest", broker, ingestTopic, dir)...)
	began := time.Now()
	text, err := cmd.CombinedOutput()
	if err != nil {
		return u, fmt.Errorf("java: %w: %s", err, text[max(0, len(text)-4000):])
	}
	return usedBy(cmd.ProcessState, began), nil
}
