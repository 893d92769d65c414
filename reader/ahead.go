package reader

import (
	"context"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
)

// aheadRun reads a run one batch ahead in a goroutine of its own, so that decoding goes on while the merge works on the
// batches before. slots are shared by the runs of a scan: so many of them decode at once.
//
// The goroutine begins with the first Next and ends with the run, its first error, or Close, which waits for it.
type aheadRun struct {
	run   *runReader
	slots chan struct{}

	read   chan ahead // nil until the first Next; closed by the goroutine
	cancel context.CancelFunc
	level  int
	err    error // what the run ended with
}

// ahead is a batch with the level of the file that it is from.
type ahead struct {
	rows  datafile.Rows
	level int
	err   error
}

var _ lsm.Leveled = (*aheadRun)(nil)

// Level implements lsm.Leveled.
func (a *aheadRun) Level() int { return a.level }

// Next implements lsm.Run.
func (a *aheadRun) Next(ctx context.Context) (datafile.Rows, error) {
	if a.err != nil {
		return datafile.Rows{}, a.err
	}
	if a.read == nil {
		ctx, cancel := context.WithCancel(ctx)
		a.read, a.cancel = make(chan ahead), cancel
		go a.loop(ctx)
	}
	select {
	case b, ok := <-a.read:
		if !ok { // the context of the first Next has ended
			return datafile.Rows{}, context.Canceled
		}
		a.level, a.err = b.level, b.err
		return b.rows, b.err
	case <-ctx.Done():
		return datafile.Rows{}, ctx.Err()
	}
}

// loop owns the run until it has closed the channel.
func (a *aheadRun) loop(ctx context.Context) {
	defer close(a.read)
	for {
		select {
		case a.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		rows, err := a.run.Next(ctx)
		<-a.slots
		select {
		case a.read <- ahead{rows, a.run.Level(), err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Close ends the goroutine and closes the run.
func (a *aheadRun) Close() error {
	if a.read != nil {
		a.cancel()
		for range a.read { // until it has seen it
		}
	}
	return a.run.Close()
}
