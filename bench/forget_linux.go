package main

import (
	"os"
	"strings"
	"syscall"
)

// dontNeed is POSIX_FADV_DONTNEED.
const dontNeed = 4

// forget asks the system to drop what it keeps of a file in memory.
func forget(url string) error {
	f, err := os.Open(strings.TrimPrefix(url, "file://"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // only what is on disk can be dropped
		return err
	}
	if _, _, no := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); no != 0 {
		return no
	}
	return nil
}
