package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// localCopies are the flags that say where copies of data files may lie in which rows are found fast.
type localCopies struct{ dir, size string }

func (l *localCopies) flags(c *cobra.Command) {
	c.Flags().StringVar(&l.dir, "lookup-cache", "", "folder on local disk for copies of data files that keys are looked up in")
	c.Flags().StringVar(&l.size, "lookup-cache-bytes", "4 gb", "most that the folder holds")
}

// open gives a cache, which makes no copies without a folder.
func (l *localCopies) open() (*reader.LookupCache, error) {
	c := reader.LookupCacheConfig{Dir: l.dir}
	if l.dir != "" {
		var err error
		if c.DirBytes, err = schema.ParseSize(l.size); err != nil {
			return nil, fmt.Errorf("--lookup-cache-bytes: %w", err)
		}
	}
	return reader.NewLookupCache(c), nil
}
