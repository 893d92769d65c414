package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/bench/dataset"
)

// report gathers the rounds.
type report struct {
	commit, date, goVersion string
	cores, rounds           int
	sets                    []*measured
	duels                   []*fought
}

// measured is what the rounds of a data set took. Round i of both sides ran one after the other.
type measured struct {
	job          *job
	ours, theirs []map[string]timing
}

func newReport(ctx context.Context, rounds int) *report {
	return &report{
		commit: commit(ctx), date: time.Now().UTC().Format(time.DateOnly), goVersion: runtime.Version(),
		cores: runtime.NumCPU(), rounds: rounds,
	}
}

func (r *report) begin(j *job) {
	r.sets = append(r.sets, &measured{job: &job{set: j.set, rows: j.rows}})
}

// add notes a round of the newest data set.
func (r *report) add(ours, theirs map[string]timing) {
	m := r.sets[len(r.sets)-1]
	m.ours, m.theirs = append(m.ours, ours), append(m.theirs, theirs)
}

// spread is the median of some values with the least and the most.
type spread struct{ median, min, max float64 }

func spreadOf(v []float64) spread {
	if len(v) == 0 {
		return spread{}
	}
	slices.Sort(v)
	return spread{v[len(v)/2], v[0], v[len(v)-1]}
}

func wall(t timing) float64 { return t.wall }
func cpu(t timing) float64  { return t.cpu }

// rate is a phase's speed in million input rows a second of wall or processor time.
func (m *measured) rate(rounds []map[string]timing, phase string, of func(timing) float64) spread {
	var v []float64
	for _, t := range rounds {
		if x, ok := t[phase]; ok {
			v = append(v, float64(m.job.rows)/1e6/max(of(x), 1e-9))
		}
	}
	return spreadOf(v)
}

// ratio says how many times as long the others took, round by round.
func (m *measured) ratio(others []map[string]timing, theirPhase, ourPhase string, of func(timing) float64) spread {
	var v []float64
	for i, t := range others {
		if x, ok := t[theirPhase]; ok {
			v = append(v, of(x)/max(of(m.ours[i][ourPhase]), 1e-9))
		}
	}
	return spreadOf(v)
}

func (m *measured) vsPaimon(phase string, of func(timing) float64) spread {
	return m.ratio(m.theirs, phase, phase, of)
}

// vsDuck compares on one core, or on all.
func (m *measured) vsDuck(threads int) spread {
	if threads == 1 {
		return m.ratio(m.ours, dedup(1), compact1, wall)
	}
	return m.ratio(m.ours, dedup(threads), compact, wall)
}

func (m *measured) vsCodec() spread { return m.ratio(m.ours, codec1, compact1, cpu) }

func (s spread) String() string {
	digits := 1
	if s.median < 2 {
		digits = 2
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, s.median, digits, s.min, digits, s.max)
}

// phases are what both sides do.
var phases = []string{write, mergeRead, compact, read}

// page is the result as Markdown.
func (r *report) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, pageHead, r.commit, r.date, r.goVersion, r.cores, r.rounds)
	for _, m := range r.sets {
		fmt.Fprintf(&b, "\n## %s\n\n%s. %d rows in eight commits.\n\n", m.job.set.Name, sentence(m.job.set.About), m.job.rows)
		b.WriteString("| | calve | Paimon Java | ratio | ratio per processor second |\n|---|--:|--:|--:|--:|\n")
		for _, p := range phases {
			fmt.Fprintf(&b, "| %s | **%s** | %s | **%s** | %s |\n", p, m.rate(m.ours, p, wall), m.rate(m.theirs, p, wall),
				m.vsPaimon(p, wall), m.vsPaimon(p, cpu))
		}
		b.WriteString("\n| compaction | calve | beside it | ratio |\n|---|--:|--:|--:|\n")
		fmt.Fprintf(&b, "| one core, the same files decoded and the same rows encoded without a merge | **%s** | %s | **%s** |\n",
			m.rate(m.ours, compact1, cpu), m.rate(m.ours, codec1, cpu), m.vsCodec())
		if plainRows(m.job.set) {
			for _, n := range threadCounts(r.cores) {
				ours := compact
				if n == 1 {
					ours = compact1
				}
				fmt.Fprintf(&b, "| DuckDB, %d threads | **%s** | %s | **%s** |\n", n, m.rate(m.ours, ours, wall), m.rate(m.ours, dedup(n), wall), m.vsDuck(n))
			}
		}
	}
	for _, f := range r.duels {
		fmt.Fprintf(&b, "\n## %s\n\n"+f.duel.about+".\n\n", f.duel.title, thousands(f.keys))
		b.WriteString("| | calve | Paimon Java | ratio | ratio per processor second |\n|---|--:|--:|--:|--:|\n")
		fmt.Fprintf(&b, "| %s | **%s** | %s | **%s** | %s |\n", f.duel.name, f.rate(f.ours, duelPhase, wall), f.rate(f.theirs, duelPhase, wall),
			f.vsPaimon(duelPhase, wall), f.vsPaimon(duelPhase, cpu))
	}
	return b.String()
}

// thousands writes a number with commas.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// threadCounts are the numbers of threads DuckDB runs with.
func threadCounts(cores int) []int { return slices.Compact([]int{1, cores}) }

const pageHead = `# calve beside its peers

<!-- Written by make bench-peers. -->

![How many times as fast as Paimon Java](peers.svg)

Commit %s, %s, %s, %d cores. Medians of %d rounds with the least and the most beside them, in million input rows a second;
ratios are taken round by round. All write Parquet with zstd 1 into one bucket on the same disk, in turn; a round counts
only if calve and Paimon read the same rows, before and after the compaction, and DuckDB keeps as many. Paimon is its
Java library, warm. DuckDB makes one sorted file of the same level-0 files by the fastest of three queries.
`

// line is the result in one line: medians with the least and the most; ratios to Paimon are per processor second.
func (r *report) line() string {
	var b strings.Builder
	b.WriteString("peers:")
	put := func(name, set string, of func(*measured) spread) {
		for _, m := range r.sets {
			if m.job.set.Name == set {
				b.WriteString(ratioText(name, of(m)))
			}
		}
	}
	put("l0_write_vs_paimon", "random", func(m *measured) spread { return m.vsPaimon(write, cpu) })
	put("compact_random_vs_paimon", "random", func(m *measured) spread { return m.vsPaimon(compact, cpu) })
	put("compact_random_vs_duckdb", "random", func(m *measured) spread { return m.vsDuck(1) })
	put("compact_clustered_vs_paimon", "growing", func(m *measured) spread { return m.vsPaimon(compact, cpu) })
	put("merge_read_vs_paimon", "random", func(m *measured) spread { return m.vsPaimon(mergeRead, cpu) })
	put("compact_vs_codec_limit", "random", func(m *measured) spread { return m.vsCodec() })
	for _, f := range r.duels {
		b.WriteString(ratioText(f.duel.ratio, f.vsPaimon(duelPhase, cpu)) + f.more)
	}
	return b.String()
}

// ratioText is a figure of the line.
func ratioText(name string, s spread) string {
	return fmt.Sprintf(" %s=%.2f[%.2f..%.2f]", name, s.median, s.min, s.max)
}

// lines are all rounds in Go's benchmark format, for benchstat.
func (r *report) lines() string {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\npkg: github.com/calve-io/calve/bench/peer\ncommit: %s\n", runtime.GOOS, runtime.GOARCH, r.commit)
	all := slices.Clone(r.sets)
	for _, f := range r.duels {
		m := *f.measured
		m.job = &job{set: dataset.Set{Name: f.duel.name}, rows: m.job.rows}
		all = append(all, &m)
	}
	for _, m := range all {
		for i := range m.ours {
			for _, side := range []struct {
				name  string
				times map[string]timing
			}{{"calve", m.ours[i]}, {"paimon-java", m.theirs[i]}} {
				for _, phase := range slices.Sorted(maps.Keys(side.times)) {
					t := side.times[phase]
					fmt.Fprintf(&b, "BenchmarkPeers/%s/%s/%s-%d 1 %.0f ns/op %.4f Mrows/s %.4f Mrows/cpu-s\n", m.job.set.Name, phase, side.name,
						r.cores, t.wall*1e9, float64(m.job.rows)/1e6/t.wall, float64(m.job.rows)/1e6/max(t.cpu, 1e-9))
				}
			}
		}
	}
	return b.String()
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// commit is the version that is measured.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
