package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

// racerEnv makes the test binary a second process that races for names: it holds the store's folder.
const racerEnv = "CALVE_TEST_STORAGE_RACER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(racerEnv); dir != "" {
		if err := racer(dir, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func newLocal(t *testing.T) *storage.Local {
	t.Helper()
	l, err := storage.NewLocal(filepath.Join(t.TempDir(), "ware", "house"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocal(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store { return newLocal(t) })
}

const (
	raceRounds     = 60
	racerThreads   = 4
	racerPayload   = 3000
	racerProcesses = 2
)

// racer puts its own bytes under the name of every round, from several goroutines. A line on in starts a round, a
// line on out says which of the goroutines won.
func racer(dir string, in, out *os.File) error {
	s, err := storage.NewLocal(dir)
	if err != nil {
		return err
	}
	for round := range raceRounds {
		if _, err := in.Read(make([]byte, 1)); err != nil {
			return err
		}
		var wg sync.WaitGroup
		results := make([]string, racerThreads)
		for i := range racerThreads {
			wg.Go(func() {
				err := s.PutIfAbsent(context.Background(), raceName(round), racerBytes(os.Getpid(), i))
				switch {
				case err == nil:
					results[i] = "won"
				case errors.Is(err, storage.ErrExists):
					results[i] = "lost"
				default:
					results[i] = strings.ReplaceAll(err.Error(), " ", "_")
				}
			})
		}
		wg.Wait()
		if _, err := fmt.Fprintln(out, strings.Join(results, " ")); err != nil {
			return err
		}
	}
	return nil
}

func raceName(round int) string { return fmt.Sprintf("t/snapshot/%d/snapshot-%d", round/10, round) }

func racerBytes(pid, thread int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d/%d ", pid, thread), racerPayload)
}

// startRacer starts a second process and returns its id, what begins a round, and what waits for its results.
func startRacer(t *testing.T, dir string) (pid int, begin func(), results func() []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), racerEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("racing process: %v", err)
		}
	})
	begin = func() {
		if _, err := in.Write([]byte{'\n'}); err != nil {
			t.Fatal(err)
		}
	}
	results = func() []string {
		var line string
		buf := make([]byte, 4096)
		for !strings.HasSuffix(line, "\n") {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatalf("racing process %d: %v", cmd.Process.Pid, err)
			}
			line += string(buf[:n])
		}
		return strings.Fields(line)
	}
	return cmd.Process.Pid, begin, results
}

// TestLocalTwoProcesses lets two processes race for names in one folder, which does not exist at first.
func TestLocalTwoProcesses(t *testing.T) {
	s := newLocal(t)
	dir := strings.TrimPrefix(s.URL(""), "file://")
	type process struct {
		pid     int
		begin   func()
		results func() []string
	}
	var procs []process
	for range racerProcesses {
		pid, begin, results := startRacer(t, dir)
		procs = append(procs, process{pid, begin, results})
	}
	for round := range raceRounds {
		for _, p := range procs {
			p.begin()
		}
		var winners [][]byte
		for _, p := range procs {
			for i, r := range p.results() {
				switch r {
				case "won":
					winners = append(winners, racerBytes(p.pid, i))
				case "lost":
				default:
					t.Fatalf("round %d: %s", round, r)
				}
			}
		}
		if len(winners) != 1 {
			t.Fatalf("round %d: %d writers were told that they won", round, len(winners))
		}
		got, err := storage.ReadAll(t.Context(), s, raceName(round), 1<<20)
		if err != nil || !bytes.Equal(got, winners[0]) {
			t.Fatalf("round %d: the object is not the winner's (%d bytes, %v)", round, len(got), err)
		}
	}
	wantNoTemp(t, dir)
}

// wantNoTemp checks that no temporary file is left below a folder.
func wantNoTemp(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".tmp") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLocalFiles checks what other engines see: plain files, readable by the umask, nothing else.
func TestLocalFiles(t *testing.T) {
	s := newLocal(t)
	dir := strings.TrimPrefix(s.URL(""), "file://")
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("opening a store made its folder: %v", err)
	}
	if err := s.PutIfAbsent(t.Context(), "t/schema/schema-0", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	u, err := s.Create(t.Context(), "t/bucket-0/data")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "t/bucket-0"))
	if err != nil || len(entries) != 1 || entries[0].Name()[0] != '.' {
		t.Errorf("an upload in progress shows as %v, %v; want one hidden file", entries, err)
	}
	if err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	ref := filepath.Join(t.TempDir(), "ref")
	if err := os.WriteFile(ref, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t/schema/schema-0", "t/bucket-0/data"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode() != want.Mode() {
			t.Errorf("%s has mode %v, want %v as the umask leaves it", name, st.Mode(), want.Mode())
		}
		if _, err := os.Stat(strings.TrimPrefix(s.URL(name), "file://")); err != nil {
			t.Errorf("URL %s: %v", s.URL(name), err)
		}
	}
	wantNoTemp(t, dir)
}

// TestLocalRemoveTemp checks that what a killed writer left goes, and what a living one uses stays.
func TestLocalRemoveTemp(t *testing.T) {
	s := newLocal(t)
	sub := storage.WithCounter(storage.Sub(s, "t"))
	dir := strings.TrimPrefix(s.URL("t/bucket-0"), "file://")
	var paths []string
	for range 3 {
		u, err := sub.Create(t.Context(), "bucket-0/data")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(u.Abort)
	}
	if err := sub.Put(t.Context(), "bucket-0/object", []byte("x")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
		if err := os.Chtimes(paths[i], now, now.Add(-time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if len(paths) != 4 {
		t.Fatalf("the folder holds %v", paths)
	}
	n, err := storage.RemoveTemp(t.Context(), sub, "bucket-0", now.Add(-30*time.Minute))
	if n != 2 || err != nil {
		t.Fatalf("removed %d, error %v; want 2", n, err)
	}
	if _, err := os.Stat(paths[0]); err != nil {
		t.Errorf("a fresh temporary file is gone: %v", err)
	}
	if _, err := storage.ReadAll(t.Context(), sub, "bucket-0/object", 1); err != nil {
		t.Errorf("an object is gone: %v", err)
	}
	if n, err := storage.RemoveTemp(t.Context(), sub, "none", now); n != 0 || err != nil {
		t.Errorf("in a missing folder: %d, %v", n, err)
	}
	if n, err := storage.RemoveTemp(t.Context(), storage.NewMem(), "", now); n != 0 || err != nil {
		t.Errorf("in memory: %d, %v", n, err)
	}
}

// TestLocalFolderGone checks that a store notices that a folder it knew was removed.
func TestLocalFolderGone(t *testing.T) {
	s := newLocal(t)
	for range 3 {
		if err := s.PutIfAbsent(t.Context(), "a/b/c/d", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(strings.TrimPrefix(s.URL("a"), "file://")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLocalRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"", "a\x00b", file, filepath.Join(file, "below")} {
		if l, err := storage.NewLocal(root); err == nil {
			t.Errorf("NewLocal(%q) gave %v", root, l)
		}
	}
	s := newLocal(t)
	if err := s.Put(t.Context(), "file", []byte("x")); err != nil {
		t.Fatal(err)
	}
	// A file where a folder is needed: not "not found", not "exists", and nothing of it done.
	for what, err := range map[string]error{
		"put if absent": s.PutIfAbsent(t.Context(), "file/below", nil),
		"put":           s.Put(t.Context(), "file/below/it", nil),
	} {
		if err == nil || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrExists) ||
			errors.Is(err, storage.ErrUnknown) || !strings.Contains(err.Error(), "is a file, not a folder") {
			t.Errorf("%s below a file: %v", what, err)
		}
	}
}
