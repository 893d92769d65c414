//go:build !race

package lsm

// underRace: the race detector is off.
const underRace = false
