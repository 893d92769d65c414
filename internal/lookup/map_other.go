//go:build !linux && !darwin

package lookup

import "os"

// canMap: files are read by calls here.
const canMap = false

// mapFile does not map: the file is read by calls.
func mapFile(*os.File, int64) []byte { return nil }

func unmap([]byte) error { return nil }
