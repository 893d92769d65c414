package export

import (
	"math"
	"slices"
)

// How files are grouped into manifests. Three costs pull at the size of a manifest: a change rewrites every manifest
// that holds a removed file, each version lists all manifests, and a reader opens all of them. With about √files in
// each, the first two are of the same order. Files are grouped by location, so by partition and bucket, because a
// compaction removes and adds files of one bucket, and partitions let readers skip whole manifests.
const (
	minManifestFiles = 128
	maxManifestFiles = 8192
	// mergeSmall is the number of small manifests that makes a change take some of them in, and mergeMost bounds how
	// many, so that the work of one change stays bounded while manifests stay few.
	mergeSmall = 8
	mergeMost  = 16
)

// manifestFiles is the number of files that a manifest of a table should hold.
func manifestFiles(files int) int {
	return min(max(int(math.Sqrt(float64(files))), minManifestFiles), maxManifestFiles)
}

// absorb chooses which manifests, beside those that must be rewritten, go into the rewrite. live are the numbers of
// files in the manifests that need no rewrite. It gives indexes into live, ascending.
func absorb(live []int, target int) []int {
	var small []int
	for i, n := range live {
		if n > 0 && n < (target+1)/2 {
			small = append(small, i)
		}
	}
	if len(small) < mergeSmall {
		return nil
	}
	slices.SortStableFunc(small, func(a, b int) int { return live[a] - live[b] })
	small = small[:min(len(small), mergeMost)]
	slices.Sort(small)
	return small
}

// chunks cuts n entries into runs of nearly equal length, none longer than target, and gives their ends.
func chunks(n, target int) []int {
	if n == 0 {
		return nil
	}
	count := (n + target - 1) / target
	ends := make([]int, count)
	for i := range ends {
		ends[i] = (i + 1) * n / count
	}
	return ends
}
