package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// TestSketchTopic: a topic that is empty at first, and one whose records do not agree.
func TestSketchTopic(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "late", "mixed"))
	h := b.hub(b.config())
	late := make(chan string, 1)
	go func() {
		s, err := h.Sketch(context.Background(), SketchConfig{Topic: "late", Format: decode.JSON})
		if err != nil {
			late <- err.Error()
			return
		}
		late <- fmt.Sprint(s.Columns(), s.Key())
	}()
	b.sendAll([]*kgo.Record{
		message("mixed", 0, `{"id":1}`, `{"id":1,"v":"a"}`), message("mixed", 0, `{"id":1}`, `{"id":"x"}`),
		message("mixed", 1, `{"id":2}`, `{"id":2,"w":[true]}`), message("mixed", 1, `{"id":2}`, `no JSON`)})
	s, err := h.Sketch(context.Background(), SketchConfig{Topic: "mixed", Format: decode.JSON})
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, c := range s.Columns() {
		types[c.Name] = c.Type.String()
	}
	if got := fmt.Sprint(types, s.Key(), s.Records()); got != "map[id:BIGINT v:STRING w:ARRAY<BOOLEAN>] [id] 2" {
		t.Errorf("sketch %s", got)
	}
	select {
	case got := <-late:
		t.Fatalf("an empty topic gives %s", got)
	default:
	}
	b.sendAll([]*kgo.Record{message("late", 1, "", `{"n":1.5}`)})
	if got := <-late; got != "[{n DOUBLE }] []" {
		t.Errorf("sketch %s", got)
	}
	if _, err := h.Sketch(context.Background(), SketchConfig{Topic: "none", Format: decode.JSON}); !errors.Is(err, ErrNoTopic) {
		t.Errorf("no topic: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := h.Sketch(ctx, SketchConfig{Topic: "late", Format: decode.JSON}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestSketchLogBeginsLater: records that the log does not have any more are not waited for.
func TestSketchLogBeginsLater(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	b.fill("t", 0, 0, 10)
	if err := b.DeleteRecords("t", 0, 8); err != nil {
		t.Fatal(err)
	}
	h := b.hub(b.config())
	id, err := (&cluster{cfg: KafkaConfig{Topic: "t"}, hub: h}).describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := position{cluster: id.cluster, topic: "t", topicID: id.topicID, next: map[int32]int64{0: 5, 1: 7}}
	s, err := h.Sketch(t.Context(), SketchConfig{Topic: "t", Format: decode.JSON, From: Progress{Properties: from.properties()}})
	if err != nil || s.Records() != 2 || fmt.Sprint(s.Columns()) != "[{v BIGINT }]" {
		t.Errorf("%v: a sketch %v", err, s)
	}
}

// TestSketchOfCapture: tables made of the records of a connector that sends schemas take all of them. Of the table with
// infinite dates and the like some are refused.
func TestSketchOfCapture(t *testing.T) {
	c := readCapture(t, "pg-schema-precise")
	for table, records := range c.records {
		if table == "transaction" {
			continue
		}
		s := decode.NewSketch(decode.Debezium, "")
		for i := range records[:min(len(records), 200)] {
			if err := s.Add(records[i].record()); err != nil {
				t.Errorf("%s: %v", table, err)
			}
		}
		made, err := schema.New(schema.Spec{Columns: s.Columns(), PrimaryKeys: s.Key()})
		if err != nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		dec, err := decode.New(decode.Config{Schema: made, Format: decode.Debezium, Evolution: decode.Evolve})
		if err != nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		var refused []error
		for i := range records[:min(len(records), 1000)] {
			if err := dec.Decode(records[i].record()); err != nil && !errors.As(err, new(*decode.NeedSchema)) {
				refused = append(refused, err)
			}
		}
		allowed := map[string]int{"types": 1, "specials": 20}[table] // dates that no table has
		if len(refused) > allowed && made.Keyed() {
			t.Errorf("%s: %d refused: %v", table, len(refused), refused)
		}
		var types []string
		for _, c := range s.Columns() {
			types = append(types, c.Name+" "+c.Type.String())
		}
		if want := sketched[table]; want != "" && fmt.Sprint(strings.Join(types, ", "), " ", s.Key()) != want {
			t.Errorf("%s: %s %v", table, strings.Join(types, ", "), s.Key())
		}
	}
}

// sketched are the columns and keys of some of the tables.
var sketched = map[string]string{
	"pk_composite": "b STRING, a INT, v DECIMAL(12, 2), extra STRING [b a]",
	"uniq_index":   "id INT, code STRING, v INT [code]",
	"types": "id INT, bo BOOLEAN, i2 SMALLINT, i4 INT, i8 BIGINT, f4 FLOAT, f8 DOUBLE, n_20_5 DECIMAL(20, 5), n_38_10 DECIMAL(38, 10), " +
		"n_10_0 DECIMAL(10, 0), n_any STRING, mon DECIMAL(38, 2), d DATE, t BIGINT, t3 TIME(3), ttz STRING, ts TIMESTAMP(6), ts0 TIMESTAMP(3), " +
		"ts3 TIMESTAMP(3), tstz TIMESTAMP(6) WITH LOCAL TIME ZONE, iv BIGINT, u STRING, js STRING, jb STRING, ba BYTES, ch STRING, vc STRING, tx STRING, " +
		"a_i ARRAY<INT>, a_t ARRAY<STRING>, a_n ARRAY<DECIMAL(10, 2)>, a_tz ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>, a_u ARRAY<STRING>, a_b ARRAY<BOOLEAN>, " +
		"a_d ARRAY<DATE>, en STRING, ip STRING, net STRING, mac STRING, hs STRING, bit1 BOOLEAN, bit5 BYTES, vbit BYTES, r4 STRING, rtz STRING, " +
		"pt ROW<`x` DOUBLE, `y` DOUBLE, `wkb` BYTES, `srid` INT>, xm STRING [id]",
}
