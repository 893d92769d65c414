// Package lsm owns one bucket of a table: the order of its keys, its levels, what to compact next, and the making of
// data files by flush and compaction.
//
// The way of a row: [Files.Flush] sorts rows in arrival order by normalized key ([Keys]), merges those of one key
// ([MergeRule]) and writes one level-0 file. [Pick] looks at the metadata of a bucket's files ([Levels]) and names the files to
// compact next. [Files.Compact] does it: it cuts the files in sections of overlapping key ranges ([Sections]), moves
// what overlaps nothing by metadata alone, and merges the rest ([Merger]) into new files. Its result, a [Change], is a
// plain value that somebody else commits and then applies to the Levels.
//
// The package makes data files and nothing else: it commits nothing, starts no goroutine that outlives a call and looks
// at no clock of its own.
package lsm
