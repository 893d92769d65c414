package ingest

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

func init() {
	hard[1] = hardWindow
	hard[2] = hardKeyOnlyDelete
	hard[3] = hardMovedPartition
	hard[4] = hardKeyChange
	hard[5] = hardCrash
	hard[6] = hardSnapshot
	hard[10] = hardUnavailable
	hard[11] = hardMicros
	hard[12] = hardTimes
	hard[13] = hardFarTimes
	hard[14] = hardDecimals
}

// happened is an event as a record.
type happened struct {
	key, value string // value "": a tombstone
	headers    [][2]string
}

func event(value string) happened { return happened{value: value} }

// cdcTable makes a table and a pipeline into it.
type cdcTable struct {
	t     *testing.T
	store storage.Store
	cfg   decode.Config
	n     int64
	job   string // default "cdc"
}

func newCDC(t *testing.T, spec schema.Spec, columns string, cfg decode.Config) *cdcTable {
	t.Helper()
	cols, err := schema.ParseColumns(columns)
	if err != nil {
		t.Fatal(err)
	}
	spec.Columns = cols
	s, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	mem := storage.NewMem()
	if err := engine.Create(t.Context(), mem, s); err != nil {
		t.Fatal(err)
	}
	if cfg.Format == "" {
		cfg.Format = decode.Debezium
	}
	return &cdcTable{t: t, store: mem, cfg: cfg}
}

// run plays commits, each of one unit of events, in a process of its own.
func (c *cdcTable) run(commits ...[]happened) error {
	ctx := c.t.Context()
	table, err := engine.Open(ctx, c.store, engine.Settings{Job: cmp.Or(c.job, "cdc"), Compaction: 1}, hasty())
	if err != nil {
		return err
	}
	dead := NewDeadLetters(storage.Sub(c.store, "dead"), DeadLetterSettings{}, hasty())
	cfg := c.cfg
	cfg.Schema = table.Schema()
	dec, err := decode.New(cfg)
	if err != nil {
		return errors.Join(err, table.Close(ctx))
	}
	env, limits := testEnv(), Limits{}.withDefaults()
	b := batcher{dec: dec, schema: cfg.Schema, follower: newFollower(table, cfg, env, Events{}, limits), pairs: cfg.Format.Events()}
	done := c.n // as far as the committer has come
	com := &committer{table: table, follower: b.follower, dead: dead, env: env, limits: limits,
		progress: func() Progress {
			return Progress{Properties: map[string]string{PropKind: kindLines, PropLine: fmt.Sprint(done)}}
		}}
	src := func(ctx context.Context, out chan<- unit) error {
		b.out = out
		for _, events := range commits {
			for _, e := range events {
				r := &decode.Record{Topic: "t", Offset: c.n, Key: []byte(e.key)}
				if e.value != "" {
					r.Value = []byte(e.value)
				}
				for _, h := range e.headers {
					r.Headers = append(r.Headers, decode.Header{Name: h[0], Value: []byte(h[1])})
				}
				c.n++
				if err := b.add(ctx, r); err != nil {
					return err
				}
			}
			b.urgent = true
			at := c.n
			for !b.emit(ctx, true, 0, func() func() { return func() { done = at } }) && ctx.Err() == nil {
			}
		}
		return nil
	}
	return errors.Join(pump(ctx, src, com), table.Close(context.WithoutCancel(ctx)), dead.Close(context.WithoutCancel(ctx)))
}

func (c *cdcTable) must(commits ...[]happened) {
	c.t.Helper()
	if err := c.run(commits...); err != nil {
		c.t.Fatal(err)
	}
}

// rows are the cells of the table by the text of its first column.
func (c *cdcTable) rows() map[string][]any {
	c.t.Helper()
	return scan(c.t, c.store, 1)
}

func (c *cdcTable) want(rows ...[]any) {
	c.t.Helper()
	want := map[string][]any{}
	for _, r := range rows {
		want[fmt.Sprint(r[0])] = r
	}
	if got := c.rows(); !reflect.DeepEqual(got, want) {
		c.t.Errorf("rows\n%v, want\n%v", got, want)
	}
}

// dead gives the reasons of the dead letters.
func (c *cdcTable) dead() (out []string) {
	c.t.Helper()
	for _, l := range lettersIn(c.t, storage.Sub(c.store, "dead")) {
		out = append(out, l.Reason)
	}
	return out
}

// compact brings the table to its highest level.
func (c *cdcTable) compact() {
	c.t.Helper()
	table, err := engine.Open(c.t.Context(), c.store, engine.Settings{}, hasty())
	if err == nil {
		err = errors.Join(table.Compact(c.t.Context(), true), table.Close(c.t.Context()))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

const ordersColumns = "id BIGINT NOT NULL, st STRING, amt DECIMAL(10,2), day STRING"

func orders(t *testing.T) *cdcTable {
	return newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}}, ordersColumns, decode.Config{})
}

func created(id int, st string) happened {
	return event(fmt.Sprintf(`{"before":null,"after":{"id":%d,"st":%q},"op":"c"}`, id, st))
}

func updated(id int, st string) happened {
	return event(fmt.Sprintf(`{"before":null,"after":{"id":%d,"st":%q},"op":"u"}`, id, st))
}

func deleted(id int) happened {
	return event(fmt.Sprintf(`{"before":{"id":%d,"st":null,"amt":null,"day":null},"after":null,"op":"d"}`, id))
}

func hardWindow(t *testing.T) {
	c := orders(t)
	c.must([]happened{created(1, "new"), updated(1, "paid"), deleted(1), {key: `{"id":1}`}, created(2, "new")})
	c.want([]any{int64(2), "new", nil, nil})
	if d := c.dead(); len(d) > 0 {
		t.Errorf("dead letters: %v", d)
	}
}

func partitionedOrders(t *testing.T, before decode.Before) *cdcTable {
	return newCDC(t, schema.Spec{PrimaryKeys: []string{"id", "day"}, PartitionKeys: []string{"day"}, Options: map[string]string{"bucket": "1"}},
		strings.Replace(ordersColumns, "day STRING", "day STRING NOT NULL", 1), decode.Config{Before: before})
}

// hardKeyOnlyDelete: the layout is refused, unless events are said to tell the partition; then one that does not is refused.
func hardKeyOnlyDelete(t *testing.T) {
	if err := partitionedOrders(t, "").run(); err == nil || !strings.Contains(err.Error(), "the table is partitioned by [day]: say with before") {
		t.Errorf("a table in which deletes would be lost: %v", err)
	}
	c := partitionedOrders(t, decode.BeforeFull)
	c.must([]happened{event(`{"after":{"id":7,"day":"11"},"op":"c"}`)},
		[]happened{deleted(7), event(`{"before":null,"after":{"id":7,"day":"12"},"op":"u"}`)})
	if d := c.dead(); len(d) != 2 || !strings.Contains(d[0], `"day"`) || !strings.Contains(d[1], "REPLICA IDENTITY FULL") {
		t.Errorf("dead letters: %v", d)
	}
	c.want([]any{int64(7), nil, nil, "11"})
	c.must([]happened{event(`{"before":{"id":7,"st":null,"amt":null,"day":"11"},"op":"d"}`)})
	c.want()
}

func hardMovedPartition(t *testing.T) {
	c := partitionedOrders(t, decode.BeforeFull)
	c.must([]happened{event(`{"after":{"id":7,"day":"11"},"op":"c"}`)})
	c.compact()
	c.must([]happened{event(`{"before":{"id":7,"day":"11"},"after":{"id":7,"day":"12"},"op":"u"}`)})
	c.want([]any{int64(7), nil, nil, "12"})
	var told []string
	e := testEnv()
	rd := reader.Open(c.store, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	for ch, err := range rd.Tail(t.Context(), reader.TailSpec{From: reader.Start{Mode: reader.Earliest}, BeforeImage: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ch.Rec != nil && i < int(ch.Rec.NumRows()); i++ {
			kind := schema.Insert
			if ch.RowKinds != nil {
				kind = ch.RowKinds[i]
			}
			told = append(told, fmt.Sprint(kind, schema.Cell(ch.Rec.Column(3), i)))
		}
	}
	slices.Sort(told[1:])
	if want := []string{"+I11", "+I12", "-D11"}; !slices.Equal(told, want) { // another partition is another key to Paimon
		t.Errorf("told %q, want %q", told, want)
	}
}

func hardKeyChange(t *testing.T) {
	for _, split := range []bool{false, true} {
		c := orders(t)
		d := deleted(5)
		d.headers = [][2]string{{"__debezium.newkey", `{"id":6}`}}
		tomb := happened{key: `{"id":5}`, headers: d.headers}
		n := created(6, "moved")
		n.headers = [][2]string{{"__debezium.oldkey", `{"id":5}`}}
		if split { // the new row first, as from another partition
			c.must([]happened{created(5, "x")}, []happened{n}, []happened{d, tomb})
		} else {
			c.must([]happened{created(5, "x")}, []happened{d, tomb, n})
		}
		c.want([]any{int64(6), "moved", nil, nil})
	}
}

// hardCrash cuts the power at each write of the second commit.
func hardCrash(t *testing.T) {
	r, crashes := schematest.Rand(t), 0
	for left := int64(1); left < 60; left++ {
		c := orders(t)
		c.must([]happened{created(3, "zero")})
		dying := &crashing{mem: c.store.(*storage.Mem)}
		dying.left.Store(left)
		c.store = dying.store()
		at := c.n
		err := c.run([]happened{updated(3, "one"), updated(3, "two")})
		if err != nil && dying.left.Load() > 0 {
			t.Fatal(err)
		}
		if dying.left.Load() <= 0 {
			crashes++
		}
		c.store = dying.mem.CrashClone(r)
		c.n = at
		c.must([]happened{updated(3, "one"), updated(3, "two"), updated(3, "three")})
		c.want([]any{int64(3), "three", nil, nil})
	}
	if crashes < 5 {
		t.Errorf("only %d crashes", crashes)
	}
}

func hardSnapshot(t *testing.T) {
	c := orders(t)
	c.must([]happened{event(`{"after":{"id":1,"st":"a"},"op":"r"}`), event(`{"after":{"id":2,"st":"b"},"op":"r"}`)},
		[]happened{created(2, "b"), updated(2, "c")})
	c.want([]any{int64(1), "a", nil, nil}, []any{int64(2), "c", nil, nil})
}

const (
	unavailableText  = decode.DefaultUnavailable
	unavailableBytes = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
)

// hardUnavailable: the values stay, in one window, over commits, after compaction and under another key; the marker is
// nowhere in the table, and what has no row before goes to the dead letters.
func hardUnavailable(t *testing.T) {
	first := event(`{"after":{"id":1,"st":"x","note":"long text","blob":"AAEC","num":1.5},"op":"c"}`)
	change := func(id int, st string) happened {
		return event(fmt.Sprintf(`{"before":null,"after":{"id":%d,"st":%q,"note":%q,"blob":%q,"num":1.5},"op":"u"}`, id, st, unavailableText, unavailableBytes))
	}
	moved := event(strings.Replace(change(9, "moved").value, `"op":"u"`, `"op":"c"`, 1))
	moved.headers = [][2]string{{"__debezium.oldkey", `{"id":1}`}}
	gone := event(`{"before":{"id":1},"op":"d"}`)
	full := func(id int64, st string) []any {
		return []any{id, st, "long text", []byte{0, 1, 2}, decimal128.FromI64(150)}
	}
	cases := map[string]struct {
		commits [][]happened
		want    []any
	}{
		"one window":       {[][]happened{{first, change(1, "y"), change(1, "z")}}, full(1, "z")},
		"over commits":     {[][]happened{{first}, {change(1, "y")}, {change(1, "z")}}, full(1, "z")},
		"key":              {[][]happened{{first, gone, moved}}, full(9, "moved")},
		"key, later":       {[][]happened{{first}, {gone, moved}}, full(9, "moved")},
		"key, after that":  {[][]happened{{first}, {gone}, {moved}}, full(9, "moved")},
		"key, and changed": {[][]happened{{first}, {gone}, {moved, change(9, "w")}, {change(9, "v")}}, full(9, "v")},
		"a text like any": {[][]happened{{event(fmt.Sprintf(`{"after":{"id":1,"note":%q},"op":"c"}`, unavailableText))}, {change(1, "y")}},
			[]any{int64(1), "y", unavailableText, nil, decimal128.FromI64(150)}}, // a source that leaves out nulls too
	}
	for name, x := range cases {
		for _, compact := range []bool{false, true} {
			c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "2"}},
				"id BIGINT NOT NULL, st VARCHAR(8), note STRING, blob BYTES, num DECIMAL(10,2)", decode.Config{})
			for _, commit := range x.commits {
				c.must(commit)
				if compact {
					c.compact()
				}
			}
			if d := c.dead(); len(d) > 0 {
				t.Errorf("%s: dead letters: %v", name, d)
			}
			if got := c.rows(); len(got) != 1 || !reflect.DeepEqual(got[fmt.Sprint(x.want[0])], x.want) {
				t.Errorf("%s, compact %v: rows %v", name, compact, got)
			}
		}
	}
	c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "2"}},
		"id BIGINT NOT NULL, st STRING, note STRING, blob BYTES, num DECIMAL(10,2)", decode.Config{})
	c.must([]happened{first, change(2, "no such row"), change(1, "y")})
	if d := c.dead(); len(d) != 1 || !strings.Contains(d[0], `the value of column "note" is unavailable`) {
		t.Errorf("dead letters: %v", d)
	}
	c.want(full(1, "y"))
	hardUnavailableNull(t)
}

// hardUnavailableNull: PostgreSQL leaves out no nulls, so a null is not the value that an event leaves out. Here a column has
// another name in the source from the update on. In one window and over commits.
func hardUnavailableNull(t *testing.T) {
	first := event(`{"after":{"id":1,"old":"long text"},"source":{"connector":"postgresql"},"op":"c"}`)
	renamed := event(fmt.Sprintf(`{"before":null,"after":{"id":1,"note":%q},"source":{"connector":"postgresql"},"op":"u"}`, unavailableText))
	for _, commits := range [][][]happened{{{first, renamed}}, {{first}, {renamed}}} {
		c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}}, "id BIGINT NOT NULL, old STRING, note STRING", decode.Config{})
		c.must(commits...)
		if d := c.dead(); len(d) != 1 || !strings.Contains(d[0], `the value of column "note" is unavailable`) {
			t.Errorf("dead letters: %v", d)
		}
		c.want([]any{int64(1), "long text", nil})
	}
}

// withSchema wraps a row in an envelope with the schema that Connect's converter puts before it.
func withSchema(fields, row string) happened {
	return event(fmt.Sprintf(`{"schema":{"type":"struct","fields":[{"type":"struct","fields":[%s],"optional":true,"field":"before"},{"type":"struct","fields":[%s],"optional":true,"field":"after"}]},"payload":{"before":null,"after":%s,"op":"c"}}`, fields, fields, row))
}

func hardMicros(t *testing.T) {
	c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}},
		"id BIGINT NOT NULL, micro TIMESTAMP(6), nano TIMESTAMP(6), milli TIMESTAMP(6), clock TIME", decode.Config{})
	c.must([]happened{withSchema(`{"type":"int64","field":"id"},{"type":"int64","name":"io.debezium.time.MicroTimestamp","field":"micro"},
		{"type":"int64","name":"io.debezium.time.NanoTimestamp","field":"nano"},{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","field":"milli"},
		{"type":"int64","name":"io.debezium.time.MicroTime","field":"clock"}`,
		`{"id":1,"micro":1690366967048491,"nano":1690366967048491007,"milli":1690366967048,"clock":86399999999}`)})
	c.want([]any{int64(1), int64(1690366967048491), int64(1690366967048491), int64(1690366967048000), int32(86399999)})
}

// hardTimes runs in three zones: nothing may depend on that of the process.
func hardTimes(t *testing.T) {
	if os.Getenv("CALVE_HARD_TZ") == "" {
		for _, zone := range []string{"Asia/Shanghai", "America/St_Johns"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestHard/H12$")
			cmd.Env = append(os.Environ(), "TZ="+zone, "CALVE_HARD_TZ=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("in %s: %v\n%s", zone, err, out)
			}
		}
	}
	c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}},
		"id BIGINT NOT NULL, d DATE, ts TIMESTAMP(3), tz TIMESTAMP_LTZ(6), dt TIMESTAMP(3)", decode.Config{})
	c.must([]happened{withSchema(`{"type":"int64","field":"id"},{"type":"int32","name":"io.debezium.time.Date","field":"d"},
		{"type":"int64","name":"io.debezium.time.Timestamp","field":"ts"},{"type":"string","name":"io.debezium.time.ZonedTimestamp","field":"tz"},
		{"type":"int64","name":"io.debezium.time.Timestamp","field":"dt"}`,
		`{"id":1,"d":0,"ts":-1,"tz":"2025-07-13T23:54:31.5+08:00","dt":1709210096000}`)})
	c.want([]any{int64(1), int32(0), int64(-1), int64(1752422071500000), int64(1709210096000)})
}

func hardFarTimes(t *testing.T) {
	c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}},
		"id BIGINT NOT NULL, tz TIMESTAMP_LTZ(6), ts TIMESTAMP(6), d DATE", decode.Config{})
	c.must([]happened{event(`{"after":{"id":1,"tz":"0001-01-01T00:00:00Z","ts":-62135596800000000,"d":-719162},"op":"c"}`),
		event(`{"after":{"id":2,"tz":"9999-12-31T23:59:59.999999Z","ts":253402300799999999,"d":2932896},"op":"c"}`),
		event(`{"after":{"id":3,"tz":"infinity","d":1},"op":"c"}`), event(`{"after":{"id":4,"d":-622191234},"op":"c"}`)})
	rows := [][]any{{int64(1), int64(-62135596800000000), int64(-62135596800000000), int32(-719162)},
		{int64(2), int64(253402300799999999), int64(253402300799999999), int32(2932896)}}
	c.want(rows...)
	if d := c.dead(); len(d) != 2 {
		t.Errorf("dead letters: %v", d)
	}
	c.cfg.Specials = decode.SpecialsNull
	c.must([]happened{event(`{"after":{"id":3,"tz":"infinity","d":1},"op":"c"}`), event(`{"after":{"id":4,"d":-622191234},"op":"c"}`)})
	c.want(append(rows, []any{int64(3), nil, nil, int32(1)}, []any{int64(4), nil, nil, nil})...)
}

func hardDecimals(t *testing.T) {
	nines, _ := new(big.Int).SetString(strings.Repeat("9", 38), 10)
	b64 := func(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }
	const columns = "id BIGINT NOT NULL, a DECIMAL(10,2), b DECIMAL(10,2), v DECIMAL(10,3), t STRING, n DECIMAL(38,0), u DECIMAL(20,0), l DECIMAL(20,0)"
	row := func(id int, v string) string {
		text, _ := json.Marshal(map[string]any{"id": id, "a": "MDk=", "b": "nA==", "v": json.RawMessage(v), "t": json.RawMessage(v), "n": b64(nines),
			"u": "AP//////////", "l": -1})
		return string(text)
	}
	fields := func(scale string) string {
		dec := `{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"%s"},"field":"%s"}`
		out := []string{`{"type":"int64","field":"id"}`, fmt.Sprintf(dec, "2", "a"), fmt.Sprintf(dec, "2", "b"), fmt.Sprintf(dec, "0", "n"), fmt.Sprintf(dec, "0", "u")}
		for _, f := range []string{"v", "t"} {
			out = append(out, `{"type":"struct","fields":[{"type":"int32","field":"scale"},{"type":"bytes","field":"value"}],"name":"io.debezium.data.VariableScaleDecimal","field":"`+f+`"}`)
		}
		return strings.Join(append(out, `{"type":"int64","field":"l","parameters":{"__debezium.source.column.type":"BIGINT UNSIGNED"}}`), ",")
	}
	want := func(id int64) []any {
		max64, _ := new(big.Int).SetString("18446744073709551615", 10)
		return []any{id, decimal128.FromI64(12345), decimal128.FromI64(-100), decimal128.FromI64(12345), "12.345",
			decimal128.FromBigInt(nines), decimal128.FromBigInt(max64), decimal128.FromBigInt(max64)}
	}
	good, bad := row(1, `{"scale":3,"value":"MDk="}`), row(2, `{"scale":4,"value":"MDk="}`)
	t.Run("schema", func(t *testing.T) {
		c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}}, columns, decode.Config{})
		c.must([]happened{withSchema(fields("2"), good), withSchema(fields("2"), bad)})
		c.want(want(1))
		if d := c.dead(); len(d) != 1 || !strings.Contains(d[0], "has more than 3 decimal places") {
			t.Errorf("dead letters: %v", d)
		}
	})
	t.Run("configured", func(t *testing.T) {
		c := newCDC(t, schema.Spec{PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1"}}, columns,
			decode.Config{Decimals: decode.DecimalsBinary, Unsigned: []string{"l"}})
		c.must([]happened{event(`{"after":` + good + `,"op":"c"}`), event(`{"after":` + bad + `,"op":"c"}`)})
		c.want(want(1))
		if d := c.dead(); len(d) != 1 || !strings.Contains(d[0], "has more than 3 decimal places") {
			t.Errorf("dead letters: %v", d)
		}
	})
}
