//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"time"
)

func init() { RegisterScenario(Scenario{Name: "workers", Run: judgeWorkers}) }

const (
	workerPuts = 60 // commits of the writer
	workerKeys = 400
	workerLow  = 4 // level-0 files of a bucket from which the table asks for a compaction
)

var workerColumns = []Column{{"k", "INT NOT NULL"}, {"v", "STRING"}, {"n", "BIGINT"}}

// judgeWorkers lets three processes of `calve compact --watch` share a table that another one writes and does not compact.
// All the while one of them is killed and started again, or stopped for longer than its claim lasts and let go on. In the
// end every row must be there as it was written last, and the runs must be few.
func judgeWorkers(ctx context.Context, l *Lab, report *Report) {
	w := &workersTest{lab: l, place: l.Local(), rng: rand.New(rand.NewPCG(l.Seed, 8))}
	var ran error
	report.Always("workers", "calve", func() error { ran = w.run(ctx); return ran })
	if ran != nil {
		return
	}
	for _, j := range judges {
		reader, ok := j.Judge.(PaimonReader)
		if !ok {
			continue
		}
		report.Check("workers", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			got, err := reader.Read(ctx, PaimonTable{Warehouse: w.place.Warehouse, Name: workersTable}, 0, workerColumns)
			if err != nil {
				return err
			}
			return w.want.Compare(got)
		})
	}
}

const workersTable = "workers.rows"

type workersTest struct {
	lab     *Lab
	place   *Place
	rng     *rand.Rand
	model   *Model
	want    *Rows
	workers []*Process
	kills   int
	stops   int
}

func (w *workersTest) run(ctx context.Context) (err error) {
	if w.model, err = NewModel(workerColumns, []string{"k"}); err != nil {
		return err
	}
	_, err = w.place.Run(ctx, nil, "create", workersTable, "--columns", "k INT NOT NULL, v STRING, n BIGINT", "--primary-key", "k",
		"--option", "bucket=4", "--option", "write-only=true", "--option", fmt.Sprintf("num-sorted-run.compaction-trigger=%d", workerLow),
		"--option", "snapshot.num-retained.min=20", "--option", "snapshot.num-retained.max=40")
	if err != nil {
		return err
	}
	for i := range 3 {
		p, err := w.start(i)
		if err != nil {
			return err
		}
		w.workers = append(w.workers, p)
	}
	for n := range workerPuts {
		if err := w.put(ctx, n); err != nil {
			return fmt.Errorf("put %d of %d: %w", n+1, workerPuts, err)
		}
		if err := w.disturb(n); err != nil {
			return err
		}
	}
	if w.want, err = w.model.Rows(); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.lab.Log("workers: %d commits, %d kills, %d stops, %d snapshots", workerPuts, w.kills, w.stops, w.latest())
	return w.place.Verify(ctx, workersTable)
}

func (w *workersTest) latest() int64 {
	id, _ := w.place.latestSnapshot(workersTable)
	return id
}

func (w *workersTest) start(i int) (*Process, error) {
	return w.lab.Start(fmt.Sprintf("worker-%d", i), exec.Command(w.lab.Binary, "compact", "--watch", "workers.*", "-w", w.place.Warehouse,
		"--follow-every", "50ms", "--look-every", "200ms", "--expire-every", "1s", "--claim-for", "1s", "--log-level", "info"))
}

// put writes rows of random keys, some of them deletes, in one commit.
func (w *workersTest) put(ctx context.Context, n int) error {
	var ops []Op
	for _, k := range w.rng.Perm(workerKeys)[:workerKeys/4] {
		kind := "U"
		if w.rng.IntN(5) == 0 {
			kind = "D"
		}
		ops = append(ops, Op{kind, map[string]any{"k": k, "v": fmt.Sprintf("value %d of %d", n, k), "n": n}})
	}
	if err := w.place.Put(ctx, workersTable, &Case{Columns: workerColumns, Key: []string{"k"}}, ops); err != nil {
		return err
	}
	return w.model.Apply(ops)
}

// level0 is the number of files on level 0.
func (w *workersTest) level0(ctx context.Context) (int, error) {
	text, err := w.place.Run(ctx, nil, "describe", workersTable, "--json")
	if err != nil {
		return 0, err
	}
	var d struct{ FilesPerLevel []int }
	if err := json.Unmarshal(text, &d); err != nil || len(d.FilesPerLevel) == 0 {
		return 0, fmt.Errorf("calve describe says %s (%w)", text, err)
	}
	return d.FilesPerLevel[0], nil
}

// disturb kills a worker and starts it again, stops one, or lets a stopped one go on.
func (w *workersTest) disturb(n int) error {
	i := w.rng.IntN(len(w.workers))
	switch n % 6 {
	case 1, 4:
		if err := w.workers[i].Alive(); err != nil {
			return err
		}
		w.kills++
		w.workers[i].Kill()
		p, err := w.start(i)
		if err != nil {
			return err
		}
		w.workers[i] = p
	case 2:
		w.stops++
		return w.workers[i].Signal(syscall.SIGSTOP)
	case 5:
		for _, p := range w.workers {
			if err := p.Signal(syscall.SIGCONT); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle waits until the workers have nothing left to do, and ends them.
func (w *workersTest) settle(ctx context.Context) error {
	for _, p := range w.workers {
		if err := p.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(time.Minute)
	for {
		files, err := w.level0(ctx)
		if err != nil {
			return err
		}
		if files < 4*workerLow {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("level 0 still has %d files in 4 buckets", files)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	var errs []error
	for _, p := range w.workers {
		errs = append(errs, p.Stop(20*time.Second))
	}
	return errors.Join(errs...)
}
