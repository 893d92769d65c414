package manifest

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/avro"
)

// checkFast holds the decoder for the usual schema against the Avro library, on records that may be damaged: it takes
// what the library takes, and gives the same.
func checkFast(t *testing.T, block []byte) {
	t.Helper()
	var d entryDecoder
	var w wireEntry
	rest, err := d.entry(block)
	wantRest, wantErr := entrySchema.Decode(block, &w, avro.SkipUnknown(), avro.AliasInput())
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, want %v", block, err, wantErr)
	}
	if err != nil {
		return
	}
	got, gerr := entryFromWire(&d.w)
	want, werr := entryFromWire(&w)
	if (gerr == nil) != (werr == nil) {
		t.Fatalf("%x: %v, want %v", block, gerr, werr)
	}
	if len(rest) != len(wantRest) || gerr == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%x:\n%+v, %d bytes left, want\n%+v, %d", block, got, len(rest), want, len(wantRest))
	}
}

func TestFastEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 300 {
		e := randomEntry(r)
		var w wireEntryOut
		if err := entryToWire(&w, &e); err != nil {
			t.Fatal(err)
		}
		block, err := entrySchema.AppendEncode(nil, &w)
		if err != nil {
			t.Fatal(err)
		}
		checkFast(t, block)
		checkFast(t, append(block[:len(block):len(block)], 1, 2, 3))
		for range 40 {
			bad := append([]byte{}, block...)
			for range 1 + r.IntN(2) {
				bad[r.IntN(len(bad))] = byte(r.Uint32())
			}
			checkFast(t, bad[:len(bad)-r.IntN(2)*r.IntN(len(bad))])
		}
	}
}

func FuzzFastEntry(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 5 {
		e := randomEntry(r)
		var w wireEntryOut
		if err := entryToWire(&w, &e); err != nil {
			f.Fatal(err)
		}
		block, err := entrySchema.AppendEncode(nil, &w)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(block)
	}
	f.Fuzz(checkFast)
}
