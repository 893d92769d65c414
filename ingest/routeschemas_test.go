package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
)

// shyRegistry does not answer for one id so many times.
type shyRegistry struct {
	knownSchemas
	id   int
	left atomic.Int64
}

// Schema implements Registry.
func (r *shyRegistry) Schema(ctx context.Context, id int) (decode.WriterSchema, error) {
	if id == r.id && r.left.Add(-1) >= 0 {
		return decode.WriterSchema{}, errors.New("no route to it")
	}
	return r.knownSchemas.Schema(ctx, id)
}

// avroRoute is a stream, of a route that chooses by the field who of Avro, that nobody runs.
func avroRoute(t *testing.T, reg Registry, dead DeadLetter, events Events) *stream {
	t.Helper()
	hub, err := NewHub(HubConfig{Brokers: []string{"127.0.0.1:1"}}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Close)
	var r *Route
	r = NewRoute(RouteConfig{Hub: hub, Topic: "t", Registry: reg, Dead: dead,
		Keys: func(schemas *decode.Schemas) KeyFunc {
			p, err := decode.NewPicker(decode.Avro, "who")
			if err != nil {
				t.Error(err)
			}
			p.Schemas = schemas
			return func(dst []byte, rec *decode.Record) ([]byte, bool, error) { return p.Pick(dst, rec) }
		},
		Admit: func(_ context.Context, key string, at Progress) (string, bool, error) {
			return "table " + key, true, r.Know(key, "table "+key, at)
		}}, leaping(), events)
	schemas := &decode.Schemas{}
	s := &stream{r: r, source: identity{cluster: "c", topicID: "id"}, keys: r.cfg.Keys(schemas), chosen: map[string]choice{},
		next: map[int32]int64{0: 0, 1: 0}, epoch: map[int32]int32{}, logs: map[int32]extent{}, subs: map[*routeFeed]bool{}}
	s.schemas = r.newFetcher(s, schemas)
	r.streams = append(r.streams, s)
	return s
}

// avroPiece has records of the schemas and values of who that are given as "ID who".
func avroPiece(part int32, from int64, records ...string) piece {
	p := piece{FetchPartition: kgo.FetchPartition{Partition: part}}
	for i, x := range records {
		id, who, _ := strings.Cut(x, " ")
		p.Records = append(p.Records, &kgo.Record{Topic: "t", Partition: part, Offset: from + int64(i), Value: append([]byte{0, 0, 0, 0, id[0] - '0', byte(2 * len(who))}, who...)})
	}
	return p
}

// handed gives what a table has been handed so far.
func handed(r *Route, table string) (out []string) {
	r.mu.Lock()
	f := r.feeds[table]
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.queue {
		for _, rec := range p.Records {
			out = append(out, fmt.Sprintf("%d/%d", rec.Partition, rec.Offset))
		}
	}
	return out
}

const whoAvro = `{"type":"record","name":"T","fields":[{"name":"who","type":"string"}]}`

// TestRouteSchemas: what comes before a record whose schema must be asked for does not wait for that. A registry that does not
// answer is waited for; records of a schema that it does not know are dead letters.
func TestRouteSchemas(t *testing.T) {
	reg, dead := &shyRegistry{knownSchemas: knownSchemas{7: whoAvro, 6: whoAvro}, id: 6}, &list{}
	reg.left.Store(5)
	var s *stream
	retries := 0
	s = avroRoute(t, reg, dead, Events{Retrying: func(what string, err error, _ time.Duration) {
		if strings.HasSuffix(what, "id 6") {
			retries++
			if got := fmt.Sprint(handed(s.r, "table a"), handed(s.r, "table b")); got != "[0/0] []" {
				t.Errorf("while the registry is asked the tables have %s", got)
			}
			if err := s.r.Err(); err == nil || !strings.Contains(err.Error(), "trying again to fetch schema id 6: no route to it") {
				t.Errorf("the route says %v", err)
			}
		}
	}})
	pieces := []piece{avroPiece(0, 0, "7 a", "6 b", "7 a"), avroPiece(1, 0, "9 c", "7 b", "7 b")}
	pieces[1].Records[2].Value = []byte{1, 2}
	if err := s.deal(t.Context(), pieces, 0); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(handed(s.r, "table a"), handed(s.r, "table b"), s.next, retries, s.r.Err()); got != "[0/0 0/2] [0/1 1/1] map[0:3 1:3] 4 <nil>" {
		t.Errorf("the tables have %s", got)
	}
	letters := dead.letters
	if len(letters) != 2 || letters[0].Offset != 0 || letters[0].Code != decode.NoSchema || letters[1].Offset != 2 || letters[1].Code != decode.Malformed {
		t.Errorf("letters %+v", letters)
	}
	if n := len(s.r.feeds); n != 2 {
		t.Errorf("%d tables", n)
	}
}

// TestRouteSchemasAtOnce: records of many schemas, known and unknown ones, are handed over at once, and their letters written.
func TestRouteSchemasAtOnce(t *testing.T) {
	known, dead := knownSchemas{}, &list{}
	p := piece{}
	for id := range 200 {
		if id%2 == 0 {
			known[id] = whoAvro
		}
		p.Records = append(p.Records, &kgo.Record{Topic: "t", Offset: int64(id), Value: []byte{0, 0, 0, 0, byte(id), 2, 'a'}})
	}
	writes := &countedFlushes{list: dead}
	s := avroRoute(t, known, writes, Events{})
	if err := s.deal(t.Context(), []piece{p}, 0); err != nil {
		t.Fatal(err)
	}
	if n := len(handed(s.r, "table a")); n != 100 || len(dead.letters) != 100 || writes.n > 2 {
		t.Errorf("%d records, %d letters written at %d times", n, len(dead.letters), writes.n)
	}
}

// countedFlushes counts how often letters are written.
type countedFlushes struct {
	*list
	n int
}

func (c *countedFlushes) Flush(ctx context.Context, p Progress) error {
	c.n++
	return c.list.Flush(ctx, p)
}

// TestRouteSchemasStop: a stream that waits for the registry ends when it is told to, and has lost nothing then.
func TestRouteSchemasStop(t *testing.T) {
	reg, dead := &shyRegistry{knownSchemas: knownSchemas{7: whoAvro, 6: whoAvro}, id: 6}, &list{}
	reg.left.Store(1 << 40)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := avroRoute(t, reg, dead, Events{Retrying: func(string, error, time.Duration) { cancel() }})
	if err := s.deal(ctx, []piece{avroPiece(0, 0, "7 a", "6 b"), avroPiece(1, 0, "7 b")}, 0); stopped(ctx, err) != nil || err == nil {
		t.Errorf("it ends with %v", err)
	}
	if got := fmt.Sprint(handed(s.r, "table a"), handed(s.r, "table b"), s.next, s.r.Err()); got != "[0/0] [] map[0:1 1:0] <nil>" {
		t.Errorf("the tables have %s", got)
	}
	reg.left.Store(0)
	if err := s.deal(t.Context(), []piece{avroPiece(0, 1, "6 b"), avroPiece(1, 0, "7 b")}, 0); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(handed(s.r, "table a"), handed(s.r, "table b"), s.next, len(dead.all())); got != "[0/0] [0/1 1/0] map[0:2 1:1] 0" {
		t.Errorf("the tables have %s", got)
	}
	bare := avroRoute(t, nil, dead, Events{})
	if err := bare.deal(t.Context(), []piece{avroPiece(0, 0, "7 a")}, 0); !errors.Is(err, ErrConfig) {
		t.Errorf("without a registry: %v", err)
	}
}
