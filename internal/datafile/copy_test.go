package datafile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/calve-io/calve/schema"
)

// outlineOf opens a file that ought to be one to copy from.
func outlineOf(t testing.TB, b []byte, cfg WriterConfig, least int64) *Outline {
	t.Helper()
	o, err := NewOutline(openBytes(b), "test.parquet", cfg.Schema, cfg, least)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Units) == 0 {
		t.Fatal("the file cannot be copied")
	}
	return o
}

// piece describes rows of an outline as a compaction does.
func piece(t testing.TB, o *Outline, from, to int64) Piece {
	t.Helper()
	p := Piece{RowRange: RowRange{from, to}}
	var err error
	if o.cfg.Keyed {
		if p.First, p.Last, err = o.Edges(from, to); err == nil {
			p.Deletes, err = o.Deletes(from, to)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mixed makes a file of all rows of another, some of its units copied and the others written.
func mixed(t testing.TB, r *rand.Rand, cfg WriterConfig, o *Outline, rows Rows) ([]byte, Info, int) {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, cfg)
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for at := 0; at < len(o.Units); {
		n := 1 + r.IntN(min(4, len(o.Units)-at))
		from, to := o.Units[at].From, o.Units[at+n-1].To
		if r.IntN(3) > 0 {
			err = w.Copy(o, piece(t, o, from, to))
			copied += n
		} else {
			err = w.Write(sliceRows(rows, allColumns(cfg.Schema), from, int(to-from), true))
		}
		if err != nil {
			t.Fatal(err)
		}
		at += n
	}
	info, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), info, copied
}

// TestCopy mixes copied and written rows: the file has the same rows, for three libraries, and the same description as one
// that was written.
func TestCopy(t *testing.T) {
	for name, s := range map[string]*schema.Schema{"flat": allTypes(t), "nested": nestedTypes(t)} {
		for seed, c := range []struct {
			from, to string
			shape    valueShape
		}{
			{"zstd", "zstd", valueShape{nulls: 0.2}}, {"snappy", "zstd", valueShape{repeats: 9, nulls: 0.1}}, {"zstd", "none", valueShape{nulls: 0.9, long: 300}},
			{"none", "lz4", valueShape{repeats: 40}}, {"lz4", "snappy", valueShape{nulls: 1}},
		} {
			t.Run(fmt.Sprintf("%s/%s to %s", name, c.from, c.to), func(t *testing.T) {
				r := newRand(uint64(seed))
				in := randomRows(r, s, 0, 900, c.shape)
				cfg := WriterConfig{Schema: s, Keyed: true, Compression: c.from, RowGroupRows: 350, CutRows: 40}
				b, _ := writeFile(t, cfg, in)
				cfg.Compression, cfg.CutRows = c.to, 64
				o := outlineOf(t, b, cfg, 1)
				out, info, copied := mixed(t, r, cfg, o, in)
				if copied < 3 {
					t.Fatalf("%d of %d units were copied", copied, len(o.Units))
				}
				got, err := readFile(out, s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: 100})
				if err != nil {
					t.Fatal(err)
				}
				sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), in)
				arrowReads(t, out, s, in)
				if name == "flat" {
					parquetGo(t, out, s, in)
				}
				_, want := writeFile(t, cfg, in)
				sameInfo(t, s, info, want)
			})
		}
	}
}

// TestCopyInTurn copies pieces of several files in turn, and writes some rows itself. The file has the same rows, for three
// libraries, and the same description as one that was written; and no row group has rows of two kinds.
func TestCopyInTurn(t *testing.T) {
	for name, s := range map[string]*schema.Schema{"flat": allTypes(t), "nested": nestedTypes(t)} {
		for seed, c := range []struct {
			from, to string
			shape    valueShape
		}{
			{"zstd", "zstd", valueShape{nulls: 0.1, repeats: 9}}, {"snappy", "zstd", valueShape{repeats: 5, nulls: 0.1}},
			{"none", "snappy", valueShape{repeats: 30, nulls: 0.9}}, {"zstd", "none", valueShape{repeats: 9, nulls: 1}},
			{"zstd", "zstd", valueShape{repeats: 9}}, {"zstd", "lz4", valueShape{repeats: 9, long: 200}},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				r := newRand(70 + uint64(seed))
				cfg := WriterConfig{Schema: s, Keyed: true, Compression: c.from, RowGroupRows: 200, CutRows: 70}
				var from []*Outline
				var rows []Rows
				for i := range 3 {
					x := c.shape
					x.repeats += i // other values
					in := randomRows(r, s, 1000*i, 500, x)
					b, _ := writeFile(t, cfg, in)
					cfg := cfg
					cfg.Compression = c.to
					from, rows = append(from, outlineOf(t, b, cfg, 1)), append(rows, in)
				}
				cfg.Compression, cfg.RowGroupRows, cfg.CutRows = c.to, 700, 64
				var buf bytes.Buffer
				w, err := NewWriter(&buf, cfg)
				if err != nil {
					t.Fatal(err)
				}
				var in []Rows
				groups, last := 0, -1
				at := make([]int, len(from))
				for range 24 {
					f := r.IntN(len(from))
					u := from[f].Units[at[f]%len(from[f].Units)]
					at[f]++
					part := sliceRows(rows[f], allColumns(s), u.From, int(u.To-u.From), true)
					if in = append(in, part); r.IntN(4) > 0 {
						groups++
						err, last = w.Copy(from[f], piece(t, from[f], u.From, u.To)), f
					} else {
						if last >= 0 {
							groups++
						}
						err, last = w.Write(part), -1
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				info, err := w.Close()
				if err != nil {
					t.Fatal(err)
				}
				want := concat(t, in, len(s.Fields))
				got, err := readFile(buf.Bytes(), s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: 100})
				if err != nil {
					t.Fatal(err)
				}
				sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), want)
				arrowReads(t, buf.Bytes(), s, want)
				if name == "flat" {
					parquetGo(t, buf.Bytes(), s, want)
				}
				cfg.Schema = s
				_, described := writeFile(t, cfg, want)
				sameInfo(t, s, info, described)
				foot, err := readFooter(openBytes(buf.Bytes()), tailBytes)
				if err != nil {
					t.Fatal(err)
				}
				if n := len(foot.groups); n > groups+1 || n < groups/2 {
					t.Errorf("%d row groups of %d pieces", n, groups)
				}
			})
		}
	}
}

// sameInfo compares the descriptions of files with the same rows.
func sameInfo(t *testing.T, s *schema.Schema, got, want Info) {
	t.Helper()
	if got.Rows != want.Rows || got.DeleteRows != want.DeleteRows || got.MinSeq != want.MinSeq || got.MaxSeq != want.MaxSeq ||
		!bytes.Equal(got.MinKey, want.MinKey) || !bytes.Equal(got.MaxKey, want.MaxKey) {
		t.Errorf("the copy is %+v, want %+v", got, want)
	}
	for i, f := range s.Fields {
		g, w := got.Value[i], want.Value[i]
		if anyText(g.Min) != anyText(w.Min) || anyText(g.Max) != anyText(w.Max) || g.Nulls != w.Nulls {
			t.Errorf("column %s %s: statistics %v, want %v", f.Name, f.Type, g, w)
		}
	}
	for i := range got.Key {
		if anyText(got.Key[i]) != anyText(want.Key[i]) {
			t.Errorf("key %d: statistics %v, want %v", i, got.Key[i], want.Key[i])
		}
	}
}

// TestCopyUnits: units follow each other without a gap, and their bounds hold.
func TestCopyUnits(t *testing.T) {
	s := allTypes(t)
	s.PrimaryKeys = []string{"k", "c3_nn", "c13_nn"}
	in := randomRows(newRand(3), s, 0, 1000, valueShape{nulls: 0.3, long: 400})
	for i := range in.Kinds[:400] {
		in.Kinds[i] = 0
	}
	cfg := WriterConfig{Schema: s, Keyed: true, RowGroupRows: 300, CutRows: 50}
	b, _ := writeFile(t, cfg, in)
	for _, least := range []int64{1, 3000, 1 << 30} {
		o, row := outlineOf(t, b, cfg, least), int64(0)
		for _, u := range o.Units {
			if u.From != row || u.To <= u.From {
				t.Fatalf("least %d: unit %+v behind row %d", least, u, row)
			}
			row = u.To
			if u.Bytes < least && u.To%300 != 0 && u.To != 1000 {
				t.Errorf("least %d: unit of %d bytes", least, u.Bytes)
			}
			n, err := o.Deletes(u.From, u.To)
			if err != nil || u.Adds && n > 0 || u.To <= 400 && !u.Adds {
				t.Errorf("unit %+v has %d deletes (%v)", u, n, err)
			}
			if u.Min == nil {
				t.Fatalf("unit %+v has no bounds", u)
			}
			for i, c := range s.KeyColumns() {
				for x := u.From; x < u.To; x++ {
					v := schema.Cell(in.Cols[c], int(x))
					lo, ok1 := compareCells(u.Min[i], v)
					hi, ok2 := compareCells(v, u.Max[i])
					if !ok1 || !ok2 || lo > 0 || hi > 0 {
						t.Fatalf("row %d, key %d: %v is not within %v and %v", x, i, v, u.Min[i], u.Max[i])
					}
				}
			}
		}
		if row != 1000 {
			t.Fatalf("units end at row %d", row)
		}
	}
}

// TestCopyGolden copies Paimon's own files: rows and descriptions are those of files that were written.
func TestCopyGolden(t *testing.T) {
	copied := 0
	for table := range goldenTables {
		for _, f := range addedFiles(t, table) {
			s := goldenSchema(t, table, f.SchemaID)
			b, rows := readGolden(t, table, f, s, s.Keyed())
			opts, err := s.ParseOptions()
			if err != nil {
				t.Fatal(err)
			}
			cfg := WriterConfig{Schema: s, Keyed: s.Keyed(), Thin: opts.ThinMode}
			o, err := NewOutline(openBytes(b), "test.parquet", s, cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Units) == 0 {
				continue // the table changed its layout since
			}
			copied++
			var buf bytes.Buffer
			w, err := NewWriter(&buf, cfg)
			if err == nil {
				err = w.Copy(o, piece(t, o, 0, int64(rows.N)))
			}
			if err != nil {
				t.Fatalf("%s: %v", f.FileName, err)
			}
			info, err := w.Close()
			if err != nil {
				t.Fatal(err)
			}
			got, err := readFile(buf.Bytes(), s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: s.Keyed()})
			if err != nil {
				t.Fatal(err)
			}
			sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), rows)
			_, want := writeFile(t, cfg, rows)
			sameInfo(t, s, info, want)
		}
	}
	if copied < 20 {
		t.Errorf("%d files could be copied", copied)
	}
}

// TestCopyRefuses: files of another layout or of an unknown writer have no units.
func TestCopyRefuses(t *testing.T) {
	s := allTypes(t)
	cfg := WriterConfig{Schema: s, Keyed: true}
	b, _ := writeFile(t, cfg, randomRows(newRand(1), s, 0, 100, valueShape{}))
	change := func(f func(*schema.Schema)) *schema.Schema {
		x := *s
		x.Fields = append([]schema.Field(nil), s.Fields...)
		f(&x)
		return &x
	}
	thin := cfg
	thin.Thin = true
	for name, c := range map[string]struct {
		file []byte
		was  *schema.Schema
		cfg  WriterConfig
	}{
		"thin":         {b, s, thin},
		"other writer": {bytes.Replace(b, []byte("calve version"), []byte("other version"), 1), s, cfg},
		"other type":   {b, change(func(x *schema.Schema) { x.Fields[4].Type = mustType(t, "INT") }), cfg},
		"same name":    {b, change(func(x *schema.Schema) { x.Fields[4].ID = 99 }), cfg},
		"one more":     {b, change(func(x *schema.Schema) { x.Fields = x.Fields[:5] }), cfg},
	} {
		o, err := NewOutline(openBytes(c.file), "test.parquet", c.was, c.cfg, 1)
		if err != nil || len(o.Units) > 0 {
			t.Errorf("%s: %d units, %v", name, len(o.Units), err)
		}
	}
	// A schema that says what the file does not: the file's own schema counts.
	lie := change(func(x *schema.Schema) { x.Fields[1].Type = mustType(t, "INT") })
	if o, err := NewOutline(openBytes(b), "test.parquet", lie, WriterConfig{Schema: lie, Keyed: true}, 1); err != nil || len(o.Units) > 0 {
		t.Errorf("another physical type: %d units, %v", len(o.Units), err)
	}
}

// TestCopyHostile copies damaged files: there are rows or errors, and nothing else.
func TestCopyHostile(t *testing.T) {
	s := allTypes(t)
	done := 0
	for i, b := range corpus(t, s) {
		r := newRand(300 + uint64(i))
		footer := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		for range 150 {
			c := append([]byte(nil), b...)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(c))
				switch r.IntN(3) {
				case 0:
					at = footer + r.IntN(len(c)-footer)
				case 1: // the page index
					at = footer - 1 - r.IntN(footer/8)
				}
				c[at] ^= byte(1 << r.IntN(8))
			}
			before, good := allocated(), []byte(nil)
			if r.IntN(2) == 0 {
				good = b
			}
			err := copyAll(good, c, WriterConfig{Schema: s, Keyed: true, Compression: []string{"zstd", "none"}[r.IntN(2)]})
			if n := allocated() - before; n > allocLimit+64*uint64(len(b)) {
				t.Fatalf("copying %d bytes allocated %d MB (%v)", len(b), n>>20, err)
			}
			if err == nil {
				done++
			} else if strings.Contains(err.Error(), "panic:") || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
		}
	}
	if done == 0 {
		t.Error("no file could be copied")
	}
}

// copyAll copies a file, or one and then another.
func copyAll(good, b []byte, cfg WriterConfig) error {
	w, err := NewWriter(io.Discard, cfg)
	if err != nil {
		return err
	}
	for _, b := range [][]byte{good, b} {
		if b == nil {
			continue
		}
		o, err := NewOutline(openBytes(b), "test.parquet", cfg.Schema, cfg, 1)
		if err != nil || len(o.Units) == 0 {
			return err
		}
		p := Piece{RowRange: RowRange{0, o.Units[len(o.Units)-1].To}}
		if p.First, p.Last, err = o.Edges(p.From, p.To); err != nil {
			return err
		}
		if p.Deletes, err = o.Deletes(p.From, p.To); err != nil {
			return err
		}
		if err := w.Copy(o, p); err != nil {
			return err
		}
	}
	_, err = w.Close()
	return err
}
