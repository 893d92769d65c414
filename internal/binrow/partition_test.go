package binrow

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// TestPartitionText holds what Java's toString and Paimon's casts to STRING give beyond the vector files
// (`LocalDateTime.toString`, `Double.toString`, `utils.DateTimeUtils`).
func TestPartitionText(t *testing.T) {
	const second = int64(1_000_000)
	cases := []struct {
		typ          string
		val          any
		legacy, cast string
	}{
		{"TINYINT", int8(-128), "-128", "-128"},
		{"SMALLINT", int16(32767), "32767", "32767"},
		{"BIGINT", int64(math.MinInt64), "-9223372036854775808", "-9223372036854775808"},
		{"CHAR(4)", "ab", "ab", "ab"},
		{"DECIMAL(38, 10)", decimal128.FromI64(-5), "-0.0000000005", "-0.0000000005"},
		{"DECIMAL(5, 0)", decimal128.FromI64(120), "120", "120"},
		{"DATE", int32(0), "0", "1970-01-01"},
		{"DATE", int32(-719528), "-719528", "0000-01-01"},
		{"DATE", int32(2932896), "2932896", "9999-12-31"},
		{"DATE", int32(2932897), "2932897", "0000-01-01"}, // the year 10000 keeps its last four digits
		{"TIME(0)", int32(3723000), "3723000", "01%3A02%3A03"},
		{"TIME(3)", int32(3723000), "3723000", "01%3A02%3A03.0"},
		{"TIME(3)", int32(3723120), "3723120", "01%3A02%3A03.12"},
		{"TIME(1)", int32(3723129), "3723129", "01%3A02%3A03.1"},
		{"TIME(9)", int32(3723129), "3723129", "01%3A02%3A03.129"},
		{"TIME(3)", int32(-1), "-1", "23%3A59%3A59.999"},
		{"TIMESTAMP(6)", int64(0), "1970-01-01T00%3A00", "1970-01-01 00%3A00%3A00.000000"},
		{"TIMESTAMP(6)", second, "1970-01-01T00%3A00%3A01", "1970-01-01 00%3A00%3A01.000000"},
		{"TIMESTAMP(6)", second / 2, "1970-01-01T00%3A00%3A00.500", "1970-01-01 00%3A00%3A00.500000"},
		{"TIMESTAMP(6)", second + 1, "1970-01-01T00%3A00%3A01.000001", "1970-01-01 00%3A00%3A01.000001"},
		{"TIMESTAMP(6)", int64(-1), "1969-12-31T23%3A59%3A59.999999", "1969-12-31 23%3A59%3A59.999999"},
		{"TIMESTAMP(0)", int64(1500), "1970-01-01T00%3A00%3A01.500", "1970-01-01 00%3A00%3A01.5"},
		{"TIMESTAMP(0)", int64(60000), "1970-01-01T00%3A01", "1970-01-01 00%3A01%3A00"},
		{"TIMESTAMP(9)", int64(1), "1970-01-01T00%3A00%3A00.000000001", "1970-01-01 00%3A00%3A00.000000001"},
		{"TIMESTAMP(3)", int64(253402300800000), "+10000-01-01T00%3A00", "0000-01-01 00%3A00%3A00.000"},
		{"DOUBLE", 1.0, "1.0", "1.0"},
		{"DOUBLE", -0.5, "-0.5", "-0.5"},
		{"DOUBLE", 0.001, "0.001", "0.001"},
		{"DOUBLE", 0.0001, "1.0E-4", "1.0E-4"},
		{"DOUBLE", 9999999.5, "9999999.5", "9999999.5"},
		{"DOUBLE", 1e7, "1.0E7", "1.0E7"},
		{"DOUBLE", 1.25e-300, "1.25E-300", "1.25E-300"},
		{"DOUBLE", math.Inf(-1), "-Infinity", "-Infinity"},
		{"DOUBLE", math.Copysign(0, -1), "-0.0", "-0.0"},
		{"FLOAT", float32(0.1), "0.1", "0.1"},
		{"FLOAT", float32(3.4028235e38), "3.4028235E38", "3.4028235E38"},
		{"FLOAT", float32(math.NaN()), "NaN", "NaN"},
		{"STRING", "\u00a0", "\u00a0", "\u00a0"}, // not white space in Java
		{"STRING", "\u2003\t\u001f", "D", "D"},
		{"STRING", "\x00a\x7f", "%00a%7F", "%00a%7F"},
		{"STRING", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"},
	}
	for _, c := range cases {
		for legacy, want := range map[bool]string{true: c.legacy, false: c.cast} {
			got, err := PartitionPath([]string{"p/q"}, []schema.Type{typeOf(t, c.typ)}, []any{c.val}, legacy, "D")
			if err != nil || got != "p%2Fq="+want+"/" {
				t.Errorf("%s %v legacy %v: %q, %v, want %q", c.typ, c.val, legacy, got, err, want)
			}
		}
	}
	ltz := []schema.Type{typeOf(t, "TIMESTAMP_LTZ(6)")}
	got, err := PartitionPath([]string{"p"}, ltz, []any{second}, true, "D")
	if err != nil || got != "p=1970-01-01T00%3A00%3A01/" {
		t.Errorf("LTZ: %q, %v", got, err)
	}
}

func TestPartitionPathErrors(t *testing.T) {
	cases := []struct {
		typ  string
		val  any
		want string
	}{
		{"TIMESTAMP_LTZ(6)", int64(1), "time zone"},
		{"BYTES", []byte("x"), "no text"},
		{"INT", "x", "no text"},
		{"STRING", int32(1), "no text"},
		{"STRING", true, "no text"},
		{"INT", int64(1), "no text"},
		{"DATE", int32(-719529), "year -1"},
		{"TIMESTAMP(6)", int64(-62167219200000001), "year -1"},
	}
	for _, c := range cases {
		got, err := PartitionPath([]string{"col"}, []schema.Type{typeOf(t, c.typ)}, []any{c.val}, false, "D")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"col"`) {
			t.Errorf("%s %v: %q, error %v does not say %q and the column", c.typ, c.val, got, err, c.want)
		}
	}
	if _, err := PartitionPath([]string{"a"}, nil, nil, false, "D"); err == nil {
		t.Error("a name without type and value is taken")
	}
	if got, err := PartitionPath(nil, nil, nil, false, "D"); got != "" || err != nil {
		t.Errorf("unpartitioned: %q, %v", got, err)
	}
}
