package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/bench/lab"
	eng "github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// duel is work that calve and Paimon do in turn on one large table, or on two of the same files.
type duel struct {
	name  string // with -sets
	ratio string // in the line
	title string
	about string // with the number of keys
	keys  int
	run   func(*arena) error
}

// fought is what the rounds of a duel took.
type fought struct {
	duel *duel
	keys int // of the table
	*measured
	more string // another figure for the line
}

// duelPhase is the only phase of a duel.
const duelPhase = "duel"

var duels = []*duel{
	{
		name: "lookups", ratio: "lookups_vs_paimon", title: "Lookups", keys: 10_000_000, run: lookups,
		about: "Random keys of a compacted table of %s rows of four columns, a tenth of them not there, one thread: calve a thousand at a time from " +
			"local copies of the data files, Paimon one at a time by `LocalTableQuery` with all of its local files in memory",
	},
	{
		name: "lookup-changelog", ratio: "lookup_changelog_vs_paimon", title: "Changelog by lookups", keys: 10_000_000, run: changes,
		about: "Random updates of a table of %s rows with `changelog-producer = lookup`, 20,000 a commit, each of which waits for its compaction and so for " +
			"its changes; rates count rows written. Both begin with the same files",
	},
}

// arena is where a duel runs.
type arena struct {
	ctx      context.Context
	cfg      config
	d        *duel
	dir      string
	keys     int
	rep      *report
	progress io.Writer
}

func (c config) fight(ctx context.Context, d *duel, dir string, rep *report, progress io.Writer) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return d.run(&arena{ctx: ctx, cfg: c, d: d, dir: dir, keys: max(1000, int(float64(d.keys)*c.scale)), rep: rep, progress: progress})
}

// begin makes room for the rounds in the report; n is what a round does.
func (a *arena) begin(n int) *fought {
	f := &fought{duel: a.d, keys: a.keys, measured: &measured{job: &job{rows: int64(n)}}}
	a.rep.duels = append(a.rep.duels, f)
	return f
}

func (f *fought) add(ours, theirs timing) {
	f.ours = append(f.ours, map[string]timing{duelPhase: ours})
	f.theirs = append(f.theirs, map[string]timing{duelPhase: theirs})
}

// load makes a table that has the rows of churn.go with all keys, compacted, where Paimon's catalog finds it: DIR/java.
func (a *arena) load(name string, keys int, options map[string]string) (string, *schema.Schema, error) {
	dir := filepath.Join(a.dir, "java", "db.db", name)
	st, err := storage.NewLocal(dir)
	if err != nil {
		return "", nil, err
	}
	c := churn{keys: keys}
	s, err := c.schema(options)
	if err == nil {
		err = eng.Create(a.ctx, st, s)
	}
	if err != nil {
		return "", nil, err
	}
	t, err := eng.Open(a.ctx, st, eng.Settings{BufferBytes: 256 << 20}, lab.Env())
	if err != nil {
		return "", nil, err
	}
	return dir, s, errors.Join(c.put(a.ctx, t, s, -1, keys), t.Compact(a.ctx, true), t.Close(a.ctx))
}

// copyTable makes a table of its own out of a folder: data files, which never change, are links.
func copyTable(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case strings.HasPrefix(rel, "bucket-"):
			return os.Link(name, filepath.Join(to, rel))
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}

// lookupsAtOnce is how many keys calve is asked at once.
const lookupsAtOnce = 1000

// lookups looks random keys up, the same on both sides, after a round in which local files are made.
func lookups(a *arena) (err error) {
	dir, s, err := a.load("t", a.keys, nil)
	if err != nil {
		return err
	}
	st, err := storage.NewLocal(dir)
	if err != nil {
		return err
	}
	cache := reader.NewLookupCache(reader.LookupCacheConfig{Dir: filepath.Join(a.dir, "lookup"), DirBytes: 1 << 40})
	defer func() { err = errors.Join(err, cache.Close()) }()
	l, err := lab.Reader(st).OpenLookup(a.ctx, reader.Query{}, cache)
	if err != nil {
		return err
	}
	j, err := startJava(a.ctx, a.cfg.jars, a.dir, &job{schema: s})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stop()) }()
	n := min(500_000, a.keys)
	f := a.begin(n)
	for round := range a.cfg.rounds + 1 {
		fmt.Fprintf(a.progress, "%s: round %d of %d\n", a.d.name, round, a.cfg.rounds)
		keys := lookupKeys(l, round, n, a.keys)
		var found [2]int64
		ours, err := timed(func() (err error) { found, err = lookUp(a.ctx, l, keys); return err })
		if err != nil {
			return err
		}
		theirs, rest, err := j.timed("lookups", "t", strconv.Itoa(a.keys), strconv.Itoa(n), strconv.Itoa(round))
		if err != nil {
			return err
		}
		if len(rest) != 2 || [2]int64(rest) != found || found[0] == 0 {
			return fmt.Errorf("calve found rows and checksum %v, Paimon %v", found, rest)
		}
		if round > 0 {
			f.add(ours, theirs)
		}
	}
	return nil
}

// lookupKeys are the keys of a round, as PeerBench.java has them: one in eleven is not there.
func lookupKeys(l *reader.Lookup, round, n, keys int) (out []arrow.RecordBatch) {
	b := newKeys(l.KeySchema())
	for i := range n {
		b.append(int64(mix(uint64(round)<<32+uint64(i)) % uint64(keys+keys/10)))
		if b.n == lookupsAtOnce || i == n-1 {
			out = append(out, b.batch())
		}
	}
	return out
}

// changes writes rounds of random updates into two tables that begin as the same.
func changes(a *arena) (err error) {
	const commits, rows = 5, 20_000
	producer := map[string]string{"changelog-producer": "lookup"}
	from, s, err := a.load("theirs", a.keys, producer)
	if err != nil {
		return err
	}
	if err := copyTable(from, filepath.Join(a.dir, "ours")); err != nil {
		return err
	}
	small, _, err := a.load("small", a.keys/10, producer)
	if err != nil {
		return err
	}
	ours, err := a.openUpdated(filepath.Join(a.dir, "ours"), a.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close(a.ctx)) }()
	less, err := a.openUpdated(small, a.keys/10)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, less.close(a.ctx)) }()
	j, err := startJava(a.ctx, a.cfg.jars, a.dir, &job{schema: s})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stop()) }()
	if _, err := j.ask("open", "theirs"); err != nil {
		return err
	}
	f := a.begin(commits * rows)
	var grown []float64
	for round := range a.cfg.rounds + 1 {
		fmt.Fprintf(a.progress, "%s: round %d of %d\n", a.d.name, round, a.cfg.rounds)
		mine, err := ours.round(a.ctx, round*commits, commits, rows)
		if err != nil {
			return err
		}
		theirs, _, err := j.timed("round", strconv.Itoa(a.keys), strconv.Itoa(round*commits), strconv.Itoa(commits), strconv.Itoa(rows))
		if err != nil {
			return err
		}
		few, err := less.round(a.ctx, round*commits, commits, rows)
		if err != nil {
			return err
		}
		if round > 0 {
			f.add(mine, theirs)
			grown = append(grown, mine.cpu/few.cpu)
		}
	}
	if _, err := j.ask("close"); err != nil {
		return err
	}
	f.more = ratioText("lookup_changelog_10x_keys_cost", spreadOf(grown))
	return a.sameTables(from, filepath.Join(a.dir, "ours"))
}

// updated is a table that calve updates.
type updated struct {
	churn
	s     *schema.Schema
	t     *eng.Table
	cache *reader.LookupCache
}

func (a *arena) openUpdated(dir string, keys int) (*updated, error) {
	st, err := storage.NewLocal(dir)
	if err != nil {
		return nil, err
	}
	u := &updated{churn: churn{keys: keys}}
	u.cache = reader.NewLookupCache(reader.LookupCacheConfig{Dir: dir + "-lookup", DirBytes: 1 << 40})
	if u.t, err = eng.Open(a.ctx, st, eng.Settings{Job: "peer", BufferBytes: 256 << 20, Lookups: u.cache}, lab.Env()); err != nil {
		return nil, err
	}
	u.s = u.t.Schema()
	return u, nil
}

func (u *updated) close(ctx context.Context) error {
	return errors.Join(u.t.Close(ctx), u.cache.Close())
}

// round makes commits, each with its compaction.
func (u *updated) round(ctx context.Context, first, commits, rows int) (timing, error) {
	return timed(func() error {
		for c := range commits {
			if err := errors.Join(u.put(ctx, u.t, u.s, first+c, rows), u.t.Compact(ctx, false)); err != nil {
				return err
			}
		}
		return nil
	})
}

// sameTables compares the rows of two tables and the number of changes that they told.
func (a *arena) sameTables(dirs ...string) error {
	var seen []string
	for _, dir := range dirs {
		st, err := storage.NewLocal(dir)
		if err != nil {
			return err
		}
		r, told, s := lab.Reader(st), int64(0), sum{}
		latest, err := r.Meta().Latest(a.ctx)
		if err != nil {
			return err
		}
		for snap, err := range r.Meta().EachSnapshot(a.ctx, 1, latest.ID) {
			if err != nil {
				return err
			}
			told += snap.ChangelogRecordCount
		}
		for rec, err := range r.Scan(a.ctx, reader.Query{Parallel: 2}) {
			if err != nil {
				return err
			}
			s.add(rec)
		}
		seen = append(seen, fmt.Sprint(s.rows, s.check, told))
	}
	if seen[0] != seen[1] {
		return fmt.Errorf("the tables have rows, checksum and changes %s and %s", seen[0], seen[1])
	}
	return nil
}

// fights runs the duels that are asked for.
func (c config) fights(ctx context.Context, dir string, rep *report, progress io.Writer) error {
	for _, d := range duels {
		if !c.sets.MatchString(d.name) {
			continue
		}
		begin := time.Now()
		if err := c.fight(ctx, d, filepath.Join(dir, d.name), rep, progress); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		fmt.Fprintf(progress, "%s: %s\n", d.name, time.Since(begin).Round(time.Second))
	}
	return nil
}
