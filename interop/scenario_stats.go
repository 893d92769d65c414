//go:build interop

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

func init() {
	RegisterScenario(Scenario{Name: "stats", Run: judgeStats})
	columns := slices.DeleteFunc(statsColumns(), func(c Column) bool { return c.Name == "tod" || c.Name == "ts3" }) // not in Iceberg
	rng := valuer{rand.New(rand.NewPCG(3, 4))}
	for name, options := range map[string]map[string]string{
		"stats_sparse": {"metadata.stats-dense-store": "false", "metadata.stats-mode.per.level": "0:none,5:counts", "fields.s.stats-mode": "full",
			"fields.i.stats-mode": "truncate(3)", "bucket": "1"},
		"stats_cut": {"metadata.stats-mode": "truncate(1)", "fields.ts6.stats-mode": "none", "fields.d20.stats-mode": "counts", "bucket": "1"},
	} {
		RegisterCase(&Case{Name: name, About: "statistics of some columns, cut to few characters, and conditions that are held against them",
			Columns: columns, Key: []string{"k"}, Options: options,
			Steps: []Step{{Ops: puts(statsRows(rng, columns, 0, 40))}, {Ops: puts(statsRows(rng, columns, 30, 80)), Compact: true, Export: true}}})
	}
}

// statsModes are sets of options on which the statistics in manifests depend.
var statsModes = []string{
	"", "metadata.stats-dense-store=false", "metadata.stats-mode=full", "metadata.stats-mode=counts", "metadata.stats-mode=none",
	"metadata.stats-mode=none;metadata.stats-dense-store=false", "metadata.stats-mode=truncate(1)", "metadata.stats-mode=truncate(5)",
	"metadata.stats-mode.per.level=0:none", "metadata.stats-mode.per.level=0:counts,5:full;metadata.stats-dense-store=false",
	"fields.s.stats-mode=full;fields.i.stats-mode=none;fields.d20.stats-mode=counts;fields.k.stats-mode=none",
	"metadata.stats-mode=none;fields.s.stats-mode=truncate(2);fields.nothing.stats-mode=counts",
	"metadata.stats-mode=none;data-file.thin-mode=true", "metadata.stats-mode=truncate(2);data-file.thin-mode=true",
}

func statsColumns() []Column {
	return []Column{{"k", "STRING NOT NULL"}, {"b", "BOOLEAN"}, {"t", "TINYINT"}, {"h", "SMALLINT"}, {"i", "INT"}, {"l", "BIGINT NOT NULL"}, {"f", "FLOAT"},
		{"d", "DOUBLE"}, {"d9", "DECIMAL(9, 2)"}, {"d18", "DECIMAL(18, 3)"}, {"d20", "DECIMAL(20, 5)"}, {"c", "CHAR(5)"}, {"s", "STRING"}, {"v", "VARCHAR(30)"},
		{"y", "BYTES"}, {"day", "DATE"}, {"tod", "TIME(3)"}, {"ts3", "TIMESTAMP(3)"}, {"ts6", "TIMESTAMP(6)"}, {"z6", "TIMESTAMP(6) WITH LOCAL TIME ZONE"}, {"nothing", "STRING"}}
}

// statsRows makes rows with the keys from..to-1. There is no NaN, of which nobody's bounds say anything, and a zero has
// no sign.
func statsRows(r valuer, columns []Column, from, to int) []map[string]any {
	var out []map[string]any
	for i := from; i < to; i++ {
		row := map[string]any{}
		for _, c := range columns {
			k, err := ParseKind(c.Type)
			if err != nil {
				panic(err) // the columns are written above
			}
			v := r.value(k)
			for v == "NaN" || v == "-0.0" || v == "0.0" {
				v = r.value(k)
			}
			switch {
			case c.Name == "k":
				v = fmt.Sprintf("%03d %v", i, oneOf(r, "key", strings.Repeat("long ", 40)))
			case c.Name == "nothing" || !k.NotNull && r.chance(15):
				v = nil
			}
			row[c.Name] = v
		}
		out = append(out, row)
	}
	return out
}

// judgeStats lets calve and Paimon Java write the same rows into tables with the same options. What their manifests say
// of the files must be the same, byte for byte.
func judgeStats(ctx context.Context, l *Lab, report *Report) {
	for _, j := range judges {
		java, ok := j.Judge.(*paimonJava)
		if !ok {
			continue
		}
		report.Check("stats", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			var errs []error
			for i, mode := range statsModes {
				for _, key := range [][]string{{"k"}, nil} {
					if err := compareStats(ctx, l, java, mode, key, fmt.Sprintf("%d_%d", i, len(key))); err != nil {
						errs = append(errs, fmt.Errorf("%q, key %v: %w", mode, key, err))
					}
				}
			}
			return errors.Join(errs...)
		})
	}
}

func compareStats(ctx context.Context, l *Lab, java *paimonJava, mode string, key []string, name string) error {
	h := &History{Columns: statsColumns(), Key: key, Options: map[string]string{"bucket": "1", "num-levels": "6"}}
	if key == nil {
		h.Options["bucket"] = "-1"
	}
	for _, option := range strings.Split(mode, ";") {
		if name, value, ok := strings.Cut(option, "="); ok {
			h.Options[name] = value
		}
	}
	place := l.Local()
	theirs := &javaSide{history: h, worker: java.Worker, table: PaimonTable{Warehouse: place.Warehouse, Name: "stats.java_" + name}}
	ours, err := newCalveSide(h, place.folder("stats.calve_"+name))
	if err != nil {
		return err
	}
	other, err := newCalveSide(h, place.folder("stats.java_"+name))
	if err != nil {
		return err
	}
	if err := errors.Join(theirs.create(ctx), ours.create(ctx)); err != nil {
		return err
	}
	rng := valuer{rand.New(rand.NewPCG(l.Seed, 11))}
	var steps []HistoryStep
	for i := range 2 {
		s := HistoryStep{Do: doWrite}
		for _, row := range statsRows(rng, h.Columns, 20*i, 20*i+30) {
			s.Changes = append(s.Changes, Op{"+I", row})
		}
		steps = append(steps, s)
	}
	if key != nil {
		steps = append(steps, HistoryStep{Do: doCompactFull})
	}
	for i, s := range steps {
		if err := errors.Join(ours.step(ctx, &s), theirs.step(ctx, &s, 0)); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if err := sameManifests(ctx, ours.reader.Meta(), other.reader.Meta()); err != nil {
			return fmt.Errorf("after step %d (%s): %w", i+1, s.Do, err)
		}
	}
	return nil
}

// sameManifests compares what is said of the files that came with the newest snapshot.
func sameManifests(ctx context.Context, ours, theirs *manifest.Table) error {
	var files [2][]manifest.Entry
	var schemas [2]*schema.Schema
	for i, m := range []*manifest.Table{ours, theirs} {
		snap, err := m.Latest(ctx)
		if err != nil {
			return err
		}
		if files[i], err = m.Delta(ctx, snap); err != nil {
			return err
		}
		files[i] = slices.DeleteFunc(files[i], func(e manifest.Entry) bool { return e.Kind != manifest.Add })
		if schemas[i], err = m.LatestSchema(ctx); err != nil {
			return err
		}
	}
	if len(files[0]) != len(files[1]) {
		return fmt.Errorf("calve has %d files, Java %d", len(files[0]), len(files[1]))
	}
	var errs []error
	for i := range files[0] {
		a, b := told(schemas[0], &files[0][i].File), told(schemas[1], &files[1][i].File)
		for _, what := range slices.Sorted(maps.Keys(a)) {
			if a[what] != b[what] {
				errs = append(errs, fmt.Errorf("file %d: %s: calve %s, Java %s", i, what, a[what], b[what]))
			}
		}
		x, y := &files[0][i].File, &files[1][i].File
		if len(errs) == 0 && (!sameStats(x.KeyStats, y.KeyStats) || !sameStats(x.ValueStats, y.ValueStats) || len(a) != len(b)) {
			errs = append(errs, fmt.Errorf("file %d: other bytes: calve %x, Java %x", i, x.ValueStats, y.ValueStats))
		}
	}
	return errors.Join(errs...)
}

func sameStats(a, b manifest.Stats) bool {
	return bytes.Equal(a.Min, b.Min) && bytes.Equal(a.Max, b.Max) && fmt.Sprint(nullCounts(a)) == fmt.Sprint(nullCounts(b))
}

// nullCounts are null counts as text.
func nullCounts(s manifest.Stats) []string {
	out := make([]string, len(s.NullCounts))
	for i, n := range s.NullCounts {
		out[i] = "?"
		if n != nil {
			out[i] = fmt.Sprint(*n)
		}
	}
	return out
}

// told is what a manifest says of a file, by name.
func told(s *schema.Schema, f *manifest.DataFile) map[string]string {
	cols := f.ValueStatsCols
	if f.ValueStatsAll {
		cols = nil
		for _, c := range s.Fields {
			cols = append(cols, c.Name)
		}
	}
	out := map[string]string{
		"columns of statistics": fmt.Sprintf("%v (all: %v)", cols, f.ValueStatsAll), "rows": fmt.Sprint(f.Rows), "deletes": fmt.Sprint(*f.DeleteRows),
		"level": fmt.Sprint(f.Level), "source": fmt.Sprint(*f.Source),
		"keys": fmt.Sprintf("%x %x", f.MinKey, f.MaxKey), "write columns": fmt.Sprint(f.WriteCols),
	}
	if s.Keyed() { // without key, Java numbers the rows of each writer from 0
		out["sequence"] = fmt.Sprint(f.MinSeq, f.MaxSeq)
	}
	add := func(prefix string, names []string, stats manifest.Stats) {
		nulls := nullCounts(stats)
		for i, name := range names {
			at, ok := s.Field(name)
			if !ok || len(nulls) != len(names) {
				out[prefix+name] = fmt.Sprintf("unreadable: %v of %v", nulls, names)
				continue
			}
			lo, err1 := binrow.DecodeField(stats.Min, len(names), i, s.Fields[at].Type)
			hi, err2 := binrow.DecodeField(stats.Max, len(names), i, s.Fields[at].Type)
			out[prefix+name] = fmt.Sprintf("%#v to %#v, %s null", lo, hi, nulls[i])
			if err := errors.Join(err1, err2); err != nil {
				out[prefix+name] = err.Error()
			}
		}
	}
	add("column ", cols, f.ValueStats)
	add("key ", s.Names(s.KeyColumns()), f.KeyStats)
	return out
}
