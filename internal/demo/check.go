package demo

import (
	"encoding/json"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/schema"
)

// state is a table as rows by flight id, each row as the JSON text of its columns.
type state map[int64]string

// add applies rows, whose first column is the id; kinds nil means inserts.
func (s state) add(rec arrow.RecordBatch, kinds []schema.RowKind) error {
	ids, ok := rec.Column(0).(interface{ Value(int) int64 })
	if !ok {
		return fmt.Errorf("column id is %s, not 64-bit integers", rec.Column(0).DataType())
	}
	enc := rowjson.NewEncoder(rec.Schema())
	for i := range int(rec.NumRows()) {
		if kinds != nil && !kinds[i].IsAdd() {
			delete(s, ids.Value(i))
			continue
		}
		s[ids.Value(i)] = string(enc.Append(nil, rec, i))
	}
	return nil
}

// stateOf gathers the rows of a scan. On an error it gives what came before it.
func stateOf(rows iter.Seq2[arrow.RecordBatch, error]) (state, error) {
	s := state{}
	for rec, err := range rows {
		if err == nil {
			err = s.add(rec, nil)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// truthState writes the truth in the same form, from the input alone.
func truthState(truth map[int64]flight) state {
	s := make(state, len(truth))
	for id, f := range truth {
		delay := "null"
		if f.Delay != nil {
			delay = fmt.Sprint(*f.Delay)
		}
		origin, _ := json.Marshal(f.Origin)
		destination, _ := json.Marshal(f.Destination)
		s[id] = fmt.Sprintf(`{"id":%d,"date":"%sT%s.000000","delay":%s,"distance":%d,"origin":%s,"destination":%s}`,
			id, f.Date[:10], f.Date[11:], delay, f.Distance, origin, destination)
	}
	return s
}

// diff says how two states differ, "" when they do not.
func diff(name string, got, want state) string {
	missing, extra, other, example := 0, 0, 0, ""
	for id, row := range want {
		g, ok := got[id]
		switch {
		case !ok:
			missing++
		case g != row:
			other++
			example = fmt.Sprintf("; for example %s instead of %s", g, row)
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			extra++
		}
	}
	if missing+extra+other == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %d rows missing, %d too many, %d other than in the input%s", name, missing, extra, other, example)
}
