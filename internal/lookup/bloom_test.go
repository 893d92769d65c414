package lookup

import (
	"bytes"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/storage"
)

// keyValue is a row of a foreign data file.
type keyValue struct {
	Key  int64 `parquet:"_KEY_k1"`
	Seq  int64 `parquet:"_SEQUENCE_NUMBER"`
	Kind int32 `parquet:"_VALUE_KIND,int(8)"`
	K1   int64 `parquet:"k1"`
	A    int32 `parquet:"a"`
}

// TestForeignBloom: the Bloom filter that another writer put into a data file spares reads of keys that are not there.
func TestForeignBloom(t *testing.T) {
	store := storage.WithCounter(storage.NewMem())
	b := newBucket(t, newRand(t), store, []string{"k1"}, nil, "k1 BIGINT", "a INT")
	var even, odd []int
	var rows []keyValue
	for n := range 3000 {
		even, odd = append(even, 2*n), append(odd, 2*n+1)
		k := value(b.s.Fields[0].Type, 2*n).(int64)
		rows = append(rows, keyValue{Key: k, Seq: int64(n), K1: k, A: int32(n)})
	}
	b.flush(even, []int8{0})
	f := b.levels.Files()[0]
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[keyValue](&buf, parquet.BloomFilters(parquet.SplitBlockFilter(16, "k1")))
	_, err := w.Write(rows)
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = store.Put(t.Context(), b.part.Dir+"/"+f.Name, buf.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Size = int64(buf.Len())
	if b.levels, err = lsm.NewLevels(lsm.NewKeys(b.s), 3, append(b.levels.Files()[:0], f)); err != nil {
		t.Fatal(err)
	}
	cache := NewCache(CacheConfig{})
	defer cache.Close()
	checkRows(t, "foreign", b, b.table(cache), []int{0, 1, 2, 3000, 3001, 5998})
	bk, err := b.table(cache).Bucket(b.part, b.levels.Runs(), nil)
	if err != nil {
		t.Fatal(err)
	}
	before := store.Counts()
	found, err := bk.Rows(t.Context(), b.keyColumns(odd[10:20]), 10, []int{0})
	if read := store.Counts().Since(before).Of(storage.OpRead).Calls; err != nil || found.Rows.N != 0 || read > 0 {
		t.Errorf("%d rows, %d reads for keys that are not there, %v", found.Rows.N, read, err)
	}
}
