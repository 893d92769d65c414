package ingest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/storage"
)

// DeadLetterDir is the folder of a table that holds refused records. Paimon's orphan cleaner does not look there.
const DeadLetterDir = "calve/dead-letter"

// ErrDeadLettersFull stops a pipeline whose dead letters have reached their bound: refused records are never dropped.
var ErrDeadLettersFull = errors.New("dead letters are full")

// Letter is one refused record, as it stands in a dead-letter file: a JSON object a line.
type Letter struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Timestamp int64     `json:"timestamp,omitempty"` // of the record, milliseconds
	Key       []byte    `json:"key"`                 // base64; null: none
	Raw       []byte    `json:"raw"`                 // the record's value in base64; null: a tombstone
	Size      int       `json:"size"`                // bytes of the value
	Truncated bool      `json:"truncated,omitempty"` // Raw or Key is only the beginning: the whole is at the source
	Reason    string    `json:"reason"`
	Time      time.Time `json:"time"` // when it was refused
}

// maxRaw bounds the bytes that are kept of a refused record's value, and of its key.
const maxRaw = 1 << 20

// newLetter copies what is kept of a record.
func newLetter(r *decode.Record, reason error) Letter {
	l := Letter{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: r.Key, Raw: r.Value, Size: len(r.Value) + r.Cut, Truncated: r.Cut > 0, Reason: reason.Error()}
	if len(l.Raw) > maxRaw {
		l.Raw, l.Truncated = l.Raw[:maxRaw], true
	}
	if len(l.Key) > maxRaw {
		l.Key, l.Truncated = l.Key[:maxRaw], true
	}
	l.Key, l.Raw = bytes.Clone(l.Key), bytes.Clone(l.Raw)
	return l
}

// DeadLetter takes refused records. It is used by one goroutine at a time.
type DeadLetter interface {
	// Add keeps a record for the next Flush, or writes it already.
	Add(ctx context.Context, l Letter) error
	// Flush returns when everything added is durable.
	Flush(ctx context.Context) error
	// Discard forgets what was added since the last Flush and is not written yet: these records are decoded again. One
	// that was written already may end up in the table as well as here.
	Discard()
}

// DeadLetterSettings bound the dead letters. Zero values mean the defaults.
type DeadLetterSettings struct {
	// FileBytes is the size at which a file is written before the next commit. Default 8 MiB.
	FileBytes int
	// TotalBytes bounds all dead-letter files of the table; beyond it the pipeline stops with ErrDeadLettersFull. Default 1 GiB.
	TotalBytes int64
	// Patience is how long a failing store is tried again. Default 1 min.
	Patience time.Duration
}

// deadLetters writes JSON lines under DeadLetterDir. Files have unique names and are never changed. A crash between the
// file and the snapshot that passes its records lets them be refused once more: ReadDeadLetters gives each record once.
type deadLetters struct {
	store storage.Store
	set   DeadLetterSettings
	env   Env
	buf   bytes.Buffer
	used  int64 // bytes of all files; -1: not known yet
}

// NewDeadLetters gives the dead letters of a table; store is the table's folder.
func NewDeadLetters(store storage.Store, set DeadLetterSettings, env Env) DeadLetter {
	if set.FileBytes <= 0 {
		set.FileBytes = 8 << 20
	}
	if set.TotalBytes <= 0 {
		set.TotalBytes = 1 << 30
	}
	if set.Patience <= 0 {
		set.Patience = time.Minute
	}
	return &deadLetters{store: store, set: set, env: env, used: -1}
}

// Add implements DeadLetter.
func (d *deadLetters) Add(ctx context.Context, l Letter) error {
	l.Time = d.env.Now().UTC()
	line, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("dead letter of %s/%d offset %d: %w", l.Topic, l.Partition, l.Offset, err)
	}
	d.buf.Write(line)
	d.buf.WriteByte('\n')
	if d.buf.Len() >= d.set.FileBytes {
		return d.Flush(ctx)
	}
	return nil
}

// Discard implements DeadLetter.
func (d *deadLetters) Discard() { d.buf.Reset() }

// Flush implements DeadLetter.
func (d *deadLetters) Flush(ctx context.Context) error {
	if d.buf.Len() == 0 {
		return nil
	}
	if err := d.checkRoom(ctx); err != nil {
		return err
	}
	r := retry{env: d.env, patience: d.set.Patience, what: "write dead letters"}
	err := r.do(ctx, func(ctx context.Context) error { return d.write(ctx) })
	if err != nil {
		return err
	}
	d.used += int64(d.buf.Len())
	d.buf.Reset()
	return nil
}

// checkRoom holds the bound on the total size. The files are listed once, when the first is about to be written.
func (d *deadLetters) checkRoom(ctx context.Context) error {
	if d.used < 0 {
		used := int64(0)
		for f, err := range d.store.List(ctx, DeadLetterDir) {
			if err != nil {
				return fmt.Errorf("list dead letters: %w", err)
			}
			used += f.Size
		}
		d.used = used
	}
	if d.used+int64(d.buf.Len()) > d.set.TotalBytes {
		return fmt.Errorf("%w: %s holds %d bytes and %d more are to be written, the bound is %d; look at the reasons there, then move the files away or raise the bound",
			ErrDeadLettersFull, d.store.URL(DeadLetterDir), d.used, d.buf.Len(), d.set.TotalBytes)
	}
	return nil
}

// write puts the buffer into a new file. A new attempt takes a new name, as the outcome of a failed one may be unknown.
func (d *deadLetters) write(ctx context.Context) error {
	name := fmt.Sprintf("%s/%s-%s.jsonl", DeadLetterDir, d.env.Now().UTC().Format("20060102T150405.000"), d.env.NewID())
	up, err := d.store.Create(ctx, name)
	if err != nil {
		return err
	}
	defer up.Abort()
	if _, err := up.Write(d.buf.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", d.store.URL(name), err)
	}
	return up.Commit()
}

// ReadDeadLetters yields the refused records of a table in the order of their files, each source position once.
func ReadDeadLetters(ctx context.Context, store storage.Store) iter.Seq2[Letter, error] {
	type position struct {
		topic     string
		partition int32
		offset    int64
	}
	return func(yield func(Letter, error) bool) {
		seen := map[position]bool{}
		for f, err := range store.List(ctx, DeadLetterDir) {
			if err == nil && (f.Dir || !strings.HasSuffix(f.Name, ".jsonl")) {
				continue
			}
			var letters []Letter
			if err == nil {
				letters, err = readLetters(ctx, store, f.Name)
			}
			if err != nil {
				yield(Letter{}, err)
				return
			}
			for _, l := range letters {
				p := position{l.Topic, l.Partition, l.Offset}
				if seen[p] {
					continue
				}
				seen[p] = true
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}

// readLetters reads one file.
func readLetters(ctx context.Context, store storage.Store, name string) (letters []Letter, err error) {
	f, err := store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	dec := json.NewDecoder(bufio.NewReader(io.NewSectionReader(f, 0, f.Size())))
	for {
		var l Letter
		if err := dec.Decode(&l); err == io.EOF {
			return slices.Clip(letters), nil
		} else if err != nil {
			return nil, fmt.Errorf("dead letters %s at byte %d: %w", store.URL(name), dec.InputOffset(), err)
		}
		letters = append(letters, l)
	}
}
