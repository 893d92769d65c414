//go:build interop

package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// chaosStage is a warehouse with its tables and the calve processes that fill it.
type chaosStage struct {
	c      *chaos
	name   string
	place  *Place // as it is, without faults
	tables []*chaosTable
	procs  []*chaosProc
	folds  []*chaosFold
	rng    *rand.Rand
	share  bool // the processes share the tables

	kills, aimed, stops, progress int
	refused                       int   // starts, because the storage failed
	restarts                      int64 // of pipelines, which failed and were tried again, as far as was seen
}

// chaosProc is one of its processes; its lives follow each other.
type chaosProc struct {
	name, config, listen string
	faults               *saboteur // before the S3 server; nil: a local folder
	process              *Process  // nil: dead
}

// newChaosStage makes a stage with so many processes.
func newChaosStage(c *chaos, name string, place *Place, processes int, tables ...string) (*chaosStage, error) {
	s := &chaosStage{c: c, name: name, place: place, share: processes > 1, rng: rand.New(rand.NewPCG(c.seed, 53+uint64(len(c.stages))))}
	for _, t := range chaosTables {
		if slices.Contains(tables, t.name) {
			s.tables = append(s.tables, t)
		}
	}
	for i := range processes {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		p := &chaosProc{name: fmt.Sprintf("chaos-%s-%d", name, i), listen: fmt.Sprintf("127.0.0.1:%d", port)}
		p.config = filepath.Join(c.lab.Data, p.name+".yaml")
		if place.S3 != nil {
			if p.faults, err = startSaboteur(place.S3.Endpoint, c.seed+uint64(i)+100*uint64(len(c.stages))); err != nil {
				return nil, err
			}
		}
		if p.faults != nil && i > 0 {
			p.faults.zombies = s.procs[0].faults.zombies
		}
		s.procs = append(s.procs, p)
	}
	return s, nil
}

func (s *chaosStage) close() {
	for _, p := range s.procs {
		if p.faults != nil {
			p.faults.Close()
		}
	}
}

func (s *chaosStage) table(t *chaosTable) string { return "chaos." + t.name }

// common are options of all tables: compaction and expiry have much to do.
var chaosOptions = map[string]string{"num-sorted-run.compaction-trigger": "3", "snapshot.num-retained.min": "3", "snapshot.num-retained.max": "8", "snapshot.time-retained": "1 s"}

func (t *chaosTable) allOptions() map[string]string {
	all := maps.Clone(chaosOptions)
	maps.Copy(all, t.options)
	return all
}

// prepare creates the tables whose changes are read and starts those who read them; the others are created by calve, as
// often as it takes.
func (s *chaosStage) prepare(ctx context.Context) error {
	for _, t := range s.tables {
		if !t.tailed {
			continue
		}
		if err := s.place.Create(ctx, s.table(t), &Case{Columns: t.columns, Key: t.key, Options: t.allOptions()}); err != nil {
			return err
		}
		f, err := startChaosFold(s, t)
		if err != nil {
			return err
		}
		s.folds = append(s.folds, f)
	}
	return nil
}

// configure writes the configuration of a process for its next life.
func (s *chaosStage) configure(p *chaosProc) error {
	var b strings.Builder
	fmt.Fprintf(&b, "warehouse: %s\nlisten: %s\nlog: {level: warn}\nlookup-cache: {dir: %q}\ncompaction: {sweep-after: 5s}\n",
		s.place.Warehouse, p.listen, filepath.Join(s.c.lab.Scratch, p.name+"-copies"))
	if p.faults != nil {
		fmt.Fprintf(&b, "s3: {endpoint: %q, region: %q, access-key: %q, secret-key: %q, path-style: true}\n", p.faults.Endpoint, s.place.S3.Region, s.place.S3.Access, s.place.S3.Secret)
	}
	if s.share {
		b.WriteString("share: {on: true, ttl: 1s}\n")
	}
	b.WriteString("pipelines:\n")
	for _, t := range s.tables {
		topic := s.c.producers.plain
		if t.mixed {
			topic = s.c.producers.mixed
		}
		fields := cmp.Or(t.fields, "{}")
		var columns, options []string
		for _, col := range t.columns {
			columns = append(columns, col.Name+" "+col.Type)
		}
		all := t.allOptions()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			options = append(options, fmt.Sprintf("%s: %q", name, all[name]))
		}
		fmt.Fprintf(&b, "  - name: %s\n    table: %s\n    kafka: {brokers: [%q], topic: %s, fields: %s}\n", t.name, s.table(t), s.c.producers.address, topic, fields)
		if t.plainOp {
			b.WriteString("    format: {op: \"-\"}\n")
		}
		fmt.Fprintf(&b, "    create:\n      columns: %q\n      primary-key: [%s]\n      partition: [%s]\n      options: {%s}\n",
			strings.Join(columns, ", "), strings.Join(t.key, ", "), strings.Join(t.partition, ", "), strings.Join(options, ", "))
		fmt.Fprintf(&b, "    commit-interval: %dms\n    expire-every: 1s\n    export: {iceberg: %v, interval: 0s}\n", 100+s.rng.IntN(900), t.noExport == "")
	}
	return os.WriteFile(p.config, []byte(b.String()), 0o644)
}

// start begins a life.
func (s *chaosStage) start(p *chaosProc) error {
	if err := s.configure(p); err != nil {
		return err
	}
	cmd := exec.Command(s.c.lab.Binary, "serve", "-c", p.config)
	// Few attempts let the faults through to calve; many have the client bear them.
	cmd.Env = append(os.Environ(), fmt.Sprintf("AWS_MAX_ATTEMPTS=%d", []int{1, 2, 3, 8}[s.rng.IntN(4)]), "GOMAXPROCS=2")
	var err error
	p.process, err = s.c.lab.Start(p.name, cmd)
	return err
}

// life is how long a process lives: some end in their start, most among commits and compactions, some after a while.
func (s *chaosStage) life() time.Duration {
	ms := func(least, most int) time.Duration {
		return time.Duration(least+s.rng.IntN(most-least)) * time.Millisecond
	}
	switch n := s.rng.IntN(100); {
	case n < 30:
		return ms(30, 600)
	case n < 85:
		return ms(600, 4000)
	}
	return ms(4000, 10000)
}

// killAll kills processes so many times.
func (s *chaosStage) killAll(ctx context.Context, kills int) error {
	before := s.snapshots()
	for s.kills < kills {
		for _, p := range s.procs {
			if p.process != nil {
				continue
			}
			if err := s.start(p); err != nil {
				return err
			}
		}
		p := s.procs[s.rng.IntN(len(s.procs))]
		a := s.takeAim(p)
		var hit chan struct{}
		life := s.life()
		if a != nil {
			hit, life = a.hit, life+3*time.Second // it is to come to that
		}
		select {
		case <-time.After(life):
		case <-hit:
			s.aimed++
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.process.Alive(); err != nil { // it must live until it is killed, whatever happened before
			if a != nil {
				p.faults.Aim(nil)
				close(a.dead)
			}
			if !p.refused(err) {
				return fmt.Errorf("life %d: %w", s.kills+1, err)
			}
			p.process = nil
			s.refused++
			continue
		}
		s.restarts += s.ask(ctx, p)
		if s.share && s.rng.IntN(5) == 0 {
			if err := s.hang(ctx, p); err != nil {
				return err
			}
		}
		p.process.Kill()
		if a != nil {
			p.faults.Aim(nil)
			close(a.dead)
		}
		p.process = nil
		s.kills++
		if now := s.snapshots(); now > before {
			before = now
			s.progress++
		}
		if s.rng.IntN(3) == 0 {
			pause(ctx, time.Duration(s.rng.IntN(1500))*time.Millisecond)
		}
	}
	return nil
}

// refused reports that a process ended because its warehouse failed when it was opened. It is none to begin with then:
// whoever started calve starts it again.
func (p *chaosProc) refused(err error) bool {
	return p.faults != nil && strings.Contains(lastLine(err), "trying a conditional put")
}

// lastLine is the last line of an error's text.
func lastLine(err error) string {
	text := strings.TrimSpace(err.Error())
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// hang stops a process for long enough to lose its tables, and lets it go on for a moment.
func (s *chaosStage) hang(ctx context.Context, p *chaosProc) error {
	if err := p.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, 2*time.Second)
	s.stops++
	if err := p.process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	pause(ctx, time.Duration(s.rng.IntN(1500))*time.Millisecond)
	return p.process.Alive()
}

// chaosAims are the requests worth dying at.
var chaosAims = []struct{ method, part string }{
	{"PUT", "/snapshot/snapshot-"}, {"PUT", "/snapshot/snapshot-"}, {"PUT", "/snapshot/snapshot-"}, {"PUT", "/snapshot/LATEST"}, {"PUT", "/snapshot/EARLIEST"},
	{"PUT", "/manifest/"}, {"PUT", "/bucket-"}, {"PUT", "/index/"}, {"PUT", "/schema/"}, {"PUT", "/calve/"}, {"PUT", "/metadata/"},
	{"DELETE", "/snapshot/"}, {"DELETE", "/bucket-"}, {"DELETE", "/manifest/"}, {"DELETE", "/calve/"}, {"GET", "/snapshot/"},
}

// takeAim chooses a request at which the process is killed; nil: it is killed at a time.
func (s *chaosStage) takeAim(p *chaosProc) *aim {
	if p.faults == nil || s.rng.IntN(2) == 0 {
		return nil
	}
	at := chaosAims[s.rng.IntN(len(chaosAims))]
	a := &aim{method: at.method, part: at.part, skip: s.rng.IntN(6), fate: []string{faultDrop, faultLost, faultLate}[s.rng.IntN(3)],
		hit: make(chan struct{}), dead: make(chan struct{})}
	p.faults.Aim(a)
	return a
}

// snapshots is the sum of the newest snapshots of all tables.
func (s *chaosStage) snapshots() (sum int64) {
	for _, t := range s.tables {
		id, err := s.place.latestSnapshot(s.table(t))
		if err == nil { // else the folder is being made
			sum += id
		}
	}
	return sum
}

// chaosStatus is what a process says of its pipelines.
type chaosStatus struct {
	Pipelines []struct {
		Name, State, Error string
		Restarts, Lag      int64
	}
}

// ask looks at the process: no pipeline may wait for a person. It gives how often pipelines were restarted in this life.
func (s *chaosStage) ask(ctx context.Context, p *chaosProc) (restarts int64) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	text, err := httpGet(ctx, "http://"+p.listen+"/status")
	var st chaosStatus
	if err != nil || json.Unmarshal([]byte(text), &st) != nil {
		return 0 // it has just begun
	}
	for _, l := range st.Pipelines {
		restarts += l.Restarts
		if l.State == "failed" || l.State == "paused" {
			s.c.fail(fmt.Errorf("%s: pipeline %s is %s: %s", p.name, l.Name, l.State, l.Error))
		}
	}
	return restarts
}

// finish lets one more life read the topics to their ends without faults, and end in order.
func (s *chaosStage) finish(ctx context.Context, truth *chaosTruth) error {
	for _, p := range s.procs {
		if p.faults != nil {
			p.faults.Calm()
		}
		if p.process == nil {
			if err := s.start(p); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.patience)
	defer cancel()
	var left error
	for _, t := range s.tables {
		for {
			if left = s.reached(ctx, t, truth); left == nil || ctx.Err() != nil {
				break
			}
			for _, p := range s.procs {
				if err := p.process.Alive(); err != nil {
					if !p.refused(err) { // while something failed still
						return err
					}
					if err := s.start(p); err != nil {
						return err
					}
				}
				s.ask(ctx, p)
			}
			pause(ctx, 300*time.Millisecond)
		}
	}
	for _, f := range s.folds { // what was read of the changes so far is as much as there is
		if left == nil {
			left = f.reached(ctx, truth.rows[f.table.name])
		}
	}
	var errs []error
	for _, p := range s.procs {
		s.ask(ctx, p)
		if err := p.process.Alive(); err != nil && p.refused(err) {
			p.process = nil // the others did its work
			continue
		}
		if err := p.process.Stop(40 * time.Second); err != nil {
			errs = append(errs, fmt.Errorf("serve after SIGTERM: %w", err))
		}
		p.process = nil
	}
	if left != nil {
		errs = append(errs, fmt.Errorf("%s has not come to the end of its topics: %w", s.name, left))
	}
	for _, f := range s.folds {
		errs = append(errs, f.stop())
	}
	return errors.Join(errs...)
}

// reached is nil when a table is at the end of its topic, as far as its rows tell.
func (s *chaosStage) reached(ctx context.Context, t *chaosTable, truth *chaosTruth) error {
	want := truth.rows[t.name]
	if len(t.key) == 0 {
		text, err := s.place.Run(ctx, nil, "scan", s.table(t), "--count")
		if have := strings.TrimSpace(string(text)); err == nil && have != fmt.Sprint(len(want)) {
			err = fmt.Errorf("%s has %s rows, expected %d", t.name, have, len(want))
		}
		return err
	}
	got, err := s.place.Scan(ctx, s.table(t), 0, t.columns)
	if err != nil {
		return err
	}
	v := t.judge(want, got)
	return v.err()
}

// judge holds all tables against the truth.
func (s *chaosStage) judge(ctx context.Context, truth *chaosTruth) (v chaosVerdict, err error) {
	var errs []error
	for _, t := range s.tables {
		got, err := s.place.Scan(ctx, s.table(t), 0, t.columns)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		one := t.judge(truth.rows[t.name], got)
		for i := range one.first {
			one.first[i] = s.name + ", " + one.first[i]
		}
		v.add(one)
		if err := s.place.Verify(ctx, s.table(t)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		if err := s.judgeLetters(ctx, t, truth, &v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	for _, f := range s.folds {
		v.add(f.verdict(truth.rows[f.table.name]))
	}
	return v, errors.Join(errs...)
}

// judgeLetters looks for every broken record among the dead letters, once.
func (s *chaosStage) judgeLetters(ctx context.Context, t *chaosTable, truth *chaosTruth, v *chaosVerdict) error {
	if len(truth.letters[t.mixed]) == 0 {
		if id, err := s.place.latestSnapshot(s.table(t) + "__dead"); id == 0 {
			return err // there never was one
		}
	}
	got, err := s.place.Scan(ctx, s.table(t)+"__dead", 0, chaosLetterColumns, "--columns", "partition,offset")
	if err != nil {
		return err
	}
	there := map[string]int{}
	for _, cells := range got.Cells {
		there[cells[0].Text+"/"+cells[1].Text]++
	}
	for _, at := range truth.letters[t.mixed] {
		switch n := there[at]; {
		case n == 0:
			v.lost++
			v.say("%s, %s: no dead letter of the broken record at %s", s.name, t.name, at)
		case n > 1:
			v.doubled += n - 1
			v.say("%s, %s: %d dead letters of the broken record at %s", s.name, t.name, n, at)
		}
		delete(there, at)
	}
	for at := range there {
		v.strange++
		v.say("%s, %s: a dead letter of the record at %s, which is not broken", s.name, t.name, at)
	}
	return nil
}

var chaosLetterColumns = []Column{{"partition", "INT NOT NULL"}, {"offset", "BIGINT NOT NULL"}}

// chaosFold reads the changes of a table all the while, and folds them strictly: an insert of what is there, or an update or
// delete of what is not there so, is a change that was told twice or not at all.
type chaosFold struct {
	stage   *chaosStage
	table   *chaosTable
	process *Process
	done    chan struct{} // closed when the process has ended

	mu      sync.Mutex // guards what follows
	rows    map[string]string
	changes int
	told    chaosVerdict // what was wrong with the changes themselves
	err     error
}

func startChaosFold(s *chaosStage, t *chaosTable) (*chaosFold, error) {
	f := &chaosFold{stage: s, table: t, rows: map[string]string{}, done: make(chan struct{})}
	cmd := exec.Command(s.c.lab.Binary, "tail", s.table(t), "--from", "earliest", "--follow", "--poll", "200ms", "--consumer", "fold", "--warehouse", s.place.Warehouse)
	cmd.Env = append(os.Environ(), s.place.env...)
	out, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	f.process, err = s.c.lab.Start("chaos-tail-"+s.name+"-"+t.name, cmd)
	if err = errors.Join(err, write.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	go func() {
		defer close(f.done)
		defer out.Close()
		err := EachLine(out, f.take)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = err
	}()
	return f, nil
}

// take folds a line.
func (f *chaosFold) take(line []byte) error {
	change, err := decodeObject(line)
	if err != nil {
		return err
	}
	kind, row, err := changeOf(change)
	if err != nil {
		return err
	}
	rows, err := NewRows(f.table.columns)
	if err != nil {
		return err
	}
	if err := rows.Add(fromCalve(row, f.table.columns)); err != nil {
		return err
	}
	id, text := f.table.idOf(rows.Cells[0]), cellsText(rows.Cells[0])
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes++
	was, there := f.rows[id]
	switch kind {
	case "+I":
		if there {
			f.told.doubled++
			f.told.say("stream of %s, %s: %v inserts %s, which is there: %s", f.stage.name, f.table.name, change["snapshot"], text, was)
		}
		f.rows[id] = text
	case "-U", "-D":
		if !there || was != text {
			f.told.lost++
			f.told.say("stream of %s, %s: %v tells %s of %s, but there is %q", f.stage.name, f.table.name, change["snapshot"], kind, text, was)
		}
		if kind == "-D" {
			delete(f.rows, id)
		}
	case "+U":
		f.rows[id] = text
	}
	return nil
}

// verdict tells what was wrong with the changes, and with what they come to.
func (f *chaosFold) verdict(want map[string][]string) chaosVerdict {
	v := f.state(want)
	f.mu.Lock()
	defer f.mu.Unlock()
	v.add(f.told)
	return v
}

// state holds what the changes come to by now against the truth.
func (f *chaosFold) state(want map[string][]string) (v chaosVerdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, row := range want {
		if got, ok := f.rows[id]; !ok || got != strings.Join(row, " ") {
			v.lost++
			v.say("stream of %s, %s: it comes to %q, expected %s", f.stage.name, f.table.name, got, strings.Join(row, " "))
		}
	}
	for id, row := range f.rows {
		if _, ok := want[id]; !ok {
			v.strange++
			v.say("stream of %s, %s: it comes to a row that must not be there: %s", f.stage.name, f.table.name, row)
		}
	}
	return v
}

// reached waits until the changes come to the truth.
func (f *chaosFold) reached(ctx context.Context, want map[string][]string) error {
	for {
		v := f.state(want)
		err := v.err()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if dead := f.process.Alive(); dead != nil {
			return dead
		}
		pause(ctx, 300*time.Millisecond)
	}
}

func (f *chaosFold) stop() error {
	alive := f.process.Alive()
	err := f.process.Stop(20 * time.Second)
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(alive, err, f.err)
}
