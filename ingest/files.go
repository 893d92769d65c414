package ingest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// FileConfig describes a run over a file of records that are no lines.
type FileConfig struct {
	// Name identifies the file: as the topic of records and dead letters, and when a run is resumed.
	Name string
	// Run identifies the run, or the job of which it is one, in dead letters. Default: a new name each time.
	Run string
	// Resume goes on behind the records that the last snapshot of this job holds, after checking that the file has the
	// same size, beginning and end. Without it every run starts at the first record.
	Resume bool
	// Decode says how records become rows; its Schema is taken from the table, its Format is decode.Avro (object container
	// files), whose Writer is taken from the file, or decode.Arrow (Parquet files).
	Decode decode.Config
	Limits Limits
}

// RunFile reads an Avro object container file or a Parquet file into a table until it or ctx ends, and commits what it has
// read. The result counts what was committed, also when there is an error. One block of the file is in memory at a time, of
// Parquet a page of each column.
//
// A record that cannot be a row goes to the dead letters; a file that is broken ends the run behind what is before that.
func RunFile(ctx context.Context, file io.ReaderAt, size int64, cfg FileConfig, table Table, dead DeadLetter, env Env, events Events) (LinesResult, error) {
	if f := cfg.Decode.Format; f != decode.Avro && f != decode.Arrow {
		return LinesResult{}, fmt.Errorf("%w: files of format %q cannot be read", ErrConfig, cfg.Decode.Format)
	}
	if cfg.Run == "" {
		cfg.Run = env.NewID()
	}
	in := &fileInput{cfg: cfg, file: file, size: size}
	var err error
	if in.sum, err = in.checksum(); err != nil {
		return LinesResult{}, fmt.Errorf("read %s: %w", cfg.Name, err)
	}
	if cfg.Resume {
		if err := in.resumeFrom(ctx, table); err != nil {
			return LinesResult{}, err
		}
	}
	if events.Started != nil {
		events.Started(nil)
	}
	var total Committed
	err = passes(ctx, table, dead, events, func(again bool) error {
		s, err := in.pass(table, env, events)
		if err != nil {
			return err
		}
		defer s.rows.close()
		c := &committer{table: table, follower: s.batch.follower, dead: dead, env: env, events: events, limits: cfg.Limits.withDefaults(),
			progress:  func() Progress { return Progress{Properties: in.properties(s.done)} },
			published: func() { in.committed = s.done },
			eager:     again,
		}
		err = pump(ctx, s.run, c)
		total.add(c.total)
		return err
	})
	return LinesResult{Lines: total.Records, Rows: total.Rows, Rejected: total.Rejected, Bytes: total.Bytes, Snapshot: total.Snapshot}, err
}

// filePosition is how far a file was read.
type filePosition struct{ records, rejected int64 }

// fileInput is a file over all passes over it.
type fileInput struct {
	cfg  FileConfig
	file io.ReaderAt
	size int64
	sum  uint32 // of its beginning and end

	committed filePosition // of the last commit; owned by the committer's goroutine, and between two passes
}

// endBytes is how much of a file's beginning and end says whether it is the same. An Avro file has a random marker there.
const endBytes = 1 << 20

func (in *fileInput) checksum() (uint32, error) {
	sum := crc32.New(castagnoli)
	n := min(in.size, endBytes)
	_, err := io.Copy(sum, io.MultiReader(io.NewSectionReader(in.file, 0, n), io.NewSectionReader(in.file, in.size-n, n)))
	return sum.Sum32(), err
}

func (in *fileInput) properties(p filePosition) map[string]string {
	return map[string]string{PropKind: kindFile, PropTopic: in.cfg.Name, PropRun: in.cfg.Run,
		PropLine: strconv.FormatInt(p.records, 10), PropBytes: strconv.FormatInt(in.size, 10),
		PropChecksum: fmt.Sprintf("%08x", in.sum),
		PropRecords:  strconv.FormatInt(p.records, 10), PropRejected: strconv.FormatInt(p.rejected, 10)}
}

// resumeFrom begins behind what the last snapshot holds.
func (in *fileInput) resumeFrom(ctx context.Context, table Table) error {
	p, ok, err := table.LastProgress(ctx)
	if err != nil || !ok || p.Properties[PropKind] == "" {
		return err
	}
	props := p.Properties
	if kind, name := props[PropKind], props[PropTopic]; kind != kindFile || name != in.cfg.Name {
		return fmt.Errorf("%w: the last snapshot of this job holds the position of %s %q, not of file %q; use another job name or do not resume",
			ErrSourceChanged, kind, name, in.cfg.Name)
	}
	if mine := in.properties(filePosition{}); props[PropBytes] != mine[PropBytes] || props[PropChecksum] != mine[PropChecksum] {
		return fmt.Errorf("%w: file %q is not the one that was read before: it has another size, beginning or end; give the same file, or do not resume",
			ErrSourceChanged, in.cfg.Name)
	}
	if in.committed.records, err = parseCount(props, PropLine); err == nil {
		in.committed.rejected, err = parseCount(props, PropRejected)
	}
	return err
}

// fileSource reads a file from the last commit on.
type fileSource struct {
	in    *fileInput
	rows  fileRows
	batch batcher
	read  int64        // records decoded: owned by the source's goroutine
	done  filePosition // written: owned by the committer's goroutine
}

// fileRows are the records of a file.
type fileRows interface {
	// skip goes to behind the first n records; it is called before next.
	skip(n int64) error
	// follow reads on by a schema of the table, whose field with the row kind is op.
	follow(s *schema.Schema, op string) error
	// next fills in the next record, which is valid until the call after; io.EOF: there is none.
	next(r *decode.Record) error
	close()
}

// open opens the file; cfg is completed by what it says.
func (in *fileInput) open(cfg *decode.Config) (fileRows, error) {
	r := io.NewSectionReader(in.file, 0, in.size)
	if cfg.Format == decode.Arrow {
		f, err := openParquetFile(in.cfg.Name, r, cfg.Evolution != "" && cfg.Evolution != decode.Freeze)
		if err != nil {
			return nil, err
		}
		return f, f.follow(cfg.Schema, decode.OpField(cfg))
	}
	f, err := openAvroFile(r)
	if err != nil {
		return nil, err
	}
	cfg.Writer = &f.writer
	return avroRows{f}, nil
}

// avroRows are the records of a container file, whose form is not that of the table's.
type avroRows struct{ *avroFile }

func (avroRows) follow(*schema.Schema, string) error { return nil }

func (f avroRows) next(r *decode.Record) (err error) {
	r.Value, err = f.avroFile.next()
	return err
}

// pass makes a source that decodes by the schema that the table has now.
func (in *fileInput) pass(table Table, env Env, events Events) (*fileSource, error) {
	cfg := in.cfg.Decode
	cfg.Schema = table.Schema()
	rows, err := in.open(&cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: file %s: %w", ErrConfig, in.cfg.Name, err)
	}
	dec, err := decode.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return &fileSource{in: in, rows: rows, read: in.committed.records, done: in.committed,
		batch: batcher{source: in.cfg.Run, dec: dec, schema: cfg.Schema, follower: newFollower(table, cfg, env, events, in.cfg.Limits)}}, nil
}

// run is the source's goroutine.
func (s *fileSource) run(ctx context.Context, out chan<- unit) error {
	s.batch.out, s.batch.place = out, s
	if err := s.rows.skip(s.read); err != nil {
		return fmt.Errorf("skip %d records of %s: %w", s.read, s.in.cfg.Name, err)
	}
	var broken error
	var r decode.Record
	for ctx.Err() == nil {
		r = decode.Record{Topic: s.in.cfg.Name, Offset: s.read + 1}
		if err := s.rows.next(&r); err != nil {
			if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				broken = fmt.Errorf("read %s after record %d: %w", s.in.cfg.Name, s.read, err)
			}
			break
		}
		if err := s.batch.add(ctx, &r); err != nil {
			return stopped(ctx, err)
		}
		s.read++
		if !s.batch.full() {
			continue
		}
		s.batch.emit(ctx, true, -1, s.advance)
		was := s.batch.schema
		if err := s.batch.follow(ctx, -1, s.advance); err != nil {
			return err
		}
		if now := s.batch.schema; now != was {
			cfg := s.in.cfg.Decode
			cfg.Schema = now
			if err := s.rows.follow(now, decode.OpField(&cfg)); err != nil {
				return fmt.Errorf("%w: file %s: %w", ErrConfig, s.in.cfg.Name, err)
			}
		}
	}
	if !s.batch.empty() {
		s.batch.emit(ctx, true, -1, s.advance)
	}
	return broken
}

// emitBefore implements place: the record being decoded is not counted yet.
func (s *fileSource) emitBefore(ctx context.Context) bool {
	return s.batch.emit(ctx, true, -1, s.advance)
}

// advance gives the function that moves the committed position to where reading is now.
func (s *fileSource) advance() func() {
	read, tally := s.read, s.batch.tally
	return func() { s.done = filePosition{read, s.done.rejected + tally.Rejected} }
}
