package datafile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"github.com/calve-io/calve/schema"
)

// TestRowGroupBytes: how large the row groups of files are, as another library reads it; the last one of a file is what is left.
func TestRowGroupBytes(t *testing.T) {
	s := &schema.Schema{Version: 3, PrimaryKeys: []string{"k"}, Options: map[string]string{}}
	for i, name := range strings.Split("kabc", "") {
		typ := []string{"BIGINT NOT NULL", "STRING", "STRING", "STRING"}[i]
		s.Fields = append(s.Fields, schema.Field{ID: i, Name: name, Type: mustType(t, typ)})
	}
	in := randomRows(newRand(11), s, 0, 10_000, valueShape{long: 4000})
	const each = 3 << 20  // at least a batch
	const piece = 3 << 20 // what is written at once of these rows, by whose end a row group is over
	for _, c := range []struct {
		keyed       bool
		asked, want int64
	}{
		{keyed: true, want: 8 << 20},
		{keyed: false, want: 32 << 20},
		{keyed: true, asked: 1, want: 1 << 20},
		{keyed: true, asked: 16 << 20, want: 16 << 20},
		{keyed: true, asked: 1 << 40, want: 32 << 20},
	} {
		t.Run(fmt.Sprintf("keyed %v, %d asked for", c.keyed, c.asked), func(t *testing.T) {
			data, _ := writeFile(t, WriterConfig{Schema: s, Keyed: c.keyed, RowGroupBytes: c.asked, Compression: "none"}, slices.Repeat([]Rows{in}, int(3+5*c.want/2/each))...)
			f, err := pq.OpenFile(openBytes(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			groups := f.Metadata().RowGroups
			t.Logf("%d bytes in %d row groups", len(data), len(groups))
			if len(groups) < 2 {
				t.Fatal("a single row group")
			}
			for i, g := range groups[:len(groups)-1] {
				if n := g.TotalCompressedSize; n < c.want*2/3 || n > c.want+piece {
					t.Errorf("row group %d has %d bytes, want some %d", i, n, c.want)
				}
			}
		})
	}
	if n := rowGroupBytes(WriterConfig{Keyed: true}, 100); n != 12_800<<10 {
		t.Errorf("100 columns have row groups of %d bytes", n)
	}
}
