package storage

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// Temporary files of Local carry this prefix and suffix. They are no objects: no store lists or accepts such names,
// so that a name means the same everywhere.
const (
	tempPrefix = ".calve-"
	tempSuffix = ".tmp"
)

// isTemp says whether the last part of a name is that of an upload in progress on a local disk.
func isTemp(base string) bool {
	return strings.HasPrefix(base, tempPrefix) && strings.HasSuffix(base, tempSuffix)
}

// checkName refuses what must never reach a file system or an object store as an object's name.
func checkName(op, name string) error {
	if name == "" {
		return badName(op, name, "it is empty")
	}
	if !utf8.ValidString(name) {
		return badName(op, name, "it is not UTF-8")
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7f {
			return badName(op, name, "it has a control character")
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "":
			return badName(op, name, "it has an empty part")
		case ".", "..":
			return badName(op, name, `it has a part "." or ".."`)
		}
	}
	if isTemp(path.Base(name)) {
		return badName(op, name, "such names are kept for temporary files")
	}
	return nil
}

// checkDir is checkName for folders, where "" is the root.
func checkDir(op, dir string) error {
	if dir == "" {
		return nil
	}
	return checkName(op, dir)
}

func badName(op, name, why string) error {
	if len(name) > 200 {
		name = name[:200] + "…"
	}
	return fmt.Errorf("%s %q: %w: %s", op, name, ErrBadName, why)
}

// join puts a name below a folder, either of which may be "".
func join(dir, name string) string {
	switch {
	case dir == "":
		return name
	case name == "":
		return dir
	}
	return dir + "/" + name
}
