//go:build race

package lsm

// underRace: the race detector is on.
const underRace = true
