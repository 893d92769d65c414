package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/manifest"
)

// rowText is a row as JSON.
func rowText(rec arrow.RecordBatch, i int) json.RawMessage {
	return rowjson.NewEncoder(rec.Schema()).Append(nil, rec, i)
}

// suspect is a key that differs.
type suspect struct {
	order string // that in which they are shown
	hash  uint64
	d     Difference
	// Of a table without key: how often stream and table have the row.
	inStream, inTable int64
}

// suspects are the first few keys that differ. Whoever was pushed out by others does not come in again.
type suspects struct {
	all    []*suspect // in order
	byHash map[uint64]*suspect
}

// offer gives the suspect of a key, nil if there are enough before it.
func (l *suspects) offer(order string, hash uint64) *suspect {
	at, there := slices.BinarySearchFunc(l.all, order, func(s *suspect, o string) int { return strings.Compare(s.order, o) })
	if there {
		return l.all[at]
	}
	if at >= maxDifferences {
		return nil
	}
	s := &suspect{order: order, hash: hash}
	l.all = slices.Insert(l.all, at, s)
	if l.byHash == nil {
		l.byHash = map[uint64]*suspect{}
	}
	l.byHash[hash] = s
	if len(l.all) > maxDifferences {
		delete(l.byHash, l.all[maxDifferences].hash)
		l.all = l.all[:maxDifferences]
	}
	return s
}

// explain finds out what differs at a snapshot: it scans the table again, unless the snapshot is gone, and has the stream
// told again up to there.
func (f *folder) explain(ctx context.Context, s *shape, snap *manifest.Snapshot, gone bool) error {
	x := &explainer{folder: f, s: s, snap: snap, gone: gone}
	err := x.run(ctx)
	f.rep.Differ = f.misfits + x.differ
	for _, m := range x.misfits {
		f.rep.Differences = append(f.rep.Differences, m.d)
	}
	for _, p := range x.found.all {
		p.d.Snapshot = snap.ID
		f.rep.Differences = append(f.rep.Differences, p.d)
	}
	if len(f.rep.Differences) > maxDifferences {
		f.rep.Differences = f.rep.Differences[:maxDifferences]
	}
	if f.rep.Differ == 0 { // it was another time
		f.rep.Differ = 1
		f.rep.Differences = append(f.rep.Differences, Difference{Snapshot: snap.ID, Key: json.RawMessage("null"), What: "two scans of the table do not give the same rows"})
	}
	if err != nil {
		return fmt.Errorf("stream and table differ at snapshot %d; to tell where: %w", snap.ID, err)
	}
	return errDiffers
}

// explainer is explain at work.
type explainer struct {
	*folder
	s    *shape
	snap *manifest.Snapshot
	gone bool // only changes that do not fit are explained

	found   suspects
	misfits []*misfitAt
	differ  int64
	seen    [foldShards][]uint64 // bits of the fold's places whose keys the table has
	counts  foldTable            // of a table without key: of each row, how much more often the stream has it
	apart   [foldShards]bool     // its shards that differ
	text    *keyText
	step    func(x *hashed, i int) error // what is done with rows of the stream
}

// misfitAt is a misfit that is yet to be described.
type misfitAt struct {
	misfit
	d Difference
}

func (x *explainer) run(ctx context.Context) error {
	x.text = newKeyText(x.s)
	for _, m := range x.bad {
		x.misfits = append(x.misfits, &misfitAt{m, Difference{Snapshot: m.snapshot, What: m.what, Change: m.change}})
	}
	if x.s.keyAt == nil {
		return x.rowsOnly(ctx)
	}
	if !x.gone {
		if err := x.compare(ctx); err != nil {
			return err
		}
	}
	if x.differ == 0 && len(x.misfits) == 0 {
		return nil
	}
	x.step = x.told
	if err := x.again(ctx); err != nil {
		return err
	}
	for _, p := range x.found.all {
		switch {
		case p.d.Table == nil:
			p.d.What = "the table has no row that the stream has"
		case p.d.Stream == nil:
			p.d.What = "the stream has no row that the table has"
		default:
			p.d.What = "another row"
		}
	}
	return nil
}

// compare finds the keys of which fold and table have different rows.
func (x *explainer) compare(ctx context.Context) error {
	if err := x.scan(ctx, x.table); err != nil {
		return err
	}
	for i := x.t.lo; i < x.t.hi; i++ {
		x.differ += x.t.shards[i].n
		for _, b := range x.seen[i] {
			x.differ -= int64(bits.OnesCount64(b))
		}
	}
	return nil
}

// scan gives f the rows of the table in the range of this pass.
func (x *explainer) scan(ctx context.Context, f func(h *hashed, i int) error) error {
	var h hashed
	return x.r.scanShape(ctx, x.s, x.snap, func(_ *Split, rec arrow.RecordBatch) error {
		h.Rec = rec
		x.s.hash(&h)
		for i, k := range h.keys {
			if !x.t.has(k) {
				continue
			}
			if err := f(&h, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// table holds a row of the table against the fold.
func (x *explainer) table(h *hashed, i int) error {
	k := h.keys[i]
	row, there := x.t.get(k)
	if there {
		shard := shardOf(k)
		s := &x.t.shards[shard]
		if x.seen[shard] == nil {
			x.seen[shard] = make([]uint64, (len(s.cells)+63)/64)
		}
		at := s.find(k)
		x.seen[shard][at/64] |= 1 << (at % 64)
		if row == h.rows[i] {
			return nil
		}
	}
	x.differ++
	order, key, err := x.text.of(h.Rec, i)
	if err != nil {
		return err
	}
	if p := x.found.offer(order, k); p != nil {
		p.d.Key, p.d.Table = key, rowText(h.Rec, i)
	}
	return nil
}

// wasSeen reports whether the table has a key of the fold.
func (x *explainer) wasSeen(k uint64) bool {
	seen := x.seen[shardOf(k)]
	at := x.t.shards[shardOf(k)].find(k)
	return seen != nil && seen[at/64]&(1<<(at%64)) != 0
}

// told looks at a row of the stream, which is told again.
func (x *explainer) told(h *hashed, i int) error {
	k, add := h.keys[i], h.kind(i).IsAdd()
	for _, m := range x.misfits {
		at := h.First + int64(i)
		if m.key != k || h.Snapshot > m.snapshot || h.Snapshot == m.snapshot && at > m.at {
			continue
		}
		if m.d.Key == nil {
			_, key, err := x.text.of(h.Rec, i)
			if err != nil {
				return err
			}
			m.d.Key = key
		}
		if h.Snapshot < m.snapshot || at < m.at {
			m.d.Stream, m.d.StreamAt = nil, h.Snapshot
			if add {
				m.d.Stream = rowText(h.Rec, i)
			}
		}
	}
	p := x.found.byHash[k]
	if p == nil && add && !x.gone && x.t.has(k) {
		if _, there := x.t.get(k); there && !x.wasSeen(k) {
			order, key, err := x.text.of(h.Rec, i)
			if err != nil {
				return err
			}
			if p = x.found.offer(order, k); p != nil {
				p.d.Key = key
			}
		}
	}
	if p != nil {
		p.d.Stream, p.d.StreamAt = nil, h.Snapshot
		if add {
			p.d.Stream = rowText(h.Rec, i)
		}
	}
	return nil
}

// again has the stream told again, up to the snapshot that differs.
func (x *explainer) again(ctx context.Context) error {
	err := x.replay(ctx, x, x.base, Until{Snapshot: x.snap.ID})
	if errors.Is(err, errNewSchema) {
		return errors.New("the schema of the table has changed meanwhile; verify it again")
	}
	return err
}

func (x *explainer) void(*manifest.Snapshot) {}

func (x *explainer) hear(_ *shape, h *hashed) error {
	for i := range h.keys {
		if err := x.step(h, i); err != nil {
			return err
		}
	}
	return nil
}

func (x *explainer) end(context.Context, *shape, *manifest.Snapshot, bool) error { return nil }

// rowsOnly explains a difference of a table without key: which rows the one has more often than the other. Only shards that
// differ are looked at, and of them what there is room for.
func (x *explainer) rowsOnly(ctx context.Context) error {
	var table foldBag
	err := x.scan(ctx, func(h *hashed, i int) error { table.add(h.keys[i], 1); return nil })
	if err != nil {
		return err
	}
	for i := range x.apart {
		x.apart[i] = x.bag[i] != table[i]
	}
	x.counts.limit = x.t.limit
	x.counts.begin(0)
	count := func(k uint64, by int64) {
		for x.apart[shardOf(k)] && x.counts.has(k) {
			n, _ := x.counts.get(k)
			if x.counts.put(k, n+uint64(by)) {
				return
			}
		}
	}
	x.step = func(h *hashed, i int) error { count(h.keys[i], h.sign(i)); return nil }
	if err := x.again(ctx); err != nil {
		return err
	}
	if err := x.scan(ctx, func(h *hashed, i int) error { count(h.keys[i], -1); return nil }); err != nil {
		return err
	}
	for i := range x.counts.shards {
		for _, c := range x.counts.shards[i].cells {
			if n := int64(c.row); c.key != 0 {
				x.differ += max(n, -n)
			}
		}
	}
	find := func(h *hashed, i int) *suspect {
		if n, _ := x.counts.get(h.keys[i]); n == 0 {
			return nil
		}
		key := rowText(h.Rec, i)
		p := x.found.offer(string(key), h.keys[i])
		if p != nil {
			p.d.Key = key
		}
		return p
	}
	x.step = func(h *hashed, i int) error {
		if p := find(h, i); p != nil {
			p.inStream += h.sign(i)
			p.d.StreamAt = h.Snapshot
		}
		return nil
	}
	if err = x.again(ctx); err == nil {
		err = x.scan(ctx, func(h *hashed, i int) error {
			if p := find(h, i); p != nil {
				p.inTable++
			}
			return nil
		})
	}
	for _, p := range x.found.all {
		p.d.What = fmt.Sprintf("the stream has told the row %d times, the table has it %d times", p.inStream, p.inTable)
	}
	return err
}

// sign is 1 for a row that comes, -1 for one that goes.
func (x *hashed) sign(i int) int64 {
	if x.kind(i).IsAdd() {
		return 1
	}
	return -1
}

// keyText writes the keys of rows.
type keyText struct {
	s      *shape
	pk     []int
	fields *arrow.Schema
}

func newKeyText(s *shape) *keyText {
	pk := primaryKey(s.v.schema)
	return &keyText{s: s, pk: pk, fields: s.v.arrowSchema(pk)}
}

// of gives a text that is in the order of the key, within a partition, and the key as JSON.
func (t *keyText) of(rec arrow.RecordBatch, i int) (string, json.RawMessage, error) {
	one := rec.NewSlice(int64(i), int64(i)+1)
	var order bytes.Buffer
	for _, c := range t.s.v.schema.PartitionColumns() {
		order.Write(rowjson.AppendValue(nil, one.Column(c), 0))
		order.WriteByte(0)
	}
	var cols []arrow.Array
	for _, c := range t.s.v.schema.KeyColumns() {
		cols = append(cols, one.Column(c))
	}
	vec, err := t.s.v.keys.Encode(cols, 1)
	if err != nil {
		return "", nil, err
	}
	order.Write(t.s.v.keys.AppendCode(nil, &vec, 0))
	cols = cols[:0]
	for _, c := range t.pk {
		cols = append(cols, one.Column(c))
	}
	return order.String(), rowText(array.NewRecordBatch(t.fields, cols, 1), 0), nil
}
