package ingest

import "github.com/calve-io/calve/engine"

// Env is what ingest takes from the world: clock, timers, ids, randomness, log. All fields are required.
type Env = engine.Env

// Progress is the position of a pipeline as the table keeps it.
type Progress = engine.Progress
