//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Case is a table and what happens to it: a row of the result table.
type Case struct {
	Name, About    string
	Columns        []Column
	Key, Partition []string
	Options        map[string]string
	Steps          []Step
	Load           func(*Lab) ([]Step, error) // makes the steps when they are long; nil when they are there
	Refusal        string                     // what the export must say when it cannot publish this table; "" when it can
}

// Step is one thing that happens to the table: changes are put, then it may be compacted and exported.
type Step struct {
	Ops     []Op
	Pick    bool // compact what the table's options ask for: mostly not up to the top level
	Compact bool // compact in full
	Export  bool
}

// Tables without key have no levels: they are exported as they are, so their steps do not compact.

// Publish is the step after which the Iceberg table must show what the Paimon table shows.
var Publish = Step{Compact: true, Export: true}

var cases []*Case

// RegisterCase adds a case; called from init.
func RegisterCase(c *Case) { cases = append(cases, c) }

// Subject is a case that calve has played, on the local disk and on S3.
type Subject struct {
	*Case
	lab           *Lab
	Table         string // database.name
	Namespace     string
	Local, Remote *Played
}

// Played is a table in one place with what must be in it.
type Played struct {
	*Place
	States  map[int64]*Rows // what each snapshot that ended a step holds
	Latest  int64
	Final   *Rows
	Exports []Export
}

// Export is a publication as an Iceberg table.
type Export struct {
	Snapshot int64 // Iceberg's id
	Rows     *Rows
}

const namespace = "judged"

// judge plays the case and lets every judge look.
func (c *Case) judge(ctx context.Context, l *Lab, report *Report) {
	s := &Subject{Case: c, lab: l, Namespace: namespace, Table: namespace + "." + c.Name}
	played := func() (err error) {
		if c.Load != nil {
			if c.Steps, err = c.Load(l); err != nil {
				return err
			}
		}
		remote, err := l.Remote(ctx)
		if err != nil {
			return err
		}
		if s.Local, err = c.play(ctx, l.Local(), s.Table); err != nil {
			return fmt.Errorf("on the local disk: %w", err)
		}
		if s.Remote, err = c.play(ctx, remote, s.Table); err != nil {
			return fmt.Errorf("on S3: %w", err)
		}
		return nil
	}
	if err := played(); err != nil {
		report.add(Result{Case: c.Name, Peer: "calve", Status: "fail", Detail: "cannot play the case: " + err.Error()})
		return
	}
	judgeAll(ctx, l, report, s)
}

// play makes the table and takes it through its steps.
func (c *Case) play(ctx context.Context, place *Place, table string) (*Played, error) {
	if err := place.Create(ctx, table, c); err != nil {
		return nil, err
	}
	model, err := NewModel(c.Columns, c.Key)
	if err != nil {
		return nil, err
	}
	p := &Played{Place: place, States: map[int64]*Rows{}}
	if p.Final, err = model.Rows(); err != nil {
		return nil, err
	}
	for i, step := range c.Steps {
		if err := c.step(ctx, p, table, step, model); err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return p, nil
}

func (c *Case) step(ctx context.Context, p *Played, table string, step Step, model *Model) (err error) {
	if len(step.Ops) > 0 {
		if err := p.Put(ctx, table, c, step.Ops); err != nil {
			return err
		}
	}
	if err := model.Apply(step.Ops); err != nil {
		return err
	}
	if step.Pick {
		if _, err := p.Run(ctx, nil, "compact", table); err != nil {
			return err
		}
	}
	if step.Compact {
		if _, err := p.Run(ctx, nil, "compact", table, "--full"); err != nil {
			return err
		}
	}
	if p.Final, err = model.Rows(); err != nil {
		return err
	}
	if p.Latest, err = p.latestSnapshot(table); err != nil {
		return err
	}
	if p.Latest > 0 {
		p.States[p.Latest] = p.Final
	}
	if step.Export {
		return c.export(ctx, p, table)
	}
	return nil
}

func (c *Case) export(ctx context.Context, p *Played, table string) error {
	_, err := p.Run(ctx, nil, "export", table)
	if c.Refusal != "" {
		if err == nil || !strings.Contains(err.Error(), c.Refusal) {
			return fmt.Errorf("the export must refuse this table and say %q, but says: %w", c.Refusal, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	id, err := p.icebergSnapshot(table)
	if err != nil {
		return err
	}
	p.Exports = append(p.Exports, Export{id, p.Final})
	return nil
}

// folder is where the files of a table are.
func (p *Place) folder(table string) string {
	db, name, _ := strings.Cut(table, ".")
	return filepath.Join(p.Dir, db+".db", name)
}

// snapshots lists the ids of the snapshots on storage, by looking at the files.
func (p *Place) snapshots(table string) ([]int64, error) {
	entries, err := os.ReadDir(filepath.Join(p.folder(table), "snapshot"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []int64
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e.Name(), "snapshot-"); ok {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("file %s in the snapshot folder of %s", e.Name(), table)
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (p *Place) latestSnapshot(table string) (int64, error) {
	ids, err := p.snapshots(table)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return ids[len(ids)-1], nil
}

// icebergSnapshot reads the id of the current Iceberg snapshot from the exported metadata; 0 is none.
func (p *Place) icebergSnapshot(table string) (int64, error) {
	dir := filepath.Join(p.folder(table), "metadata")
	hint, err := os.ReadFile(filepath.Join(dir, "version-hint.text"))
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "v"+strings.TrimSpace(string(hint))+".metadata.json"))
	if err != nil {
		return 0, err
	}
	var metadata struct {
		Current *int64 `json:"current-snapshot-id"`
	}
	if err := json.Unmarshal(text, &metadata); err != nil {
		return 0, err
	}
	if metadata.Current == nil || *metadata.Current < 0 {
		return 0, nil
	}
	return *metadata.Current, nil
}
