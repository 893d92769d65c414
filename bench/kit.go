package main

import (
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// sizes are how much is measured. The names of the benchmarks do not tell them: only whole runs can be compared.
type sizes struct {
	count      int           // rounds
	per        time.Duration // least time of a sample
	limitPer   time.Duration // the same of a limit
	codecRows  int           // rows encoded and decoded at once
	runRows    int           // rows in each of the eight runs of a compaction
	manyFiles  int           // files of the large table
	planFiles  int           // files of the table that is planned
	lookupRows int           // rows of the table in which keys are looked up
	kafka      int           // records in the topic
	tail       time.Duration // a sample of the tail's latency
	commits    time.Duration // commit interval of that tail
	busyPerSec int           // rows a second of the busy table
}

var (
	whole = sizes{
		count: 5, per: 500 * time.Millisecond, limitPer: 150 * time.Millisecond, codecRows: 500_000, runRows: 250_000,
		manyFiles: 10_000, planFiles: 100_000, lookupRows: 10_000_000, kafka: 1_000_000, tail: 6 * time.Second, commits: time.Second, busyPerSec: 100_000,
	}
	quick = sizes{
		count: 1, per: 60 * time.Millisecond, limitPer: 30 * time.Millisecond, codecRows: 100_000, runRows: 50_000,
		manyFiles: 1_000, planFiles: 5_000, lookupRows: 200_000, kafka: 100_000, tail: 3 * time.Second, commits: time.Second, busyPerSec: 20_000,
	}
)

// kit is what groups of benchmarks share.
type kit struct {
	sizes
	dir    string // scratch folder on a real disk
	limits *limits
}

// group is a set of benchmarks with common preparations. They are measured in turn, round after round, each round
// together with the limits they are compared with, so that a disturbance of the machine meets all of them alike.
type group struct {
	name   string
	limits []limitOf
	open   func(k *kit, r *run) ([]*benchmark, func() error, error)
}

func manifestEnv() manifest.Env {
	e := lab.Env()
	return manifest.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log}
}

// local makes an empty store in a new folder on disk, and a function that removes it.
func (k *kit) local() (storage.Store, func() error, error) {
	dir, err := os.MkdirTemp(k.dir, "table-")
	if err != nil {
		return nil, nil, err
	}
	s, err := storage.NewLocal(dir)
	return s, func() error { return os.RemoveAll(dir) }, err
}

// filesOf prepares the making of data files of a table.
func filesOf(store storage.Store, s *schema.Schema, parallel int) (lsm.Files, error) {
	o, err := s.ParseOptions()
	if err != nil {
		return lsm.Files{}, fmt.Errorf("options of the benchmark table: %w", err)
	}
	return lsm.Files{
		Store: store, Schema: s, Options: o, Parallel: parallel, Now: time.Now,
		NewName: func() string { return "data-" + uuid.NewString() + ".parquet" },
	}, nil
}

// bucket0 is the only bucket of a table without partitions.
func bucket0() lsm.Part {
	return lsm.Part{Partition: emptyPartition, TotalBuckets: 1, Dir: "bucket-0"}
}
