package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// Order is the order of the changes of one snapshot. Those of different snapshots always come in the order of commits, and
// those of one key in the order in which they apply; but see Arrival.
type Order int

const (
	// Stored is the order in which the table has them: bucket by bucket, file by file, in a table with a primary key by key.
	Stored Order = iota
	// Arrival is the order in which their writer took them, across keys and buckets: rows of one partition of a topic come as
	// they were in it. Rows of one key that the writer merged before it wrote them come where the one came whose number
	// theirs is: the last of them, or the one that its merge engine keeps. Where `sequence.field` says which row of a key wins
	// and the changelog is the input's, rows of one key come as they came too, so the last that is told need not be the
	// table's.
	//
	// It holds for snapshots of calve, and for those of others whose changes are of one bucket, as they number each bucket for
	// itself; others end the stream with an ErrQuery, as do tables without a primary key whose changes are of several buckets
	// or writers. It is refused where there is no such order: for changes that compactions find (changelog producers lookup
	// and full-compaction, where a delete has the number of the row it deletes), that are computed (BeforeImage), that wait
	// for a bucket (postponed ones) or that replace rows (`streaming-read-overwrite`). Rows of a whole snapshot have none: they
	// come as they are stored.
	Arrival
)

// ParseOrder reads "stored" or "arrival"; "" is Stored.
func ParseOrder(s string) (Order, error) {
	switch s {
	case "", "stored":
		return Stored, nil
	case "arrival":
		return Arrival, nil
	}
	return Stored, fmt.Errorf("%w: order %q: use stored or arrival", ErrQuery, s)
}

// sortedAtOnce is how much of the rows of a snapshot is held to be sorted: the changes of a flush, mostly. Where they are more
// their files are read again for each part of the order.
const sortedAtOnce = 64 << 20

// sortedRow is what is held of a row beside its columns: where it is (numbered), its sequence number and its kind.
const sortedRow = 16 + 8 + 1

// arrives is an error if the changes of the table have no order of arrival.
func (v *view) arrives(images bool) error {
	why := ""
	switch o := v.opts; {
	case images:
		why = "rows before and after changes are computed by key"
	case v.keys != nil && o.ChangelogProducer != schema.ProducerNone && o.ChangelogProducer != schema.ProducerInput:
		why = fmt.Sprintf("with changelog-producer %s compactions find them by key, and a delete does not say when it came", o.ChangelogProducer)
	case v.keys != nil && o.Bucket == schema.BucketPostpone:
		why = "rows of postponed buckets have no sequence numbers"
	case o.StreamingReadOverwrite:
		why = "with streaming-read-overwrite some replace others at once"
	default:
		return nil
	}
	return fmt.Errorf("%w: the changes of the table cannot be told in the order of their arrival: %s", ErrQuery, why)
}

// arrived tells the rows of files in the order of their sequence numbers.
func (t *tail) arrived(ctx context.Context, snap *manifest.Snapshot, entries []manifest.Entry, base Changes) error {
	tell := t.teller(ctx)
	var some []manifest.Entry
	for i := range entries {
		if tell.keep != nil {
			may, err := tell.keep(&entries[i])
			if err != nil {
				return err
			}
			if !may {
				continue
			}
		}
		some = append(some, entries[i])
	}
	base.Arrival = true
	if err := t.ordered(snap, some); err != nil {
		return err
	}
	if t.l.view.keys == nil {
		tell.keep = nil
		return tell.files(ctx, some, base)
	}
	slices.SortStableFunc(some, func(a, b manifest.Entry) int { return cmp.Compare(a.File.MinSeq, b.File.MinSeq) })
	s := sorter{tell: tell, base: base, most: cmp.Or(t.spec.sorted, sortedAtOnce), memory: t.spec.SortMemory, tick: t.tick, beat: func() error { return t.waits(base) }}
	for len(some) > 0 { // files whose numbers are among each other, as those of one flush
		n, last := 1, some[0].File.MaxSeq
		for ; n < len(some) && some[n].File.MinSeq <= last; n++ {
			last = max(last, some[n].File.MaxSeq)
		}
		told, least := int64(0), some[0].File.MinSeq
		if left := t.skip - t.told; left > 0 && t.l.screen == nil && tell.only == nil { // else rows are not what is told
			var err error
			if told, least, err = s.skip(ctx, some[:n], least, last, left); err != nil {
				return err
			}
		}
		t.told += told
		if told == 0 || least <= last {
			if err := s.part(ctx, some[:n], least, last); err != nil {
				return err
			}
		}
		some = some[n:]
	}
	return nil
}

// tick comes when it is time for a heartbeat; never if there are none.
func (t *tail) tick() <-chan time.Time {
	if !t.spec.Follow || t.spec.Beat <= 0 {
		return nil
	}
	return t.r.env.After(t.spec.Beat)
}

// waits gives the heartbeat of a stream that waits within a snapshot.
func (t *tail) waits(base Changes) error {
	base.Rec, base.Idle, base.First = t.l.nothing(), true, max(t.told, t.skip)
	if !t.pass(base) {
		return errEnd
	}
	return nil
}

// ordered is an error if the sequence numbers of the files of a snapshot do not order their rows.
func (t *tail) ordered(snap *manifest.Snapshot, some []manifest.Entry) error {
	keyed := t.l.view.keys != nil
	if keyed && snap.Properties[manifest.PropOrder] == manifest.OrderArrival {
		return nil
	}
	for i := range some {
		if a := &some[0]; some[i].Bucket != a.Bucket || string(some[i].Partition) != string(a.Partition) {
			if keyed {
				return fmt.Errorf("%w: the order in which the rows of snapshot %d arrived is not known: its writer (%s) numbered the rows of each bucket for itself; read the buckets one by one (share), or in the order in which they are stored", ErrQuery, snap.ID, snap.CommitUser)
			}
			return fmt.Errorf("%w: the order in which the rows of snapshot %d arrived is not known: rows of a table without a primary key have no numbers, and these are of several buckets", ErrQuery, snap.ID)
		}
		if !keyed && i > 0 && some[i].File.MinSeq <= some[i-1].File.MaxSeq { // of several writers; with row tracking there are no numbers
			return fmt.Errorf("%w: the order in which the rows of snapshot %d arrived is not known: files of the table, which has no primary key, have the same numbers", ErrQuery, snap.ID)
		}
	}
	return nil
}

// sorter tells rows of files in the order of their sequence numbers. It holds about most bytes of rows, and a batch of a file.
type sorter struct {
	tell   teller
	base   Changes
	most   int64
	memory *SortMemory // nil: its own
	// While it waits for memory, beat is called whenever tick says so.
	tick func() <-chan time.Time
	beat func() error
}

// numbered is a row that is to be sorted.
type numbered struct {
	seq      int64
	src, row int32
}

// errTooMuch: there are more rows than are to be held.
var errTooMuch = errors.New("more rows than are sorted at once")

// part tells the rows with numbers from least to most, both included. If they are too many it does so by halves, and those of one
// number as they are stored.
func (s *sorter) part(ctx context.Context, files []manifest.Entry, least, most int64) error {
	// Nobody waits for memory who holds some: what took more than was reckoned is read again with more.
	err, bytes := errTooMuch, s.most
	if s.memory != nil {
		bytes = min(bytes, s.memory.part())
	}
	for need := s.need(files, least, most, bytes); errors.Is(err, errTooMuch); need = min(bytes, need*4) {
		if err = s.within(ctx, files, least, most, need); need == bytes {
			break
		}
	}
	switch {
	case errors.Is(err, errTooMuch) && least == most:
		return s.read(ctx, files, least, most, func(rows datafile.Rows) error {
			return s.say(rows, rows.Kinds)
		})
	case errors.Is(err, errTooMuch):
		half := least + int64(uint64(most-least)/2)
		if err = s.part(ctx, files, least, half); err == nil {
			err = s.part(ctx, files, half+1, most)
		}
	}
	return err
}

// within tells the rows with numbers from least to most if they take no more than so many bytes, else it tells none and gives
// errTooMuch.
func (s *sorter) within(ctx context.Context, files []manifest.Entry, least, most, bytes int64) error {
	free, err := s.memory.take(ctx, bytes, s.tick, s.beat)
	if err != nil {
		return err
	}
	defer free()
	rows, order, err := s.gather(ctx, files, least, most, bytes)
	if err != nil {
		return err
	}
	slices.SortStableFunc(order, func(a, b numbered) int { return cmp.Compare(a.seq, b.seq) })
	srcs := make([]arrow.Array, len(rows))
	for len(order) > 0 {
		n := min(len(order), lsm.DefaultBatchRows)
		ranges := make([]lsm.Range, 0, n)
		kinds := make([]int8, n)
		for i, o := range order[:n] {
			ranges = append(ranges, lsm.Range{Src: o.src, Start: o.row, N: 1})
			if k := rows[o.src].Kinds; k != nil {
				kinds[i] = k[o.row]
			}
		}
		out := datafile.Rows{N: n, Cols: make([]arrow.Array, len(s.tell.cols))}
		for c := range out.Cols {
			for i := range rows {
				srcs[i] = rows[i].Cols[c]
			}
			if out.Cols[c], err = lsm.Gather(srcs, ranges); err != nil {
				return err
			}
		}
		if err := s.say(out, kinds); err != nil {
			return err
		}
		order = order[n:]
	}
	return nil
}

// skip counts rows, the first of those with numbers from least to most, that are among the first left ones, and says with which
// number the others begin: what was told before need not be sorted again. No two rows have one number where their writer
// numbered them, so at most left of them have one of the first left numbers. Only numbers are read, or, if all rows of the files
// are among them, how many they are: a manifest that is wrong about that would have rows left out.
func (s *sorter) skip(ctx context.Context, files []manifest.Entry, least, most, left int64) (rows, from int64, err error) {
	all := int64(0)
	for i := range files {
		all += files[i].File.Rows
	}
	if all <= left && most < math.MaxInt64 {
		return all, most + 1, s.counted(ctx, files)
	}
	if left > most-least { // no number is beyond
		return 0, least, nil
	}
	numbers := *s
	numbers.tell.cols = []int{}
	err = numbers.read(ctx, files, least, least+left-1, func(r datafile.Rows) error {
		rows += int64(r.N)
		return nil
	})
	if err != nil || rows > left { // numbers that are not unique
		return 0, least, err
	}
	return rows, least + left, nil
}

// counted opens files, which is refused if they do not have as many rows as the manifest says.
func (s *sorter) counted(ctx context.Context, files []manifest.Entry) error {
	for i := range files {
		part, err := s.tell.v.part(&files[i])
		if err != nil {
			return err
		}
		rd, err := s.tell.r.openSpec(ctx, s.tell.v, part.Dir, &files[i].File, datafile.ReadSpec{Cols: []int{}})
		if err != nil {
			return err
		}
		if err := rd.Close(); err != nil {
			return err
		}
	}
	return nil
}

// say tells rows in their order.
func (s *sorter) say(rows datafile.Rows, kinds []int8) error {
	c := s.base
	c.Rec, c.RowKinds = batch(s.tell.v.arrowSchema(s.tell.cols), rows), rowKinds(kinds)
	if !s.tell.yield(c, nil) {
		return errEnd
	}
	return nil
}

// gather holds the rows with numbers from least to most, as they are stored, up to so many bytes.
func (s *sorter) gather(ctx context.Context, files []manifest.Entry, least, most, bytes int64) (all []datafile.Rows, order []numbered, err error) {
	held := int64(0)
	err = s.read(ctx, files, least, most, func(rows datafile.Rows) error {
		held += sortedRow * int64(rows.N)
		for _, c := range rows.Cols {
			held += int64(c.Data().SizeInBytes())
		}
		if held > bytes {
			return errTooMuch
		}
		for row, seq := range rows.Seq {
			order = append(order, numbered{seq, int32(len(all)), int32(row)})
		}
		all = append(all, rows)
		return nil
	})
	return all, order, err
}

// read hands take the rows with numbers from least to most, as they are stored, and ends with its error.
func (s *sorter) read(ctx context.Context, files []manifest.Entry, least, most int64, take func(datafile.Rows) error) error {
	spec := fileSpec{ReadSpec: datafile.ReadSpec{Cols: s.tell.cols}, only: s.tell.only}
	if spec.only != nil {
		spec.Prune = pruneBy(s.tell.v, spec.only)
	}
	for i := range files {
		f := &files[i].File
		if f.MaxSeq < least || f.MinSeq > most {
			continue
		}
		part, err := s.tell.v.part(&files[i])
		if err != nil {
			return err
		}
		rd, err := s.tell.r.openRows(ctx, s.tell.v, part.Dir, f, spec, nil)
		if err != nil {
			return err
		}
		if rd == nil {
			continue
		}
		var failed error
		err = drain(rd, func(rows datafile.Rows) bool {
			if rows, failed = numberedFrom(rows, f, least, most); failed == nil && rows.N > 0 {
				failed = take(rows)
			}
			return failed == nil
		})
		if failed != nil {
			err = failed
		}
		if cerr := rd.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// numberedFrom takes the rows of a batch with numbers from least to most. They are copied unless all are taken, so that no
// more is held than they have.
func numberedFrom(rows datafile.Rows, f *manifest.DataFile, least, most int64) (datafile.Rows, error) {
	var take []int32
	for i, seq := range rows.Seq {
		if seq < f.MinSeq || seq > f.MaxSeq {
			return rows, &manifest.CorruptError{Name: f.Name, Reason: fmt.Sprintf("row %d has sequence number %d, the manifest says %d to %d", rows.First+int64(i), seq, f.MinSeq, f.MaxSeq)}
		}
		if seq >= least && seq <= most {
			take = append(take, int32(i))
		}
	}
	if len(take) == rows.N {
		return rows, nil
	}
	out := datafile.Rows{N: len(take), Cols: make([]arrow.Array, len(rows.Cols)), Seq: make([]int64, len(take))}
	if len(take) == 0 {
		return out, nil
	}
	if rows.Kinds != nil {
		out.Kinds = make([]int8, len(take))
	}
	for i, r := range take {
		if out.Seq[i] = rows.Seq[r]; rows.Kinds != nil {
			out.Kinds[i] = rows.Kinds[r]
		}
	}
	ranges := rangesOf(take)
	if len(ranges) == 1 { // else Gather gives a part of the array, with all that this has
		ranges = append(ranges, lsm.Range{Start: ranges[0].Start})
	}
	for c := range rows.Cols {
		var err error
		if out.Cols[c], err = lsm.Gather([]arrow.Array{rows.Cols[c]}, ranges); err != nil {
			return out, err
		}
	}
	return out, nil
}
