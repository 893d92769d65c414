package storage

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Mem keeps objects in memory, for tests and for trying things out. It remembers what a local disk would owe to a
// sync, which CrashClone brings to light.
type Mem struct {
	mu      sync.RWMutex
	objects map[string]*memObject
	deleted map[string]*memObject // deleted, but the deletion is not durable yet
	clock   func() time.Time      // nil: count ticks
	ticks   int64
}

// memObject is an object's content. It is replaced, never changed, so that open files keep theirs.
type memObject struct {
	data    []byte
	mod     time.Time
	durable bool
	// older is what a power cut may leave in place of data that is not durable, beside data itself, whole or torn.
	// The zero memVersion means no object.
	older []memVersion
}

// memVersion is one content a name had.
type memVersion struct {
	data   []byte
	exists bool
}

// maxOlder bounds the versions remembered for a hint that is written again and again; the oldest is always kept.
const maxOlder = 8

// NewMem makes an empty store. Its objects' times come from a clock that goes forward a millisecond with each write.
func NewMem() *Mem {
	return &Mem{objects: make(map[string]*memObject), deleted: make(map[string]*memObject)}
}

// SetClock makes the store take its objects' times from now.
func (m *Mem) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = now
}

// now is the time of a write; m.mu is held.
func (m *Mem) now() time.Time {
	if m.clock != nil {
		return m.clock()
	}
	m.ticks++
	return time.UnixMilli(m.ticks).UTC()
}

// URL implements Store.
func (m *Mem) URL(name string) string { return "mem:///" + name }

// Open implements Store.
func (m *Mem) Open(ctx context.Context, name string) (File, error) {
	o, err := m.get(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{ctx: ctx, data: o.data, url: m.URL(name)}, nil
}

// ReadAll implements AllReader.
func (m *Mem) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	o, err := m.get(ctx, "read", name)
	if err != nil {
		return nil, err
	}
	if size := int64(len(o.data)); size > limit {
		return nil, tooLarge(m.URL(name), size, limit)
	}
	return slices.Clone(o.data), nil
}

func (m *Mem) get(ctx context.Context, op, name string) (*memObject, error) {
	if err := m.begin(ctx, op, name); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, ok := m.objects[name]
	if !ok {
		return nil, fmt.Errorf("%s %s: %w", op, m.URL(name), ErrNotFound)
	}
	return o, nil
}

func (m *Mem) begin(ctx context.Context, op, name string) error {
	if err := checkName(op, name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, m.URL(name), err)
	}
	return nil
}

// Create implements Store.
func (m *Mem) Create(ctx context.Context, name string) (Upload, error) {
	if err := m.begin(ctx, "create", name); err != nil {
		return nil, err
	}
	return &memUpload{ctx: ctx, m: m, name: name}, nil
}

// PutIfAbsent implements Store.
func (m *Mem) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	const op = "put if absent"
	if err := m.begin(ctx, op, name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.objects[name]; taken {
		m.syncFolder(name)
		return fmt.Errorf("%s %s: %w", op, m.URL(name), ErrExists)
	}
	m.setDurable(name, slices.Clone(data))
	return nil
}

// Put implements Store.
func (m *Mem) Put(ctx context.Context, name string, data []byte) error {
	if err := m.begin(ctx, "put", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &memObject{data: slices.Clone(data), mod: m.now()}
	switch before, unlinked := m.objects[name], m.deleted[name]; {
	case before != nil:
		o.older = before.versions()
	case unlinked != nil:
		o.older = append(unlinked.versions(), memVersion{})
		delete(m.deleted, name)
	default:
		o.older = []memVersion{{}}
	}
	if len(o.older) > maxOlder {
		o.older = slices.Delete(o.older, 1, len(o.older)-maxOlder+1)
	}
	m.objects[name] = o
	return nil
}

// Delete implements Store.
func (m *Mem) Delete(ctx context.Context, name string) error {
	if err := m.begin(ctx, "delete", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.objects[name]; ok {
		delete(m.objects, name)
		m.deleted[name] = o
	}
	return nil
}

// setDurable publishes an object as a sync of the file and of its folder does; m.mu is held.
func (m *Mem) setDurable(name string, data []byte) {
	m.objects[name] = &memObject{data: data, mod: m.now(), durable: true}
	m.syncFolder(name)
}

// syncFolder makes the deletions in a name's folder durable; m.mu is held.
func (m *Mem) syncFolder(name string) {
	dir := path.Dir(name)
	maps.DeleteFunc(m.deleted, func(gone string, _ *memObject) bool { return path.Dir(gone) == dir })
}

// versions lists what a power cut may leave of an object.
func (o *memObject) versions() []memVersion {
	if o.durable {
		return []memVersion{{data: o.data, exists: true}}
	}
	return append(slices.Clone(o.older), memVersion{data: o.data, exists: true})
}

// List implements Store.
func (m *Mem) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		infos, err := m.below(ctx, "list", dir)
		if err != nil {
			yield(Info{}, err)
			return
		}
		children := make(map[string]Info, len(infos))
		for _, info := range infos {
			rest := strings.TrimPrefix(info.Name[len(dir):], "/")
			if first, _, deeper := strings.Cut(rest, "/"); deeper {
				info = Info{Name: join(dir, first), Dir: true}
				// A key of its own: in an object store an object and a folder may have the same name.
				children[info.Name+"/"] = info
			} else {
				children[info.Name] = info
			}
		}
		sorted := slices.Collect(maps.Values(children))
		sortByName(sorted)
		for _, info := range sorted {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Walk implements Walker, in name order.
func (m *Mem) Walk(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		infos, err := m.below(ctx, "list", dir)
		if err != nil {
			yield(Info{}, err)
			return
		}
		sortByName(infos)
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// below gathers all objects below a folder.
func (m *Mem) below(ctx context.Context, op, dir string) ([]Info, error) {
	if err := checkDir(op, dir); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", op, m.URL(dir), err)
	}
	prefix := dir
	if prefix != "" {
		prefix += "/"
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var infos []Info
	for name, o := range m.objects {
		if strings.HasPrefix(name, prefix) {
			infos = append(infos, Info{Name: name, Size: int64(len(o.data)), ModTime: o.mod})
		}
	}
	return infos, nil
}

// sortByName puts a listing into name order; an object comes before a folder of the same name.
func sortByName(infos []Info) {
	slices.SortFunc(infos, func(a, b Info) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 || a.Dir == b.Dir {
			return c
		}
		if b.Dir {
			return -1
		}
		return 1
	})
}

// memFile is an open object. It keeps its content whatever becomes of the name.
type memFile struct {
	ctx    context.Context
	mu     sync.RWMutex
	data   []byte
	closed bool
	url    string
}

func (f *memFile) Size() int64 { return int64(len(f.data)) }

func (f *memFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	err := f.ctx.Err()
	switch {
	case f.closed:
		err = fs.ErrClosed
	case err == nil && off < 0:
		err = errNegative
	}
	if err != nil {
		return 0, fmt.Errorf("read %s at %d: %w", f.url, off, err)
	}
	if off >= int64(len(f.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// memUpload gathers an object.
type memUpload struct {
	ctx  context.Context
	m    *Mem
	name string
	data []byte
	done bool
}

func (u *memUpload) Write(p []byte) (int, error) {
	if err := u.check("write"); err != nil {
		return 0, err
	}
	u.data = append(u.data, p...)
	return len(p), nil
}

func (u *memUpload) Commit() error {
	err := u.check("commit")
	u.done = true
	if err != nil {
		return err
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.m.setDurable(u.name, u.data)
	return nil
}

func (u *memUpload) Abort() { u.done = true }

func (u *memUpload) check(op string) error {
	err := u.ctx.Err()
	if u.done {
		err = fs.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, u.m.URL(u.name), err)
	}
	return nil
}
