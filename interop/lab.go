//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Lab is what one run of the suite shares: folders, the calve binary, and services that start when first needed.
type Lab struct {
	Root    string // of the repository
	Cache   *Cache
	Logs    string
	Scratch string
	Data    string // warehouses of this run
	Binary  string // calve itself
	Seed    uint64
	// Histories is the number of random histories of the differential tester.
	Histories int
	// Live is how long pgbench works in the scenario cdc.
	Live time.Duration
	Log  func(format string, args ...any)

	lock      *os.File // held while the run goes on
	mu        sync.Mutex
	processes []*Process
	starts    chan func()
	s3        once[*S3]
	catalogs  [2]once[string]
	kafka     once[*Kafka]
	flink     once[*Flink]
}

// once holds a service that starts when it is first asked for.
type once[T any] struct {
	sync.Once
	value T
	err   error
}

func (o *once[T]) get(start func() (T, error)) (T, error) {
	o.Do(func() { o.value, o.err = start() })
	return o.value, o.err
}

// NewLab makes the folders of a run below ROOT/.cache/peers/runs. Folders of earlier runs are removed; those of runs
// that still go on are left alone.
func NewLab(root string, seed uint64, log func(string, ...any)) (*Lab, error) {
	cache := filepath.Join(root, ".cache", "peers")
	runs := filepath.Join(cache, "runs")
	if err := removeOldRuns(runs); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(runs, "")
	if err != nil {
		return nil, err
	}
	l := &Lab{Root: root, Seed: seed, Log: log, starts: make(chan func()), Cache: &Cache{Dir: cache, Log: log},
		Logs: filepath.Join(dir, "logs"), Data: filepath.Join(dir, "data"), Scratch: filepath.Join(dir, "scratch")}
	if l.lock, err = lockFile(filepath.Join(dir, "lock"), false); err != nil {
		return nil, err
	}
	for _, dir := range []string{l.Logs, l.Data, l.Scratch} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	go func() {
		// The kernel kills children with a parent-death signal when the thread that started them ends,
		// so all are started by one thread that stays.
		runtime.LockOSThread()
		for f := range l.starts {
			f()
		}
	}()
	log("logs are in %s", l.Logs)
	return l, nil
}

// removeOldRuns removes the folders of runs that have ended.
func removeOldRuns(runs string) error {
	if err := os.MkdirAll(runs, 0o755); err != nil {
		return err
	}
	old, err := os.ReadDir(runs)
	if err != nil {
		return err
	}
	for _, e := range old {
		dir := filepath.Join(runs, e.Name())
		lock, err := lockFile(filepath.Join(dir, "lock"), false)
		if err != nil {
			continue // goes on, or is just being made
		}
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// lockFile takes a lock that ends with the process; wait says what to do when another has it.
func lockFile(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

func (l *Lab) startPinned(cmd *exec.Cmd) error {
	result := make(chan error)
	l.starts <- func() { result <- cmd.Start() }
	return <-result
}

// BuildCalve builds the binary under judgement, or takes a given one.
func (l *Lab) BuildCalve(ctx context.Context, given string) error {
	if given != "" {
		path, err := filepath.Abs(given)
		l.Binary = path
		return err
	}
	l.Binary = filepath.Join(l.Data, "bin", "calve")
	return run(ctx, l.Root, nil, "go", "build", "-o", l.Binary, "./cmd/calve")
}

func (l *Lab) own(p *Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processes = append(l.processes, p)
}

// Close stops everything that still runs, the newest first.
func (l *Lab) Close() error {
	l.mu.Lock()
	processes := slices.Clone(l.processes)
	l.mu.Unlock()
	slices.Reverse(processes)
	var errs []error
	for _, p := range processes {
		if p.Alive() != nil {
			continue
		}
		if err := p.Stop(10 * time.Second); err != nil {
			var exit *exec.ExitError // ended by our signal
			if !errors.As(err, &exit) {
				errs = append(errs, err)
			}
		}
	}
	close(l.starts)
	return errors.Join(append(errs, l.lock.Close())...)
}

// Peers gives a path below interop/peers.
func (l *Lab) Peers(parts ...string) string {
	return filepath.Join(append([]string{l.Root, "interop", "peers"}, parts...)...)
}

// Python starts a Python peer with its own environment.
func (l *Lab) Python(ctx context.Context, name, program string, env []string, args ...string) (*Worker, error) {
	python, err := l.Cache.Venv(ctx, name, l.Peers("python", name+".txt"))
	if err != nil {
		return nil, err
	}
	return l.StartWorker(name, func() *exec.Cmd {
		cmd := exec.Command(python, append([]string{"-u", l.Peers("python", program)}, args...)...)
		cmd.Env = append(os.Environ(), append(env, "PYTHONDONTWRITEBYTECODE=1")...)
		return cmd
	})
}

// copyLimited copies a body that should be small.
func copyLimited(w io.Writer, r io.Reader) (int64, error) {
	const most = 64 << 20
	n, err := io.Copy(w, io.LimitReader(r, most))
	if err == nil && n == most {
		err = fmt.Errorf("a reply has more than %d bytes", most)
	}
	return n, err
}
