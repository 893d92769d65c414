// Command bench measures what calve costs, each figure beside what the machine could do at best in the same run.
//
//	go run ./bench                   # everything; writes bench/results and bench/README.md (about 6 minutes)
//	go run ./bench -quick            # small inputs, one round; writes nothing
//	go run ./bench -run 'compact|flush' -count 10 -o ''
//
// Results are in Go's benchmark format, one line a round, for benchstat and the like. A benchmark that computes wrong
// rows fails.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mainErr(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the command line.
type settings struct {
	quick   bool
	only    *regexp.Regexp
	count   int
	out     string
	profile string
	scratch string
}

func parseFlags(args []string) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.BoolVar(&s.quick, "quick", false, "small inputs and one round, to see that all works; nothing is written unless -o is given")
	only := fs.String("run", "", "run only the groups whose name matches this expression; nothing is written unless -o is given")
	fs.IntVar(&s.count, "count", 0, "rounds (default 5, quick 1)")
	fs.StringVar(&s.out, "o", "bench", "folder that gets results/DATE-COMMIT.txt and README.md; '' writes nothing")
	fs.StringVar(&s.profile, "cpuprofile", "", "folder that gets a processor profile of each group")
	fs.StringVar(&s.scratch, "dir", "", "folder on the disk to be measured, for scratch files (default: the folder for temporary files)")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: all settings are flags", fs.Arg(0))
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if *only != "" {
		var err error
		if s.only, err = regexp.Compile(*only); err != nil {
			return s, fmt.Errorf("-run: %w", err)
		}
	}
	if (s.quick || s.only != nil) && !given["o"] {
		s.out = ""
	}
	return s, nil
}

func mainErr(ctx context.Context, args []string, stdout io.Writer) (err error) {
	set, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(set.scratch, "calve-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	k := &kit{sizes: whole, dir: dir}
	if set.quick {
		k.sizes = quick
	}
	if set.count > 0 {
		k.count = set.count
	}
	if k.limits, err = newLimits(k); err != nil {
		return err
	}
	if set.profile != "" {
		if err := os.MkdirAll(set.profile, 0o755); err != nil {
			return err
		}
	}
	var results bytes.Buffer
	f := gatherFacts(ctx, dir)
	r := &run{ctx: ctx, kit: k, only: set.only, out: io.MultiWriter(stdout, &results), profile: set.profile}
	begin := time.Now()
	if err := writeFacts(r.out, f); err != nil {
		return err
	}
	if err := r.all(); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\n%s\n%d rounds in %s\n", markdown(r.table()), k.count, time.Since(begin).Round(time.Second))
	if set.out == "" {
		return nil
	}
	return save(set.out, f, k, results.Bytes(), r.table())
}

// save writes the result file and the page made of it, with its picture.
func save(dir string, f facts, k *kit, results []byte, table []row) error {
	if err := os.MkdirAll(filepath.Join(dir, "results"), 0o755); err != nil {
		return err
	}
	name := "results/" + f.date + "-" + f.commit + ".txt"
	if err := os.WriteFile(filepath.Join(dir, name), results, 0o644); err != nil {
		return err
	}
	var page strings.Builder
	if err := writePage(&page, pageData{Facts: f, Kit: k, Results: name, Table: markdown(table)}); err != nil {
		return err
	}
	svg, err := picture(table)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "README.md"), []byte(page.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "limits.svg"), svg, 0o644),
	)
}
