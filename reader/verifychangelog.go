package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/calve-io/calve/manifest"
)

// verifyChangelogs checks that the changes of snapshots that have expired, and whose long-lived changelogs are left, can be
// told: their files exist, with as many rows as their manifests say.
func (r *Reader) verifyChangelogs(ctx context.Context, v *view, rep *Report) error {
	first, err := r.meta.EarliestTold(ctx)
	if err != nil {
		return err
	}
	for id := first.ID; ; id++ {
		if _, err := r.meta.Snapshot(ctx, id); !errors.Is(err, manifest.ErrSnapshotExpired) {
			return err
		}
		err := r.verifyChangelog(ctx, v, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			continue
		}
		if _, gone := r.meta.Told(ctx, id); !errors.Is(gone, manifest.ErrSnapshotExpired) { // by an expiry that runs beside
			rep.problem("changelog %d: %v", id, err)
		}
	}
}

func (r *Reader) verifyChangelog(ctx context.Context, v *view, id int64) error {
	c, err := r.meta.Told(ctx, id)
	if err != nil {
		return err
	}
	own, err := r.view(ctx, c.SchemaID)
	if err != nil {
		return err
	}
	entries, err := r.changeFiles(ctx, own.opts.ChangelogProducer, c)
	if err != nil {
		return err
	}
	for i := range entries {
		part, err := v.part(&entries[i])
		if err != nil {
			return err
		}
		rd, err := r.openFile(ctx, v, part.Dir, &entries[i].File, v.schema.KeyColumns())
		if err != nil {
			return err
		}
		rows := rd.NumRows()
		if err := rd.Close(); err != nil {
			return err
		}
		if want := entries[i].File.Rows; rows != want {
			return fmt.Errorf("%s/%s: has %d rows, the manifest says %d", part.Dir, entries[i].File.Name, rows, want)
		}
	}
	return nil
}
