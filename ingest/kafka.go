package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/calve-io/calve/ingest/decode"
)

var (
	// ErrSourceChanged: the source is not the one the stored position belongs to: another cluster, or a topic that was
	// deleted and created again. Nothing was read from it.
	ErrSourceChanged = errors.New("the source is not the one this table was filled from")
	// ErrLogTruncated: the log no longer holds what follows the stored position, or not what precedes it.
	ErrLogTruncated = errors.New("the log does not go on at the stored position")
	// ErrNoTopic: the topic does not exist.
	ErrNoTopic = errors.New("the topic does not exist")
	// ErrConfig: the configuration cannot work.
	ErrConfig = errors.New("pipeline configuration")
)

// Start says where a pipeline without stored position begins.
type Start string

// Where to begin. Partitions that appear later are always read from their beginning.
const (
	Earliest Start = "earliest"
	Latest   Start = "latest"
)

// SASL are the credentials of a Kafka client.
type SASL struct {
	Mechanism      string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; "": no authentication
	User, Password string
}

// KafkaConfig describes a pipeline from one topic into one table. There is no consumer group: the position is in the
// table's snapshots alone.
type KafkaConfig struct {
	// HubConfig says where the brokers are. It is not used when Hub is given.
	HubConfig
	// Hub is what pipelines of one cluster share. Nil: the pipeline has one of its own.
	Hub   *Hub
	Topic string
	// Route, if set, reads the topic for several pipelines, of which this one has the records of RouteTable; Hub is the
	// route's.
	Route      *Route
	RouteTable string
	// Start is where a new pipeline begins. Default Earliest.
	Start Start
	// Reset lets the pipeline begin again at Start when the source changed or its log was truncated, instead of stopping
	// with ErrSourceChanged or ErrLogTruncated. It has no effect on a source that can be continued.
	Reset bool
	// Decode says how records become rows; its Schema is taken from the table.
	Decode decode.Config
	// Registry has the schemas of records, of formats that need them.
	Registry Registry
	Limits   Limits
	// Patience is how long brokers may be unreachable, or the topic missing, before the pipeline gives up. Default 1 min.
	// Once reading, it waits for brokers as long as it takes.
	Patience time.Duration
}

// check validates the configuration and fills in the defaults.
func (cfg *KafkaConfig) check() error {
	switch {
	case cfg.Topic == "":
		return fmt.Errorf("%w: no topic", ErrConfig)
	case cfg.Start == "":
		cfg.Start = Earliest
	case cfg.Start != Earliest && cfg.Start != Latest:
		return fmt.Errorf("%w: start %q is unknown; use %q or %q", ErrConfig, cfg.Start, Earliest, Latest)
	}
	if cfg.Patience <= 0 {
		cfg.Patience = time.Minute
	}
	cfg.Limits = cfg.Limits.withDefaults()
	return nil
}

// ClientOptions are the options of a Kafka client: where brokers are, how to talk to them and who we are.
func ClientOptions(brokers []string, secure *tls.Config, auth SASL, log *slog.Logger) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ClientID("calve"), kgo.WithLogger(clientLog{log})}
	if secure != nil {
		opts = append(opts, kgo.DialTLSConfig(secure))
	}
	var m sasl.Mechanism
	switch auth.Mechanism {
	case "":
		return opts, nil
	case "PLAIN":
		m = plain.Auth{User: auth.User, Pass: auth.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		m = scram.Auth{User: auth.User, Pass: auth.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		m = scram.Auth{User: auth.User, Pass: auth.Password}.AsSha512Mechanism()
	default:
		return nil, fmt.Errorf("%w: SASL mechanism %q is unknown; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", ErrConfig, auth.Mechanism)
	}
	return append(opts, kgo.SASL(m)), nil
}

// RunKafka reads a topic into a table until ctx ends; then it writes and commits what it has read and returns nil. Any
// other end is an error, after which nothing is lost: open the table again and call RunKafka again.
//
// Errors to tell apart: ErrSourceChanged, ErrLogTruncated, ErrNoTopic, ErrDeadLettersFull and ErrConfig need a person;
// engine.ErrFenced means that another process took over; others may pass by themselves.
func RunKafka(ctx context.Context, cfg KafkaConfig, table Table, dead DeadLetter, env Env, events Events) error {
	if err := cfg.check(); err != nil {
		return err
	}
	hub := cfg.Hub
	if hub == nil {
		own := env
		own.Log = env.Log.With("topic", cfg.Topic)
		var err error
		if hub, err = NewHub(cfg.HubConfig, own); err != nil {
			return err
		}
		defer hub.Close()
	}
	schemas, err := newSchemaFetcher(&cfg.Decode, cfg.Registry, cfg.Topic, env, events)
	if err != nil {
		return err
	}
	c := &cluster{cfg: cfg, hub: hub, schemas: schemas, env: env, events: events}
	return passes(ctx, table, dead, events, func(again bool) error { return c.pass(ctx, again, table, dead) })
}

// pass reads the topic from the last commit on, by the schema that the table has now.
func (c *cluster) pass(ctx context.Context, again bool, table Table, dead DeadLetter) error {
	cfg, env, events := c.cfg, c.env, c.events
	cfg.Decode.Schema = table.Schema()
	dec, err := decode.New(cfg.Decode)
	if err != nil {
		return fmt.Errorf("%w: schema %d of the table: %w", ErrConfig, cfg.Decode.Schema.ID, err)
	}
	stored, found, err := storedPosition(ctx, table)
	if err != nil {
		return err
	}
	if !found && cfg.Route != nil {
		stored, found = cfg.Route.begins(cfg.RouteTable)
	}
	pos, err := c.begin(ctx, stored, found)
	if err != nil {
		return stopped(ctx, err)
	}
	if cfg.Decode.Seen = pos.seen; pos.seen != "" && cfg.Decode.DropRepeats {
		if dec, err = decode.New(cfg.Decode); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if events.Started != nil && !again {
		events.Started(pos.offsets())
	}
	whole, err := c.newWholes(&pos)
	if err != nil {
		return err
	}
	follow := newFollower(table, cfg.Decode, env, events, cfg.Limits)
	follow.patience = cfg.Patience
	src, err := newKafkaSource(ctx, c, batcher{dec: dec, schema: cfg.Decode.Schema, follower: follow, source: pos.topicID, schemas: c.schemas,
		pairs: cfg.Decode.Format.Events(), whole: whole}, pos)
	if err != nil {
		return stopped(ctx, err)
	}
	defer src.feed.close()
	com := &committer{
		table: table, follower: follow, dead: dead, env: env, events: events, limits: cfg.Limits,
		progress:  func() Progress { return Progress{Properties: src.done.properties()} },
		positions: src.done.offsets,
		published: func() { c.cfg.Reset = false }, // from here on the position is this source's
		eager:     again,
		// A pipeline that begins at the end of the log has a position to keep before it has rows.
		pending: cfg.Start == Latest && !maps.Equal(pos.properties(), stored.properties()),
	}
	if whole != nil {
		com.wanted = whole.wanted
	}
	err = pump(ctx, src.run, com)
	if errors.Is(err, ErrSourceChanged) {
		err = c.explain(ctx, err, &src.done)
	}
	return err
}

// stopped turns an error into nil when it only says that ctx has ended.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// storedPosition gives the position in the table's last snapshot of this job.
func storedPosition(ctx context.Context, table Table) (position, bool, error) {
	p, ok, err := table.LastProgress(ctx)
	if err != nil || !ok {
		return position{}, false, err
	}
	return parsePosition(p.Properties)
}

// clientLog passes the Kafka client's log on.
type clientLog struct{ log *slog.Logger }

// Level implements kgo.Logger.
func (l clientLog) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case l.log.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelDebug
	case l.log.Enabled(ctx, slog.LevelInfo):
		return kgo.LogLevelInfo
	case l.log.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelError
}

// Log implements kgo.Logger. What the client calls information (each broker it talks to) is detail here.
func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	switch level {
	case kgo.LogLevelError, kgo.LogLevelWarn:
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, "kafka: "+msg, keyvals...)
}
