package ingest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

const captureDir = "../internal/testdata/cdc/"

// capturedRecord is one line of a capture.
type capturedRecord struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64
	Headers   map[string]string
	Key       *string
	Value     *string
}

func (c *capturedRecord) record() *decode.Record {
	r := &decode.Record{Topic: c.Topic, Partition: c.Partition, Offset: c.Offset, Timestamp: c.Timestamp}
	if c.Key != nil {
		r.Key = []byte(*c.Key)
	}
	if c.Value != nil {
		r.Value = []byte(*c.Value)
	}
	for name, v := range c.Headers {
		r.Headers = append(r.Headers, decode.Header{Name: name, Value: []byte(v)})
	}
	return r
}

// sourceTable is a table of the source after the last event.
type sourceTable struct {
	name    string
	Columns []struct {
		Name    string
		Type    string
		NotNull bool `json:"not_null"`
	}
	PrimaryKey []string `json:"primary_key"`
	Rows       [][]*string
}

// unreachable is what the stream does not tell of a table.
type unreachable struct {
	Cells       [][]string // key, then the column
	ExtraRows   [][]string `json:"extra_rows"` // keys
	ColumnsGone []string   `json:"columns_gone"`
}

// mask hides the cells of rows without key that are not to be compared; they are named by the first column.
func (u unreachable) mask(s *sourceTable, rows [][]string) {
	for _, x := range u.Cells {
		for _, r := range rows {
			for c := range s.Columns {
				if r[0] == x[0] && s.Columns[c].Name == x[1] {
					r[c] = "?"
				}
			}
		}
	}
}

// capture is a stream with the state it must end in.
type capture struct {
	name        string
	records     map[string][]capturedRecord // by table
	tables      map[string]*sourceTable
	unreachable map[string]unreachable
}

func unpack(t *testing.T, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join(captureDir, name))
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	data, err := d.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readCapture(t *testing.T, name string) *capture {
	t.Helper()
	c := &capture{name: name, records: map[string][]capturedRecord{}}
	text, err := os.ReadFile(filepath.Join(captureDir, name+".expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		TablesIn    string `json:"tables_in"`
		Unreachable map[string]unreachable
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	c.unreachable = expected.Unreachable
	var state struct{ Tables map[string]*sourceTable }
	if err := json.Unmarshal(unpack(t, expected.TablesIn+".zst"), &state); err != nil {
		t.Fatal(err)
	}
	c.tables = state.Tables
	for n, s := range c.tables {
		s.name = n
	}
	lines := bufio.NewScanner(strings.NewReader(string(unpack(t, name+".jsonl.zst"))))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r capturedRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		table := r.Topic[strings.LastIndexByte(r.Topic, '.')+1:]
		c.records[table] = append(c.records[table], r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

// feed runs records through a pipeline into a table, in units and commits whose borders are random.
func feed(ctx context.Context, records []capturedRecord, cfg decode.Config, table Table, dead DeadLetter, r *rand.Rand, most int) (Committed, error) {
	at, done := 0, 0
	p, found, err := table.LastProgress(ctx)
	if err != nil {
		return Committed{}, err
	}
	if found && p.Properties[PropLine] != "" {
		if done, err = strconv.Atoi(p.Properties[PropLine]); err != nil {
			return Committed{}, err
		}
		at = done
	}
	cfg.Schema, cfg.Seen = table.Schema(), p.Properties[PropSeen]
	seen := cfg.Seen
	dec, err := decode.New(cfg)
	if err != nil {
		return Committed{}, err
	}
	env, limits := testEnv(), Limits{}.withDefaults()
	b := batcher{dec: dec, schema: cfg.Schema, follower: newFollower(table, cfg, env, Events{}, limits), pairs: cfg.Format.Events()}
	c := &committer{table: table, follower: b.follower, dead: dead, env: env, limits: limits,
		progress: func() Progress {
			return Progress{Properties: map[string]string{PropKind: kindLines, PropLine: strconv.Itoa(done), PropSeen: seen}}
		}}
	run := func(ctx context.Context, out chan<- unit) error {
		b.out = out
		left := 0
		for ; at < len(records); at++ {
			if left == 0 {
				left = 1 + r.IntN(most)
			}
			if err := b.add(ctx, records[at].record()); err != nil {
				return err
			}
			if left--; left == 0 || b.full() {
				left = 0
				to, now := at+1, dec.Seen()
				b.urgent = r.IntN(2) == 0
				if !b.emit(ctx, true, 0, func() func() { return func() { done, seen = to, now } }) {
					if ctx.Err() != nil {
						return nil
					}
					left = 1 // a row is between two keys
				}
			}
		}
		if !b.empty() {
			b.emit(ctx, true, 0, func() func() { return func() { done = len(records) } })
		}
		return nil
	}
	err = pump(ctx, run, c)
	return c.total, err
}

// typeOf reads the types that captureType gives.
func typeOf(t *testing.T, text string) schema.Type {
	t.Helper()
	if elem, ok := strings.CutPrefix(text, "ARRAY<"); ok {
		of := typeOf(t, strings.TrimSuffix(elem, ">"))
		return schema.Type{Root: schema.Array, Element: &of}
	}
	if text == "POINT" {
		row := schema.Type{Root: schema.Row}
		for i, f := range []string{"x DOUBLE", "y DOUBLE", "wkb BYTES", "srid INT"} {
			name, typ, _ := strings.Cut(f, " ")
			row.Fields = append(row.Fields, schema.Field{ID: 100 + i, Name: name, Type: typeOf(t, typ)})
		}
		return row
	}
	if text == "HSTORE" {
		key, value := typeOf(t, "STRING NOT NULL"), typeOf(t, "STRING")
		return schema.Type{Root: schema.Map, Key: &key, Element: &value}
	}
	return schematest.Type(t, text)
}

// Columns of a table of rows without key.
const (
	bagHash   = "row_hash"
	bagCopies = "copies"
)

// target makes the table that a source table goes to.
func (c *capture) target(t *testing.T, s *sourceTable, keys []string, bag bool) *storage.Mem {
	t.Helper()
	spec := schema.Spec{PrimaryKeys: keys, Options: map[string]string{"bucket": "2", "file.compression": "none"}}
	if keys == nil {
		spec.Options["bucket"] = "-1"
	}
	for _, col := range s.Columns {
		typ := typeOf(t, captureType(c.name, s.name, col.Name, col.Type))
		// A column may be NOT NULL if all records that the stream has tell it.
		typ.NotNull = slices.Contains(keys, col.Name) || col.NotNull && keys != nil && !strings.HasPrefix(s.name, "evolve")
		spec.Columns = append(spec.Columns, schema.Column{Name: col.Name, Type: typ})
	}
	if bag {
		spec.Columns = append(spec.Columns, schema.Column{Name: bagHash, Type: schematest.Type(t, "BINARY(16) NOT NULL")},
			schema.Column{Name: bagCopies, Type: schematest.Type(t, "BIGINT")})
		spec.PrimaryKeys = []string{bagHash}
		spec.Options["bucket"], spec.Options["merge-engine"] = "2", "aggregation"
		spec.Options["fields."+bagCopies+".aggregate-function"] = "sum"
	}
	made, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	mem := storage.NewMem()
	if err := engine.Create(context.Background(), mem, made); err != nil {
		t.Fatal(err)
	}
	return mem
}

// scanText reads a table as the source prints it.
func scanText(t *testing.T, store storage.Store, s *sourceTable, columns []string) [][]string {
	t.Helper()
	e := testEnv()
	rd := reader.Open(store, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	rep, err := rd.Verify(context.Background(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil || len(rep.Problems) > 0 {
		t.Fatalf("verify: %v %+v", err, rep)
	}
	var out [][]string
	for rec, err := range rd.Scan(context.Background(), reader.Query{Columns: columns}) {
		if err != nil {
			t.Fatal(err)
		}
		for r := range int(rec.NumRows()) {
			var row []string
			for c := range int(rec.NumCols()) {
				typ := ""
				if c < len(s.Columns) {
					typ = s.Columns[c].Type
				}
				row = append(row, cellText(schema.Cell(rec.Column(c), r), rec.Column(c).DataType(), typ))
			}
			out = append(out, row)
		}
	}
	return out
}

// truth gives the rows of the source as cellText gives them.
func (s *sourceTable) truth() [][]string {
	var out [][]string
	for _, r := range s.Rows {
		var row []string
		for c, v := range r {
			row = append(row, truthText(v, s.Columns[c].Type))
		}
		out = append(out, row)
	}
	return out
}

// byKey gives rows by the text of their key.
func (s *sourceTable) byKey(t *testing.T, rows [][]string, keys []string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, row := range rows {
		id := s.keyOf(row, keys)
		if out[id] != nil {
			t.Fatalf("%s: two rows of key %s", s.name, id)
		}
		out[id] = row
	}
	return out
}

func (s *sourceTable) keyOf(row, keys []string) string {
	var key []string
	for _, k := range keys {
		for c := range s.Columns {
			if s.Columns[c].Name == k {
				key = append(key, row[c])
			}
		}
	}
	return strings.Join(key, "\x00")
}

// compareKeyed compares a table with its source, cell by cell.
func (c *capture) compareKeyed(t *testing.T, s *sourceTable, got [][]string, keys []string) {
	t.Helper()
	un := c.unreachable[s.name]
	cells, extra := map[string]bool{}, map[string]bool{}
	for _, x := range un.Cells {
		cells[strings.Join(x, "\x00")] = true
	}
	for _, x := range un.ExtraRows {
		extra[strings.Join(x, "\x00")] = true
	}
	want, have := s.byKey(t, s.truth(), keys), s.byKey(t, got, keys)
	for id := range have {
		if want[id] == nil && !extra[id] {
			t.Errorf("%s: row %q is not in the source", s.name, id)
		}
	}
	for id, w := range want {
		h := have[id]
		if h == nil {
			t.Errorf("%s: row %q is missing", s.name, id)
			continue
		}
		for i := range w {
			if w[i] != h[i] && !cells[id+"\x00"+s.Columns[i].Name] {
				t.Errorf("%s: row %q column %s (%s): %.300s, want %.300s", s.name, id, s.Columns[i].Name, s.Columns[i].Type, h[i], w[i])
			}
		}
	}
}

// compareBag compares rows without key, of which some may be equal.
func compareBag(t *testing.T, name string, got, want [][]string) {
	t.Helper()
	count := map[string]int{}
	for _, r := range want {
		count[strings.Join(r, "\x00")]++
	}
	for _, r := range got {
		count[strings.Join(r, "\x00")]--
	}
	for r, n := range count {
		if n != 0 {
			t.Errorf("%s: row %.200q is there %d times too few", name, r, n)
		}
	}
}

// copies gives each row of a bag as often as it is there.
func copies(t *testing.T, rows [][]string) (out [][]string) {
	t.Helper()
	for _, r := range rows {
		n, err := strconv.Atoi(r[len(r)-1])
		if err != nil || n < 0 {
			t.Errorf("row %q is there %d times", r, n)
		}
		for range n {
			out = append(out, r[:len(r)-2])
		}
	}
	return out
}

// open opens a table as a pipeline does.
func openTarget(t *testing.T, store storage.Store) *engine.Table {
	t.Helper()
	table, err := engine.Open(context.Background(), store, engine.Settings{Job: "capture", Compaction: 1}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// play feeds a capture's table and gives what came of it.
func (c *capture) play(t *testing.T, s *sourceTable, store storage.Store, cfg decode.Config, r *rand.Rand) Committed {
	t.Helper()
	var total Committed
	for _, until := range []int{r.IntN(len(c.records[s.name]) + 1), len(c.records[s.name])} { // with a restart in between
		total.add(c.playUntil(t, s, store, cfg, until, r))
	}
	return total
}

func (c *capture) playUntil(t *testing.T, s *sourceTable, store storage.Store, cfg decode.Config, until int, r *rand.Rand) Committed {
	t.Helper()
	ctx := context.Background()
	table := openTarget(t, store)
	dead := NewDeadLetters(storage.Sub(store, "dead"), DeadLetterSettings{}, testEnv())
	total, err := feed(ctx, c.records[s.name][:until], cfg, table, dead, r, 500)
	if err = errors.Join(err, dead.Close(ctx), table.Close(ctx)); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return total
}

// refused fails if records went to the dead letters.
func refused(t *testing.T, store storage.Store, want int) {
	t.Helper()
	letters := lettersIn(t, storage.Sub(store, "dead"))
	for _, l := range letters[min(want, len(letters)):] {
		t.Errorf("dead letter: %s offset %d: %s", l.Topic, l.Offset, l.Reason)
	}
	if n := len(letters); n < want {
		t.Errorf("%d dead letters, want %d", n, want)
	}
}

// captures say how a capture is read.
var captures = map[string]struct {
	decode decode.Config
	tables []string
}{
	"pg-json":           {decode: decode.Config{Format: decode.Debezium, Decimals: decode.DecimalsBinary}},
	"pg-schema-precise": {decode: decode.Config{Format: decode.Debezium}},
	"pg-flat":           {decode: decode.Config{Format: decode.DebeziumFlat}},
	"pgrestart-json":    {decode: decode.Config{Format: decode.Debezium, DropRepeats: true}},
	"maria-json":        {decode: decode.Config{Format: decode.Debezium, Decimals: decode.DecimalsBinary}},
}

// otherCaptures are those that are read and compared in their own way.
var otherCaptures = map[string]func(*testing.T){}

// TestCapture folds captured streams of real connectors and compares each table with its source.
func TestCapture(t *testing.T) {
	for name, how := range captures {
		t.Run(name, func(t *testing.T) {
			r := schematest.Rand(t)
			c := readCapture(t, name)
			tables := how.tables
			if tables == nil {
				tables = slices.Sorted(maps.Keys(c.tables))
			}
			for _, table := range tables {
				t.Run(table, func(t *testing.T) { c.check(t, c.tables[table], how.decode, r) })
			}
		})
	}
	for name, check := range otherCaptures {
		t.Run(name, check)
	}
}

// check plays one table and compares it.
func (c *capture) check(t *testing.T, s *sourceTable, cfg decode.Config, r *rand.Rand) {
	keys := s.PrimaryKey
	if s.name == "uniq_index" {
		keys = []string{"code"} // its replica identity
	}
	if len(keys) == 0 {
		keys = nil
	}
	bag := s.name == "nopk_full" || s.name == "nokey"
	if bag {
		cfg.Metadata = map[string]string{bagHash: "row-hash", bagCopies: "copies"}
	}
	if s.name == "types" || s.name == "dates" {
		cfg.Specials = decode.SpecialsNull
	}
	for _, col := range s.Columns {
		if strings.HasPrefix(col.Type, "bigint") && strings.HasSuffix(col.Type, " unsigned") {
			cfg.Unsigned = append(cfg.Unsigned, col.Name)
		}
	}
	store := c.target(t, s, keys, bag)
	total := c.play(t, s, store, cfg, r)
	if total.Records != int64(len(c.records[s.name])) {
		t.Errorf("%d records, want %d", total.Records, len(c.records[s.name]))
	}
	lost := 0
	if bag && c.name == "pg-flat" {
		lost = 2 // updates, of which the row before is not told
	}
	refused(t, store, lost)
	got := scanText(t, store, s, nil)
	if bag {
		got = copies(t, got)
	}
	if keys == nil {
		want := s.truth()
		c.unreachable[s.name].mask(s, got)
		c.unreachable[s.name].mask(s, want)
		compareBag(t, s.name, got, want)
		return
	}
	c.compareKeyed(t, s, got, keys)
}
