//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// side is one of the two engines that work on a table of the differential tester.
type side string

const (
	byCalve side = "calve"
	byJava  side = "java"
)

// action is what a step does.
type action string

const (
	doWrite       action = "write"
	doOverwrite   action = "overwrite" // Java only: the rows take the place of the table's or of one partition's
	doCompact     action = "compact"   // as the table's options ask
	doCompactFull action = "compact in full"
	doExpire      action = "expire snapshots"
	doTag         action = "tag" // the latest snapshot
	doDeleteTag   action = "delete tag"
)

// History is a random table and what happens to it, one committer at a time.
type History struct {
	Seed           uint64
	Creator        side
	Columns        []Column
	Key, Partition []string
	Options        map[string]string
	Features       []string // names of the dimensions that it has
	Refusal        error    // why calve does not take a table that it must take
	ReadOnly       bool     // calve only reads this table: Java does every step
	Keep           bool     // calve's table stays open over steps of calve that follow each other
	Job            string   // of calve's writer; "" for none
	Buffer         int64    // bytes of calve's write buffer; 0: calve's default
	Steps          []HistoryStep
	Met            []string // what was met when it was played: names of reads
}

// HistoryStep is one thing that one side does to the table.
type HistoryStep struct {
	By      side
	Do      action
	Changes []Op              // with the kinds +I, -U, +U, -D
	Wait    bool              // Java's write: wait for the compactions that it starts
	Dynamic map[string]string // options of Java for this step only
	Spec    map[string]string // the partition that an overwrite replaces; none: the whole table, or what Touched says
	Touched bool              // an overwrite replaces the partitions that its rows are in
	Tag     string
	Name    string // of a branch or consumer
	Alter   *HistoryAlter
	// Watermark of a write, in milliseconds; 0: none.
	Watermark int64
	Look      uint64 // seed of what is read after the step
}

// option gives a table option in lower case, or what it is when it is not set.
func (h *History) option(name, unset string) string {
	if v, ok := h.Options[name]; ok {
		return strings.ToLower(v)
	}
	return unset
}

// plain reports whether the last change of a key wins: the model knows nothing else.
func (h *History) plain() bool {
	return h.option("merge-engine", "deduplicate") == "deduplicate" && h.Options["sequence.field"] == "" &&
		h.option("ignore-delete", "false") == "false" && !h.expires()
}

// expires reports whether compactions leave out rows that are too old.
func (h *History) expires() bool { return h.Options["record-level.expire-time"] != "" }

// sent is the kind that a row is sent with: with rowkind.field a column says it, and this one means nothing.
func (h *History) sent(kind string) string {
	if h.Options["rowkind.field"] != "" {
		return "+I"
	}
	return kind
}

// told reports whether folding the change stream gives the rows after every step.
func (h *History) told() bool {
	switch h.option("changelog-producer", "none") {
	case "lookup":
		return !h.expires() // Java waits for the compaction that tells
	case "full-compaction":
		return false // told at the next full compaction
	}
	return h.plain()
}

// clone copies what the shrinker changes.
func (h *History) clone() *History {
	c := *h
	c.Columns, c.Options, c.Steps = slices.Clone(h.Columns), maps.Clone(h.Options), slices.Clone(h.Steps)
	return &c
}

// Script writes the history for people.
func (h *History) Script() string {
	var b strings.Builder
	columns := make([]string, len(h.Columns))
	for i, c := range h.Columns {
		columns[i] = fmt.Sprintf("`%s` %s", c.Name, c.Type)
	}
	fmt.Fprintf(&b, "%s creates a table (%s)", h.Creator, strings.Join(columns, ", "))
	if len(h.Key) > 0 {
		fmt.Fprintf(&b, " primary key (%s)", strings.Join(h.Key, ", "))
	}
	if len(h.Partition) > 0 {
		fmt.Fprintf(&b, " partitioned by (%s)", strings.Join(h.Partition, ", "))
	}
	b.WriteString(showOptions(" with", h.Options))
	if h.ReadOnly {
		b.WriteString("\n  calve only reads it")
	} else if h.Keep || h.Job != "" || h.Buffer > 0 {
		fmt.Fprintf(&b, "\n  calve's writer: job %q, buffer %d bytes, stays open %v", h.Job, h.Buffer, h.Keep)
	}
	for i := range h.Steps {
		fmt.Fprintf(&b, "\n%2d. %s", i+1, h.Steps[i].script())
	}
	return b.String()
}

func (s *HistoryStep) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s%s%s", s.By, s.Do, showOptions(" partition", s.Spec), showOptions(" with", s.Dynamic))
	for _, name := range []string{s.Name, s.Tag} {
		if name != "" {
			fmt.Fprintf(&b, " %q", name)
		}
	}
	if s.Watermark != 0 {
		fmt.Fprintf(&b, ", watermark %d", s.Watermark)
	}
	if s.Alter != nil {
		fmt.Fprintf(&b, ": %s", s.Alter)
	}
	if s.By == byJava && s.Do == doWrite && s.Wait {
		b.WriteString(", wait for compaction")
	}
	if s.Touched {
		b.WriteString(" of the partitions of these rows")
	}
	for _, op := range s.Changes {
		row, err := json.Marshal(op.Row)
		if err != nil {
			row = fmt.Append(nil, op.Row)
		}
		const longest = 2000
		if len(row) > longest {
			row = fmt.Appendf(row[:longest:longest], "… (%d bytes)", len(row))
		}
		fmt.Fprintf(&b, "\n      %s %s", op.Kind, row)
	}
	return b.String()
}

func showOptions(word string, options map[string]string) string {
	if len(options) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		parts = append(parts, fmt.Sprintf("%s = %q", name, options[name]))
	}
	return fmt.Sprintf("%s (%s)", word, strings.Join(parts, ", "))
}
