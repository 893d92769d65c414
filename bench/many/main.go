// Command many measures one process with many topics, each into a table of its own: some are busy, the others are quiet.
// It prints the memory of the process, and how far apart the commits of the busy tables are.
//
//	go run ./bench/many                      2,000 topics, 100 of them busy, a commit a second
//	go run ./bench/many -topics 200 -busy 10 -time 10s
//
// The broker and who produces are a process of their own, so that their memory and time are not counted.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/internal/server"
	"github.com/calve-io/calve/storage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type settings struct {
	topics, busy, rate int
	interval, time     time.Duration
	settle             time.Duration
	dir, cpu           string
	broker             bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	fs := flag.NewFlagSet("many", flag.ContinueOnError)
	fs.IntVar(&s.topics, "topics", 2000, "topics, and tables")
	fs.IntVar(&s.busy, "busy", 100, "topics that get records all the time; the others get one")
	fs.IntVar(&s.rate, "rate", 100, "records a second of a busy topic")
	fs.DurationVar(&s.interval, "interval", time.Second, "commit interval")
	fs.DurationVar(&s.settle, "settle", 10*time.Second, "how long to wait before, for what the beginning has left to do")
	fs.DurationVar(&s.time, "time", 30*time.Second, "how long to measure")
	fs.StringVar(&s.dir, "dir", "", "folder for the tables (default: the system's for temporary files)")
	fs.StringVar(&s.cpu, "cpuprofile", "", "write a profile of the measured time to this file")
	fs.BoolVar(&s.broker, "broker", false, "be the broker and the producer of another process")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || s.topics < 1 || s.busy < 1 || s.busy > s.topics || s.rate < 1 || s.interval <= 0 || s.time <= 0 {
		return errors.New("-topics, -busy, -rate, -interval and -time must be positive, and all settings are flags")
	}
	if s.broker {
		return s.produce(ctx, out)
	}
	return s.measure(ctx, out)
}

func (s settings) names() (names []string) {
	for i := range s.topics {
		names = append(names, fmt.Sprintf("topic-%04d", i))
	}
	return names
}

// produce runs a broker, prints its address, and sends records until the standard input ends.
func (s settings) produce(ctx context.Context, out io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	names := s.names()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, names...))
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer p.Close()
	n := 0
	send := func(topic string) {
		n++
		p.Produce(ctx, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, `{"id":%d,"name":"row %d","price":"%d.25"}`, n, n, n%1000)}, nil)
	}
	for _, name := range names {
		send(name)
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, strings.Join(c.ListenAddrs(), ","))
	const tick = 50 * time.Millisecond
	owed := 0.0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tick):
		}
		for owed += float64(s.rate) * tick.Seconds(); owed >= 1; owed-- {
			for _, name := range names[:s.busy] {
				send(name)
			}
		}
	}
}

func (s settings) measure(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(s.dir, "calve-many-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	brokers, stop, err := s.startBroker(ctx)
	if err != nil {
		return err
	}
	defer stop()
	text := fmt.Sprintf("warehouse: file://%s\nlisten: \"\"\npipelines:\n- name: many\n  table: raw.{topic}\n  commit-interval: %s\n"+
		"  kafka: {brokers: [%s], topic-pattern: \"topic-.*\"}\n  create: {columns: \"id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2)\", primary-key: [id]}\n",
		dir, s.interval, brokers)
	cfg, err := config.Parse("many", []byte(text))
	if err != nil {
		return err
	}
	wh, err := storage.OpenURL(ctx, cfg.Warehouse, storage.Options{})
	if err != nil {
		return err
	}
	server.ShareProcs() // as calve serve does
	srv, err := server.New(cfg, wh, server.Options{}, lab.Env())
	if err != nil {
		return err
	}
	within, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- srv.Run(within, nil) }()
	for ready := 0; ready < s.topics; ready = s.ready(srv) {
		select {
		case <-time.After(200 * time.Millisecond):
		case err := <-done:
			return errors.Join(err, errors.New("the server ended"))
		}
	}
	fmt.Fprintf(out, "ready: %d tables have their first row after %s\n", s.topics, time.Since(began).Round(100*time.Millisecond))
	select {
	case <-time.After(s.settle):
	case <-ctx.Done():
	case err := <-done:
		return errors.Join(err, errors.New("the server ended"))
	}
	stopProfile, err := s.profile()
	if err != nil {
		return err
	}
	gaps, quiet := s.watch(ctx, srv)
	stopProfile()
	end()
	err = <-done
	if len(gaps) == 0 {
		return errors.Join(err, errors.New("there was no commit"))
	}
	slices.Sort(gaps)
	at := func(q float64) time.Duration {
		return gaps[int(q*float64(len(gaps)-1))].Round(time.Millisecond)
	}
	fmt.Fprintf(out, "many: topics=%d busy=%d interval=%s commits=%d commit_gap_p50=%s p99=%s max=%s quiet_commits=%d rss=%dMiB rss_most=%dMiB\n",
		s.topics, s.busy, s.interval, len(gaps), at(0.5), at(0.99), at(1), quiet, memory("VmRSS")>>20, memory("VmHWM")>>20)
	return err
}

// profile begins a profile of the processor, if one is asked for, and returns what ends it.
func (s settings) profile() (stop func(), err error) {
	if s.cpu == "" {
		return func() {}, nil
	}
	f, err := os.Create(s.cpu)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// startBroker starts this program as the broker.
func (s settings) startBroker(ctx context.Context) (addrs string, stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, exe, "-broker", fmt.Sprintf("-topics=%d", s.topics), fmt.Sprintf("-busy=%d", s.busy), fmt.Sprintf("-rate=%d", s.rate))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	text, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	if addrs, err = bufio.NewReader(text).ReadString('\n'); err != nil {
		stop()
		return "", nil, fmt.Errorf("the broker gave no address: %w", err)
	}
	return strings.TrimSpace(addrs), stop, nil
}

// ready counts the tables with a row.
func (s settings) ready(srv *server.Server) (n int) {
	for _, p := range srv.Status().Pipelines {
		if p.Rows > 0 {
			n++
		}
	}
	return n
}

// watch gives the times between commits of the busy tables, and the number of commits of the others.
func (s settings) watch(ctx context.Context, srv *server.Server) (gaps []time.Duration, quiet int64) {
	last, first := map[string]time.Time{}, map[string]int64{}
	busy := map[string]bool{}
	for _, name := range s.names()[:s.busy] {
		busy["many:"+name] = true
	}
	for end := time.Now().Add(s.time); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(min(250*time.Millisecond, s.interval/4)) {
		quiet = 0
		for _, p := range srv.Status().Pipelines {
			if _, known := first[p.Name]; !known {
				first[p.Name], last[p.Name] = p.Commits, p.LastCommit
				continue
			}
			switch {
			case !busy[p.Name]:
				quiet += p.Commits - first[p.Name]
			case p.LastCommit.After(last[p.Name]):
				gaps = append(gaps, p.LastCommit.Sub(last[p.Name]))
				last[p.Name] = p.LastCommit
			}
		}
	}
	return gaps, quiet
}

// memory reads a size from what Linux tells of the process, in bytes; 0 elsewhere.
func memory(field string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
