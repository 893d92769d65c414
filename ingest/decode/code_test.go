package decode

import (
	"errors"
	"fmt"
	"testing"

	"github.com/calve-io/calve/schema/schematest"
)

// TestCodes has a record for each code.
func TestCodes(t *testing.T) {
	keyed := schematest.Table(t, "id", "id BIGINT", "v INT", "s STRING NOT NULL")
	appends := schematest.Table(t, "", "id BIGINT", "s STRING NOT NULL")
	first := schematest.Table(t, "id", "id BIGINT")
	first.Options = map[string]string{"merge-engine": "first-row"}
	for _, c := range []struct {
		cfg        Config
		key, value string // value "-": null
		want       Code
	}{
		{Config{Schema: keyed}, "", `{"id":`, Malformed},
		{Config{Schema: keyed}, "", ``, Malformed},
		{Config{Schema: keyed}, "", "{\"s\":\"\xff\"}", Malformed},
		{Config{Schema: keyed}, "", `{} x`, Malformed},
		{Config{Schema: keyed, MaxRecordBytes: 3}, "", `{"id":1}`, TooLarge},
		{Config{Schema: keyed}, "", `[1]`, NotRecord},
		{Config{Schema: keyed, Format: Debezium}, "", `{"op":"d"}`, NotRecord},
		{Config{Schema: keyed}, "", `{"id":1,"op":"X","s":""}`, BadOp},
		{Config{Schema: appends}, "", `{"id":1,"op":"D","s":""}`, BadOp},
		{Config{Schema: appends}, "", `-`, BadOp},
		{Config{Schema: keyed}, "", `-`, NoKey},
		{Config{Schema: keyed}, "", `{"s":""}`, NoKey},
		{Config{Schema: keyed}, "", `{"id":1}`, IsNull},
		{Config{Schema: keyed}, "", `{"id":1,"s":"","v":"x"}`, BadValue},
		{Config{Schema: keyed}, "", `{"id":1,"s":"","v":3000000000}`, BadValue},
		{Config{Schema: first}, "", `{"id":1,"op":"D"}`, BrokeRule},
	} {
		r := &Record{Key: []byte(c.key), Value: []byte(c.value)}
		if c.value == "-" {
			r.Value = nil
		}
		err := newTestDecoder(t, c.cfg).Decode(r)
		if !errors.Is(err, ErrRow) || CodeOf(fmt.Errorf("wrapped: %w", err)) != c.want {
			t.Errorf("%s: code %s, want %s: %v", c.value, CodeOf(err), c.want, err)
		}
	}
}
