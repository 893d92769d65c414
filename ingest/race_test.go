//go:build race

package ingest

// underRace says that tests run with the race detector, which takes several times the memory and the time.
const underRace = true
