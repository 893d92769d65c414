package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

const pkg = "github.com/calve-io/calve/bench"

// facts are what the figures depend on. Nothing in them names a machine or a path.
type facts struct {
	goos, goarch, cpu, goVersion, fs, commit, date string
	cores                                          int
}

func gatherFacts(ctx context.Context, dir string) facts {
	return facts{
		goos: runtime.GOOS, goarch: runtime.GOARCH, cpu: cpuModel(), cores: runtime.NumCPU(), goVersion: runtime.Version(),
		fs: fileSystem(dir), commit: commitID(ctx), date: time.Now().UTC().Format(time.DateOnly),
	}
}

// cpuModel is the processor as Linux calls it.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// fileSystem is the type of the file system that holds a folder: the longest mount point above it.
func fileSystem(dir string) string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown"
	}
	best, kind := "", "unknown"
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/") + "/"
		if strings.HasPrefix(dir+"/", at) && len(at) >= len(best) {
			best, kind = at, f[2]
		}
	}
	return kind
}

// commitID is the short id of the commit in the work tree, with "-dirty" when Go files differ from it.
func commitID(ctx context.Context) string {
	id, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(id))
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--", "*.go", "go.mod", "go.sum").Output()
	if err != nil || len(strings.TrimSpace(string(changed))) > 0 {
		name += "-dirty"
	}
	return name
}
