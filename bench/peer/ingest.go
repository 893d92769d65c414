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
// it grows: the binary `calve serve`, and a Flink job with Paimon's connector and its usual commits every ten seconds, which
// must leave the same rows. Beside them Kafka Connect appends the messages to an Iceberg table. All are processes of their
// own, measured from their start to their end.
type ingest struct {
	messages, keys int
	jars, more     string // of the broker, and what Flink needs to read it
	connectJars    string // of Kafka Connect and Iceberg's sink; '' leaves it out
	beside         string // another binary of calve, which is measured instead of the peers; "": none
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
	peers, err := g.peers(ctx, cfg, dir, b.address)
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
	own := side{"calve", true, func(ctx context.Context, dir string) (used, error) { return g.calve(ctx, bin, b.address, dir) }}
	text, err := g.rounds(ctx, cfg, dir, out, append([]side{own}, peers...))
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

// side is one of those that read the topic.
type side struct {
	name   string
	paimon bool // it leaves a Paimon table db.t, which must be the same as the others'; one that does not runs in the last round only
	run    func(ctx context.Context, dir string) (used, error)
}

// peers are the sides beside calve, compiled.
func (g ingest) peers(ctx context.Context, cfg config, dir, broker string) ([]side, error) {
	if g.beside != "" {
		return []side{{"beside", true, func(ctx context.Context, dir string) (used, error) { return g.calve(ctx, g.beside, broker, dir) }}}, nil
	}
	flink, err := g.compileFlink(ctx, cfg, dir)
	if err != nil {
		return nil, err
	}
	sides := []side{{"flink", true, func(ctx context.Context, dir string) (used, error) { return flink.ingest(ctx, broker, dir) }}}
	if g.connectJars == "" {
		return sides, nil
	}
	c, err := g.compileConnect(ctx, dir)
	return append(sides, side{"connect", false, func(ctx context.Context, dir string) (used, error) { return c.ingest(ctx, broker, dir, g.messages) }}), err
}

// rounds lets the sides, the first of which is calve, read the topic in turn. The first round warms up the disk and the
// broker and does not count.
func (g ingest) rounds(ctx context.Context, cfg config, dir string, out io.Writer, sides []side) (text string, err error) {
	rates, ratios, most := make([][]float64, len(sides)), make([][]float64, len(sides)), make([]int64, len(sides))
	for round := range cfg.rounds + 1 {
		var first sum
		own := 0.0
		for i, side := range sides {
			if !side.paimon && round < cfg.rounds { // it takes minutes, whatever the number of messages
				continue
			}
			place := filepath.Join(dir, fmt.Sprintf("%s-%d", side.name, round))
			u, err := side.run(ctx, place)
			if err != nil {
				return "", fmt.Errorf("%s: %w", side.name, err)
			}
			if side.paimon {
				rows, err := readAll(ctx, filepath.Join(place, "db.db", "t"))
				if err != nil {
					return "", fmt.Errorf("%s: %w", side.name, err)
				}
				if i == 0 {
					first = rows
				} else if rows != first {
					return "", fmt.Errorf("the tables differ: rows and checksum are %v in %s's, %v in %s's", first, sides[0].name, rows, side.name)
				}
			}
			if err := os.RemoveAll(place); err != nil {
				return "", err
			}
			now := u.rate(g.messages)
			line := fmt.Sprintf("ingest: round=%d side=%s wall_s=%.1f cpu_s=%.1f rows_per_cpu_s=%.0f rss_mib=%d\n", round, side.name, u.wall.Seconds(), u.cpu.Seconds(), now, u.rss>>20)
			fmt.Fprint(out, line)
			text += line
			if i == 0 {
				own = now
			}
			if round > 0 {
				rates[i], ratios[i], most[i] = append(rates[i], now), append(ratios[i], own/now), max(most[i], u.rss)
			}
		}
	}
	line := fmt.Sprintf("ingest: messages=%d", g.messages)
	for i, side := range sides[1:] {
		line += ratioText("ingest_vs_"+side.name, spreadOf(ratios[i+1]))
	}
	for i, side := range sides {
		line += fmt.Sprintf(" %[1]s_rows_per_cpu_s=%.0[2]f %[1]s_rss_mib=%[3]d", side.name, spreadOf(rates[i]).median, most[i]>>20)
	}
	fmt.Fprintln(out, line)
	return text + line + "\n", nil
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
	if err := fetchJars(ctx, "ingest-pom.xml", g.more); err != nil {
		return f, err
	}
	out := filepath.Join(dir, "classes")
	f.classes = strings.Join([]string{out, filepath.Join(cfg.follow.jars, "*"), filepath.Join(g.more, "*")}, ":")
	compile := exec.CommandContext(ctx, "javac", "-d", out, "-cp", f.classes, filepath.Join("bench", "peer", "java", "FlinkIngest.java"))
	if text, err := compile.CombinedOutput(); err != nil {
		return f, fmt.Errorf("javac: %w: %s", err, text)
	}
	return f, nil
}

// fetchJars has Maven put what a project of bench/peer/java depends on into a folder, unless it is there.
func fetchJars(ctx context.Context, pom, dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	to, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	fetch := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join("bench", "peer", "java", pom),
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+to)
	if text, err := fetch.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("mvn: %w: %s", err, text), os.RemoveAll(dir))
	}
	return nil
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
