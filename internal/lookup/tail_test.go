package lookup

import (
	"testing"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/storage"
)

// TestTail: how much of files' ends is read first is learned of files of their size, falls again, and is not learned on local disk.
func TestTail(t *testing.T) {
	const small, large = 150 << 10, 128 << 20
	b := newBucket(t, newRand(t), storage.NewMem(), []string{"k1"}, nil, "k1 BIGINT")
	c := NewCache(CacheConfig{})
	defer c.Close()
	tab := b.table(c)
	tab.Store = farMem{storage.NewMem()}
	c.sawTail(tab, small, 100<<10) // a file of many columns and few rows
	if n := c.tailOf(tab, small); n < 100<<10 {
		t.Errorf("%d bytes are read of a small file, as of another its end had 102400", n)
	}
	if n := c.tailOf(tab, large); n != datafile.Tail(large) {
		t.Errorf("a small file: large ones are opened with %d bytes instead of %d", n, datafile.Tail(large))
	}
	c.sawTail(tab, large, 3<<20)
	if n := c.tailOf(tab, large); n < 3<<20 || n > mostEnd {
		t.Errorf("%d bytes are read of a large file, as of another its end had 3 MiB", n)
	}
	for range 40 {
		c.sawTail(tab, large, 700<<10)
	}
	if n := c.tailOf(tab, large); n > 800<<10 { // a tenth more than they had, and what is left of 3 MiB
		t.Errorf("%d bytes are read of a large file, as of one its end had 3 MiB long ago", n)
	}
	local, err := storage.NewLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tab.Store = local
	c.sawTail(tab, large, 3<<20)
	if n := c.tailOf(tab, large); n != datafile.Tail(large) {
		t.Errorf("%d bytes are read of a file on local disk", n)
	}
}
