package lsm

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
)

// parseFile reads "L1 name 10-20 size=5 seq=3-9 del=0": a file with keys 10 to 20.
func parseFile(t *testing.T, line string) manifest.DataFile {
	t.Helper()
	w := strings.Fields(line)
	if len(w) < 3 {
		t.Fatalf("%q is not a file", line)
	}
	num := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	span := func(s string) (int64, int64) {
		lo, hi, _ := strings.Cut(s, "-")
		return num(lo), num(hi)
	}
	none := int64(0)
	f := manifest.DataFile{Name: w[1], Level: int(num(w[0][1:])), Size: 10, Rows: 10, DeleteRows: &none}
	lo, hi := span(w[2])
	f.MinKey, f.MaxKey = bigintKey(lo), bigintKey(hi)
	for _, a := range w[3:] {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "size":
			f.Size = num(v)
		case "seq":
			f.MinSeq, f.MaxSeq = span(v)
		case "del":
			f.DeleteRows = nil
			if v != "?" {
				n := num(v)
				f.DeleteRows = &n
			}
		default:
			t.Fatalf("%q: unknown %s", line, k)
		}
	}
	return f
}

func parseFiles(t *testing.T, lines []string) []manifest.DataFile {
	var out []manifest.DataFile
	for _, l := range lines {
		out = append(out, parseFile(t, l))
	}
	return out
}

func names(files []manifest.DataFile) string {
	var out []string
	for _, f := range files {
		out = append(out, f.Name)
	}
	return strings.Join(out, " ")
}

func describeJob(j Job, ok bool) string {
	if !ok {
		return "nothing to do"
	}
	out := fmt.Sprintf("to level %d: %s", j.Output, names(j.Files))
	if j.DropDeletes {
		out += ", drops deletes"
	}
	if j.Full {
		out += ", full"
	}
	return out
}

func describeRuns(l *Levels) string {
	var out strings.Builder
	for _, r := range l.Runs() {
		fmt.Fprintf(&out, "L%d: %s\n", r.Level, names(r.Files))
	}
	if out.Len() == 0 {
		return "no runs"
	}
	return out.String()
}

func policyOf(t *testing.T, d *directive) Policy {
	p := Policy{
		NumLevels: d.int(t, "levels", 3), Trigger: d.int(t, "trigger", 5), StopTrigger: d.int(t, "stop", 8),
		MaxSizeAmplificationPercent: d.int(t, "amp", 200), SizeRatio: d.int(t, "ratio", 1),
		TargetFileSize: int64(d.int(t, "target", 0)), Lift: d.int(t, "lift", 0) > 0,
	}
	if order := d.int(t, "append", 0); order > 0 {
		p.Append = &AppendPolicy{MinFiles: d.int(t, "min", 5), SizeRatio: p.SizeRatio, TargetFileSize: p.TargetFileSize, Ordered: order > 1}
	}
	return p
}

func bigintKeys(t testing.TB) *Keys {
	return NewKeys(newSchema(t, []string{"k"}, nil, "k BIGINT"))
}

// TestPicker answers the commands of testdata/pick-*.txt and testdata/levels-*.txt.
//
//	levels num=3          new levels of the files given
//	apply                 a change: lines "- FILE" and "+ FILE"
//	pick, pick-full       with trigger=, amp=, ratio=, levels=; append=1: without primary key, 2: with ordered buckets
//	simulate              see simulate
func TestPicker(t *testing.T) {
	for _, pattern := range []string{"testdata/pick-*.txt", "testdata/levels-*.txt"} {
		runConversations(t, pattern, func(t *testing.T) func(d *directive) string {
			var l *Levels
			keys := bigintKeys(t)
			return func(d *directive) string {
				switch d.cmd {
				case "levels":
					n, err := NewLevels(keys, d.int(t, "num", 3), parseFiles(t, d.input))
					if err != nil {
						return errorLine(t, err)
					}
					l = n
					return describeRuns(l)
				case "apply":
					if err := l.Apply(parseChange(t, d.input)); err != nil {
						return errorLine(t, err) + "\n" + describeRuns(l)
					}
					return describeRuns(l)
				case "pick":
					return describeJob(Pick(l, policyOf(t, d)))
				case "pick-full":
					return describeJob(PickFull(l, policyOf(t, d)))
				case "simulate":
					return simulate(t, d)
				}
				t.Fatalf("line %d: unknown command %s", d.line, d.cmd)
				return ""
			}
		})
	}
}

func parseChange(t *testing.T, lines []string) Change {
	var c Change
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, "- "); ok {
			c.Removed = append(c.Removed, parseFile(t, rest))
		} else if rest, ok := strings.CutPrefix(line, "+ "); ok {
			c.Added = append(c.Added, parseFile(t, rest))
		} else {
			t.Fatalf("%q is neither + nor -", line)
		}
	}
	return c
}

func errorLine(t *testing.T, err error) string {
	if !errors.Is(err, ErrLevels) {
		t.Errorf("%v is no ErrLevels", err)
	}
	return "error: " + err.Error()
}

// simulate flushes files of one size (of very different ones with mixed=1) whose keys all overlap, and compacts as the picker says. It shows the first jobs
// (show=) and what it all cost: bytes written by compaction for each byte flushed, the most runs there were, and how
// much of the data was on the highest level, which is what an export sees, after each flush on average.
func simulate(t *testing.T, d *directive) string {
	p := policyOf(t, d)
	size := int64(d.int(t, "size", 1))
	l, err := NewLevels(bigintKeys(t), p.NumLevels, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	written, most, to, share := int64(0), 0, make([]int, p.NumLevels), 0.0
	flushes, flushed := d.int(t, "flushes", 100), int64(0)
	for i := range flushes {
		size := size
		if d.int(t, "mixed", 0) > 0 {
			size *= []int64{3, 1, 40, 7, 1, 120, 2, 15}[i%8]
		}
		flushed += size
		f := parseFile(t, fmt.Sprintf("L0 f%d 0-100 size=%d seq=%d-%d", i, size, i, i))
		if err := l.Apply(Change{Added: []manifest.DataFile{f}}); err != nil {
			t.Fatal(err)
		}
		for {
			most = max(most, l.NumRuns())
			j, ok := Pick(l, p)
			if !ok {
				break
			}
			made := parseFile(t, fmt.Sprintf("L%d c%d-%d 0-100 size=0 seq=%d-%d", j.Output, i, written, i, i))
			from := make([]int, p.NumLevels)
			for _, f := range j.Files {
				made.Size += f.Size
				made.MinSeq = min(made.MinSeq, f.MinSeq)
				from[f.Level]++
				made.MaxSeq = max(made.MaxSeq, f.MaxSeq)
			}
			written += made.Size
			to[j.Output]++
			if i < d.int(t, "show", 0) {
				fmt.Fprintf(&out, "flush %d: files by level %v to level %d, %d bytes\n", i+1, from, j.Output, made.Size)
			}
			if err := l.Apply(Change{Removed: j.Files, Added: []manifest.DataFile{made}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range l.Runs() {
			if r.Level == p.NumLevels-1 {
				share += float64(r.Size()) / float64(flushed) / float64(flushes)
			}
		}
	}
	fmt.Fprintf(&out, "jobs by output level %v, write amplification %.1f, most runs %d, highest level has %.0f%%\n",
		to, float64(written)/float64(flushed), most, share*100)
	return out.String()
}

// TestSections answers the commands of testdata/sections-*.txt.
func TestSections(t *testing.T) {
	runConversations(t, "testdata/sections-*.txt", func(t *testing.T) func(d *directive) string {
		return func(d *directive) string {
			sections, err := Sections(bigintKeys(t), parseFiles(t, d.input))
			if err != nil {
				return errorLine(t, err)
			}
			var out strings.Builder
			for i, s := range sections {
				fmt.Fprintf(&out, "section %d\n", i+1)
				for _, r := range s {
					fmt.Fprintf(&out, "  %s\n", names(r.Files))
				}
			}
			return out.String()
		}
	})
}

func TestPolicyOf(t *testing.T) {
	s := newSchema(t, []string{"k"}, map[string]string{"target-file-size": "1 mb", "num-sorted-run.compaction-trigger": "4", "compaction.size-ratio": "7"}, "k INT")
	o, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	want := Policy{NumLevels: 3, Trigger: 4, StopTrigger: 7, MaxSizeAmplificationPercent: 200, SizeRatio: 7, TargetFileSize: 1 << 20}
	if got := PolicyOf(o, true); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := *PolicyOf(o, false).Append; got != (AppendPolicy{MinFiles: 5, SizeRatio: 7, TargetFileSize: 1 << 20, Ordered: true}) {
		t.Errorf("append tables: %+v", got)
	}
}
