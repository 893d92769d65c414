package binrow

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/calve-io/calve/schema"
)

// TestDecodeDamaged takes rows with wrong lengths and offsets.
func TestDecodeDamaged(t *testing.T) {
	// One STRING of 8 bytes at offset 16, one DECIMAL(38), one TIMESTAMP(6), each alone in its row.
	const str = "00000001" + "0000000000000000" + "0800000010000000" + "3132333435363738"
	const dec = "00000001" + "0000000000000000" + "0100000010000000" + "05000000000000000000000000000000"
	const ts = "00000001" + "0000000000000000" + "e02e000010000000" + "9554dcf48d010000"
	cases := []struct{ name, typ, row, old, new, want string }{
		{"good string", "STRING", str, "", "", ""},
		{"good decimal", "DECIMAL(38, 0)", dec, "", "", ""},
		{"good timestamp", "TIMESTAMP(6)", ts, "", "", ""},
		{"empty", "STRING", "", "", "", "at least 4 bytes"},
		{"arity", "STRING", str, "00000001", "00000002", "row has 2 fields"},
		{"negative arity", "STRING", str, "00000001", "ffffffff", "row has -1 fields"},
		{"cut header", "STRING", str[:20], "", "", "at least 16 are needed"},
		{"cut variable part", "STRING", str[:len(str)-2], "", "", "outside"},
		{"offset in header", "STRING", str, "0800000010", "080000000f", "outside"},
		{"offset behind the end", "STRING", str, "0800000010", "0800000019", "outside"},
		{"length too large", "STRING", str, "0800000010", "0900000010", "outside"},
		{"huge length", "BYTES", str, "0800000010", "ffffff7f10", "outside"},
		{"negative length", "BYTES", str, "0800000010", "ffffffff10", "more than a row can hold"},
		{"huge offset", "STRING", str, "0800000010000000", "08000000ffffff7f", "outside"},
		{"inline length", "STRING", str, "0800000010000000", "0000000000000088", "inline length 8"},
		{"decimal without bytes", "DECIMAL(38, 0)", dec, "0100000010", "0000000010", "1 to 16 bytes"},
		{"decimal too long", "DECIMAL(38, 0)", dec, "0100000010", "1100000010", "1 to 16 bytes"},
		{"decimal offset", "DECIMAL(38, 0)", dec, "0100000010", "0100000020", "outside"},
		{"timestamp offset", "TIMESTAMP(6)", ts, "e02e000010", "e02e000011", "outside"},
		{"timestamp nanos", "TIMESTAMP(6)", ts, "e02e000010", "40420f0010", "too many"},
		{"timestamp range", "TIMESTAMP(6)", ts, "9554dcf48d010000", "ffffffffffffff7f", "outside of what"},
		{"timestamp range below", "TIMESTAMP(9)", ts, "9554dcf48d010000", "0000000000000080", "outside of what"},
	}
	for _, c := range cases {
		if !strings.Contains(c.row, c.old) {
			t.Fatalf("%s: %s is not in the row", c.name, c.old)
		}
		raw, err := hex.DecodeString(strings.Replace(c.row, c.old, c.new, 1))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Decode(raw, []schema.Type{typeOf(t, c.typ)})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v does not say %q", c.name, err, c.want)
		}
	}
	for _, typ := range []schema.Type{{Root: schema.Variant}, {Root: schema.Array, Element: &schema.Type{Root: schema.Int}}} {
		raw, err := hex.DecodeString(str)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(raw, []schema.Type{typ}); err == nil || !strings.Contains(err.Error(), "primitive") {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// TestDecodeCopies checks that decoded values do not change with the input.
func TestDecodeCopies(t *testing.T) {
	types := []schema.Type{typeOf(t, "STRING"), typeOf(t, "BYTES"), typeOf(t, "BYTES")}
	row, err := EncodeRow(types, []any{"a string in the variable part", []byte("some bytes there"), []byte("inline")})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(row, types)
	if err != nil {
		t.Fatal(err)
	}
	clear(row)
	want := []any{"a string in the variable part", []byte("some bytes there"), []byte("inline")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("values changed with the input: %q", got)
	}
}

// FuzzDecode decodes any bytes as any types; what decodes must encode and decode to the same again.
func FuzzDecode(f *testing.F) {
	for _, v := range readVectors[vector](f, "binaryrow-vectors.json", 71) {
		raw, err := hex.DecodeString(v.SerializedHex)
		if err != nil {
			f.Fatal(err)
		}
		var picks []byte
		for _, name := range v.Types {
			picks = append(picks, byte(len(name)))
		}
		f.Add(raw, picks)
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, []byte{1})
	f.Add(EmptyRow, []byte{})
	f.Fuzz(func(t *testing.T, raw, picks []byte) {
		if len(picks) > 200 {
			picks = picks[:200]
		}
		types := make([]schema.Type, len(picks))
		for i, p := range picks {
			types[i] = typeOf(t, allTypes[int(p)%len(allTypes)])
		}
		vals, err := Decode(raw, types)
		if err != nil {
			return
		}
		// Strings may share bytes in a hostile row, but only as many times as there are fields.
		size := 0
		for _, v := range vals {
			switch v := v.(type) {
			case string:
				size += len(v)
			case []byte:
				size += len(v)
			}
		}
		if size > len(raw)*len(types) {
			t.Fatalf("%d bytes of values out of %d bytes and %d fields", size, len(raw), len(types))
		}
		row, err := EncodeRow(types, vals)
		if err != nil {
			t.Fatalf("decoded values cannot be encoded: %v", err)
		}
		again, err := Decode(row, types)
		if err != nil {
			t.Fatalf("an encoded row cannot be decoded: %v", err)
		}
		twice, err := EncodeRow(types, again)
		if err != nil || !bytes.Equal(row, twice) {
			t.Fatalf("encoded twice it differs (%v):\n%x\n%x", err, row, twice)
		}
	})
}
