package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// lettersIn reads a table of dead letters.
func lettersIn(t *testing.T, store storage.Store) (out []Letter) {
	t.Helper()
	for l, err := range ReadDeadLetters(context.Background(), store, LetterQuery{}, testEnv()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// newDead gives the dead letters of job "j".
func newDead(t *testing.T, store storage.Store, total int64) *DeadTable {
	t.Helper()
	d := NewDeadLetters(store, DeadLetterSettings{TotalBytes: total, Engine: engine.Settings{Job: "j"}}, testEnv())
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestDeadTable: what goes in comes out, bit for bit, and the bound holds.
func TestDeadTable(t *testing.T) {
	ctx, store := t.Context(), storage.NewMem()
	d := newDead(t, store, 0)
	big := bytes.Repeat([]byte("x"), maxRaw+5)
	recs := []decode.Record{
		{Topic: "t", Partition: 1, Offset: 5, Timestamp: 9, Key: []byte("k"), Value: []byte("\xff\x00"),
			Headers: []decode.Header{{Name: "a", Value: []byte("\xfe")}, {Name: "a", Value: nil}, {Name: "", Value: []byte{}}}},
		{Topic: "t", Partition: 1, Offset: 6},
		{Topic: "t", Partition: 1, Offset: 7, Value: []byte{}, Key: []byte{}},
		{Topic: "t", Partition: 2, Offset: 5, Key: big, Value: big},
		{Topic: "t", Partition: 2, Offset: 6, Value: []byte("v"), Headers: []decode.Header{{Name: "h", Value: big}}},
	}
	if err := d.Rewind(ctx, Progress{}); err != nil {
		t.Fatal(err)
	}
	var want []Letter
	for i := range recs {
		l := newLetter(&recs[i], "id", &decode.RowError{Offset: 3, Column: "c", Code: decode.BadValue, Reason: "is bad"})
		want = append(want, l)
		if err := d.Add(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := d.Flush(ctx, Progress{}); err != nil {
			t.Fatal(err)
		}
	}
	got := lettersIn(t, store)
	for i := range got {
		if got[i].Time.IsZero() || got[i].Job != "j" {
			t.Errorf("time %s, job %q", got[i].Time, got[i].Job)
		}
		got[i].Time, got[i].Job = time.Time{}, ""
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read %d letters, not those written", len(got))
	}
	if w := want[0]; w.Reason != `column "c": is bad (at byte 3 of the value)` || w.Code != decode.BadValue || w.Attempt != 1 ||
		want[1].Raw != nil || want[2].Raw == nil || !want[3].Truncated || len(want[3].Raw) != maxRaw || want[3].Size != maxRaw+5 || !want[4].Truncated || want[2].Truncated {
		t.Errorf("letters %+v", want[:3])
	}
	full := newDead(t, store, 2<<20)
	if err := full.Rewind(ctx, Progress{}); err != nil {
		t.Fatal(err)
	}
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = full.Add(ctx, Letter{Raw: big[:maxRaw], Offset: int64(n)})
	}
	if !errors.Is(err, ErrDeadLettersFull) || n > 3 {
		t.Errorf("after %d letters: %v", n, err)
	}
}

// TestDeadTableOfAnother: a table that is none of dead letters is left alone.
func TestDeadTableOfAnother(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING")
	d := newDead(t, mem, 0)
	if err := d.Rewind(t.Context(), Progress{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), `no column "source"`) {
		t.Errorf("rewind: %v", err)
	}
	for _, err := range ReadDeadLetters(t.Context(), mem, LetterQuery{}, testEnv()) {
		if !errors.Is(err, ErrConfig) {
			t.Errorf("read: %v", err)
		}
	}
}

// TestDeadRewind: letters whose records were not passed when the process ended go away, and no others.
func TestDeadRewind(t *testing.T) {
	ctx := t.Context()
	at := func(next int64) Progress {
		p := position{topic: "t", topicID: "id", next: map[int32]int64{0: next}}
		return Progress{Properties: p.properties()}
	}
	letter := func(off int64) Letter { return Letter{Source: "id", Topic: "t", Offset: off, Raw: []byte("x")} }
	offsets := func(store storage.Store) (out []int64) {
		for _, l := range lettersIn(t, store) {
			out = append(out, l.Offset)
		}
		return out
	}
	for name, c := range map[string]struct {
		goesOn Progress
		want   []int64
	}{
		"where the letters were passed": {at(9), []int64{2, 6, 8}},
		"behind them":                   {at(12), []int64{2, 6, 8}},
		"where they were not":           {at(5), []int64{2}},
		"after a reset":                 {at(1), []int64{2, 6, 8}},
		"without any position":          {Progress{}, []int64{2, 6, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			store := storage.NewMem()
			d := newDead(t, store, 0)
			for _, step := range []struct {
				from, to Progress
				letters  []int64
			}{{Progress{}, at(5), []int64{2}}, {at(5), at(9), []int64{6, 8}}} {
				if err := d.Rewind(ctx, step.from); err != nil {
					t.Fatal(err)
				}
				for _, o := range step.letters {
					if err := d.Add(ctx, letter(o)); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.Flush(ctx, step.to); err != nil {
					t.Fatal(err)
				}
			}
			other := newDead(t, store, 0)
			c.goesOn.Properties = withEpoch(c.goesOn.Properties)
			if err := other.Rewind(ctx, c.goesOn); err != nil {
				t.Fatal(err)
			}
			if got := offsets(store); !reflect.DeepEqual(got, c.want) {
				t.Errorf("letters %v, want %v", got, c.want)
			}
			if err := d.Add(ctx, letter(20)); err == nil {
				if err = d.Flush(ctx, at(30)); !errors.Is(err, engine.ErrFenced) {
					t.Errorf("the process before writes on: %v", err)
				}
			}
		})
	}
}

func withEpoch(props map[string]string) map[string]string {
	out := map[string]string{engine.PropEpoch: "7"}
	for k, v := range props {
		out[k] = v
	}
	return out
}

// TestDeadBorn: a process that was fenced has made the table of dead letters since this one looked for it. Its letters go
// when this one opens the table, wherever that is; those of a process that has fenced this one stay.
func TestDeadBorn(t *testing.T) {
	at := func(n, epoch int64) Progress {
		p := Progress{Properties: linePosition{lines: n}.properties("stdin", "j")}
		p.Properties[engine.PropEpoch] = fmt.Sprint(epoch)
		return p
	}
	letter := func(n int64) Letter {
		return Letter{Source: "j", Topic: "stdin", Offset: n, Raw: []byte("x"), Attempt: 1}
	}
	for name, c := range map[string]struct {
		commits []int64 // of the newer process, without letters
		last    func(ctx context.Context, older, newer *DeadTable) error
		fenced  bool
		want    []int64
	}{
		"at the first letter": {nil, func(ctx context.Context, _, newer *DeadTable) error {
			return errors.Join(newer.Add(ctx, letter(15)), newer.Flush(ctx, at(20, 2)))
		}, false, []int64{15}},
		"some commits later": {[]int64{8, 12}, func(ctx context.Context, _, newer *DeadTable) error {
			return errors.Join(newer.Add(ctx, letter(15)), newer.Flush(ctx, at(20, 2)))
		}, false, []int64{15}},
		"after records were given up": {[]int64{8}, func(ctx context.Context, _, newer *DeadTable) error {
			return newer.Rewind(ctx, at(8, 2))
		}, false, nil},
		"the older one comes last": {nil, func(ctx context.Context, older, newer *DeadTable) error {
			if err := errors.Join(newer.Add(ctx, letter(15)), newer.Flush(ctx, at(20, 2))); err != nil {
				return err
			}
			again := older.table
			older.table = nil // as if it had not opened it yet
			return errors.Join(older.Add(ctx, letter(6)), again.Close(ctx))
		}, true, []int64{15}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, store := t.Context(), storage.NewMem()
			older, newer := newDead(t, store, 0), newDead(t, store, 0)
			if err := errors.Join(older.Rewind(ctx, at(5, 1)), newer.Rewind(ctx, at(5, 2))); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(older.Add(ctx, letter(7)), older.Flush(ctx, at(9, 1))); err != nil { // then its commit is fenced
				t.Fatal(err)
			}
			for _, n := range c.commits {
				if err := newer.Flush(ctx, at(n, 2)); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.last(ctx, older, newer); c.fenced != errors.Is(err, engine.ErrFenced) || err != nil && !c.fenced {
				t.Error(err)
			}
			var got []int64
			for _, l := range lettersIn(t, store) {
				got = append(got, l.Offset)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("letters %v, want %v", got, c.want)
			}
		})
	}
}

// TestLongReason: of a reason that quotes a long name the beginning is kept.
func TestLongReason(t *testing.T) {
	name := strings.Repeat("日", maxRaw)
	l := newLetter(&decode.Record{}, "id", &decode.RowError{Column: name, Code: decode.BadValue, Reason: "is no column"})
	if len(l.Reason) > maxReason+8 || !utf8.ValidString(l.Reason) || !strings.HasPrefix(l.Reason, `column "日日`) || l.bytes() > 2*maxReason {
		t.Errorf("%d bytes: %.40q", len(l.Reason), l.Reason)
	}
}

// afterFlush calls a function when letters are durable.
type afterFlush struct {
	*DeadTable
	f func()
}

func (a *afterFlush) Flush(ctx context.Context, next Progress) error {
	err := a.DeadTable.Flush(ctx, next)
	a.f()
	return err
}

// TestDeadReread: a letter that is durable when the commit that passes its record finds a newer schema is no letter any
// more if the record fits that.
func TestDeadReread(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "v INT")
	deadStore, altered := storage.NewMem(), false
	dead := &afterFlush{newDead(t, deadStore, 0), func() {
		if n := len(lettersIn(t, deadStore)); !altered && n != 2 {
			t.Errorf("%d letters", n)
		}
		if !altered {
			altered = true
			alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}}, addColumn("w"))
		}
	}}
	table := openTable(t, mem, "j")
	in := strings.NewReader(`{"id":1,"v":1}` + "\n" + `{"id":2,"v":3000000000,"w":"x"}` + "\n" + `{"id":3,"v":"no"}` + "\n")
	res, err := RunLines(t.Context(), in, LinesConfig{}, table, dead, testEnv(), Events{})
	if err != nil || !altered {
		t.Fatal(altered, err)
	}
	rows, letters := scan(t, mem, 1), lettersIn(t, deadStore)
	if len(rows) != 2 || !reflect.DeepEqual(rows["2"], []any{int64(2), int64(3000000000), "x"}) || len(letters) != 1 || letters[0].Offset != 3 || res.Rejected != 1 {
		t.Errorf("%+v: rows %v, letters %+v", res, rows, letters)
	}
}

// TestRefusals: the share counts within the window only, and not of a few records.
func TestRefusals(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRefusals(PauseRule{Percent: 50, Window: 10 * time.Second, Least: 100}, now)
	steps := []struct {
		after             time.Duration
		records, rejected int64
		over              bool
	}{
		{0, 90, 90, false}, {0, 100, 0, false}, {time.Second, 10, 9, false}, {time.Second, 10, 10, true},
		{9 * time.Second, 99, 99, true}, {11 * time.Second, 99, 99, false}, {0, 1, 0, false}, {0, 1, 1, true},
		{time.Hour, 200, 99, false}, {0, 1, 0, false}, {10 * time.Second, 100, 0, false}, {time.Second, 100, 51, false},
	}
	for i, s := range steps {
		now = now.Add(s.after)
		if err := r.add(now, s.records, s.rejected); errors.Is(err, ErrTooManyRefused) != s.over {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if err := newRefusals(PauseRule{}, now).add(now, 1e6, 1e6); err != nil {
		t.Error(err)
	}
}

// TestPause: a pipeline that refuses too much ends soon, with all it took where it belongs, and goes on behind it.
func TestPause(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table, cfg := appendTable(t), b.config()
	cfg.Decode.BatchRows = 10
	cfg.Limits.CommitInterval = time.Hour
	cfg.Limits.Pause = PauseRule{Percent: 40, Least: 20}
	var rs []*kgo.Record
	for i := range 1000 {
		v := "bad"
		if i%2 == 0 || i < 20 {
			v = fmt.Sprintf(`{"v":%d}`, i)
		}
		rs = append(rs, message("t", 0, "", v))
	}
	b.sendAll(rs)
	dead := &list{}
	seen := 0
	for runs := 0; seen < 1000; runs++ {
		if runs > 100 {
			t.Fatal("it does not get on")
		}
		p := start(cfg, table, dead, Events{})
		table.until(t, "pause or end", func() bool { return len(p.done) > 0 })
		if err := p.wait(t); !errors.Is(err, ErrTooManyRefused) {
			t.Fatal(err)
		}
		if n := len(table.committed()) + dead.flushed; n <= seen {
			t.Fatalf("run %d has taken nothing", runs)
		} else {
			seen = n
		}
		if seen == 1000 {
			return
		}
		cfg.Limits.Pause.Least = 1
	}
}

// TestPauseUncommitted: where the commit of what was taken fails, that is what ends the pipeline, so that it is tried again.
func TestPauseUncommitted(t *testing.T) {
	table := appendTable(t)
	table.fault = func(call string) (error, bool) {
		if call == "commit" {
			return errCrash, false
		}
		return nil, false
	}
	cfg := LinesConfig{Limits: Limits{CommitInterval: time.Hour, Pause: PauseRule{Percent: 40, Least: 20}}}
	_, err := RunLines(t.Context(), strings.NewReader(strings.Repeat("bad\n", 100)), cfg, table, &list{}, testEnv(), Events{})
	if !errors.Is(err, errCrash) || errors.Is(err, ErrTooManyRefused) {
		t.Error(err)
	}
	table.fault = nil
	_, err = RunLines(t.Context(), strings.NewReader(strings.Repeat("bad\n", 100)), cfg, table, &list{}, testEnv(), Events{})
	if !errors.Is(err, ErrTooManyRefused) || table.property(PropRejected) != "100" {
		t.Error(err, table.property(PropRejected))
	}
}

// hardRecords is H22 for JSON: records that are broken in every way, between good ones.
func hardRecords(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING", "part INT", "off BIGINT")
	table, deadStore := openTable(t, mem, "j"), storage.NewMem()
	cfg := b.config()
	cfg.Decode.MaxRecordBytes = 1000
	want := map[int64]decode.Code{1: decode.Malformed, 2: decode.Malformed, 3: decode.Malformed, 4: decode.NotRecord, 5: decode.NoKey, 6: decode.NoKey, 7: decode.TooLarge}
	values := []string{`{"id":1,"v":"first"}`, "{\"id\":2,\"v\":\"a\xff\"}", `{"id":3,"v":"cut`, "", "\x00\x00\x00\x00\x07\x02", "-", `{"id":null}`,
		`{"id":8,"v":"` + strings.Repeat("x", 1000) + `"}`, `{"id":9,"v":"last"}`}
	for _, v := range values {
		b.send("t", 0, "", v)
	}
	p := start(cfg, table, newDead(t, deadStore, 0), Events{})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		last, _, err := table.LastProgress(t.Context())
		if err != nil || time.Now().After(end) {
			t.Fatal("the offsets do not advance", err)
		}
		if last.Properties[PropOffsets] == `{"0":9}` {
			break
		}
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if rows := scan(t, mem, 1); len(rows) != 2 || rows["1"] == nil || rows["9"] == nil {
		t.Errorf("rows %v", rows)
	}
	got := map[int64]decode.Code{}
	for _, l := range lettersIn(t, deadStore) {
		got[l.Offset] = l.Code
		if v := values[l.Offset]; l.Topic != "t" || l.Partition != 0 || l.Reason == "" || v != "-" && string(l.Raw) != v || (v == "-") != (l.Raw == nil) || l.Timestamp == 0 {
			t.Errorf("letter %+v", l)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
}

func init() { hard[22] = hardRecords }

// unwilling is a store of which commits fail while it is told to.
type unwilling struct {
	storage.Store
	on bool
}

func (f *unwilling) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	if f.on {
		return errors.New("the storage does not answer")
	}
	return f.Store.PutIfAbsent(ctx, name, data)
}

// TestDeadLettersTries: tries that failed, each with an end of the table, do not count as letters.
func TestDeadLettersTries(t *testing.T) {
	store := &unwilling{Store: storage.NewMem()}
	d := NewDeadLetters(store, DeadLetterSettings{TotalBytes: 200 << 10, Engine: engine.Settings{}}, testEnv())
	ctx := t.Context()
	letter := Letter{Topic: "t", Raw: make([]byte, 20<<10), Code: decode.NoTable}
	if err := errors.Join(d.Add(ctx, letter), d.Flush(ctx, Progress{})); err != nil {
		t.Fatal(err)
	}
	store.on = true
	for try := range 20 { // as a route does
		letter.Offset = 1
		err := d.Add(ctx, letter)
		if err == nil {
			within, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			err = d.Flush(within, Progress{})
			cancel()
		}
		if errors.Is(err, ErrDeadLettersFull) {
			t.Fatalf("try %d with the same letter: %v", try, err)
		}
		if err == nil {
			t.Fatal("it does not fail")
		}
		_ = d.Close(ctx)
		store.on = false
		if err := d.open(ctx, false); err != nil {
			t.Fatal(err)
		}
		store.on = true
	}
}
