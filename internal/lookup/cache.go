package lookup

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// CacheConfig bounds what a Cache holds.
type CacheConfig struct {
	MaxFiles int   // open files; 0: 256
	MaxBytes int64 // of their footers and page indexes; 0: 64 MiB
	// Dir, when not empty, is a folder on local disk for copies of data files above level 0, made when so many keys were
	// looked up in one that it pays: then a lookup decodes no page. DirBytes bounds them, the least recently used are
	// deleted. Several processes may share the folder, and anybody may delete its files at any time. What is in it is
	// bound to its data file by name, size and schema, and checked whenever it is read.
	Dir      string
	DirBytes int64
}

// Cache keeps data files open that lookups have used, the least recently used of which are closed when there are too many.
// Data files do not change, and none is asked that the caller's runs do not name, so that nothing in it can be stale. One
// Cache may serve all tables of a process; it is safe for concurrent use.
type Cache struct {
	cfg    CacheConfig
	local  *localDir // nil: none
	forked bool      // the local files belong to another cache

	mu     sync.Mutex // guards what follows and opened.refs, opened.at
	files  map[fileID]*opened
	recent *list.List // of *opened, the most recently used in front
	bytes  int64
	closed bool
	ends   map[endsID]float64 // the part of a file that was at its end to be read first
}

// endsID are the files of a table that are about as large: their ends take about the same part of them.
type endsID struct {
	url  string
	size int // its number of bits
}

// fileID names a file as one schema sees it.
type fileID struct {
	url    string
	schema int64
	cols   string // of a local file: what its records have; branches give one number to different schemas
}

// NewCache makes an empty cache.
func NewCache(cfg CacheConfig) *Cache {
	if cfg.MaxFiles <= 0 {
		cfg.MaxFiles = 256
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 64 << 20
	}
	return &Cache{cfg: cfg, local: newLocalDir(cfg), files: map[fileID]*opened{}, recent: list.New(), ends: map[endsID]float64{}}
}

// Close closes all files; those in use are closed when they are not any more. The cache keeps nothing from then on.
func (c *Cache) Close() error {
	var errs []error
	if !c.forked {
		errs = append(errs, c.local.close()) // not under the lock, which is taken while a local file is made
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.recent.Len() > 0 {
		errs = append(errs, c.drop(c.recent.Back()))
	}
	return errors.Join(errs...)
}

// opened is an open data file.
type opened struct {
	name  string
	data  *datafile.File
	close func() error
	pages
	filters []*Filter         // of the key columns, nil for those without one; empty: there are none
	blooms  []*datafile.Bloom // the same, of the file itself

	cache *Cache // nil: it is closed when it is released
	id    fileID
	refs  int
	at    *list.Element // nil: not in the cache any more
	size  int64

	held int64 // bytes that the open file has beside its end: all of a small one

	once sync.Once
	err  error
}

// pages are the rows of a file in pieces, with bounds of their keys in normalized bytes: of piece i they are from from[i] on
// and below to[i]; an empty to[i] bounds nothing. Both ascend.
type pages struct {
	rows     []datafile.RowRange
	from, to []string
}

// How far apart pages of a file lie at most that are fetched in one request: an object store gives a megabyte in about the
// time that it takes to answer another request.
const (
	localGap  = 64 << 10
	remoteGap = 1 << 20
	// wholeFile is the size up to which a file comes with the request that opens it, as most of level 0 do.
	wholeFile = remoteGap
)

func gapOf(url string) int64 {
	if strings.HasPrefix(url, "file:") {
		return localGap
	}
	return remoteGap
}

// open gives an open file. The caller releases it.
func (b *Bucket) open(ctx context.Context, f *fileAt) (*opened, error) {
	c := b.t.Cache
	if c == nil {
		o := &opened{}
		return o, b.openInto(ctx, f, o)
	}
	o := c.get(fileID{url: b.t.Store.URL(f.name), schema: b.t.Schema.ID})
	// The file outlives this call, so its reads must not end with the call's context.
	o.once.Do(func() { o.err = b.openInto(context.WithoutCancel(ctx), f, o) })
	if o.err != nil {
		c.forget(o)
		return nil, errors.Join(o.err, o.release())
	}
	if err := c.grown(o); err != nil {
		return nil, errors.Join(err, o.release())
	}
	return o, nil
}

func (b *Bucket) openInto(ctx context.Context, f *fileAt, o *opened) (err error) {
	written, err := b.writtenBy(ctx, f)
	if err != nil {
		return err
	}
	url := b.t.Store.URL(f.name)
	if HasFileIndex(b.t.Schema, f.DataFile) {
		var g errgroup.Group // one does not wait for the other
		g.Go(func() (err error) { o.filters, err = b.filtersOf(ctx, f, written, false); return err })
		defer func() {
			if ferr := g.Wait(); ferr != nil && err == nil {
				err = errors.Join(indexFailed(url, ferr), o.close())
			}
		}()
	}
	tail := b.t.Cache.tailOf(b.t, f.Size)
	bring := tail
	if b.t.isFar() && f.Size <= wholeFile {
		bring = max(tail, f.Size)
	}
	o.held = bring - tail
	file, err := storage.OpenTail(ctx, b.t.Store, f.name, bring)
	if err != nil {
		return err
	}
	corrupt := func(format string, args ...any) error {
		return errors.Join(&manifest.CorruptError{Name: url, Reason: fmt.Sprintf(format, args...)}, file.Close())
	}
	if file.Size() != f.Size {
		return corrupt("the file has %d bytes, the manifest says %d", file.Size(), f.Size)
	}
	o.name, o.close = f.name, file.Close
	if o.data, err = datafile.OpenFile(file, url, written, gapOf(url), tail); err != nil {
		return errors.Join(err, file.Close())
	}
	b.t.Cache.sawTail(b.t, f.Size, o.data.Ends())
	if o.data.NumRows() != f.Rows {
		return corrupt("the file has %d rows, the manifest says %d", o.data.NumRows(), f.Rows)
	}
	if o.pages, err = b.pagesOf(o.data); err == nil {
		err = o.readBlooms(b.t.Schema)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return nil
}

// writtenBy is the schema that a file was written with.
func (b *Bucket) writtenBy(ctx context.Context, f *fileAt) (*schema.Schema, error) {
	if f.SchemaID == b.t.Schema.ID {
		return b.t.Schema, nil
	}
	return b.t.OpenSchema(ctx, f.SchemaID)
}

func indexFailed(url string, err error) error {
	return fmt.Errorf("file index of %s (option file-index.read.enabled = false does without): %w", url, err)
}

// A file's end is read in one request if its size is known before. It grows with the file, and with the columns, key types and
// filters that the files of a table have in common. Where requests take no time it is not guessed.
const (
	mostEnd  = 4 << 20
	mostEnds = 4000
)

func endsOf(t *Table, size int64) endsID {
	return endsID{t.Store.URL(""), bits.Len64(uint64(size))}
}

// tailOf is how much of the end of a file of some size to read first. A nil cache knows nothing of files before.
func (c *Cache) tailOf(t *Table, size int64) int64 {
	tail := datafile.Tail(size)
	if c == nil || !t.isFar() {
		return tail
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(size, max(tail, min(int64(c.ends[endsOf(t, size)]*float64(size)), mostEnd)))
}

// sawTail learns of a file how much it was: the greatest part counts, and less and less when others have smaller ends.
func (c *Cache) sawTail(t *Table, size, end int64) {
	if c == nil || size <= 0 || end > mostEnd || !t.isFar() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, part := endsOf(t, size), 1.1*float64(end)/float64(size)
	before, known := c.ends[at]
	switch {
	case !known && end <= datafile.Tail(size): // as is guessed without knowing anything
		return
	case !known && len(c.ends) >= mostEnds:
		clear(c.ends)
	case part < before:
		part = before - (before-part)/8
	}
	c.ends[at] = part
}

// readBlooms reads the Bloom filters that the file itself has of key columns; files of calve have none.
func (o *opened) readBlooms(s *schema.Schema) error {
	var all []*datafile.Bloom
	some := false
	for _, c := range s.KeyColumns() {
		f, err := o.data.Bloom(s, c, keyFilter)
		if err != nil {
			return err
		}
		some = some || f != nil
		all = append(all, f)
	}
	if some {
		o.blooms = all
	}
	return nil
}

// keyFilter bounds a filter that is kept for lookups: it lives as long as the file is open.
const keyFilter = 8 << 20

// filtersOf reads the filters that the file's index has of the key columns. shared: those in the manifest share its memory.
func (b *Bucket) filtersOf(ctx context.Context, f *fileAt, written *schema.Schema, shared bool) ([]*Filter, error) {
	x, err := OpenFileIndex(ctx, b.t.Store, f.name, f.DataFile, written)
	if err != nil {
		return nil, err
	}
	x.shared = shared
	defer x.Close()
	some := false
	var out []*Filter
	for _, c := range b.t.Schema.KeyColumns() {
		k, err := x.Filter(b.t.Schema.Fields[c], keyFilter)
		if err != nil {
			return nil, err
		}
		some = some || k != nil
		out = append(out, k)
	}
	if !some {
		return nil, nil
	}
	return out, nil
}

// passing are those of some keys that the filters let pass.
func (o *opened) passing(q *asked, want []int32) []int32 {
	if len(o.filters) == 0 && len(o.blooms) == 0 {
		return want
	}
	out := make([]int32, 0, len(want))
	for _, k := range want {
		may := true
		for c := range q.keys {
			cell := q.cell(k, c)
			may = may && (len(o.filters) == 0 || o.filters[c] == nil || o.filters[c].May(cell)) &&
				(len(o.blooms) == 0 || o.blooms[c] == nil || o.blooms[c].May(cell))
		}
		if may {
			out = append(out, k)
		}
	}
	return out
}

// pagesOf reads the bounds of a file's pages. Rows are in order of keys, so what bounds a page bounds those on its one side.
func (b *Bucket) pagesOf(d *datafile.File) (pages, error) {
	all, err := d.Bounds(b.t.Schema, b.t.Schema.KeyColumns())
	if err != nil {
		return pages{}, err
	}
	p := pages{rows: make([]datafile.RowRange, len(all)), from: make([]string, len(all)), to: make([]string, len(all))}
	for i, x := range all {
		p.rows[i] = x.RowRange
		if p.from[i], p.to[i], err = b.keys.Range(x.Min, x.Max); err != nil {
			return pages{}, err
		}
		if i > 0 {
			p.from[i] = max(p.from[i], p.from[i-1])
		}
	}
	for i := len(all) - 2; i >= 0; i-- {
		if next := p.to[i+1]; next != "" && (p.to[i] == "" || p.to[i] > next) {
			p.to[i] = next
		}
	}
	return p, nil
}

// candidates are the rows among which keys may be.
func (p *pages) candidates(q *asked, want []int32) []datafile.RowRange {
	out := []datafile.RowRange{}
	next := 0 // pages before it were looked at
	for _, k := range want {
		code := string(q.code(k))
		i := next + sort.Search(len(p.rows)-next, func(i int) bool { return p.to[next+i] == "" || p.to[next+i] > code })
		for ; i < len(p.rows) && p.from[i] <= code; i++ {
			if n := len(out); n > 0 && out[n-1].To == p.rows[i].From {
				out[n-1].To = p.rows[i].To
			} else {
				out = append(out, p.rows[i])
			}
			next = i + 1
		}
	}
	return out
}

// get finds a file, or makes room for it: it is opened by whoever does so first.
func (c *Cache) get(id fileID) *opened {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.files[id]
	if o == nil {
		o = &opened{cache: c, id: id}
		if !c.closed {
			c.files[id] = o
			o.at = c.recent.PushFront(o)
		}
	} else {
		c.recent.MoveToFront(o.at)
	}
	o.refs++
	return o
}

// grown counts what an open file holds, once, and closes others if that is too much.
func (c *Cache) grown(o *opened) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.at == nil || o.size > 0 {
		return nil
	}
	o.size = o.data.Memory() + o.held + int64(len(o.rows))*96
	for i := range o.filters {
		if f := o.filters[i]; f != nil {
			o.size += f.bytes
		}
	}
	for _, f := range o.blooms {
		if f != nil {
			o.size += f.Size()
		}
	}
	c.bytes += o.size
	var errs []error
	for c.recent.Len() > 1 && (c.bytes > c.cfg.MaxBytes || c.recent.Len() > c.cfg.MaxFiles) {
		errs = append(errs, c.drop(c.recent.Back()))
	}
	return errors.Join(errs...)
}

// forget drops a file that could not be opened.
func (c *Cache) forget(o *opened) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.at != nil {
		_ = c.drop(o.at) // it is in use, and not open
	}
}

// drop takes a file out, and closes it unless it is in use. c.mu is held.
func (c *Cache) drop(e *list.Element) error {
	o := c.recent.Remove(e).(*opened)
	delete(c.files, o.id)
	c.bytes -= o.size
	o.at = nil
	if o.refs > 0 {
		return nil
	}
	return o.done()
}

// release gives a file back.
func (o *opened) release() error {
	if o.cache == nil {
		return o.done()
	}
	o.cache.mu.Lock()
	defer o.cache.mu.Unlock()
	if o.refs--; o.refs > 0 || o.at != nil {
		return nil
	}
	return o.done()
}

func (o *opened) done() error {
	if o.close == nil || o.err != nil {
		return nil
	}
	return o.close()
}
