package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// ErrDeadLettersFull stops a pipeline whose dead letters have reached their bound: refused records are never dropped.
var ErrDeadLettersFull = errors.New("dead letters are full")

// Letter is one refused record, a row of the table of dead letters. Source, Topic, Partition and Offset are its key.
type Letter struct {
	Source    string          `json:"source"` // what offsets count in: the id of a Kafka topic, the run over an input
	Topic     string          `json:"topic"`
	Partition int32           `json:"partition"`
	Offset    int64           `json:"offset"`
	Timestamp int64           `json:"timestamp,omitempty"` // of the record, milliseconds; 0: it has none
	Headers   []decode.Header `json:"headers,omitempty"`
	Key       []byte          `json:"key"`                 // nil: none
	Raw       []byte          `json:"value"`               // the record's value; nil: a tombstone
	Size      int64           `json:"size"`                // bytes of the value; of a row of Arrow, of what is kept
	Truncated bool            `json:"truncated,omitempty"` // value, key or headers are not whole: the whole is at the source
	Code      decode.Code     `json:"code"`
	Reason    string          `json:"message"`
	Attempt   int32           `json:"attempt"` // how often the record was decoded in vain
	Time      time.Time       `json:"time"`    // when it was refused last
	Job       string          `json:"job"`     // of the pipeline that refused it
}

// Bounds of what is kept of a refused record: of its value and of its key, of all its headers, and of the reason, which
// may quote names that the record has.
const (
	maxRaw     = 1 << 20
	maxHeaders = 64 << 10
	maxReason  = 4 << 10
)

// reasonOf gives the text of an error; of a long one the beginning, in whole characters.
func reasonOf(err error) string {
	s := err.Error()
	if len(s) <= maxReason {
		return s
	}
	end := maxReason
	for end > maxReason-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…" // a copy, so that the whole is not kept
}

// newLetter copies what is kept of a record.
func newLetter(r *decode.Record, source string, reason error) Letter {
	l := Letter{Source: source, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: r.Key, Raw: r.Value, Size: int64(len(r.Value) + r.Cut), Truncated: r.Cut > 0,
		Code: decode.CodeOf(reason), Reason: reasonOf(reason), Attempt: 1}
	if r.Rows != nil { // as JSON, which can be looked at, and decoded again
		var whole bool
		l.Raw, whole = decode.RowText(r.Rows, r.Row, maxRaw)
		l.Size, l.Truncated = int64(len(l.Raw)), !whole
	}
	if len(l.Raw) > maxRaw {
		l.Raw, l.Truncated = l.Raw[:maxRaw], true
	}
	if len(l.Key) > maxRaw {
		l.Key, l.Truncated = l.Key[:maxRaw], true
	}
	l.Key, l.Raw = bytes.Clone(l.Key), bytes.Clone(l.Raw)
	room := maxHeaders
	for _, h := range r.Headers {
		if room -= len(h.Name) + len(h.Value) + 32; room < 0 {
			l.Truncated = true
			break
		}
		l.Headers = append(l.Headers, decode.Header{Name: h.Name, Value: bytes.Clone(h.Value)})
	}
	return l
}

// bytes is about the memory that the letter takes.
func (l *Letter) bytes() int {
	n := len(l.Key) + len(l.Raw) + len(l.Reason) + 200
	for i := range l.Headers {
		n += len(l.Headers[i].Name) + len(l.Headers[i].Value) + 32
	}
	return n
}

// record is what was refused, to be decoded again.
func (l *Letter) record() decode.Record {
	return decode.Record{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Timestamp: l.Timestamp, Key: l.Key, Value: l.Raw, Headers: l.Headers}
}

// DeadLetter takes refused records. It is used by one goroutine at a time.
type DeadLetter interface {
	// Rewind tells that the pipeline reads on from a position, which the table's last snapshot holds: letters of records
	// behind it are forgotten, for these records are decoded again. It is called before the first Add.
	Rewind(ctx context.Context, at Progress) error
	// Add keeps a record for the next Flush.
	Add(ctx context.Context, l Letter) error
	// Flush returns when everything added is durable. Next is the position that the table's next snapshot will hold.
	Flush(ctx context.Context, next Progress) error
}

// DeadLetterSettings say how dead letters are kept. Zero values mean the defaults.
type DeadLetterSettings struct {
	// TotalBytes bounds the data files of the table of dead letters; beyond it the pipeline stops with
	// ErrDeadLettersFull. Default 1 GiB.
	TotalBytes int64
	// Engine is how the table is opened. Its Job is that of the pipeline.
	Engine engine.Settings
	// Opened, if set, is called with the table when it is open; it is closed by Close.
	Opened func(*engine.Table)
}

// Properties of the snapshots of a table of dead letters. Beside them such a snapshot has the properties of Progress that
// the pipeline's table was about to get (position.go).
const (
	propDeadBase  = "calve.dead.base"  // those it had, as JSON
	propDeadEpoch = "calve.dead.epoch" // of the job in the pipeline's table, whose process wrote the letters
)

// DeadTable keeps refused records in a table beside the pipeline's own. It is made when the first record is refused.
//
// Letters are durable before the snapshot that passes their records. If the process ends between the two, or records are
// given up to be decoded by a newer schema, letters are there of records that are decoded once more, and may go well.
// Each flush therefore tells between which positions of the pipeline its letters lie, and when the pipeline goes on from
// the first of the two (Rewind) they are removed. Since there is a commit after each flush, or a Rewind, no others than
// those of the last flush can be concerned. A record that is refused again has the key it had.
type DeadTable struct {
	store storage.Store
	set   DeadLetterSettings
	env   Env

	table *engine.Table
	rows  *letterRows
	at    map[string]string // properties of the position that the pipeline's table holds
	from  map[string]string // those at the first Rewind
	epoch int64             // of this process in the pipeline's table; 0: not known
	added int64             // bytes of letters since the last flush
}

// NewDeadLetters gives the dead letters of a pipeline; store is the folder of their table. Close it when the pipeline has
// ended.
func NewDeadLetters(store storage.Store, set DeadLetterSettings, env Env) *DeadTable {
	if set.TotalBytes <= 0 {
		set.TotalBytes = 1 << 30
	}
	set.Engine.Restart = true // what the job's progress is for is told by the last flush alone
	return &DeadTable{store: store, set: set, env: env}
}

// deadColumns are those of a table of dead letters.
const deadColumns = `
	source STRING NOT NULL COMMENT 'what offsets count in: id of the topic, run over an input',
	topic STRING NOT NULL, "partition" INT NOT NULL, "offset" BIGINT NOT NULL,
	"timestamp" TIMESTAMP_LTZ(6) COMMENT 'of the record',
	headers ARRAY<ROW<name STRING, "value" BYTES>>, "key" BYTES, "value" BYTES,
	size BIGINT NOT NULL COMMENT 'bytes of the whole value', truncated BOOLEAN NOT NULL,
	code STRING NOT NULL, message STRING NOT NULL, attempt INT NOT NULL,
	"time" TIMESTAMP_LTZ(6) NOT NULL COMMENT 'when it was refused last', job STRING NOT NULL`

// deadKey is the primary key of a table of dead letters.
var deadKey = []string{"source", "topic", "partition", "offset"}

// deadSchema is the first schema of a table of dead letters.
func deadSchema(now time.Time) (*schema.Schema, error) {
	cols, err := schema.ParseColumns(deadColumns)
	if err != nil {
		return nil, err
	}
	return schema.New(schema.Spec{Columns: cols, PrimaryKeys: deadKey, TimeMillis: now.UnixMilli(), Comment: "records that calve refused",
		Options: map[string]string{"bucket": "1", "compaction.optimization-interval": "1 min"}})
}

// checkDeadSchema refuses a table that is none of dead letters. Further columns may be there if they take nulls.
func checkDeadSchema(s *schema.Schema, where string) error {
	want, err := deadSchema(time.Time{})
	if err != nil {
		return err
	}
	for _, f := range want.Fields {
		i, ok := s.Field(f.Name)
		if !ok || !s.Fields[i].Type.SameValues(f.Type) {
			return fmt.Errorf("%w: %s is no table of dead letters: it has no column %q of type %s; give the dead letters another table",
				ErrConfig, where, f.Name, f.Type)
		}
	}
	if len(s.PrimaryKeys) != len(deadKey) {
		return fmt.Errorf("%w: %s is no table of dead letters: its primary key is not (source, topic, partition, offset)", ErrConfig, where)
	}
	return nil
}

// open opens the table, and makes it before if create is set. Without that a table that is not there is no error.
func (d *DeadTable) open(ctx context.Context, create bool) error {
	if d.table != nil {
		return nil
	}
	t, err := engine.Open(ctx, d.store, d.set.Engine, d.env)
	if errors.Is(err, manifest.ErrNoTable) {
		if !create {
			return nil
		}
		s, err := deadSchema(d.env.Now())
		if err == nil {
			err = engine.Create(ctx, d.store, s)
		}
		if err != nil && !errors.Is(err, manifest.ErrTableExists) {
			return fmt.Errorf("make the table of dead letters: %w", err)
		}
		t, err = engine.Open(ctx, d.store, d.set.Engine, d.env)
		if err != nil {
			return fmt.Errorf("dead letters: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	if err := checkDeadSchema(t.Schema(), d.store.URL("")); err != nil {
		return errors.Join(err, t.Close(ctx))
	}
	d.table, d.rows = t, newLetterRows(t.Schema())
	if d.set.Opened != nil {
		d.set.Opened(t)
	}
	return nil
}

// Close closes the table; what was not flushed is given up.
func (d *DeadTable) Close(ctx context.Context) error {
	if d.table == nil {
		return nil
	}
	t := d.table
	d.table, d.added = nil, 0
	return t.Close(ctx)
}

// URL is where the table is.
func (d *DeadTable) URL() string { return d.store.URL("") }

// Rewind implements DeadLetter.
func (d *DeadTable) Rewind(ctx context.Context, at Progress) error {
	d.at = withoutEpoch(at.Properties)
	if err := d.ready(ctx, false); err != nil {
		return err
	}
	if d.from == nil {
		epoch, err := parseCount(at.Properties, engine.PropEpoch)
		if err != nil {
			return err
		}
		d.from, d.epoch = d.at, epoch
	}
	if d.table == nil {
		return nil
	}
	d.rows.reset()
	d.added = 0
	if err := d.table.Discard(ctx); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	return d.forget(ctx, d.at)
}

// ready opens the table if it is not open, and makes it before if create is set. Where it was not there at the first
// Rewind and is now, another process of the job has made it. One that was fenced by this one flushed on top of the position
// of that Rewind; its records are decoded by this one, and its letters go. One that has fenced this one keeps its letters.
func (d *DeadTable) ready(ctx context.Context, create bool) error {
	if d.table != nil {
		return nil
	}
	if err := d.open(ctx, create); err != nil || d.table == nil || d.from == nil {
		return err
	}
	if err := d.inherit(ctx); err != nil {
		return errors.Join(err, d.Close(ctx)) // the next call looks again
	}
	return nil
}

// inherit deals with the letters of a table that another process has made.
func (d *DeadTable) inherit(ctx context.Context) error {
	last, _, err := d.table.LastProgress(ctx)
	if err != nil {
		return err
	}
	by, err := parseCount(last.Properties, propDeadEpoch)
	if err != nil {
		return err
	}
	if d.epoch > 0 && by > d.epoch {
		return fmt.Errorf("dead letters: %w: %s has letters of epoch %d of job %q, and this is epoch %d",
			engine.ErrFenced, d.URL(), by, d.set.Engine.Job, d.epoch)
	}
	return d.forget(ctx, d.from)
}

// forget removes the letters of the last flush if it was made for a commit on top of a position that never came to be.
func (d *DeadTable) forget(ctx context.Context, at map[string]string) error {
	last, ok, err := d.table.LastProgress(ctx)
	if err != nil || !ok {
		return err
	}
	next := withoutEpoch(last.Properties)
	var base map[string]string
	if text, given := next[propDeadBase]; !given {
		return nil
	} else if err := json.Unmarshal([]byte(text), &base); err != nil {
		return fmt.Errorf("%s: snapshot property %s: %w", d.URL(), propDeadBase, err)
	}
	delete(next, propDeadBase)
	delete(next, propDeadEpoch)
	if maps.Equal(next, at) || !maps.Equal(base, at) {
		return nil // the records are passed, or the pipeline was reset since
	}
	return d.remove(ctx, func(l *Letter) bool {
		return l.Job == d.set.Engine.Job && passed(next, l) && !passed(base, l)
	})
}

// remove deletes letters and publishes that.
func (d *DeadTable) remove(ctx context.Context, which func(*Letter) bool) error {
	n := 0
	for l, err := range ReadDeadLetters(ctx, d.store, LetterQuery{Bare: true}, d.env) {
		if err != nil {
			return err
		}
		if !which(&l) {
			continue
		}
		n++
		d.rows.add(&l, schema.Delete)
		if err := d.write(ctx, maxKept); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	if err := d.write(ctx, 0); err != nil {
		return err
	}
	d.env.Log.Info("dead letters of records that are decoded again are removed", "table", d.URL(), "letters", n)
	if _, err := d.table.Commit(ctx, d.progress(d.at)); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	return nil
}

// Add implements DeadLetter.
func (d *DeadTable) Add(ctx context.Context, l Letter) error {
	if err := d.ready(ctx, true); err != nil {
		return err
	}
	l.Time, l.Job = d.env.Now().UTC(), d.set.Engine.Job
	if n := int64(l.bytes()); d.added+n > d.set.TotalBytes-d.used() {
		return fmt.Errorf("%w: %s holds %d bytes and %d more are to be written, the bound is %d; `calve dead ls` tells the reasons: replay or drop them, or raise the bound",
			ErrDeadLettersFull, d.URL(), d.used(), d.added+n, d.set.TotalBytes)
	} else {
		d.added += n
	}
	d.rows.add(&l, schema.Insert)
	return d.write(ctx, maxKept)
}

// used is the size of the table's live files.
func (d *DeadTable) used() (n int64) {
	for _, b := range d.table.Metrics().Bytes {
		n += b
	}
	return n
}

// write hands gathered rows to the table if they take more than some bytes.
func (d *DeadTable) write(ctx context.Context, most int) error {
	if d.rows.n == 0 || d.rows.size < most {
		return nil
	}
	if err := d.table.Write(ctx, d.rows.take()); err != nil {
		return fmt.Errorf("write dead letters: %w", err)
	}
	return nil
}

// Flush implements DeadLetter.
func (d *DeadTable) Flush(ctx context.Context, next Progress) error {
	to := withoutEpoch(next.Properties)
	if d.added > 0 {
		if err := d.write(ctx, 0); err != nil {
			return err
		}
		if _, err := d.table.Commit(ctx, d.progress(to)); err != nil {
			return fmt.Errorf("commit dead letters: %w", err)
		}
	}
	d.added, d.at = 0, to
	return nil
}

// progress is that of a flush between the position of the pipeline's table and the next one.
func (d *DeadTable) progress(next map[string]string) Progress {
	base, err := json.Marshal(d.at)
	if err != nil { // cannot happen: a map of strings
		base = []byte("{}")
	}
	props := maps.Clone(next)
	if props == nil {
		props = map[string]string{}
	}
	props[propDeadBase] = string(base)
	if d.epoch > 0 {
		props[propDeadEpoch] = strconv.FormatInt(d.epoch, 10)
	}
	return Progress{Properties: props}
}

func withoutEpoch(props map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range props {
		if k != engine.PropEpoch {
			out[k] = v
		}
	}
	return out
}

// passed reports whether the record of a letter lies before a pipeline's position.
func passed(props map[string]string, l *Letter) bool {
	switch props[PropKind] {
	case kindKafka:
		p, ok, err := parsePosition(props)
		if err != nil || !ok || p.topicID != l.Source || p.topic != l.Topic {
			return false
		}
		next, known := p.next[l.Partition]
		return known && l.Offset < next
	case kindLines, kindFile:
		line, err := parseCount(props, PropLine)
		return err == nil && props[PropRun] == l.Source && props[PropTopic] == l.Topic && l.Offset <= line
	case kindPush:
		n, err := parseCount(props, PropRejected)
		return err == nil && l.Source == pushSource && l.Offset < n
	}
	return false
}
