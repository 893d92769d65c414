package lsm

import "github.com/calve-io/calve/manifest"

// changelogOutputs writes changelog files of a level (`io.KeyValueFileWriterFactory.createRollingChangelogFileWriter`).
func (f Files) changelogOutputs(part Part, level int) *outputs {
	return &outputs{files: f, part: part, level: level, src: manifest.FromAppend, roll: f.Options.TargetFileSize, changelog: true}
}
