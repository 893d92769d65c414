package ingest

import (
	"log/slog"
	"time"
)

// Env is everything ingest takes from the world. All fields are required.
type Env struct {
	Now   func() time.Time                     // wall clock
	After func(time.Duration) <-chan time.Time // timers
	NewID func() string                        // unique ids for file names (UUIDs)
	Rand  func() uint64                        // jitter of retries
	Log   *slog.Logger
}

// Progress is what a writer wants to find again after a restart: it is stored in the snapshot that publishes the rows.
type Progress struct {
	Properties map[string]string // keys start with "calve."
	Watermark  *int64
}
