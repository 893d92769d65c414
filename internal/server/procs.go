package server

import (
	"os"
	"runtime"
)

// fewProcs is up to how many threads of Go compute at once on a machine of few processors.
const fewProcs = 8

// ShareProcs lets more threads of Go compute at once than a machine of few processors can run: it is for a process that runs
// pipelines, and called before they begin. A commit is a dozen short steps, each of which waits for the storage and then for a
// thread; Go gives it one when a goroutine that compresses, or marks for the collector, has had its 10 ms, and there may be
// several before it. The system wakes a thread within less, and takes the processor from those that had most. With two
// processors and 100 busy tables (go run ./bench/many) 99 of 100 commits took 60 instead of 80 to 340 ms, for the same
// processor time.
//
// It does nothing where the user has set GOMAXPROCS, or where a quota has Go use less than all processors: more threads would
// use that up in a burst and then stand still. (Go rounds quotas up, to two processors at least.) Where it does something, a quota that
// comes while the process runs is not followed.
func ShareProcs() {
	procs := runtime.GOMAXPROCS(0)
	if n := procsFor(runtime.NumCPU(), procs, os.Getenv("GOMAXPROCS") != ""); n != procs {
		runtime.GOMAXPROCS(n)
	}
}

// procsFor is how many threads compute at once where Go would have procs.
func procsFor(cpus, procs int, set bool) int {
	if set || procs < cpus {
		return procs
	}
	return max(procs, min(4*cpus, fewProcs))
}
