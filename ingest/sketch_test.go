package ingest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
)

// TestSketchTopic: a topic that is empty at first, and one whose records do not agree.
func TestSketchTopic(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "late", "mixed"))
	h := b.hub(b.config())
	late := make(chan string, 1)
	go func() {
		s, err := h.Sketch(context.Background(), "late", decode.JSON, "")
		if err != nil {
			late <- err.Error()
			return
		}
		late <- fmt.Sprint(s.Columns(), s.Key())
	}()
	b.sendAll([]*kgo.Record{
		message("mixed", 0, `{"id":1}`, `{"id":1,"v":"a"}`), message("mixed", 0, `{"id":1}`, `{"id":"x"}`),
		message("mixed", 1, `{"id":2}`, `{"id":2,"w":[true]}`), message("mixed", 1, `{"id":2}`, `no JSON`)})
	s, err := h.Sketch(context.Background(), "mixed", decode.JSON, "")
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
	if _, err := h.Sketch(context.Background(), "none", decode.JSON, ""); !errors.Is(err, ErrNoTopic) {
		t.Errorf("no topic: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := h.Sketch(ctx, "late", decode.JSON, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
