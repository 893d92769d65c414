package reader

import (
	"context"
	"fmt"

	"github.com/calve-io/calve/internal/lookup"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/manifest"
)

// maxFilter bounds a filter that is read: that of a hundred million values.
const maxFilter = 64 << 20

// mayHave reports whether a predicate may be true for a row of a file, by the file's index of values: in the manifest, or
// in a file beside the data file. The index is looked for only if the predicate asks for values.
func (r *Reader) mayHave(ctx context.Context, v *view, dir string, f *manifest.DataFile, p *predicate.Predicate) (bool, error) {
	if p == nil || !lookup.HasFileIndex(v.schema, f) {
		return true, nil
	}
	var x *lookup.FileIndex
	var failed error
	may := p.MayHave(func(col int, cell any) bool {
		if failed != nil {
			return true
		}
		if x == nil {
			s, err := r.meta.Schema(ctx, f.SchemaID)
			if err == nil {
				x, err = lookup.OpenFileIndex(ctx, r.store, dir+"/"+f.Name, f, s)
			}
			if failed = err; failed != nil {
				return true
			}
		}
		b, err := x.Filter(v.schema.Fields[col], maxFilter)
		failed = err
		return b == nil || b.May(cell)
	})
	if x != nil {
		x.Close()
	}
	if failed != nil {
		return true, fmt.Errorf("file index of %s (option file-index.read.enabled = false does without): %w", r.store.URL(dir+"/"+f.Name), failed)
	}
	return may, nil
}
