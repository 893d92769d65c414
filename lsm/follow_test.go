package lsm

import (
	"testing"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
)

// followed notes what Files.Follow is told.
type followed struct {
	t     *testing.T
	rows  map[string][]row // of files that are whole
	open  int
	drops int
}

// watch has a bucket's compactions tell about their files.
func watch(t *testing.T, b *bucket) *followed {
	f := &followed{t: t, rows: map[string][]row{}}
	b.files.Follow = func(name string) Follower {
		f.open++
		return &following{of: f, name: name}
	}
	return f
}

// check compares what was told of a file with what is in it.
func (f *followed) check(b *bucket, m manifest.DataFile) {
	f.t.Helper()
	told, ok := f.rows[b.part.Dir+"/"+m.Name]
	if !ok {
		return
	}
	if diff := diffRows(told, drain(f.t, b.open([]manifest.DataFile{m}), nil)); diff != "" {
		f.t.Fatalf("what was told of %s is not in it: %s", m.Name, diff)
	}
}

type following struct {
	of   *followed
	name string
	rows []row
	end  bool
}

func (f *following) Rows(r datafile.Rows) {
	f.still()
	f.rows = append(f.rows, modelRows(r)...)
}

func (f *following) Done(m *manifest.DataFile) {
	f.still()
	f.end = true
	f.of.open--
	f.of.rows[f.name] = f.rows
	if m.Level == 0 || int(m.Rows) != len(f.rows) {
		f.of.t.Errorf("%d rows were told of %d of file %s on level %d", len(f.rows), m.Rows, m.Name, m.Level)
	}
}

func (f *following) Drop() {
	f.still()
	f.end = true
	f.of.open--
	f.of.drops++
}

func (f *following) still() {
	if f.end {
		f.of.t.Errorf("%s is told of after its end", f.name)
	}
}
