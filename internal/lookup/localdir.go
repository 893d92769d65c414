package lookup

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
)

// pageCost is how many rows of a data file can be copied into a local file in the time that one lookup in its pages takes:
// a local file is made when as many were looked up as would have paid for it.
const pageCost = 4096

// smallFile is the number of rows below which a data file is not worth a local one: all of it is in one page.
const smallFile = 8192

// DenseRows: where more than one row in so many is asked for, pages of a data file are read and not a local one: to decode so many
// rows takes about as long as a lookup and its share of making the file. A compaction that asks for one row in 50 takes twice
// as long with pages.
const DenseRows = 32

// mostLocal is how many local files are known at once. An open one is a mapping and no descriptor, where the system can.
const mostLocal = 4096

// mostRecords is how many bytes of records are gathered at once: Arrow's offsets have 31 bits.
const mostRecords = math.MaxInt32

// staleTemp is how long a temporary file is not written to until it is taken for left behind.
const staleTemp = time.Hour

// localDir is a folder of local files, which several processes may share. Any of its files may go at any time.
type localDir struct {
	dir   string
	limit int64 // bytes of all files
	open  int   // mostLocal
	pay   int64 // pageCost; 0: every file is copied when it is asked first
	dense int64 // DenseRows
	most  int   // mostRecords

	making  sync.Mutex   // held while a file is made of a data file
	tables  sync.Mutex   // held while the table of a file is made: one at a time, for the sake of memory
	pending atomic.Int64 // bytes that files take which are being made

	mu     sync.Mutex // guards what follows and localFile.at
	files  map[fileID]*localFile
	recent *list.List // of *localFile, the most recently used in front
	closed bool
}

// localFile is what is known of the local file of a data file.
type localFile struct {
	id     fileID
	name   string // what the head must say
	path   string
	layout *recordLayout
	most   int // localDir.most
	at     *list.Element

	mu    sync.Mutex // guards what follows; held while it is made
	l     *local     // nil: not open
	asked int64      // keys looked up without it
	never bool       // it cannot be made, or does not pay
	gone  bool       // the folder has forgotten it: who still has it must open nothing, which nobody would close
}

func newLocalDir(cfg CacheConfig) *localDir {
	if cfg.Dir == "" || cfg.DirBytes <= 0 {
		return nil
	}
	open := mostLocal
	if !canMap {
		open = cfg.MaxFiles
	}
	return &localDir{
		dir: cfg.Dir, limit: cfg.DirBytes, open: open, pay: pageCost, dense: DenseRows, most: mostRecords,
		files: map[fileID]*localFile{}, recent: list.New(),
	}
}

// close closes all files.
func (d *localDir) close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	d.closed = true
	all := d.files
	d.files, d.recent = map[fileID]*localFile{}, list.New()
	d.mu.Unlock()
	var errs []error
	for _, x := range all {
		errs = append(errs, x.shut())
	}
	return errors.Join(errs...)
}

// shut closes a file; who reads it at the moment finds it unusable.
func (x *localFile) shut() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone = true
	if x.l == nil {
		return nil
	}
	l := x.l
	x.l = nil
	return l.close()
}

// pays reports whether so many keys of a data file, and all those that are still expected, are better looked up in a local file than
// in its pages.
func (d *localDir) pays(b *Bucket, f *fileAt, keys int) bool {
	return d != nil && (d.pay == 0 || f.Rows/int64(keys) >= d.dense && f.runRows/max(1, b.expect) >= d.dense)
}

// of gives what is known of a data file, named below the table's folder; nil if it is to have no local file.
func (d *localDir) of(t *Table, name string, f *manifest.DataFile) (*localFile, error) {
	if d == nil || f.Level == 0 || f.Rows < smallFile && d.pay > 0 || f.Rows > math.MaxUint32 {
		return nil, nil
	}
	lay, cols, err := t.layout()
	if err != nil {
		return nil, err
	}
	id := fileID{t.Store.URL(name), t.Schema.ID, cols}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil
	}
	x := d.files[id]
	if x != nil {
		d.recent.MoveToFront(x.at)
		return x, nil
	}
	x = &localFile{id: id, layout: lay, most: d.most}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s %d %d %d%s", localMagic, id.url, f.Size, f.Rows, id.schema, cols))
	x.name = hex.EncodeToString(sum[:])
	x.path = localPath(d.dir, x.name[:40])
	d.files[id] = x
	x.at = d.recent.PushFront(x)
	d.trimLocked(x)
	return x, nil
}

// trimLocked forgets files that were used least recently while there are too many, but not x. d.mu is held.
func (d *localDir) trimLocked(x *localFile) {
	for e := d.recent.Back(); len(d.files) > max(d.open, 1) && e != nil; {
		old, prev := e.Value.(*localFile), e.Prev()
		if old != x && old.mu.TryLock() { // else it is being made
			d.recent.Remove(e)
			delete(d.files, old.id)
			if old.gone = true; old.l != nil {
				_ = old.l.close() // it was only read; who reads it now finds it unusable
				old.l = nil
			}
			old.mu.Unlock()
		}
		e = prev
	}
}

// get gives the open local file of a data file, which is made if so many keys were asked for that it pays; nil if there is
// none. What goes wrong with it is no error: the data file has everything.
func (d *localDir) get(ctx context.Context, b *Bucket, f *fileAt, x *localFile, keys int) *local {
	if !x.mu.TryLock() {
		return nil // somebody makes it
	}
	defer x.mu.Unlock()
	if x.l != nil || x.never || x.gone {
		return x.l
	}
	if x.asked == 0 {
		if l, err := openLocal(x.path, x.name); err == nil {
			x.l = l
			return l
		}
	}
	if x.asked += int64(keys); x.asked*d.pay < f.Rows && d.pay > 0 {
		return nil
	}
	if !d.making.TryLock() {
		return nil
	}
	defer d.making.Unlock()
	x.never = true
	if err := d.make(ctx, b, f, x); err != nil {
		x.never, x.asked = errors.Is(err, errBudget), 1
		return nil
	}
	if l, err := openLocal(x.path, x.name); err == nil {
		x.l, x.never = l, false
	}
	return x.l
}

// drop gives up a file that cannot be used. It may be made anew.
func (x *localFile) drop(l *local) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.l == l {
		x.l, x.asked = nil, 1
		_ = os.Remove(x.path)
	}
	_ = l.close()
}

// make copies the rows of a data file.
func (d *localDir) make(ctx context.Context, b *Bucket, f *fileAt, x *localFile) (err error) {
	o, err := b.open(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.release()) }()
	stored := x.layout.stored()
	at := make([]int, len(stored))
	for i := range at {
		at[i] = i
	}
	w, err := newRowCopy(d, b.keys, b.t, x.layout, at)
	if err != nil {
		return err
	}
	spec := datafile.ReadSpec{Schema: b.t.Schema, Cols: stored, KeyValue: true, Ranges: []datafile.RowRange{{To: f.Rows}}, ReadAhead: 1 << 20}
	err = o.data.Read(spec, func(rows datafile.Rows) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return w.add(rows)
	})
	if err != nil {
		return errors.Join(err, w.abort())
	}
	return w.end(x)
}

// room deletes the files that were used least recently until those that are being made are within the limit, too.
func (d *localDir) room() error {
	size := d.pending.Load()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	type found struct {
		path string
		size int64
		rank int64 // the higher, the more recently used
	}
	ranks := map[string]*localFile{}
	order := map[string]int64{}
	d.mu.Lock()
	for e, i := d.recent.Front(), int64(0); e != nil; e, i = e.Next(), i+1 {
		x := e.Value.(*localFile)
		ranks[x.path], order[x.path] = x, math.MaxInt64-i
	}
	d.mu.Unlock()
	var all []found
	total, newest := size, int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			newest = max(newest, info.ModTime().UnixNano())
		}
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it has gone
		}
		if strings.HasSuffix(e.Name(), tempExt) && info.ModTime().UnixNano() < newest-int64(staleTemp) {
			_ = os.Remove(filepath.Join(d.dir, e.Name())) // of a process that was killed
		}
		if !strings.HasSuffix(e.Name(), localExt) {
			continue
		}
		x := found{filepath.Join(d.dir, e.Name()), info.Size(), info.ModTime().UnixNano()}
		if r, ok := order[x.path]; ok {
			x.rank = r
		}
		all = append(all, x)
		total += x.size
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.path, b.path)) })
	for _, x := range all {
		if total <= d.limit {
			return nil
		}
		if err := os.Remove(x.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		total -= x.size
		if f := ranks[x.path]; f != nil && f.mu.TryLock() { // whoever holds it makes that file
			if f.l != nil {
				_ = f.l.close()
				f.l, f.asked = nil, 1
			}
			f.mu.Unlock()
		}
	}
	if total > d.limit {
		return errBudget
	}
	return nil
}

// localHits are what was found in a local file.
type localHits struct {
	hits
	data  []byte // records, one after the other
	ends  []int
	seqs  []int64
	kinds []int8
}

// gather collects the records of keys.
func (h *localHits) gather(b *Bucket, l *local, f *fileAt, x *localFile, q *asked, want []int32, dead *indexfile.Vector) (err error) {
	buf := make([]byte, blockBytes)
	for _, k := range want {
		from := len(h.data)
		if h.data, err = l.find(h.data, buf, q.code(k), x.layout); err != nil {
			return err
		}
		if len(h.data) == from {
			continue
		}
		r := readRecordHead(h.data[from:])
		if r.ord >= f.Rows {
			return fmt.Errorf("%w: row %d of %d", errLocal, r.ord, f.Rows)
		}
		if len(h.data) > x.most {
			return errMuch
		}
		if dead != nil {
			gone, err := dead.Has(r.ord)
			if err != nil {
				return &manifest.CorruptError{Name: b.t.Store.URL(f.name), Reason: "its deletion vector cannot be used", Err: err}
			}
			if gone {
				h.data = h.data[:from]
				continue
			}
		}
		h.keys, h.ords = append(h.keys, k), append(h.ords, r.ord)
		h.ends, h.seqs, h.kinds = append(h.ends, len(h.data)), append(h.seqs, r.seq), append(h.kinds, r.kind)
	}
	return nil
}

// findLocal finds rows of keys in a local file; errors that match errLocal say that it cannot be used, errMuch that it is not
// for this question.
func (b *Bucket) findLocal(ctx context.Context, l *local, f *fileAt, x *localFile, q *asked, want []int32, read []int) (hits, error) {
	dead, err := b.vector(ctx, f)
	if err != nil {
		return hits{}, err
	}
	var h localHits
	if err := l.read(func() error { return h.gather(b, l, f, x, q, want, dead) }); err != nil {
		return hits{}, err
	}
	out := h.hits
	if len(out.keys) == 0 {
		return hits{}, nil
	}
	out.rows = datafile.Rows{N: len(h.ends), Seq: h.seqs, Kinds: h.kinds, Cols: make([]arrow.Array, len(read))}
	var nested []int
	for i, c := range read {
		if x.layout.at[c] < 0 {
			nested = append(nested, c)
		} else {
			out.rows.Cols[i] = x.layout.column(h.data, h.ends, x.layout.at[c])
		}
	}
	if len(nested) == 0 {
		return out, nil
	}
	o, err := b.open(ctx, f)
	if err != nil {
		return hits{}, err
	}
	p := prober{b: b, q: q, o: o, out: out}
	rows, err := p.others(ctx, nested)
	if err = errors.Join(err, o.release()); err != nil {
		return hits{}, err
	}
	for i, c := range read {
		if at := slices.Index(nested, c); at >= 0 {
			out.rows.Cols[i] = rows.Cols[at]
		}
	}
	return out, nil
}
