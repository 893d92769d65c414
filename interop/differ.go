//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

func init() { RegisterScenario(Scenario{Name: "differential", Run: judgeDifferential}) }

// judgeDifferential is the differential tester: random histories through calve and Paimon Java on the same tables.
// History i of a run has the seed SEED + i, so each can be repeated alone: -run differential -seed S -histories 1.
func judgeDifferential(ctx context.Context, l *Lab, report *Report) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("differential", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			// A process of its own: short calls gain nothing from the slower compiler, and big cases would wait.
			worker, err := java.launch("paimon-java-histories", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
			if err != nil {
				return err
			}
			return differential(ctx, l, worker, report)
		})
	}
}

// differential plays the histories, a few side by side: one waits for Java while another one works.
func differential(ctx context.Context, l *Lab, java *Worker, report *Report) error {
	const sideBySide = 3
	start := time.Now()
	var mu sync.Mutex
	had, failures := map[string]int{}, []error(nil)
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range sideBySide {
		wg.Go(func() {
			for seed := range seeds {
				h, refused := generate(seed)
				err := examine(ctx, l, java, h)
				mu.Lock()
				slices.Sort(h.Met)
				for _, f := range append(slices.Clone(h.Features), slices.Compact(h.Met)...) {
					if h.ReadOnly {
						if f == "job" || f == "kept-open" || f == "small-buffer" { // of a writer that calve is not
							continue
						}
						f += "(read)"
					}
					had[f]++
				}
				for _, f := range refused {
					had[f+"(refused)"]++
				}
				if err != nil {
					failures = append(failures, err)
				}
				mu.Unlock()
			}
		})
	}
	histories := 0
	for ; histories < l.Histories && ctx.Err() == nil; histories++ {
		seeds <- l.Seed + uint64(histories)
	}
	close(seeds)
	wg.Wait()
	report.Note("differential: histories=%d disagree=%d in %.0fs, seeds %d to %d; %s", histories, len(failures),
		time.Since(start).Seconds(), l.Seed, l.Seed+uint64(max(histories, 1)-1), counts(had))
	return errors.Join(append(failures, ctx.Err())...)
}

// counts writes how many histories had each feature.
func counts(had map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(had)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, had[name]))
	}
	return strings.Join(parts, " ")
}

// examine plays a history; when the sides disagree it is shrunk, and the error shows the small one.
func examine(ctx context.Context, l *Lab, java *Worker, h *History) error {
	if h.Refusal != nil {
		return fmt.Errorf("seed %d: calve refuses a table that it must take: %w\n%s", h.Seed, h.Refusal, h.Script())
	}
	n := 0
	try := func(h *History) *disagreement {
		n++
		return play(ctx, l, java, h, fmt.Sprintf("differ.h%d_%d", h.Seed, n))
	}
	found := try(h)
	if found == nil || ctx.Err() != nil {
		return nil // a run that was interrupted says so itself
	}
	l.Log("differential: seed %d disagrees %v", h.Seed, found)
	small, left := shrink(ctx, h, found, try)
	return fmt.Errorf("seed %d (alone: make interop ARGS=\"-run differential/paimon-java -seed %d -histories 1\"), shrunk in %d plays:\n%s\n%w",
		h.Seed, h.Seed, n, small.Script(), left)
}
