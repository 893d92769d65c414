package kafkaout

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/calve-io/calve/internal/changes"
	"github.com/calve-io/calve/reader"
)

func (x *lab) run(spec reader.TailSpec, cfg Config) error {
	return Run(x.t.Context(), reader.Open(x.store, env()), spec, cfg, Env{After: env().After, Log: env().Log})
}

// TestForgotten: when brokers have forgotten the position, nothing is written again but at one's wish.
func TestForgotten(t *testing.T) {
	x := newLab(t, true)
	x.write([]row{{0, 1, 1}})
	spec := reader.TailSpec{Consumer: "out", IgnoreProgress: true}
	if err := x.run(spec, x.config(changes.JSON)); err != nil {
		t.Fatal(err)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(x.kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).DeleteGroups(t.Context(), "out"); err != nil { // as offsets.retention.minutes does
		t.Fatal(err)
	}
	if err := x.run(spec, x.config(changes.JSON)); !errors.Is(err, ErrPosition) {
		t.Error(err)
	}
	if got := x.committed(1); len(got) != 1 {
		t.Error(got)
	}
	again := x.config(changes.JSON)
	again.Begin = true
	if err := x.run(reader.TailSpec{Consumer: "out"}, again); err != nil { // where the consumer stands
		t.Error(err)
	}
	if got := x.committed(1); len(got) != 1 {
		t.Error(got)
	}
}

// TestUnstable: while the transaction before is being ended, its position is waited for.
func TestUnstable(t *testing.T) {
	x := newLab(t, true)
	x.write([]row{{0, 1, 1}})
	asked := 0
	x.kafka.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if asked++; asked > 1 {
			return nil, nil, false
		}
		q := req.(*kmsg.OffsetFetchRequest)
		resp := q.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range q.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group = g.Group
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic = "t"
			p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			p.Offset, p.ErrorCode = -1, kerr.UnstableOffsetCommit.Code
			rt.Partitions = append(rt.Partitions, p)
			rg.Topics = append(rg.Topics, rt)
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	if err := x.run(reader.TailSpec{}, x.config(changes.JSON)); err != nil {
		t.Error(err)
	}
	if asked == 0 {
		t.Error("nothing asked for the position")
	}
}

// TestSlowRows: rows may be found more slowly than a transaction may live.
func TestSlowRows(t *testing.T) {
	x := newLab(t, true)
	x.write([]row{{0, 1, 1}, {0, 2, 2}})
	cfg := x.config(changes.JSON)
	cfg.Client = []kgo.Opt{kgo.TransactionTimeout(200 * time.Millisecond)}
	w, err := open(t.Context(), cfg, Env{After: env().After, Log: env().Log})
	if err != nil {
		t.Fatal(err)
	}
	defer w.client.Close()
	for c, err := range reader.Open(x.store, env()).Tail(t.Context(), reader.TailSpec{}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Complete {
			<-time.After(600 * time.Millisecond)
		}
		if err := w.take(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.committed(2); len(got) != 2 {
		t.Error(got)
	}
}

// TestOtherStream: an id goes on with the stream that it was begun with only.
func TestOtherStream(t *testing.T) {
	x := newLab(t, true)
	x.write([]row{{0, 1, 1}, {0, 2, 2}})
	if err := x.run(reader.TailSpec{}, x.config(changes.JSON)); err != nil {
		t.Fatal(err)
	}
	if err := x.run(reader.TailSpec{Where: "id > 1"}, x.config(changes.JSON)); !errors.Is(err, ErrPosition) {
		t.Error(err)
	}
	other := x.config(changes.JSON)
	other.Source.Table = "y"
	if err := x.run(reader.TailSpec{}, other); !errors.Is(err, ErrPosition) {
		t.Error(err)
	}
}

// TestRescanRefused: what voids all rows of a topic would overtake them in other partitions.
func TestRescanRefused(t *testing.T) {
	x := newLab(t, true) // three partitions
	x.write([]row{{0, 1, 1}})
	if err := x.run(reader.TailSpec{OnGap: reader.Rescan}, x.config(changes.Debezium)); !errors.Is(err, ErrRescan) {
		t.Error(err)
	}
}

// TestEnvelopesHaveKeys: without the key the changes of a row would have no order.
func TestEnvelopesHaveKeys(t *testing.T) {
	x := newLab(t, true)
	x.write([]row{{0, 1, 1}})
	if err := x.run(reader.TailSpec{Columns: []string{"n"}}, x.config(changes.Debezium)); !errors.Is(err, changes.ErrRecords) {
		t.Error(err)
	}
}
