// Package kafkaout writes the changes of a table into a Kafka topic, each exactly once.
//
// A transaction has records and the position behind them: the metadata of the offset that a group, named by the
// transactional id, has committed of partition 0 of the topic (TxnOffsetCommit). Who begins takes the transactional id,
// which ends or aborts the transaction of whoever had it before and fences it, and then reads the position. So what readers
// of committed records see has every change once, in the order of the stream for each key.
//
// Records are gathered first, so that a transaction lives no longer than its writing, however slowly its rows are found:
// brokers abort those that stay open.
package kafkaout

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/internal/changes"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
)

var (
	// ErrFenced: another process writes with the same id now.
	ErrFenced = errors.New("another process writes this stream now")
	// ErrPosition: where to go on is not known: the topic has records, and its group no position, or one of another stream.
	ErrPosition = errors.New("position of the stream not known")
	// ErrRescan: a gap cannot be told to all readers of the topic before what follows it.
	ErrRescan = errors.New("changes that are gone cannot be told in this topic")
)

// Config says where to and how.
type Config struct {
	Brokers []string
	Topic   string
	// ID is the transactional id and the name of the group that has the position. Of two processes with one ID the later one
	// goes on and the earlier one ends with ErrFenced.
	ID     string
	Format string // changes.JSON (rows and tombstones) or changes.Debezium
	Source changes.Source
	TLS    *tls.Config // nil: plain text
	SASL   ingest.SASL
	Client []kgo.Opt // further options of the client

	// Begin has a topic without a position begun though it has records. They may be of others, or of this stream, whose
	// position brokers forget (offsets.retention.minutes) when nothing was written for long.
	Begin bool
	// MaxBytes is the most that a record may have, as the topic's max.message.bytes; 0: the client's default of 1 MB.
	MaxBytes int32

	// A transaction ends with a snapshot, and within one after so many records or bytes. Defaults 10,000 and 8 MiB.
	Records int
	Bytes   int
}

// Env is what the package takes from the world.
type Env struct {
	After func(time.Duration) <-chan time.Time
	Log   *slog.Logger
}

// patience is how long brokers may take to answer before the stream ends with an error.
const patience = time.Minute

// Run writes what a tail tells until it ends. It begins behind the position that the topic has; where there is none, at
// spec.From or where spec.Consumer stands. After an error it can be called again.
//
// The position moves with records. A stream that has none for longer than snapshots are kept needs a consumer.
func Run(ctx context.Context, r *reader.Reader, spec reader.TailSpec, cfg Config, env Env) error {
	w, err := open(ctx, cfg, env)
	if err != nil {
		return err
	}
	defer w.client.CloseAllowingRebalance()
	w.stream = streamOf(spec, cfg)
	spec.Current = cfg.Format == changes.JSON // a value is the row as it is then
	if err := w.canTellGaps(ctx, spec); err != nil {
		return err
	}
	at, err := w.position(ctx)
	switch {
	case err != nil:
		return err
	case at != nil:
		spec.IgnoreProgress, err = behind(ctx, r, spec, at)
		spec.From = reader.Start{Mode: reader.FromPosition, At: *at}
	case !cfg.Begin:
		err = w.empty(ctx)
	}
	if err != nil {
		return err
	}
	for c, err := range r.Tail(ctx, spec) {
		if err == nil {
			err = w.take(ctx, c)
		}
		if err != nil {
			return errors.Join(err, w.abort(ctx))
		}
	}
	return nil
}

// streamOf tells streams apart whose positions mean different rows.
func streamOf(spec reader.TailSpec, cfg Config) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %q %q %d %d %t", cfg.Source.Database, cfg.Source.Table, cfg.Format, spec.Where, spec.Columns, spec.Share.Index, spec.Share.Of, spec.BeforeImage)
	if spec.Order != reader.Stored {
		fmt.Fprintf(h, " order %d", spec.Order)
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// canTellGaps refuses to rescan into a topic where the message that voids all rows would not come before all that follow:
// partitions are read side by side, and other shares write their own.
func (w *writer) canTellGaps(ctx context.Context, spec reader.TailSpec) error {
	if spec.OnGap != reader.Rescan {
		return nil
	}
	if spec.Share.Of > 1 {
		return w.fail("rescan", fmt.Errorf("%w: it has rows of other shares", ErrRescan))
	}
	topics, err := kadm.NewClient(w.client).ListTopics(ctx, w.cfg.Topic)
	if err != nil {
		return w.fail("look at the topic", err)
	}
	if n := len(topics[w.cfg.Topic].Partitions); n > 1 {
		return w.fail("rescan", fmt.Errorf("%w: it has %d partitions, which have no order among each other; use one with a single partition, or fail on gaps", ErrRescan, n))
	}
	return nil
}

// empty refuses a topic that has committed records already. Those of transactions that were aborted do not count: this
// stream may have left them.
func (w *writer) empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	adm := kadm.NewClient(w.client)
	ends, err := adm.ListEndOffsets(ctx, w.cfg.Topic)
	if err != nil {
		return w.fail("look whether the topic is empty", err)
	}
	starts, err := adm.ListStartOffsets(ctx, w.cfg.Topic)
	if err != nil {
		return w.fail("look whether the topic is empty", err)
	}
	from, to := map[int32]kgo.Offset{}, map[int32]int64{}
	for n, end := range ends[w.cfg.Topic] {
		if start := starts[w.cfg.Topic][n]; end.Err == nil && start.Err == nil && start.Offset < end.Offset {
			from[n], to[n] = kgo.NewOffset().At(start.Offset), end.Offset
		}
	}
	if len(from) == 0 {
		return nil
	}
	opts := append(w.opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.cfg.Topic: from}))
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return w.fail("look whether the topic is empty", err)
	}
	defer c.Close()
	for found := false; len(to) > 0; {
		got := c.PollFetches(ctx)
		got.EachRecord(func(r *kgo.Record) {
			found = found || !r.Attrs.IsControl()
			if r.Offset+1 >= to[r.Partition] {
				delete(to, r.Partition)
			}
		})
		if found {
			return w.fail("begin", fmt.Errorf("%w: the topic has records, and group %s has no position. They are of others, or brokers have forgotten the position (offsets.retention.minutes): "+
				"to begin where --from or the consumer says, and maybe write changes again, add begin=true this once", ErrPosition, w.cfg.ID))
		}
		if err := got.Err0(); err != nil {
			return w.fail("look whether the topic is empty", fmt.Errorf("%w (begin=true does not look)", err))
		}
	}
	return nil
}

// behind reports whether the consumer of a tail is no further than the position in the topic, which is that of the last
// record. It is further when only snapshots without records followed, and moves only when they were dealt with.
func behind(ctx context.Context, r *reader.Reader, spec reader.TailSpec, at *reader.Position) (bool, error) {
	if spec.Consumer == "" {
		return true, nil
	}
	next, err := r.Meta().Consumer(ctx, spec.Share.Consumer(spec.Consumer))
	if errors.Is(err, manifest.ErrNoConsumer) {
		return true, nil
	}
	return next <= at.Snapshot, err
}

// writer is the transactional producer.
type writer struct {
	cfg     Config
	env     Env
	client  *kgo.Client
	stream  string    // streamOf
	opts    []kgo.Opt // of a client that only reads
	records *changes.Records

	batch []changes.Record // gathered for the next transaction
	bytes int              // of them
	inTxn bool
}

func open(ctx context.Context, cfg Config, env Env) (*writer, error) {
	records, err := changes.NewRecords(cfg.Format, cfg.Source)
	if err != nil {
		return nil, err
	}
	if len(cfg.Brokers) == 0 || cfg.Topic == "" || cfg.ID == "" {
		return nil, errors.New("a stream into a topic needs brokers, a topic and an id")
	}
	if cfg.Records <= 0 {
		cfg.Records = 10_000
	}
	if cfg.Bytes <= 0 {
		cfg.Bytes = 8 << 20
	}
	opts, err := ingest.ClientOptions(cfg.Brokers, cfg.TLS, cfg.SASL, env.Log.With("topic", cfg.Topic))
	if err != nil {
		return nil, err
	}
	read := slices.Clone(opts)
	// Offsets join a transaction by AddOffsetsToTxn, which goes with this version of TxnOffsetCommit.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	opts = append(opts, kgo.TransactionalID(cfg.ID), kgo.TransactionTimeout(patience), kgo.DefaultProduceTopic(cfg.Topic),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxVersions(versions), kgo.RecordDeliveryTimeout(patience), kgo.RetryTimeout(patience))
	if cfg.MaxBytes > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(cfg.MaxBytes))
	}
	client, err := kgo.NewClient(append(opts, cfg.Client...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	w := &writer{cfg: cfg, env: env, client: client, records: records, opts: read}
	ictx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, _, err := client.ProducerID(ictx); err != nil {
		client.Close()
		return nil, w.fail("take the transactional id", err)
	}
	return w, nil
}

// fail names what failed.
func (w *writer) fail(what string, err error) error {
	for _, e := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping} {
		if errors.Is(err, e) {
			err = fmt.Errorf("%w: %w", ErrFenced, err)
			break
		}
	}
	return fmt.Errorf("topic %s, id %s: %s: %w", w.cfg.Topic, w.cfg.ID, what, err)
}

// position reads the position of the last transaction; nil if there was none.
func (w *writer) position(ctx context.Context) (*reader.Position, error) {
	var offset kadm.OffsetResponse
	for tries := time.Duration(0); ; tries++ {
		got, err := kadm.NewClient(w.client).FetchOffsets(kadm.RequireStable(ctx), w.cfg.ID)
		if errors.Is(err, kerr.GroupIDNotFound) { // nothing was ever committed
			return nil, nil
		}
		ok := false
		if err == nil {
			offset, ok = got.Lookup(w.cfg.Topic, 0)
			err = offset.Err
		}
		// The transaction before is being ended, or the coordinator is on its way to another broker.
		if kerr.IsRetriable(err) && tries < patience/time.Second {
			select {
			case <-w.env.After(time.Second):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return nil, w.fail("read the position", err)
		}
		if !ok || offset.At < 0 {
			return nil, nil
		}
		break
	}
	text, stream, _ := strings.Cut(offset.Metadata, " ")
	at, err := reader.ParsePosition(text)
	if err == nil && stream != w.stream {
		err = errors.New("it is of a stream of another table, format, condition, share or other columns")
	}
	if err != nil {
		return nil, w.fail("read the position", fmt.Errorf("%w: %q: %w; give each stream an id of its own", ErrPosition, offset.Metadata, err))
	}
	return &at, nil
}

// take gathers the records of an item, and writes what was gathered where that is due: a transaction lives no longer than
// its writing, however slowly its rows are found.
func (w *writer) take(ctx context.Context, c reader.Changes) error {
	had := len(w.batch)
	var err error
	if w.batch, err = w.records.Append(w.batch, c); err != nil {
		return err
	}
	for _, r := range w.batch[had:] {
		w.bytes += len(r.Key) + len(r.Value)
	}
	due := c.Complete || c.Rec != nil && (len(w.batch) >= w.cfg.Records || w.bytes >= w.cfg.Bytes)
	if len(w.batch) == 0 || !due || w.records.Held() {
		return nil
	}
	n := int64(0)
	if c.Rec != nil {
		n = c.Rec.NumRows()
	}
	return w.commit(ctx, c.After(n))
}

// commit writes what was gathered in a transaction with the position behind it.
func (w *writer) commit(ctx context.Context, at reader.Position) error {
	if err := w.client.BeginTransaction(); err != nil {
		return w.fail("begin a transaction", err)
	}
	w.inTxn = true
	var failed kgo.FirstErrPromise
	for _, r := range w.batch {
		w.client.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, failed.Promise())
	}
	if err := failed.Err(); err != nil {
		return w.fail("write", err)
	}
	id, epoch, err := w.client.ProducerID(ctx)
	if err != nil {
		return w.fail("commit", err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = w.cfg.ID, id, epoch, w.cfg.ID
	added, err := add.RequestWith(ctx, w.client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return w.fail("add the position to the transaction", err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = w.cfg.ID, w.cfg.ID, id, epoch, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	text := at.String() + " " + w.stream
	p.Offset, p.LeaderEpoch, p.Metadata = at.Snapshot, -1, &text
	t.Topic, t.Partitions = w.cfg.Topic, []kmsg.TxnOffsetCommitRequestTopicPartition{p}
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{t}
	resp, err := req.RequestWith(ctx, w.client)
	if err == nil {
		err = errorIn(resp)
	}
	if err != nil {
		return w.fail("write the position", err)
	}
	if err := w.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return w.fail("commit", err)
	}
	clear(w.batch)
	w.inTxn, w.batch, w.bytes = false, w.batch[:0], 0
	return nil
}

func errorIn(resp *kmsg.TxnOffsetCommitResponse) error {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// abort gives up the transaction, if there is one; else it ends by itself after patience, or when the id is taken again.
func (w *writer) abort(ctx context.Context) error {
	if !w.inTxn {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := w.client.AbortBufferedRecords(ctx)
	if err == nil {
		err = w.client.EndTransaction(ctx, kgo.TryAbort)
	}
	if err != nil {
		return w.fail("abort", err)
	}
	w.inTxn = false
	return nil
}
