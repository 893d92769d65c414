package dataset

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// TestSets: every set makes its commits in full, with different keys in each, the same ones each time, and some keys in
// more than one commit.
func TestSets(t *testing.T) {
	const n = 700
	for _, s := range Sets {
		sch, err := s.Schema(map[string]string{"bucket": "1"})
		if err != nil {
			t.Fatal(err)
		}
		times := map[int64]int{}
		for commit := range Commits {
			batches, err := s.Batches(sch.Arrow(), commit, n)
			if err != nil {
				t.Fatal(err)
			}
			again, err := s.Batches(sch.Arrow(), commit, n)
			if err != nil {
				t.Fatal(err)
			}
			here := map[int64]bool{}
			for i, b := range batches {
				if !array.RecordEqual(b, again[i]) {
					t.Errorf("%s: commit %d differs when made again", s.Name, commit)
				}
				for _, k := range b.Column(0).(*array.Int64).Int64Values() {
					here[k] = true
					times[k]++
				}
			}
			if len(here) != n {
				t.Errorf("%s: commit %d has %d keys, want %d", s.Name, commit, len(here), n)
			}
		}
		if len(times) >= Commits*n || len(times) < Commits*n/2 {
			t.Errorf("%s: %d keys in %d rows", s.Name, len(times), Commits*n)
		}
	}
}

// TestFlights: the commits of the flights follow one another, and a tenth of a commit comes again in the next.
func TestFlights(t *testing.T) {
	f := &flights{}
	for i := range 2000 {
		f.date, f.delay, f.distance = append(f.date, int64(i)), append(f.delay, 5), append(f.distance, 100)
		f.origin, f.destination = append(f.origin, "JFK"), append(f.destination, "SFO")
	}
	s := Set{Name: "flights", Columns: "id BIGINT NOT NULL, date TIMESTAMP(6), delay INT, distance INT, origin STRING, destination STRING", Keys: []string{"id"}, open: f.rows}
	sch, err := s.Schema(nil)
	if err != nil {
		t.Fatal(err)
	}
	times := map[int64]int{}
	for commit := range Commits {
		batches, err := s.Batches(sch.Arrow(), commit, 200)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for _, k := range b.Column(0).(*array.Int64).Int64Values() {
				times[k]++
			}
		}
	}
	twice := 0
	for k := range int64(len(times)) {
		if times[k] == 0 || times[k] > 2 {
			t.Fatalf("flight %d came %d times", k, times[k])
		}
		twice += times[k] - 1
	}
	if len(times) != 200+7*180 || twice != 7*20 {
		t.Errorf("%d flights, %d of them twice", len(times), twice)
	}
	if _, err := s.Batches(sch.Arrow(), Commits-1, 400); err == nil {
		t.Error("more flights than there are")
	}
}
