// Package kafkaout writes the changes of a table into a Kafka topic, each exactly once.
//
// A transaction has records and the position behind them: the metadata of the offset that a group, named by the
// transactional id, has committed of partition 0 of the topic (TxnOffsetCommit). Who begins takes the transactional id,
// which ends or aborts the transaction of whoever had it before and fences it, and then reads the position. So what readers
// of committed records see has every change once, in the order of the stream for each key.
package kafkaout

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

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
	// ErrPosition: the position in the topic's group is not one of this program.
	ErrPosition = errors.New("position of the stream not understood")
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

	// A transaction ends with a snapshot, and within one after so many records or bytes. Defaults 10,000 and 8 MiB.
	Records int
	Bytes   int
}

// Env is what the package takes from the world.
type Env struct {
	Log *slog.Logger
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
	at, err := w.position(ctx)
	if err != nil {
		return err
	}
	if at != nil {
		spec.IgnoreProgress, err = behind(ctx, r, spec, at)
		spec.From = reader.Start{Mode: reader.FromPosition, At: *at}
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
	return w.abort(ctx) // nothing, but for a stream that ended within a snapshot
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
	client  *kgo.Client
	records *changes.Records

	inTxn bool
	count int // records and bytes of the transaction
	bytes int
	batch []changes.Record // scratch
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
	// Offsets join a transaction by AddOffsetsToTxn, which goes with this version of TxnOffsetCommit.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	opts = append(opts, kgo.TransactionalID(cfg.ID), kgo.TransactionTimeout(patience), kgo.DefaultProduceTopic(cfg.Topic),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxVersions(versions), kgo.RecordDeliveryTimeout(patience), kgo.RetryTimeout(patience))
	client, err := kgo.NewClient(append(opts, cfg.Client...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	w := &writer{cfg: cfg, client: client, records: records}
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
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = w.cfg.ID, true
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic, t.Partitions = w.cfg.Topic, []int32{0}
	req.Topics = []kmsg.OffsetFetchRequestTopic{t}
	g := kmsg.NewOffsetFetchRequestGroup()
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = t.Topic, t.Partitions
	g.Group, g.Topics = w.cfg.ID, []kmsg.OffsetFetchRequestGroupTopic{gt}
	req.Groups = []kmsg.OffsetFetchRequestGroup{g}
	resp, err := req.RequestWith(ctx, w.client)
	if err != nil {
		return nil, w.fail("read the position", err)
	}
	metadata, code := (*string)(nil), resp.ErrorCode
	offset := int64(-1)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			metadata, offset, code = p.Metadata, p.Offset, p.ErrorCode
		}
	}
	for _, g := range resp.Groups {
		code = g.ErrorCode
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				metadata, offset, code = p.Metadata, p.Offset, p.ErrorCode
			}
		}
	}
	err = kerr.ErrorForCode(code)
	if errors.Is(err, kerr.GroupIDNotFound) { // nothing was ever committed
		return nil, nil
	}
	if err != nil {
		return nil, w.fail("read the position", err)
	}
	if offset < 0 {
		return nil, nil
	}
	if metadata == nil {
		return nil, w.fail("read the position", fmt.Errorf("%w: offset %d without metadata; is group %s used by something else?", ErrPosition, offset, w.cfg.ID))
	}
	at, err := reader.ParsePosition(*metadata)
	if err != nil {
		return nil, w.fail("read the position", fmt.Errorf("%w: %w; is group %s used by something else?", ErrPosition, err, w.cfg.ID))
	}
	return &at, nil
}

// take produces the records of an item, and ends the transaction where that is due.
func (w *writer) take(ctx context.Context, c reader.Changes) error {
	var err error
	if w.batch, err = w.records.Append(w.batch[:0], c); err != nil {
		return err
	}
	if len(w.batch) > 0 && !w.inTxn {
		if err := w.client.BeginTransaction(); err != nil {
			return w.fail("begin a transaction", err)
		}
		w.inTxn = true
	}
	var failed kgo.FirstErrPromise
	for i := range w.batch {
		r := &w.batch[i]
		w.count++
		w.bytes += len(r.Key) + len(r.Value)
		w.client.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, failed.Promise())
		w.batch[i] = changes.Record{}
	}
	if err := failed.Err(); err != nil { // when all are written: no more than a batch waits in memory
		return w.fail("write", err)
	}
	due := c.Complete || c.Rec != nil && (w.count >= w.cfg.Records || w.bytes >= w.cfg.Bytes)
	if !w.inTxn || !due || w.records.Held() {
		return nil
	}
	n := int64(0)
	if c.Rec != nil {
		n = c.Rec.NumRows()
	}
	return w.commit(ctx, c.After(n))
}

// commit ends the transaction with a position.
func (w *writer) commit(ctx context.Context, at reader.Position) error {
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
	text := at.String()
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
	w.inTxn, w.count, w.bytes = false, 0, 0
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
