package lookup

import (
	"errors"
	"os"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
)

// rowCopy makes a local file of rows that come in the order of a data file.
type rowCopy struct {
	d      *localDir
	w      *localWriter
	keys   *lsm.Keys
	layout *recordLayout
	at     []int // of the layout's columns, and of the key's: their places among those of the rows
	keyAt  []int

	counted      int64 // bytes of localDir.pending
	code, record []byte
	cols, key    []arrow.Array
}

// newRowCopy begins a file. at says where the columns of the layout are among those of the rows to come.
func newRowCopy(d *localDir, keys *lsm.Keys, t *Table, lay *recordLayout, at []int) (*rowCopy, error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	c := &rowCopy{d: d, keys: keys, layout: lay, at: at, cols: make([]arrow.Array, len(at))}
	for _, k := range t.Schema.KeyColumns() {
		c.keyAt = append(c.keyAt, at[lay.at[k]])
	}
	c.key = make([]arrow.Array, len(c.keyAt))
	var err error
	c.w, err = newLocalWriter(d.dir, d.limit)
	return c, err
}

// add copies rows. The rows' memory is the caller's again when it returns.
func (c *rowCopy) add(rows datafile.Rows) error {
	for i, at := range c.keyAt {
		c.key[i] = rows.Cols[at]
	}
	vec, err := c.keys.Encode(c.key, rows.N)
	if err != nil {
		return err
	}
	for i, at := range c.at {
		c.cols[i] = rows.Cols[at]
	}
	rows.Cols = c.cols
	cols := rawCols(c.layout, rows)
	for i := range rows.N {
		c.code = c.keys.AppendCode(c.code[:0], &vec, i)
		c.record = c.layout.append(c.record[:0], cols, rows, i, c.code)
		if err := c.w.add(c.record, c.code); err != nil {
			return err
		}
	}
	return c.reserve()
}

// reserve makes room for what the file takes, some of it ahead.
func (c *rowCopy) reserve() error {
	size := c.w.size()
	if size <= c.counted {
		return nil
	}
	size += min(8<<20, c.d.limit/64)
	c.d.pending.Add(size - c.counted)
	c.counted = size
	return c.d.room()
}

// end gives the file its name, or drops it.
func (c *rowCopy) end(x *localFile) error {
	c.d.tables.Lock()
	err := c.w.end(x.path, x.name)
	c.d.tables.Unlock()
	if err != nil {
		return errors.Join(err, c.abort())
	}
	c.d.pending.Add(-c.counted)
	return nil
}

func (c *rowCopy) abort() error {
	c.d.pending.Add(-c.counted)
	return c.w.abort()
}

// Copies makes local files of the data files of a table while they are written: it is what lsm.Files.Follow is for. What it
// cannot make is made later, if it pays. It is safe for concurrent use.
type Copies struct {
	d    *localDir
	t    *Table
	keys *lsm.Keys

	mu   sync.Mutex // guards made
	made []*localFile
}

// Copies is nil if the cache makes no local files. Of the table, which has a primary key, its folder and schema count.
func (c *Cache) Copies(t *Table) *Copies {
	if c == nil || c.local == nil {
		return nil
	}
	return &Copies{d: c.local, t: t, keys: lsm.NewKeys(t.Schema)}
}

// Follow begins to copy the data file with a name below the table's folder, which is about to be written with the table's
// schema; nil: it is not copied.
func (c *Copies) Follow(name string) lsm.Follower {
	lay, _, err := c.t.layout()
	if err != nil {
		return nil
	}
	w, err := newRowCopy(c.d, c.keys, c.t, lay, lay.stored())
	if err != nil {
		return nil
	}
	return &follower{c: c, name: name, w: w}
}

// Discard deletes what was made: the data files will not be part of the table.
func (c *Copies) Discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.made {
		_ = x.shut() // nobody can have looked into it
		_ = os.Remove(x.path)
	}
	c.made = nil
}

// follower copies one data file.
type follower struct {
	c    *Copies
	name string
	w    *rowCopy // nil: given up
	rows int64
}

// Rows implements lsm.Follower.
func (f *follower) Rows(rows datafile.Rows) {
	if f.w == nil {
		return
	}
	rows.First = f.rows
	f.rows += int64(rows.N)
	if f.w.add(rows) != nil {
		f.Drop()
	}
}

// Drop implements lsm.Follower.
func (f *follower) Drop() {
	if f.w != nil {
		_ = f.w.abort() // what is left is cleaned up with time
		f.w = nil
	}
}

// Done implements lsm.Follower.
func (f *follower) Done(m *manifest.DataFile) {
	c := f.c
	x, err := c.d.of(c.t, f.name, m)
	if f.w == nil || err != nil || x == nil || m.Rows != f.rows {
		f.Drop()
		return
	}
	if f.w.end(x) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, x)
}

// Fork gives a cache with the same bounds that opens data files for itself and shares the local files. It is closed before
// the cache it comes from; nil gives a cache without local files.
func (c *Cache) Fork() *Cache {
	if c == nil {
		return NewCache(CacheConfig{})
	}
	f := NewCache(c.cfg)
	f.local, f.forked = c.local, true
	return f
}
