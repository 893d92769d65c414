// Package demo runs the main job of calve on real flights: past flights are loaded as a batch, an embedded Kafka broker
// plays the others as a change stream, a pipeline writes them into a table, a reader tails it, compaction and export work beside, and at the end everything is
// checked against the truth computed from the input.
package demo

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

//go:embed flights/flights-100k.jsonl.zst
var flightData []byte

// flight is one record of the data.
type flight struct {
	ID          int64  `json:"id"`
	Date        string `json:"date"`
	Delay       *int   `json:"delay"`
	Distance    int    `json:"distance"`
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
	Op          string `json:"op,omitempty"`
}

// loadFlights reads the first n flights; all with 0.
func loadFlights(n int) ([]flight, error) {
	dec, err := zstd.NewReader(bytes.NewReader(flightData))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	sc := bufio.NewScanner(dec)
	var out []flight
	for (n == 0 || len(out) < n) && sc.Scan() {
		var f flight
		if err := json.Unmarshal(sc.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("flight %d: %w", len(out)+1, err)
		}
		out = append(out, f)
	}
	return out, sc.Err()
}

// event is one message of the change stream.
type event struct {
	key   int64
	value []byte
}

// Distances, in flights, between what happens to one flight: it is scheduled, then its delay becomes known; every tenth
// is corrected twice; every fiftieth is cancelled in the end. At the demo's pace they are a commit or two apart, so that
// the tail tells them one by one.
const (
	knownAfter     = 5000
	correctedAfter = 7000
	finalAfter     = 8000
	cancelledAfter = 10_000
)

func corrected(i int) bool { return i%10 == 0 }
func cancelled(i int) bool { return i%50 == 0 }

// history is how many of the flights are past when the stream begins: they are loaded as a batch and never change.
func history(flights []flight) int { return len(flights) / 4 }

// story tells the change stream to emit, in order, and returns the truth: the flights that are left, as they must be.
func story(flights []flight, emit func(event) error) (map[int64]flight, error) {
	truth := map[int64]flight{}
	tell := func(op string, f flight, delay *int) error {
		f.Op, f.Delay = op, delay
		value, err := json.Marshal(f)
		if err != nil {
			return err
		}
		f.Op = ""
		if op == "D" {
			delete(truth, f.ID)
		} else {
			truth[f.ID] = f
		}
		return emit(event{key: f.ID, value: value})
	}
	n := len(flights)
	for i := range n + cancelledAfter {
		if i < n {
			if err := tell("I", flights[i], nil); err != nil {
				return nil, err
			}
		}
		if j := i - knownAfter; j >= 0 && j < n {
			if err := tell("U", flights[j], flights[j].Delay); err != nil {
				return nil, err
			}
		}
		if j := i - correctedAfter; j >= 0 && j < n && corrected(j) {
			wrong := 5
			if d := flights[j].Delay; d != nil {
				wrong += *d
			}
			if err := tell("U", flights[j], &wrong); err != nil {
				return nil, err
			}
		}
		if j := i - finalAfter; j >= 0 && j < n && corrected(j) {
			if err := tell("U", flights[j], flights[j].Delay); err != nil {
				return nil, err
			}
		}
		if j := i - cancelledAfter; j >= 0 && j < n && cancelled(j) {
			if err := tell("D", flights[j], flights[j].Delay); err != nil {
				return nil, err
			}
		}
	}
	return truth, nil
}
