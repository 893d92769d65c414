package lsm

import (
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// Policy is what the table options say about when to compact.
type Policy struct {
	NumLevels                   int
	Trigger                     int // sorted runs from which a compaction is looked for
	StopTrigger                 int // sorted runs above which writers should wait
	MaxSizeAmplificationPercent int
	SizeRatio                   int // percent
	TargetFileSize              int64
	Fresh                       time.Duration // rows reach the highest level within it; 0: whenever
	Append                      *AppendPolicy // of a table without primary key; nil otherwise
	// Lift: level 0 is brought up whenever it has files, for only then rows are told, or seen
	// (`mergetree.compact.ForceUpLevel0Compaction`). What is on it never becomes one file of level 0.
	Lift bool
	// Vectors: what is above level 0 is not merged when it is read, so that no delete may be there. Older rows are deleted by
	// vectors.
	Vectors bool
	// WholeTree: whatever leaves level 0 goes to the highest level, together with what is there. Readers of first-row
	// tables do not merge levels, so that a key must not be on two of them.
	WholeTree bool
	// Expired reports whether a file has rows that have expired; nil: rows do not expire. A full compaction then
	// rewrites the highest level too.
	Expired func(*manifest.DataFile) bool
	// Recast are the ids of schemas whose values have other types by now. A compaction that is told of them rewrites their
	// files where it would move them or let them be: the highest level is what other readers see, who do not cast.
	Recast map[int64]bool
}

// PolicyOf takes the policy from the options of a table with or without primary key.
func PolicyOf(o schema.Options, keyed bool) Policy {
	var a *AppendPolicy
	if !keyed {
		a = &AppendPolicy{MinFiles: o.CompactionMinFiles, SizeRatio: o.SizeRatio, TargetFileSize: o.TargetFileSize, Ordered: o.Bucket > 0}
	}
	return Policy{
		Append:    a,
		NumLevels: o.NumLevels, Trigger: o.CompactionTrigger, StopTrigger: o.StopTrigger,
		MaxSizeAmplificationPercent: o.MaxSizeAmplificationPercent, SizeRatio: o.SizeRatio,
		TargetFileSize: o.TargetFileSize, Fresh: o.OptimizationInterval,
		// A compaction that looks older rows up needs not read all of them.
		WholeTree: o.MergeEngine == schema.FirstRow && o.ChangelogProducer != schema.ProducerLookup,
		Lift:      keyed && (o.ChangelogProducer == schema.ProducerLookup || o.DeletionVectors),
		Vectors:   keyed && o.DeletionVectors,
	}
}

// Job is a compaction to be done: files of the newest sorted runs, without a gap, and the level they go to.
type Job struct {
	Files       []manifest.DataFile // newest run first
	Output      int
	DropDeletes bool           // no older version of a key can be outside the job: deletes may go
	Full        bool           // all files take part
	Recast      map[int64]bool // Policy.Recast
	// Older looks rows of levels above Output up, for tables whose compaction depends on them; nil: there are none.
	Older Older
	// Above are the files that it looks in: by their rows' size it is told how many may be in memory at once.
	Above []manifest.DataFile
}

// Pick chooses the next compaction of a bucket, or none. It is a pure function of the files' metadata: the universal
// compaction of Paimon (`mergetree.compact.UniversalCompaction`, §11.2), whose rules are tried in this order, all of
// them only from Trigger sorted runs on.
//
//  1. Size amplification: if all runs but the oldest are together larger than MaxSizeAmplificationPercent of the
//     oldest, everything is compacted.
//  2. Size ratio: beginning with the newest run, the next is added while the sum so far is not smaller than it, by
//     SizeRatio percent; two or more are compacted.
//  3. Number of runs: above Trigger, as many of the newest as it takes to be back at it, more where that pays (due), and
//     more by rule 2.
//
// With Lift all of level 0 is compacted where none of them asks for more.
//
// Files of a table without primary key are chosen by its AppendPolicy.
func Pick(l *Levels, p Policy) (Job, bool) {
	if p.Append != nil {
		return pickAppend(l.Files(), *p.Append)
	}
	runs := l.Runs()
	if len(runs) < max(p.Trigger, 1) || len(runs) == 0 {
		return l.lift(runs, p)
	}
	if tooAmplified(runs, p) {
		return l.job(runs, len(runs), p)
	}
	if n := similar(runs, 1, p); n > 1 {
		return l.job(runs, n, p)
	}
	if extra := len(runs) - p.Trigger; extra > 0 {
		return l.job(runs, similar(runs, max(extra+1, due(runs, p.Trigger)), p), p)
	}
	return l.lift(runs, p)
}

// lift brings level 0 up, if the policy asks for that. Where no level is free above it, it must be merged with a run that is
// there, and as many are taken as it pays to (due): with two levels above level 0 the first would else be written anew for
// each flush until it is larger than the second.
func (l *Levels) lift(runs []SortedRun, p Policy) (Job, bool) {
	n := len(l.level[0])
	if !p.Lift || n == 0 {
		return Job{}, false
	}
	if slots := max(p.NumLevels, l.NumLevels()) - 1; len(runs)-n >= slots {
		lifted := append([]SortedRun{{Files: runFiles(runs[:n])}}, runs[n:]...) // level 0 is one flush
		n = max(n, n-1+due(lifted, slots))
	}
	return l.job(runs, similar(runs, n, p), p)
}

// due says how many of the newest runs it pays to merge when there are more than slots.
//
// Merging only as many as needed lets a run grow by one flush at a time and writes it anew for each: with five runs 20 to
// 200 bytes for each byte flushed (testdata/pick-simulate.txt). With at most k runs the least is written if the oldest
// one grows in steps each of which k-1 runs have put together by the same rule (Mathieu, Staelin, Young, Yousefi:
// Bigtable Merge Compaction, 2014): after j steps it has C(k+j, k) flushes, and the next step is of C(k+j, k-1), which is
// k/(j+1) of it. So j is told from the size of a run, and a run is taken when the newer ones come to that share of it.
func due(runs []SortedRun, slots int) (n int) {
	flush, newer := max(1, float64(runs[0].Size())), 0.0
	for i := 1; i < len(runs); i++ {
		newer += float64(runs[i-1].Size())
		k := slots - (len(runs) - 1 - i) // runs there may be from this one on to the newest
		if k > 0 && newer >= float64(runs[i].Size())*float64(k)/float64(steps(float64(runs[i].Size())/flush, k)+1) {
			n = i + 1
		}
	}
	return n
}

// steps is the largest j, up to a thousand, with C(k+j, k) <= flushes; k is at least 1.
func steps(flushes float64, k int) (j int) {
	for c := 1.0; j < 1000; j++ {
		if c *= float64(k+j+1) / float64(j+1); c > flushes {
			break
		}
	}
	return j
}

// PickFull brings all files to the highest level, unless they are there. In a table without primary key it makes one
// file of small ones, as often as it is asked until none are left.
func PickFull(l *Levels, p Policy) (Job, bool) {
	if p.Append != nil {
		return pickAppendFull(l.Files(), *p.Append)
	}
	runs := l.Runs()
	if len(runs) == 0 {
		return Job{}, false
	}
	return l.job(runs, len(runs), p)
}

func tooAmplified(runs []SortedRun, p Policy) bool {
	young := int64(0)
	for _, r := range runs[:len(runs)-1] {
		young += r.Size()
	}
	// In floating point, which cannot overflow; sizes below 2^53 are exact.
	return float64(young)*100 > float64(p.MaxSizeAmplificationPercent)*float64(runs[len(runs)-1].Size())
}

// similar extends the n newest runs by the rule of size ratio.
func similar(runs []SortedRun, n int, p Policy) int {
	size := int64(0)
	for _, r := range runs[:n] {
		size += r.Size()
	}
	for n < len(runs) {
		next := runs[n].Size()
		if float64(size)*float64(100+p.SizeRatio)/100 < float64(next) {
			break
		}
		size += next
		n++
	}
	return n
}

// job makes a compaction of the n newest runs. It goes to the level below the next run's, to the highest level if there
// is no next run.
//
// If that is level 0, Paimon takes more runs until one of level 1 or above is with them and uses its level. With few
// levels this rewrites all of level 1 for every few flushes: 250 bytes written for each byte flushed in an hour of
// flushes a second apart (testdata/pick-simulate.txt). So as long as the runs together are small they become one file
// of level 0, which to every reader is a flush like any other: its sequence numbers follow those of the runs left
// behind. Runs of level 0 thereby form size tiers of their own, and level 1 is rewritten when enough has come together.
func (l *Levels) job(runs []SortedRun, n int, p Policy) (Job, bool) {
	top := max(p.NumLevels, l.NumLevels()) - 1
	output := top
	if n < len(runs) {
		output = max(0, runs[n].Level-1)
	}
	if output == 0 && n > 1 && n < len(runs) && !p.Lift && oneFile(runs[:n], p) {
		return Job{Files: runFiles(runs[:n])}, true
	}
	for output == 0 && n < len(runs) {
		output = runs[n].Level
		n++
	}
	if n == len(runs) {
		output = top
	}
	if p.WholeTree {
		n, output = len(runs), top
	}
	if output == 0 || n == 1 && runs[0].Level == output && !p.mustRewrite(runs[0]) {
		return Job{}, false // a table with one level has nowhere to go
	}
	return Job{Files: runFiles(runs[:n]), Output: output, DropDeletes: output >= l.highest() || p.Vectors && output > 0, Full: n == len(runs), Recast: p.Recast}, true
}

// mustRewrite reports whether a run has files that cannot stay as they are.
func (p Policy) mustRewrite(r SortedRun) bool {
	for i := range r.Files {
		if p.Recast[r.Files[i].SchemaID] || p.Expired != nil && p.Expired(&r.Files[i]) {
			return true
		}
	}
	return false
}

// oneFile reports whether Compact makes one file of the runs: each is small enough to be rewritten rather than moved,
// and together they do not reach the size at which files end.
func oneFile(runs []SortedRun, p Policy) bool {
	size := int64(0)
	for _, r := range runs {
		size += r.Size()
	}
	return size < largeFile(p.TargetFileSize)
}

// largeFile is the size from which a file is moved rather than rewritten (`CoreOptions.compactionFileSize`).
func largeFile(target int64) int64 { return target / 10 * 7 }

func runFiles(runs []SortedRun) []manifest.DataFile {
	var out []manifest.DataFile
	for _, r := range runs {
		out = append(out, r.Files...)
	}
	return out
}
