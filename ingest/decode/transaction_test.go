package decode

import "testing"

func TestTransactionID(t *testing.T) {
	for value, want := range map[string]string{
		`{"before":null,"after":{"transaction":{"id":"no"}},"op":"c","transaction":{"id":"571:9","total_order":1}}`:   "571",
		` { "schema" : {"a":[1,"}"]} , "payload" : {"op":"u", "transaction" : { "total_order":1, "id" : "a\"b" } } }`: `a\"b`,
		`{"after":{"s":"\"transaction\":{\"id\":\"no\"}"},"op":"c","transaction":null}`:                               "",
		`{"transaction":{"id":"8c1e-9:12"}}`: "8c1e-9:12", `{"transaction":{"id":"12:x"}}`: "12:x", `{"transaction":{"id":"12:"}}`: "12:", `{"transaction":{"id":"0-1-7"}}`: "0-1-7",
		`{"after":{},"op":"c"}`: "", `{"transaction":{"id":7}}`: "", `{"transaction":{}}`: "", `{"transaction":{"id":`: "", `{"transaction":{"id":"x`: "",
		`[]`: "", ``: "", `{`: "", `{"a"`: "", `{"a":`: "", `{"a":1`: "", `{"payload":{"transaction":{"id":"p"`: "p",
	} {
		if got := TransactionID(Debezium, []byte(value)); string(got) != want {
			t.Errorf("%s: %q, not %q", value, got, want)
		}
	}
	if got := TransactionID(DebeziumFlat, []byte(`{"transaction":{"id":"x"}}`)); got != nil {
		t.Errorf("a row without envelope: %q", got)
	}
}
