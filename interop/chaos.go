//go:build interop

package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func init() { RegisterScenario(Scenario{Name: "chaos", Run: judgeChaos}) }

// chaosKills of the scenario; `make chaos` has many more.
const chaosKills = 24

// judgeChaos is a short run of what `make chaos` does.
func judgeChaos(ctx context.Context, l *Lab, report *Report) {
	c := newChaos(l, l.Seed, chaosKills, 0)
	defer c.close()
	var ran error
	report.Always("chaos", "kafka", func() error {
		if ran = c.run(ctx); ran == nil {
			ran = c.verdict.err()
		}
		return ran
	})
	if c.truth == nil {
		return
	}
	report.Note("%s", c.line())
	for _, j := range judges {
		reader, ok := j.Judge.(PaimonReader)
		if !ok || ran != nil {
			continue
		}
		report.Check("chaos", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			v, err := c.judgeBy(ctx, reader)
			return errors.Join(err, v.err())
		})
	}
}

// ChaosMain is the command behind `make chaos`; it gives the exit code. The last line that it prints is its result.
func ChaosMain(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	kills := flags.Int("kills", 450, "how often calve is killed")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()%1_000_000), "seed of what is random; the programs' timing is not")
	root := flags.String("root", ".", "the repository")
	binary := flags.String("calve", "", "judge this binary instead of building one")
	every := flags.Duration("broker-every", 75*time.Second, "about how often the broker is killed or stopped and started again; 0 for never")
	by := flags.String("judge", "paimon-java", "peers that read the tables in the end too, with commas between; empty for none")
	limit := flags.Duration("limit", time.Hour, "time for the whole run")
	proves := flags.Bool("prove", false, "show that chaos finds what is wrong: short runs against calve with faults planted into it")
	only := flags.String("plant", "", "with -prove: only this plant (none, lost, repeated, early)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	log := logger(stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	path, err := filepath.Abs(*root)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return 1
	}
	log("seed %d", *seed)
	l, err := NewLab(path, *seed, log)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return 1
	}
	if *proves {
		err = prove(ctx, l, *seed, *only, func(line string) { fmt.Fprintln(stdout, "chaos:", line) })
		if err = errors.Join(err, l.Close()); err != nil {
			fmt.Fprintln(stderr, "chaos:", err)
			return 1
		}
		return 0
	}
	c := newChaos(l, *seed, *kills, *every)
	if err = l.BuildCalve(ctx, *binary); err == nil {
		err = c.run(ctx)
	}
	if c.truth != nil {
		err = errors.Join(err, c.judgeByPeers(ctx, *by))
	}
	c.close()
	err = errors.Join(err, l.Close())
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
	}
	if wrong := c.verdict.err(); wrong != nil {
		fmt.Fprintln(stderr, "chaos:", wrong)
		err = wrong
	}
	line := c.line()
	if err != nil {
		line += " failed=yes"
	}
	fmt.Fprintln(stdout, line)
	if err != nil {
		return 1
	}
	return 0
}

// chaos is one run.
type chaos struct {
	lab       *Lab
	seed      uint64
	kills     int
	every     time.Duration // between restarts of the broker; 0: none
	patience  time.Duration // for tables that do not come to the ends of their topics
	local     string        // not empty: there is but a local folder, and this ends its name
	began     time.Time
	producers *chaosProducers
	stages    []*chaosStage
	truth     *chaosTruth // set when everything was produced and read
	records   int
	verdict   chaosVerdict
	brokers   int // restarts
	peers     []string

	mu       sync.Mutex // guards what follows
	failures map[string]error
}

func newChaos(l *Lab, seed uint64, kills int, every time.Duration) *chaos {
	return &chaos{lab: l, seed: seed, kills: kills, every: every, patience: 3 * time.Minute, began: time.Now(), failures: map[string]error{}}
}

func (c *chaos) close() {
	for _, s := range c.stages {
		s.close()
	}
}

// fail notes something that must not happen, once.
func (c *chaos) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures[err.Error()] == nil && len(c.failures) < 10 {
		c.failures[err.Error()] = err
		c.lab.Log("%v", err)
	}
}

// run kills and judges. Its error is what is wrong apart from rows; those are in the verdict.
func (c *chaos) run(ctx context.Context) error {
	kafka, err := c.lab.Kafka(ctx)
	if err != nil {
		return err
	}
	if c.producers, err = startChaosProducers(ctx, kafka, c.seed, fmt.Sprint(c.seed)); err != nil {
		return err
	}
	if err := c.stage(ctx); err != nil {
		return errors.Join(err, c.producers.Stop())
	}
	err = c.killAll(ctx, kafka)
	if err = errors.Join(err, c.producers.Stop()); err != nil {
		return err
	}
	plain, err := readLog(ctx, kafka.Address, c.producers.plain)
	if err != nil {
		return err
	}
	mixed, err := readLog(ctx, kafka.Address, c.producers.mixed)
	if err != nil {
		return err
	}
	if err := c.producers.checkLogs(plain, mixed); err != nil {
		return fmt.Errorf("the broker: %w", err)
	}
	c.truth, c.records = newChaosTruth(plain, mixed), len(plain)+len(mixed)
	c.lab.Log("chaos: %d records are in the topics; waiting for the tables", c.records)
	errs := c.each(func(s *chaosStage) error { return s.finish(ctx, c.truth) })
	for _, s := range c.stages {
		v, err := s.judge(ctx, c.truth)
		c.verdict.add(v)
		errs = append(errs, err)
		c.lab.Log("chaos, %s: %d kills, %d of them at a request, %d after progress; %d hangs; %d rows", s.name, s.kills, s.aimed, s.progress, s.stops, v.rows)
		if err := enough(s.progress, s.kills); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.failures {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// enough is an error if too few of the lives that were ended had committed something.
func enough(progress, kills int) error {
	if progress < max(1, kills/6) {
		return fmt.Errorf("only %d of %d lives committed something: the test has shown too little", progress, kills)
	}
	return nil
}

// stage makes the three warehouses: a local folder, one on S3, and one on S3 that two processes share.
func (c *chaos) stage(ctx context.Context) error {
	local := c.lab.Local().sub("chaos" + c.local)
	if c.local != "" {
		return c.addStage(ctx, "local", local, 1, "appended", "summed")
	}
	remote, err := c.lab.Remote(ctx)
	if err != nil {
		return err
	}
	for _, made := range []struct {
		name      string
		place     *Place
		processes int
		tables    []string
	}{
		{"local", local, 1, []string{"appended", "parted", "keyed", "vectors", "newest", "summed"}},
		{"s3", remote.sub("chaos"), 1, []string{"appended", "keyed", "newest", "summed"}},
		{"crew", remote.sub("crew"), 2, []string{"parted", "keyed", "summed"}},
	} {
		if err := c.addStage(ctx, made.name, made.place, made.processes, made.tables...); err != nil {
			return err
		}
	}
	return nil
}

func (c *chaos) addStage(ctx context.Context, name string, place *Place, processes int, tables ...string) error {
	s, err := newChaosStage(c, name, place, processes, tables...)
	if err != nil {
		return err
	}
	c.stages = append(c.stages, s)
	return s.prepare(ctx)
}

// each calls f for all stages side by side.
func (c *chaos) each(f func(*chaosStage) error) []error {
	errs := make([]error, len(c.stages))
	var wg sync.WaitGroup
	for i, s := range c.stages {
		wg.Go(func() {
			if err := f(s); err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
			}
		})
	}
	wg.Wait()
	return errs
}

// killAll kills in all stages, and restarts the broker meanwhile.
func (c *chaos) killAll(ctx context.Context, kafka *Kafka) error {
	broken := make(chan error, 1)
	rctx, stop := context.WithCancel(ctx)
	go func() { broken <- c.restartBroker(rctx, kafka) }()
	errs := c.each(func(s *chaosStage) error { return s.killAll(ctx, (c.kills+len(c.stages)-1)/len(c.stages)) })
	stop()
	return errors.Join(append(errs, <-broken)...)
}

// restartBroker kills or stops the broker and starts it again, now and then. One that has begun is ended.
func (c *chaos) restartBroker(ctx context.Context, kafka *Kafka) error {
	rng := rand.New(rand.NewPCG(c.seed, 61))
	for c.every > 0 {
		pause(ctx, c.every/2+time.Duration(rng.Int64N(int64(c.every))))
		if ctx.Err() != nil {
			return nil
		}
		c.brokers++
		crash := rng.IntN(2) == 0
		c.lab.Log("chaos: the broker restarts (crash: %v)", crash)
		if err := kafka.Restart(context.WithoutCancel(ctx), crash); err != nil {
			return fmt.Errorf("restart the broker: %w", err)
		}
	}
	return nil
}

// judgeByPeers has the named peers read all tables.
func (c *chaos) judgeByPeers(ctx context.Context, names string) error {
	var errs []error
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(judges, func(j *registered) bool { return j.Name() == name })
		if i < 0 {
			if name != "" {
				errs = append(errs, fmt.Errorf("there is no peer %q", name))
			}
			continue
		}
		reader, ok := judges[i].Judge.(PaimonReader)
		if !ok {
			errs = append(errs, fmt.Errorf("%s does not read Paimon tables", name))
			continue
		}
		if err := judges[i].ready(ctx, c.lab); err != nil {
			errs = append(errs, err)
			continue
		}
		v, err := c.judgeBy(ctx, reader)
		if err = errors.Join(err, v.err()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		c.peers = append(c.peers, name)
		c.lab.Log("chaos: %s reads the same %d rows", name, v.rows)
	}
	return errors.Join(errs...)
}

// judgeBy has a peer read all tables, those on the S3 server where that keeps them.
func (c *chaos) judgeBy(ctx context.Context, reader PaimonReader) (v chaosVerdict, err error) {
	for _, s := range c.stages {
		for _, t := range s.tables {
			got, err := reader.Read(ctx, PaimonTable{Warehouse: "file://" + s.place.Dir, Name: s.table(t)}, 0, t.columns)
			if err != nil {
				return v, fmt.Errorf("%s, %s: %w", s.name, t.name, err)
			}
			v.add(t.judge(c.truth.rows[t.name], got))
		}
	}
	return v, nil
}

// line is the result.
func (c *chaos) line() string {
	var kills, aimed, stops, refused, tables int
	var restarts int64
	faults := map[string]int{}
	for _, s := range c.stages {
		kills, aimed, stops, refused = kills+s.kills, aimed+s.aimed, stops+s.stops, refused+s.refused
		tables, restarts = tables+len(s.tables), restarts+s.restarts
		for _, p := range s.procs {
			if p.faults == nil {
				continue
			}
			for k, n := range p.faults.Counts() {
				faults[k] += n
			}
		}
	}
	overtaken := faults[rivalMet]
	delete(faults, rivalMet)
	var kinds []string
	sum := 0
	for _, k := range slices.Sorted(maps.Keys(faults)) {
		kinds = append(kinds, fmt.Sprintf("%s:%d", k, faults[k]))
		sum += faults[k]
	}
	v := &c.verdict
	line := fmt.Sprintf("chaos: kills=%d lost=%d doubled=%d strange=%d seed=%d tables=%d rows=%d records=%d", kills, v.lost, v.doubled, v.strange, c.seed, tables, v.rows, c.records)
	if p := c.producers; p != nil {
		p.mu.Lock()
		line += fmt.Sprintf(" repeated=%d late=%d broken=%d tx=committed:%d,aborted:%d,abandoned:%d", p.again, p.late, p.broken, p.ended.committed, p.ended.aborted, p.ended.abandoned)
		p.mu.Unlock()
	}
	changes := 0
	for _, s := range c.stages {
		for _, f := range s.folds {
			f.mu.Lock()
			changes += f.changes
			f.mu.Unlock()
		}
	}
	line += fmt.Sprintf(" changes=%d killed-at-request=%d hangs=%d refused-starts=%d faults=%d(%s) overtaken=%d pipeline-restarts=%d broker-restarts=%d seconds=%.0f",
		changes, aimed, stops, refused, sum, strings.Join(kinds, ","), overtaken, restarts, c.brokers, time.Since(c.began).Seconds())
	if len(c.peers) > 0 {
		line += " read-by=" + strings.Join(c.peers, ",")
	}
	return line
}
