//go:build interop

package interop

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

var flightColumns = []Column{{"day", "DATE NOT NULL"}, {"id", "BIGINT NOT NULL"}, {"at", "TIMESTAMP(6)"}, {"delay", "INT"},
	{"distance", "SMALLINT"}, {"origin", "CHAR(3)"}, {"destination", "STRING"}, {"note", "STRING"}}

func init() {
	RegisterCase(&Case{
		Name: "flights", About: "100,000 real flights: inserted as scheduled, updated with their delay, some corrected, some cancelled",
		Columns: flightColumns, Key: []string{"day", "id"}, Partition: []string{"day"}, Options: map[string]string{"bucket": "2"},
		Load: loadFlights,
	})
}

// loadFlights makes the steps from the real flights that come with the project.
func loadFlights(l *Lab) ([]Step, error) {
	file, err := os.Open(filepath.Join(l.Root, "internal", "demo", "flights", "flights-100k.jsonl.zst"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	plain, err := zstd.NewReader(file)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	var scheduled, delayed, corrected Step
	n := 0
	err = EachLine(plain, func(line []byte) error {
		flight, err := decodeObject(line)
		if err != nil {
			return err
		}
		at, _ := flight["date"].(string)
		at = strings.Replace(at, " ", "T", 1)
		row := map[string]any{"day": at[:min(10, len(at))], "id": flight["id"], "at": at, "delay": nil, "distance": flight["distance"],
			"origin": flight["origin"], "destination": flight["destination"], "note": nil}
		scheduled.Ops = append(scheduled.Ops, Put(row))
		delayed.Ops = append(delayed.Ops, Put(with(row, "delay", flight["delay"])))
		switch n++; {
		case n%17 == 0:
			corrected.Ops = append(corrected.Ops, Del(row))
		case n%5 == 0:
			corrected.Ops = append(corrected.Ops, Put(with(with(row, "delay", 0), "note", "corrected")))
		}
		return nil
	})
	delayed.Compact, delayed.Export = true, true
	corrected.Compact, corrected.Export = true, true
	return []Step{scheduled, delayed, corrected}, err
}
