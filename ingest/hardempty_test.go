package ingest

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/schema"
)

func init() {
	hardToo(17, "avro", hardEmptyRecord)
	hardToo(17, "protobuf", hardEmptyMessage)
}

// hardEmptyRecord: a record that has no fields at first gives no column, as nothing can be in it; when it has some, it is one.
func hardEmptyRecord(t *testing.T) {
	reg := registrytest.New(
		registrytest.Schema{Subject: "t-value", Version: 1, ID: 1, Text: `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"evt","type":{"type":"record","name":"E","fields":[]}}]}`},
		registrytest.Schema{Subject: "t-value", Version: 2, ID: 2, Text: `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"evt","type":{"type":"record","name":"E","fields":[{"name":"reason","type":["null","string"],"default":null}]}}]}`})
	cols, err := schema.ParseColumns("id BIGINT")
	if err != nil {
		t.Fatal(err)
	}
	store := createFrom(t, cols, "id")
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	b.sendAll([]*kgo.Record{{Topic: "t", Value: []byte{0, 0, 0, 0, 1, 2}}, {Topic: "t", Value: []byte{0, 0, 0, 0, 2, 4, 2, 2, 'x'}}, {Topic: "t", Value: []byte{0, 0, 0, 0, 1, 6}}})
	cfg := b.config()
	cfg.Registry, cfg.Decode = serve(t, reg), decode.Config{Format: decode.Avro, Evolution: decode.Evolve}
	runUntil(t, store, cfg, testEnv(), Events{}, `{"0":3}`)
	want := []string{`{"id":1,"evt":null}`, `{"id":2,"evt":{"reason":"x"}}`, `{"id":3,"evt":{"reason":null}}`}
	if got := jsonRows(t, store); !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

// hardEmptyMessage: the same of a message that is empty at first, and of a oneof with an empty member.
func hardEmptyMessage(t *testing.T) {
	reg := registrytest.New(
		registrytest.Schema{Subject: "t-value", Version: 1, ID: 1, Type: "PROTOBUF", Text: `syntax = "proto3"; message T { int64 id = 1; Evt evt = 2; } message Evt { }`},
		registrytest.Schema{Subject: "t-value", Version: 2, ID: 2, Type: "PROTOBUF", Text: `syntax = "proto3"; message T { int64 id = 1; Evt evt = 2; } message Evt { oneof what { None none = 1; string reason = 2; } } message None { }`})
	client := serve(t, reg)
	first, err := client.Schema(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	cols, err := decode.ColumnsOfProtobuf(first, "")
	if err != nil {
		t.Fatal(err)
	}
	store := createFrom(t, cols, "id")
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	b.sendAll([]*kgo.Record{{Topic: "t", Value: []byte("\x00\x00\x00\x00\x01\x00\x08\x01\x12\x00")}, {Topic: "t", Value: []byte("\x00\x00\x00\x00\x02\x00\x08\x02\x12\x03\x12\x01x")},
		{Topic: "t", Value: []byte("\x00\x00\x00\x00\x02\x00\x08\x03\x12\x02\x0a\x00")}, {Topic: "t", Value: []byte("\x00\x00\x00\x00\x01\x00\x08\x04")}})
	cfg := b.config()
	cfg.Registry, cfg.Decode = client, decode.Config{Format: decode.Protobuf, Evolution: decode.Evolve}
	runUntil(t, store, cfg, testEnv(), Events{}, `{"0":4}`)
	want := []string{`{"id":1,"evt":null}`, `{"id":2,"evt":{"reason":"x"}}`, `{"id":3,"evt":{"reason":null}}`, `{"id":4,"evt":null}`}
	if got := jsonRows(t, store); !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}
