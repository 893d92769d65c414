package manifest

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/calve-io/calve/schema"
)

// Manifest merging keeps the number of manifests, and the number of dead entries in them, bounded. Concatenating base
// and delta lists would always be right (paimon-format §2.5); merging is what keeps it cheap to read.
//
// Manifests are merged like the digits of a counter: once merge-min-count manifests of one size class have gathered at
// the end of the list they become one of the next class, so an entry is rewritten once for each class, whatever the
// size of the table. Only manifests at the end are merged, together, so the order of entries is kept. When removed
// files outnumber half of the live ones, everything is rewritten without them; at least as many removals as rewritten
// entries have paid for that.

// deadSlack is the number of dead entries (an addition and its removal) that never cause a rewrite.
const deadSlack = 1000

// merging is one merge that was done for a commit. A commit that loses a race keeps it when the next base has the same
// manifests at the same place.
type merging struct {
	from  []string // names of the manifests that were merged
	kept  []Meta   // of those, the ones that stay as they are, first in order
	files []metadataFile
}

// metas gives what takes the place of the merged manifests.
func (m *merging) metas() []Meta {
	out := slices.Clone(m.kept)
	for _, f := range m.files {
		out = append(out, *f.meta)
	}
	return out
}

// chooseMerge picks the manifests to merge: metas[lo:]. all: without keeping removals, possible only when lo is 0.
func chooseMerge(metas []Meta, frozen map[string]struct{}, minCount int, target int64) (lo int, all, ok bool) {
	floor := 0 // manifests before it must stay
	var live, dead int64
	for i := range metas {
		if _, f := frozen[metas[i].Name]; f {
			floor = i + 1
		}
		live += metas[i].Added - metas[i].Deleted
		dead += 2 * metas[i].Deleted
	}
	if floor == 0 && dead > live+deadSlack {
		return 0, true, true
	}
	minCount = max(2, minCount)
	at := len(metas)
	for class := 0; at > floor; class++ {
		n := 0
		for at > floor && sizeClass(&metas[at-1], minCount, target) <= class {
			at--
			if sizeClass(&metas[at], minCount, target) == class {
				n++
			}
		}
		if n >= minCount {
			lo, ok = at, true
		}
		if class > 64 { // only full manifests are left
			break
		}
	}
	return lo, false, ok
}

// sizeClass is the power of minCount that a manifest's entries reach; a manifest of the target size is in no class.
func sizeClass(m *Meta, minCount int, target int64) int {
	if m.Size >= target {
		return math.MaxInt
	}
	class := 0
	for n := m.Added + m.Deleted; n >= int64(minCount); n /= int64(minCount) {
		class++
	}
	return class
}

// merge works out the base list of the next snapshot. A merge that cannot be done is not an error: the list is longer
// then, and whoever reads the broken manifest will say so.
func (t *Table) merge(ctx context.Context, p *pending, metas []Meta) ([]Meta, error) {
	lo, all, ok := chooseMerge(metas, t.frozen, p.options.ManifestMergeMinCount, p.options.ManifestTargetSize)
	if !ok {
		p.merging = nil
		return slices.Clone(metas), nil
	}
	from := make([]string, 0, len(metas)-lo)
	for _, m := range metas[lo:] {
		from = append(from, m.Name)
	}
	if p.merging == nil || !slices.Equal(p.merging.from, from) {
		p.merging = nil
		m, err := t.mergeRange(ctx, p, metas[lo:], all)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("merge manifests: %w", ctx.Err())
		}
		if err != nil {
			t.env.Log.Warn("manifests not merged", "table", t.store.URL(""), "error", err)
			return slices.Clone(metas), nil
		}
		m.from = from
		p.merging = m
	}
	return append(slices.Clone(metas[:lo]), p.merging.metas()...), nil
}

// mergeRange folds manifests into new ones.
func (t *Table) mergeRange(ctx context.Context, p *pending, metas []Meta, all bool) (*merging, error) {
	f := newFold(nil, liveSize(metas))
	var size, entries int64
	bounds := make([]int, 0, len(metas)+1)
	err := t.eachManifest(ctx, metas, func(m *Meta, list []Entry, lossy bool) error {
		if lossy {
			t.frozen[m.Name] = struct{}{}
			return fmt.Errorf("%w: manifest %s has fields that this version does not know", ErrUnsupported, m.Name)
		}
		bounds = append(bounds, len(f.entries))
		size += m.Size
		entries += int64(len(list))
		return f.apply(t.store.URL(manifestPath(m.Name)), list)
	})
	if err != nil {
		return nil, err
	}
	bounds = append(bounds, len(f.entries))
	out := &merging{}
	var rest []Entry
	if all {
		if err := f.complete(t.store.URL("")); err != nil {
			return nil, err
		}
		for i := range metas {
			added := f.entries[bounds[i]:bounds[i+1]]
			if intact(&metas[i], added, p.options.ManifestTargetSize) {
				out.kept = append(out.kept, metas[i])
				continue
			}
			for _, e := range added {
				if e != nil {
					rest = append(rest, *e)
				}
			}
		}
		slices.SortStableFunc(rest, byPlace) // so that bucket and partition bounds prune
	} else {
		for _, e := range f.early {
			rest = append(rest, *e)
		}
		slices.SortFunc(rest, byPlace)
		rest = append(rest, f.live()...)
	}
	if len(rest) == 0 {
		return out, nil
	}
	perFile := int(max(1, p.options.ManifestTargetSize/max(1, size/max(1, entries))))
	out.files, err = p.encodeManifests(rest, p.schema, perFile)
	return out, err
}

// byPlace is compareEntries for a slice of entries.
func byPlace(a, b Entry) int { return compareEntries(&a, &b) }

// intact reports that a large manifest holds live files only, so that rewriting it would gain nothing.
func intact(m *Meta, added []*Entry, target int64) bool {
	return m.Deleted == 0 && m.Size >= target/2 && !slices.Contains(added, nil)
}

// encodeManifests writes entries as manifests of at most perFile entries.
func (p *pending) encodeManifests(entries []Entry, s *schema.Schema, perFile int) ([]metadataFile, error) {
	var files []metadataFile
	for part := range slices.Chunk(entries, perFile) {
		name := p.manifestName()
		data, err := encodeEntries(name, part)
		if err != nil {
			return nil, err
		}
		m, err := summarize(part, s)
		if err != nil {
			return nil, err
		}
		m.Name, m.Size = name, int64(len(data))
		files = append(files, metadataFile{name: name, data: data, meta: &m})
	}
	return files, nil
}
