package server

import (
	"context"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/manifest"
)

// deadBuffer is the write buffer of a table of dead letters.
const deadBuffer = 4 << 20

// deadLetters gives the dead letters of a job of the pipeline, whose table is compacted and exported as the pipeline's own.
// The function it returns closes them.
func (p *pipeline) deadLetters(ctx context.Context, env ingest.Env, job string) (*ingest.DeadTable, func()) {
	stopExport := func(context.Context) {}
	d := ingest.NewDeadLetters(p.dead, ingest.DeadLetterSettings{
		TotalBytes: int64(p.cfg.Dead.Limit),
		Engine: engine.Settings{Job: job, BufferBytes: deadBuffer, Compaction: min(1, p.cfg.Compaction.Workers), Compactor: p.compactor, Budget: p.budget,
			ExpireEvery: time.Duration(p.cfg.ExpireEvery), FollowEvery: followEvery},
		Opened: func(t *engine.Table) {
			stopExport = p.startExport(ctx, t, p.dead, func(export.Result, error) {}) // failures are logged by the exporter
		},
	}, env)
	return d, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := d.Close(closing); err != nil {
			p.log.Warn("closing the table of dead letters", "error", err)
		}
		stopExport(closing)
	}
}

// lookEvery is how soon a paused pipeline sees a new schema of its table.
const lookEvery = 2 * time.Second

// pause waits until the table has another schema than now, somebody resumes the pipeline, its table is another process's,
// or ctx ends.
func (p *pipeline) pause(ctx context.Context, why error) {
	p.set(Paused, why)
	p.log.Error("pipeline paused; it goes on when its table has a new schema, or is resumed", "error", why, "then", "calve resume "+p.cfg.Name, "dead_letters", p.dead.URL(""))
	meta := manifest.Open(p.store, manifest.Env{Now: p.env.Now, After: p.env.After, NewID: p.env.NewID, Rand: p.env.Rand, Log: p.log})
	was := int64(-1)
	for {
		switch s, err := meta.LatestSchema(ctx); {
		case err != nil:
			p.log.Debug("cannot look for a new schema", "error", err)
		case was < 0:
			was = s.ID
		case s.ID != was:
			p.log.Info("pipeline goes on: the table has a new schema", "schema", s.ID)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			if p.told() {
				return
			}
		case <-p.env.After(lookEvery):
		}
	}
}
