//go:build linux || darwin

package lookup

import (
	"os"
	"syscall"
)

// canMap: files are mapped here.
const canMap = true

// mapFile maps a file into memory for reading, nil if that does not work: then it is read by calls.
func mapFile(f *os.File, size int64) []byte {
	if size <= 0 || int64(int(size)) != size {
		return nil
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return m
}

func unmap(m []byte) error {
	if m == nil {
		return nil
	}
	return syscall.Munmap(m)
}
