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
	Log     func(format string, args ...any)

	mu        sync.Mutex
	processes []*Process
	starts    chan func()
	s3        once[*S3]
	catalogs  [2]once[string]
	kafka     once[*Kafka]
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

// NewLab makes the folders of a run below ROOT/.cache/peers; those of an earlier run are removed.
func NewLab(root string, seed uint64, log func(string, ...any)) (*Lab, error) {
	cache := filepath.Join(root, ".cache", "peers")
	l := &Lab{Root: root, Seed: seed, Log: log, starts: make(chan func()),
		Cache: &Cache{Dir: cache, Log: log},
		Logs:  filepath.Join(cache, "logs"), Data: filepath.Join(cache, "run"), Scratch: filepath.Join(cache, "scratch")}
	for _, dir := range []string{l.Logs, l.Data, l.Scratch} {
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
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
	return l, nil
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
	return errors.Join(errs...)
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
