//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a program that runs while the suite needs it. Its output goes to a log file.
type Process struct {
	Name string
	Log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts a program. It gets a process group of its own, so that Stop ends what it started too, and dies with
// the suite. Of cmd.SysProcAttr only the user is kept.
func (l *Lab) Start(name string, cmd *exec.Cmd) (*Process, error) {
	path := filepath.Join(l.Logs, name+".log")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = out
	}
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cmd.SysProcAttr != nil {
		attr.Credential = cmd.SysProcAttr.Credential
	}
	cmd.SysProcAttr = attr
	p := &Process{Name: name, Log: path, cmd: cmd, done: make(chan struct{})}
	if err := l.startPinned(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	l.own(p)
	return p, nil
}

// Kill ends the program at once, as a crash would.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // gone already is as good
	<-p.done
}

// Signal sends the program a signal.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.Alive(); err != nil {
		return err
	}
	return syscall.Kill(-p.cmd.Process.Pid, s)
}

// Stop asks the program to end and kills it when it does not.
func (p *Process) Stop(patience time.Duration) error {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM (log: %s)", p.Name, patience, p.Log)
	}
}

// Alive returns an error that names the log when the program has ended.
func (p *Process) Alive() error {
	select {
	case <-p.done:
		text, _ := os.ReadFile(p.Log)
		return fmt.Errorf("%s ended (%v); log %s ends with:\n%s", p.Name, p.err, p.Log, tailOf(text))
	default:
		return nil
	}
}

// WaitReady asks probe again and again until it succeeds, the program ends or time is up.
func (p *Process) WaitReady(ctx context.Context, patience time.Duration, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if err := p.Alive(); err != nil {
			return err
		}
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v: %w (log: %s)", p.Name, patience, err, p.Log)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// FreePort finds a port of the loopback interface that nobody listens on.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// probeTCP succeeds when something accepts connections.
func probeTCP(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// probeHTTP succeeds when a GET gives status 200 and a body that accept likes.
func probeHTTP(url string, accept func(body string) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := httpGet(ctx, url)
		if err == nil && accept != nil && !accept(body) {
			err = errors.New("not yet: " + clip(body))
		}
		return err
	}
}

func httpGet(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := copyLimited(&b, resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", url, resp.Status, clip(b.String()))
	}
	return b.String(), nil
}
