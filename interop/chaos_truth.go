//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// chaosRecord is a record as readers of committed records see it.
type chaosRecord struct {
	chaosEvent
	part, off int64
	broken    bool
}

// readLog reads a topic to its end, each partition in its order, and gives the records of committed transactions and those
// of none.
func readLog(ctx context.Context, address, topic string) ([]chaosRecord, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("reading the log took too long"))
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var out []chaosRecord
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w; not read to the ends %v", topic, context.Cause(ctx), left)
		}
		var bad error
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			rec := chaosRecord{part: int64(r.Partition), off: r.Offset, broken: bytes.HasPrefix(r.Value, []byte("{broken "))}
			var err error
			if rec.broken {
				rec.ID, err = strconv.ParseInt(string(r.Value[len("{broken "):]), 10, 64)
			} else {
				err = json.Unmarshal(r.Value, &rec.chaosEvent)
			}
			bad = errors.Join(bad, err)
			out = append(out, rec)
		})
		if bad != nil {
			return nil, fmt.Errorf("%s has a record that was not produced: %w", topic, bad)
		}
	}
	return out, nil
}

// checkLogs holds the logs against what was produced: what was acknowledged is there, what was aborted is not.
func (p *chaosProducers) checkLogs(logs ...[]chaosRecord) error {
	there := make([]bool, len(p.fates))
	for _, log := range logs {
		for _, r := range log {
			there[r.ID] = true
		}
	}
	for id, fate := range p.fates {
		if fate == idAcked && !there[id] {
			return fmt.Errorf("record %d was acknowledged, but readers of committed records do not see it", id)
		}
		if fate == idAborted && there[id] {
			return fmt.Errorf("record %d was aborted, but readers of committed records see it", id)
		}
	}
	return nil
}

// chaosTable is a table under test with its rule: what a log makes of it.
type chaosTable struct {
	name      string
	mixed     bool // from the topic with transactions
	columns   []Column
	id        []string // the columns that tell rows apart: the primary key, or where a record comes from
	key       []string
	partition []string
	options   map[string]string
	fields    string // columns from the record itself
	plainOp   bool   // deletes are rows as others
	noExport  string // why it cannot be published as Iceberg; "": it can
	tailed    bool
	// fold takes a record into the rows by their id; row gives the text of cells.
	fold func(rows map[string][]string, r *chaosRecord)
}

// number is how cells and rows of this file write numbers.
func number(n int64) string { return strconv.FormatInt(n, 10) }

var chaosTables = []*chaosTable{
	{name: "appended", mixed: true, plainOp: true, tailed: true, fields: "{part: partition, off: offset}", id: []string{"part", "off"},
		columns: []Column{{"id", "BIGINT"}, {"k", "BIGINT"}, {"v", "STRING"}, {"part", "INT"}, {"off", "BIGINT"}},
		options: map[string]string{"bucket": "-1"},
		fold: func(rows map[string][]string, r *chaosRecord) {
			rows[number(r.part)+"/"+number(r.off)] = []string{number(r.ID), number(r.K), r.V, number(r.part), number(r.off)}
		}},
	{name: "parted", plainOp: true, fields: "{part: partition, off: offset}", id: []string{"part", "off"}, partition: []string{"p"},
		columns: []Column{{"id", "BIGINT"}, {"k", "BIGINT"}, {"p", "STRING"}, {"ts", "BIGINT"}, {"part", "INT"}, {"off", "BIGINT"}},
		options: map[string]string{"bucket": "2", "bucket-key": "k"},
		fold: func(rows map[string][]string, r *chaosRecord) {
			rows[number(r.part)+"/"+number(r.off)] = []string{number(r.ID), number(r.K), r.P, number(r.TS), number(r.part), number(r.off)}
		}},
	{name: "keyed", mixed: true, tailed: true, key: []string{"k"}, id: []string{"k"},
		columns: []Column{{"k", "BIGINT NOT NULL"}, {"id", "BIGINT"}, {"v", "STRING"}, {"ts", "BIGINT"}},
		options: map[string]string{"bucket": "2", "changelog-producer": "lookup"}, fold: foldLast},
	{name: "vectors", mixed: true, noExport: "it has deletion vectors", key: []string{"k"}, id: []string{"k"},
		columns: []Column{{"k", "BIGINT NOT NULL"}, {"id", "BIGINT"}, {"v", "STRING"}, {"ts", "BIGINT"}},
		options: map[string]string{"bucket": "2", "deletion-vectors.enabled": "true"}, fold: foldLast},
	// No deletes: what comes late for a key whose delete was compacted away is a row again, in Paimon too.
	{name: "newest", plainOp: true, key: []string{"k"}, id: []string{"k"},
		columns: []Column{{"k", "BIGINT NOT NULL"}, {"id", "BIGINT"}, {"v", "STRING"}, {"ts", "BIGINT"}},
		options: map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "400", "sequence.field": "ts"},
		fold: func(rows map[string][]string, r *chaosRecord) {
			k := number(r.K)
			if old := rows[k]; old != nil {
				if ts, _ := strconv.ParseInt(old[3], 10, 64); ts > r.TS { // the text is ours
					return
				}
			}
			rows[k] = []string{k, number(r.ID), r.V, number(r.TS)}
		}},
	{name: "summed", plainOp: true, key: []string{"k"}, id: []string{"k"},
		columns: []Column{{"k", "BIGINT NOT NULL"}, {"one", "BIGINT"}, {"id", "BIGINT"}},
		options: map[string]string{"bucket": "2", "merge-engine": "aggregation", "fields.one.aggregate-function": "sum", "fields.id.aggregate-function": "sum"},
		fold: func(rows map[string][]string, r *chaosRecord) {
			k := number(r.K)
			one, id := int64(1), r.ID
			if old := rows[k]; old != nil {
				n, _ := strconv.ParseInt(old[1], 10, 64) // both texts are ours
				sum, _ := strconv.ParseInt(old[2], 10, 64)
				one, id = one+n, id+sum
			}
			rows[k] = []string{k, number(one), number(id)}
		}},
}

func foldLast(rows map[string][]string, r *chaosRecord) {
	k := number(r.K)
	if r.Op == "D" {
		delete(rows, k)
		return
	}
	rows[k] = []string{k, number(r.ID), r.V, number(r.TS)}
}

// chaosTruth is what the tables must hold.
type chaosTruth struct {
	rows    map[string]map[string][]string // by table and id
	letters map[bool][]string              // "partition/offset" of broken records, sorted, by topic: of mixed or not
}

func newChaosTruth(plain, mixed []chaosRecord) *chaosTruth {
	t := &chaosTruth{rows: map[string]map[string][]string{}, letters: map[bool][]string{}}
	for _, table := range chaosTables {
		log, rows := plain, map[string][]string{}
		if table.mixed {
			log = mixed
		}
		for i := range log {
			if !log[i].broken {
				table.fold(rows, &log[i])
			}
		}
		t.rows[table.name] = rows
	}
	for isMixed, log := range map[bool][]chaosRecord{false: plain, true: mixed} {
		for _, r := range log {
			if r.broken {
				t.letters[isMixed] = append(t.letters[isMixed], number(r.part)+"/"+number(r.off))
			}
		}
		slices.Sort(t.letters[isMixed])
	}
	return t
}

// chaosVerdict counts what is wrong with rows.
type chaosVerdict struct {
	rows, lost, doubled, strange int
	first                        []string // some of it
}

func (v *chaosVerdict) add(o chaosVerdict) {
	v.rows += o.rows
	v.lost += o.lost
	v.doubled += o.doubled
	v.strange += o.strange
	v.first = append(v.first, o.first...)
}

func (v *chaosVerdict) say(format string, args ...any) {
	if len(v.first) < 5 {
		v.first = append(v.first, fmt.Sprintf(format, args...))
	}
}

// err is nil if nothing is wrong.
func (v *chaosVerdict) err() error {
	if v.lost+v.doubled+v.strange == 0 {
		return nil
	}
	return fmt.Errorf("%d lost, %d doubled, %d that nobody wrote:\n    %s", v.lost, v.doubled, v.strange, strings.Join(v.first, "\n    "))
}

// idOf gives the text by which rows of the table are told apart.
func (t *chaosTable) idOf(cells []Cell) string {
	var parts []string
	for _, name := range t.id {
		i := slices.IndexFunc(t.columns, func(c Column) bool { return c.Name == name })
		parts = append(parts, cells[i].Text)
	}
	return strings.Join(parts, "/")
}

// judge holds rows against what they must be. A keyed row that is older than it must be, missing, or there in spite of its
// delete, has lost a change; in the table of sums more than there must be was doubled.
func (t *chaosTable) judge(want map[string][]string, got *Rows) (v chaosVerdict) {
	v.rows = len(got.Cells)
	seen := make(map[string]bool, len(got.Cells))
	for _, cells := range got.Cells {
		id := t.idOf(cells)
		if seen[id] {
			v.doubled++
			v.say("%s: %s is there twice: %s", t.name, id, cellsText(cells))
			continue
		}
		seen[id] = true
		row, ok := want[id]
		text := cellsText(cells)
		switch {
		case ok && text == strings.Join(row, " "):
		case !ok && len(t.key) == 0:
			v.strange++
			v.say("%s: a row that is no record: %s", t.name, text)
		case !ok:
			v.lost++
			v.say("%s: the delete of a row is lost: %s", t.name, text)
		case t.name == "summed" && moreThan(cells[1].Text, row[1]):
			v.doubled++
			v.say("%s: %s, expected %s", t.name, text, strings.Join(row, " "))
		default:
			v.lost++
			v.say("%s: %s, expected %s", t.name, text, strings.Join(row, " "))
		}
	}
	for id, row := range want {
		if !seen[id] {
			v.lost++
			v.say("%s: a row is missing: %s", t.name, strings.Join(row, " "))
		}
	}
	return v
}

func moreThan(a, b string) bool {
	x, err := strconv.ParseInt(a, 10, 64)
	y, err2 := strconv.ParseInt(b, 10, 64)
	return err == nil && err2 == nil && x > y
}

func cellsText(cells []Cell) string {
	parts := make([]string, len(cells))
	for i, c := range cells {
		if parts[i] = c.Text; c.Null {
			parts[i] = "null"
		}
	}
	return strings.Join(parts, " ")
}
