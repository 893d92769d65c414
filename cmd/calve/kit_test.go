package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cli runs commands in this process on a warehouse of its own.
type cli struct {
	t   *testing.T
	dir string
}

func newCLI(t *testing.T) *cli {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "lake")
	t.Setenv("CALVE_WAREHOUSE", "file://"+dir)
	return &cli{t: t, dir: dir}
}

// result is what a command did.
type result struct {
	out, err string
	failed   error
}

// run runs a command with an input.
func (c *cli) run(in string, args ...string) result {
	c.t.Helper()
	var out, errw bytes.Buffer
	cmd := newApp(strings.NewReader(in), &out, &errw).command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errw)
	err := cmd.ExecuteContext(c.t.Context())
	return result{out.String(), errw.String(), err}
}

// ok runs a command that must succeed and gives its output.
func (c *cli) ok(in string, args ...string) string {
	c.t.Helper()
	r := c.run(in, args...)
	if r.failed != nil || r.err != "" {
		c.t.Fatalf("calve %s: %v\n%s", strings.Join(args, " "), r.failed, r.err)
	}
	return r.out
}

// object runs a command that must print one JSON object.
func (c *cli) object(args ...string) map[string]any {
	c.t.Helper()
	out := c.ok("", args...)
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil || strings.Count(out, "\n") != 1 {
		c.t.Fatalf("calve %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return v
}

// fails runs a command that must fail with an error that has all the texts. Commands that have said what is wrong are
// searched in what they said.
func (c *cli) fails(in string, args []string, want ...string) {
	c.t.Helper()
	r := c.run(in, args...)
	if r.failed == nil {
		c.t.Errorf("calve %s succeeds: %s", strings.Join(args, " "), r.out)
		return
	}
	said := r.failed.Error()
	if errors.Is(r.failed, errReported) {
		said = r.out + r.err
	}
	for _, w := range want {
		if !strings.Contains(said, w) {
			c.t.Errorf("calve %s: the error does not say %q: %s", strings.Join(args, " "), w, said)
		}
	}
}

const orders = "id BIGINT NOT NULL, item STRING, price DECIMAL(10, 2)"

// withOrders makes the table shop.orders with a few changes.
func withOrders(t *testing.T) *cli {
	t.Helper()
	c := newCLI(t)
	c.ok("", "create", "shop.orders", "--columns", orders, "--primary-key", "id")
	c.ok(`{"id":1,"item":"ice","price":"2.50"}
{"id":2,"item":"snow","price":"0.10"}
{"id":3,"item":"hail"}
`, "put", "shop.orders")
	c.ok(`{"op":"D","id":2}
{"op":"U","id":3,"item":"hail","price":7}
`, "put", "shop.orders")
	return c
}

// background runs a command until its context ends; lines gives what it printed so far.
type background struct {
	cancel context.CancelFunc
	done   chan error
	mu     sync.Mutex
	out    bytes.Buffer
}

// Write takes what the command prints.
func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *background) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

func (c *cli) background(args ...string) *background {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &background{cancel: cancel, done: make(chan error, 1)}
	cmd := newApp(strings.NewReader(""), b, b).command()
	cmd.SetArgs(args)
	go func() { b.done <- cmd.ExecuteContext(ctx) }()
	c.t.Cleanup(func() { cancel() })
	return b
}
