package storage

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashClone returns what a disk would hold after a power cut at this moment, as a store of its own:
//
//   - what PutIfAbsent and Upload.Commit have acknowledged is there, whole;
//   - uploads in progress are gone;
//   - a name written by Put holds its last durable content, one of the later ones, or a torn one: empty, cut short,
//     or with zeros where the bytes never reached the disk; or it does not exist, if it never was durable;
//   - an object deleted since the last durable write into its folder may be back.
//
// The choices come from rng alone, so a seed repeats them. The clone's content counts as durable.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.clock, c.ticks = m.clock, m.ticks
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		o := m.objects[name]
		c.restore(name, o, o.survivor(rng))
	}
	for _, name := range slices.Sorted(maps.Keys(m.deleted)) {
		if _, again := m.objects[name]; !again && rng.IntN(2) == 0 {
			o := m.deleted[name]
			c.restore(name, o, o.survivor(rng))
		}
	}
	return c
}

// restore puts what survived of an object into the clone.
func (m *Mem) restore(name string, o *memObject, v memVersion) {
	if v.exists {
		m.objects[name] = &memObject{data: v.data, mod: o.mod, durable: true}
	}
}

// survivor chooses what a power cut leaves of an object.
func (o *memObject) survivor(rng *rand.Rand) memVersion {
	if o.durable {
		return memVersion{data: o.data, exists: true}
	}
	if rng.IntN(3) == 0 {
		return memVersion{data: torn(o.data, rng), exists: true}
	}
	all := o.versions()
	return all[rng.IntN(len(all))]
}

// torn makes what an unsynced file may look like: its length or its bytes did not all arrive.
func torn(data []byte, rng *rand.Rand) []byte {
	cut := rng.IntN(len(data) + 1)
	t := slices.Clone(data[:cut])
	if rng.IntN(2) == 0 {
		return t
	}
	return append(t, make([]byte, len(data)-cut)...)
}
