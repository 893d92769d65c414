//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Chaos has to see what it is there for. `chaos -prove` builds calve with a fault planted into it, once for each kind, and
// demands that a short run finds the rows that it costs or doubles; calve as it is must pass the same run. What is planted is put
// over the sources by the compiler (go build -overlay), so that nothing of it is in the product.

// provingKills of each run, and how long tables are waited for that do not come to the end of their topics.
const (
	provingKills    = 6
	provingPatience = 5 * time.Second
)

// plant is a fault.
type plant struct {
	name, what string
	edits      []plantEdit
	shows      func(*chaosVerdict) bool // nil: nothing must be wrong
}

// plantEdit puts a text in place of another, which must be in the file once.
type plantEdit struct{ file, old, new string }

// plants are the faults, but for the first, which is none.
var plants = []plant{
	{name: "none", what: "calve as it is"},
	{name: "lost", what: "offsets are committed one batch ahead of the rows", shows: func(v *chaosVerdict) bool { return v.lost > 0 }, edits: []plantEdit{
		{"ingest/pipeline.go", "\teager bool\n", "\teager bool\n\tplanted schema.Batch // is written with the next one, or behind the next commit\n"},
		{"ingest/pipeline.go", "\tif u.batch.Rec != nil {\n", "\tif u.batch.Rec != nil {\n\t\tu.batch.Batch, c.planted = c.planted, u.batch.Batch\n\t}\n\tif u.batch.Rec != nil {\n"},
		{"ingest/pipeline.go", "\tc.tally, c.pending = Committed{}, false\n", `	c.tally, c.pending = Committed{}, false
	if c.planted.Rec != nil {
		if err := c.table.Write(ctx, c.planted); err != nil {
			return err
		}
		c.planted, c.pending, c.first, c.tick = schema.Batch{}, true, c.table.Schema(), c.env.After(c.limits.CommitInterval)
	}
`},
	}},
	{name: "repeated", what: "a commit of unknown outcome is repeated without reading the position again", shows: func(v *chaosVerdict) bool { return v.doubled > 0 }, edits: []plantEdit{
		{"engine/commit.go", "\tif err != nil {\n\t\tif !errors.Is(err, storage.ErrUnknown) {\n", `	if err == nil && kind == manifest.Append && len(entries) > 0 && t.env.Rand()%8 == 0 {
		planted.Store(t.store.URL(""), t.progress)
		err = storage.ErrUnknown
	}
	if err != nil {
		if !errors.Is(err, storage.ErrUnknown) {
`},
		{"engine/job.go", "\t\tdelete(t.progress.Properties, manifest.PropOrder) // it is of the snapshot's rows\n", `		delete(t.progress.Properties, manifest.PropOrder)
		if p, ok := planted.LoadAndDelete(t.store.URL("")); ok {
			t.progress = p.(Progress)
		}
`},
		{"engine/job.go", "const jobsDir = ", "var planted sync.Map // progress before a commit, by table\n\nconst jobsDir = "},
		{"engine/job.go", "\t\"strings\"\n", "\t\"strings\"\n\t\"sync\"\n"},
	}},
	{name: "early", what: "a process goes on at the position of the snapshot before its last", shows: func(v *chaosVerdict) bool { return v.doubled > 0 }, edits: []plantEdit{
		{"engine/job.go", "\t\tdelete(t.progress.Properties, manifest.PropOrder) // it is of the snapshot's rows\n", `		for id := s.ID - 1; id > 0; id-- {
			old, err := t.meta.Snapshot(ctx, id)
			if err != nil {
				break
			}
			if old.CommitUser == t.user {
				t.progress = Progress{Properties: maps.Clone(old.Properties), Watermark: old.Watermark}
				break
			}
		}
		delete(t.progress.Properties, manifest.PropOrder)
`},
	}},
}

// patched gives the sources that are not as they were, by their paths.
func (p *plant) patched(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range p.edits {
		text, ok := out[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("plant %s: %s has %d times what is to be changed, expected once; the plant must follow the source:\n%s", p.name, e.file, n, e.old)
		}
		out[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return out, nil
}

// build makes calve with the fault in it.
func (p *plant) build(ctx context.Context, l *Lab) error {
	sources, err := p.patched(l.Root)
	if err != nil {
		return err
	}
	dir := filepath.Join(l.Data, "plant-"+p.name)
	replace := map[string]string{}
	for file, text := range sources {
		to := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
			return err
		}
		replace[filepath.Join(l.Root, file)] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, overlay, 0o644)); err != nil {
		return err
	}
	l.Binary = filepath.Join(dir, "calve")
	return run(ctx, l.Root, nil, "go", "build", "-overlay", file, "-o", l.Binary, "./cmd/calve")
}

// prove runs chaos against each plant of a name, or all; its error says which of them it did not see.
func prove(ctx context.Context, l *Lab, seed uint64, name string, say func(string)) error {
	var errs []error
	for i := range plants {
		p := &plants[i]
		if name != "" && name != p.name {
			continue
		}
		if err := p.build(ctx, l); err != nil {
			return err
		}
		c := newChaos(l, seed+uint64(i), provingKills, 0)
		c.local = "-" + p.name
		if p.shows != nil {
			c.patience = provingPatience
		}
		err := c.run(ctx)
		c.close()
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		v := &c.verdict
		switch {
		case c.truth == nil:
			err = fmt.Errorf("plant %s: the run did not come to a verdict: %w", p.name, err)
		case p.shows == nil:
			err = errors.Join(err, v.err())
		case p.shows(v):
			l.Log("plant %s is found: %v", p.name, v.err())
			err = nil
		default:
			err = fmt.Errorf("plant %s is not found: %s; chaos sees %d lost, %d doubled, %d strange rows (%v)", p.name, p.what, v.lost, v.doubled, v.strange, err)
		}
		say(fmt.Sprintf("plant=%s found=%v lost=%d doubled=%d strange=%d kills=%d records=%d seconds=%.0f (%s)", p.name, p.shows != nil && err == nil, v.lost, v.doubled, v.strange, provingKills, c.records, time.Since(c.began).Seconds(), p.what))
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return fmt.Errorf("there is no plant %q", name)
	}
	return errors.Join(errs...)
}
