package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/storage"
)

// memberEnv names the configuration that the test's binary serves instead of running tests.
const memberEnv = "CALVE_TEST_SERVE"

// memberHold names a file. While it is there the process stops before it puts a snapshot, and says so by a file beside it.
const memberHold = "CALVE_TEST_HOLD"

// holdSnapshots is that fault.
func holdSnapshots(file string) func(storage.Op) error {
	return func(op storage.Op) error {
		if op.Kind != storage.OpPutIfAbsent || !strings.Contains(op.Name, "snapshot/snapshot-") {
			return nil
		}
		for {
			if _, err := os.Stat(file); err != nil {
				return nil
			}
			if err := os.WriteFile(file+".held", nil, 0o600); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// serveAsMember is the process of TestShareBetweenProcesses. It prints its address, and logs to standard error.
func serveAsMember(file string) error {
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	wh, err := storage.OpenURL(ctx, cfg.Warehouse, storage.Options{})
	if err != nil {
		return err
	}
	if file := os.Getenv(memberHold); file != "" {
		wh = storage.WithFaults(wh, holdSnapshots(file))
	}
	env := engine.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	s, err := New(cfg, wh, Options{}, env)
	if err != nil {
		return err
	}
	return s.Run(ctx, func(addr string) { fmt.Println(addr) })
}

// member is a process of the test.
type member struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	log *lines
}

// lines keeps what a process logs.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startMember(t *testing.T, file string, env ...string) *member {
	t.Helper()
	m := &member{t: t, cmd: exec.Command(os.Args[0]), log: &lines{}}
	m.cmd.Env = append(append(os.Environ(), memberEnv+"="+file), env...)
	m.cmd.Stderr = m.log
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
		if t.Failed() {
			t.Logf("log of %s:\n%s", m.url, m.log)
		}
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	m.url = "http://" + strings.TrimSpace(addr)
	return m
}

func (m *member) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatal(err)
	}
}

// running counts the tables that the process writes; -1 if it does not answer.
func (m *member) running() int {
	c := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(m.url + "/status")
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	var st Status
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		return -1
	}
	n := 0
	for _, p := range st.Pipelines {
		if p.State == Running {
			n++
		}
	}
	return n
}

// TestShareBetweenProcesses: processes share tables. One joins; one hangs, loses its tables, and comes back; one is told
// to end. Rows come all the time; none is lost or doubled.
func TestShareBetweenProcesses(t *testing.T) {
	const tables = 16 // names of processes are random: one of two has none of so many once in 30,000 times
	var topics []string
	for i := range tables {
		topics = append(topics, fmt.Sprint("t", i))
	}
	l := newLab(t, topics...)
	dir := t.TempDir()
	file := dir + "/calve.yaml"
	text := "warehouse: file://" + dir + "/lake\nlisten: 127.0.0.1:0\nshare: {on: true, ttl: 1s}\npipelines:\n" +
		strings.Replace(l.family("lake", "raw.{topic}", `topic-pattern: "t[0-9]+"`, keyedTable), "commit-interval: 10ms", "commit-interval: 200ms", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fill := func() {
		for _, topic := range topics {
			l.fill(topic, 10)
		}
	}
	wh, err := storage.OpenURL(t.Context(), "file://"+dir+"/lake", storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.store = wh
	arrived := func() {
		for _, topic := range topics {
			await(t, "rows do not arrive", func() bool { return l.count("raw."+topic) >= l.produced[topic] })
		}
	}
	hold := dir + "/hold"
	first := startMember(t, file, memberHold+"="+hold)
	fill()
	await(t, "one process does not write all tables", func() bool { return first.running() == tables })
	second := startMember(t, file)
	shared := func() bool {
		fill()
		a, b := first.running(), second.running()
		return a > 0 && b > 0 && a+b == tables
	}
	await(t, "the tables are not shared", shared)
	// The first one hangs in the middle of a commit. The other takes its tables over and has written all rows before the first
	// comes back: then what it was about to put is refused.
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "no commit is held", func() bool {
		fill()
		_, err := os.Stat(hold + ".held")
		return err == nil
	})
	first.signal(syscall.SIGSTOP)
	await(t, "nobody takes the tables of a process that hangs", func() bool {
		fill()
		return second.running() == tables
	})
	arrived()
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	first.signal(syscall.SIGCONT)
	await(t, "the process that came back was not fenced", func() bool { return strings.Contains(first.log.String(), "fenced by a newer epoch") })
	await(t, "a process that comes back gets no tables", shared)
	second.signal(syscall.SIGTERM)
	await(t, "nobody takes the tables of a process that ended", func() bool { return first.running() == tables })
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("the process that was told to end: %v", err)
	}
	fill()
	arrived()
	first.signal(syscall.SIGTERM)
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("the process that was told to end: %v", err)
	}
	for _, topic := range topics {
		l.checkExact("raw."+topic, topic)
	}
}
