//go:build interop

package interop

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Scenario is a row of the table that is not just a [Case].
type Scenario struct {
	Name string
	Run  func(ctx context.Context, l *Lab, report *Report)
}

var scenarios []Scenario

// defaultSeed makes every run try the same: a change is judged by what it changed. Other seeds find other things.
const defaultSeed = 20261129

// RegisterScenario adds a row; called from init.
func RegisterScenario(s Scenario) { scenarios = append(scenarios, s) }

// Main runs the suite and gives the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("interop", flag.ContinueOnError)
	flags.SetOutput(stderr)
	filter := flags.String("run", "", "run only fields of the table that match CASE or CASE/PEER (regular expressions)")
	asJSON := flags.Bool("json", false, "print results as JSON lines")
	list := flags.Bool("list", false, "print the cases and peers and end")
	root := flags.String("root", ".", "the repository")
	binary := flags.String("calve", "", "judge this binary instead of building one")
	seed := flags.Uint64("seed", defaultSeed, "seed of everything random")
	histories := flags.Int("histories", 200, "histories of the differential tester; history i has the seed SEED + i")
	live := flags.Duration("live", 2*time.Minute, "how long pgbench works in the scenario cdc")
	limit := flags.Duration("limit", 40*time.Minute, "time for the whole run")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen, err := ParseFilter(*filter)
	if err != nil {
		fmt.Fprintln(stderr, "interop: -run:", err)
		return 2
	}
	if *list {
		printNames(stdout)
		return 0
	}
	log := logger(stderr)
	report := &Report{Filter: chosen, Log: log}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	if err := runAll(ctx, *root, *binary, *seed, *histories, *live, report, log); err != nil {
		fmt.Fprintln(stderr, "interop:", err)
		report.add(Result{Case: "suite", Peer: "calve", Status: "fail", Detail: err.Error()})
	}
	return finish(report, *asJSON, stdout, stderr)
}

func finish(report *Report, asJSON bool, stdout, stderr io.Writer) int {
	if !asJSON {
		report.Print(stdout)
	} else if err := report.PrintJSON(stdout); err != nil {
		fmt.Fprintln(stderr, "interop:", err)
		return 1
	}
	passed, failed, _ := report.Count()
	if failed > 0 || passed == 0 {
		return 1
	}
	return 0
}

// logger prints progress with the time since the start.
func logger(w io.Writer) func(string, ...any) {
	start := time.Now()
	return func(format string, args ...any) {
		line := strings.TrimSpace(fmt.Sprintf(format, args...))
		fmt.Fprintf(w, "%6.1fs %s\n", time.Since(start).Seconds(), line)
	}
}

func runAll(ctx context.Context, root, binary string, seed uint64, histories int, live time.Duration, report *Report, log func(string, ...any)) (err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return err
	}
	log("seed %d", seed)
	l, err := NewLab(root, seed, log)
	if err != nil {
		return err
	}
	l.Histories, l.Live = histories, live
	defer func() {
		if stopped := l.Close(); err == nil {
			err = stopped
		}
	}()
	if err := l.BuildCalve(ctx, binary); err != nil {
		return fmt.Errorf("build calve: %w", err)
	}
	anyCase := slices.ContainsFunc(cases, func(c *Case) bool { return report.Filter.WantsCase(c.Name) })
	for _, j := range judges { // fetch and start while the first cases are played; the first check waits for its own
		if anyCase && report.Filter.WantsPeer(j.Name()) {
			go func() { _ = j.ready(ctx, l) }() // the error is kept for the first check
		}
	}
	for _, s := range scenarios {
		if report.Filter.WantsCase(s.Name) && ctx.Err() == nil {
			s.Run(ctx, l, report)
		}
	}
	for _, c := range cases {
		if report.Filter.WantsCase(c.Name) && ctx.Err() == nil {
			c.judge(ctx, l, report)
		}
	}
	return ctx.Err()
}

func printNames(w io.Writer) {
	for _, s := range scenarios {
		fmt.Fprintln(w, "case", s.Name)
	}
	for _, c := range cases {
		fmt.Fprintln(w, "case", c.Name, "-", c.About)
	}
	for _, j := range judges {
		fmt.Fprintln(w, "peer", j.Name())
	}
}
