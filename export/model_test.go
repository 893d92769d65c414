package export

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestModel makes random changes of a table, publishes now and then from one of two processes, sometimes on a storage
// that fails, expires snapshots, and checks after each Publish that the Iceberg table has exactly the files it should
// have, and each of its older snapshots the files it had.
func TestModel(t *testing.T) {
	for _, spec := range []schema.Spec{
		keyed(t),
		{Columns: columns(t, "p STRING, a INT"), PartitionKeys: []string{"p"}},
	} {
		for n := range 2 {
			t.Run(fmt.Sprintf("keyed=%v/%d", len(spec.PrimaryKeys) > 0, n), func(t *testing.T) {
				t.Parallel()
				m := newModel(t, spec, uint64(n))
				t.Logf("seed %d %d", seed, n)
				for range 80 {
					m.step()
				}
			})
		}
	}
}

type model struct {
	*world
	rng       *rand.Rand
	failures  atomic.Int64 // storage calls until the next failure, 0 and below: none
	lose      bool         // the failure loses the reply only
	exporters []*Exporter
	files     []manifest.Entry
	published map[int64][]string // files by Iceberg snapshot
}

func newModel(t *testing.T, spec schema.Spec, n uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, n)), published: map[int64][]string{}}
	store := storage.WithFaults(storage.NewMem(), func(storage.Op) error {
		if m.failures.Add(-1) != 0 {
			return nil
		}
		if m.lose {
			return storage.LoseReply(errInjected)
		}
		return errInjected
	})
	m.world = newWorld(t, store, spec)
	m.exporters = []*Exporter{m.exporter(), m.exporter()}
	return m
}

func (m *model) exporter() *Exporter {
	return New(m.table, NewDirTarget(m.store), Settings{MaxSnapshots: 2 + m.rng.IntN(20), MaxMetadata: 1 + m.rng.IntN(5), OrphanAge: time.Nanosecond, Env: m.env()})
}

func (m *model) step() {
	switch m.rng.IntN(10) {
	case 0, 1, 2, 3:
		m.change()
	case 4:
		m.add(0) // of no interest for keyed tables
	case 5:
		_, err := m.table.Expire(context.Background(), manifest.Retention{Min: 1, Max: 1 + m.rng.IntN(8)}, m.now)
		if err != nil && !errors.Is(err, manifest.ErrNoSnapshot) {
			m.t.Fatal(err)
		}
	case 6:
		m.exporters[m.rng.IntN(2)] = m.exporter() // a restart
	default:
		m.publishAndCheck(m.rng.IntN(3) == 0)
	}
}

// any is a bucket of any partition.
func (m *model) any() (part []any, bucket int) {
	if len(m.schema.PartitionKeys) > 0 {
		return []any{string(rune('a' + m.rng.IntN(5)))}, 0
	}
	return nil, m.rng.IntN(4)
}

func (m *model) add(level int) {
	p, b := m.any()
	f := m.fake(m.part(b, p...), level, 1+m.rng.Int64N(100))
	m.commit(manifest.Append, f)
	if level == 2 || !m.schema.Keyed() {
		m.files = append(m.files, f)
	}
}

// change adds some files and removes some.
func (m *model) change() {
	var entries []manifest.Entry
	m.rng.Shuffle(len(m.files), func(i, j int) { m.files[i], m.files[j] = m.files[j], m.files[i] })
	for range min(m.rng.IntN(4), len(m.files)) {
		entries = append(entries, removal(m.files[0]))
		m.files = m.files[1:]
	}
	for range m.rng.IntN(6) * m.rng.IntN(6) {
		p, b := m.any()
		f := m.fake(m.part(b, p...), 2, 1+m.rng.Int64N(100))
		entries, m.files = append(entries, f), append(m.files, f)
	}
	m.commit(manifest.Overwrite, entries...)
}

func (m *model) publishAndCheck(faulty bool) {
	if faulty {
		m.lose = m.rng.IntN(2) == 0
		m.failures.Store(1 + m.rng.Int64N(40))
	}
	e := m.exporters[m.rng.IntN(2)]
	r, err := e.Publish(context.Background(), 0)
	m.failures.Store(0)
	if err != nil {
		if !errors.Is(err, errInjected) {
			m.t.Fatal(err)
		}
		if r, err = e.Publish(context.Background(), 0); err != nil {
			m.t.Fatal(err)
		}
	}
	tab := m.check()
	if r.Files != len(m.live) {
		m.t.Fatalf("result %+v, want %d files", r, len(m.live))
	}
	for i, s := range tab.Metadata().Snapshots() {
		if _, seen := m.published[s.SnapshotID]; seen && (i+m.rng.IntN(8))%8 != 0 {
			continue
		}
		files, _ := planned(m.t, tab, s.SnapshotID)
		if want, ok := m.published[s.SnapshotID]; !ok {
			m.published[s.SnapshotID] = files
		} else if !slices.Equal(files, want) {
			m.t.Fatalf("snapshot %d has files %v, had %v", s.SnapshotID, files, want)
		}
	}
}
