package ingest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema/schematest"
)

// paced is a table whose commits take a time, and that notes by a synctest bubble's clock when they began.
type paced struct {
	*fakeTable
	begun  time.Time
	starts []time.Duration
}

func newPaced(t *testing.T, took func() time.Duration) *paced {
	p := &paced{fakeTable: lineTable(t), begun: time.Now()}
	p.fault = func(call string) (error, bool) {
		if call == "commit" {
			p.starts = append(p.starts, time.Since(p.begun))
			time.Sleep(took())
		}
		return nil, false
	}
	return p
}

// runUnits has a committer take a unit of one record after each of the pauses, and gives when each was written.
func (p *paced) runUnits(t *testing.T, limits Limits, pauses []time.Duration, urgent func(i int) bool) (written []time.Duration) {
	env, read := testEnv(), 0
	c := &committer{table: p, follower: newFollower(p, decode.Config{}, env, Events{}, limits), dead: &list{}, env: env, limits: limits.withDefaults(),
		progress: func() Progress { return Progress{Properties: map[string]string{PropRecords: fmt.Sprint(read)}} }}
	err := pump(t.Context(), func(_ context.Context, out chan<- unit) error {
		for i, pause := range pauses {
			time.Sleep(pause)
			out <- unit{tally: Committed{Records: 1, Rows: 1}, urgent: urgent != nil && urgent(i), advance: func() {
				read++
				written = append(written, time.Since(p.begun))
			}}
		}
		time.Sleep(time.Minute) // an end of the source is a commit
		return nil
	}, c)
	if err != nil {
		t.Error(err)
	}
	return written
}

const ms = time.Millisecond

func every(n int, pause time.Duration) []time.Duration {
	return slices.Repeat([]time.Duration{pause}, n)
}

// TestPace: when commits begin, an interval being a second, and the beats of the table lying at its multiples unless a
// phase moves them.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		took   time.Duration
		pauses []time.Duration
		want   []time.Duration
		phase  time.Duration
	}{
		"the first waits for an interval":               {0, []time.Duration{100 * ms}, []time.Duration{1000 * ms}, 0},
		"or to the beat, if that is far enough":         {0, []time.Duration{100 * ms}, []time.Duration{700 * ms}, 700 * ms},
		"and for half an interval at least":             {0, []time.Duration{100 * ms}, []time.Duration{675 * ms}, 300 * ms},
		"a lone row in a quiet table":                   {200 * ms, []time.Duration{10_000 * ms, 20_000 * ms}, []time.Duration{10_050 * ms, 30_050 * ms}, 0},
		"rows that come with it":                        {200 * ms, []time.Duration{10_000 * ms, 20 * ms, 20 * ms}, []time.Duration{10_050 * ms}, 0},
		"a row soon after it":                           {200 * ms, []time.Duration{10_000 * ms, 400 * ms}, []time.Duration{10_050 * ms, 11_000 * ms}, 0},
		"a row when an interval is nearly over":         {200 * ms, []time.Duration{10_000 * ms, 990 * ms}, []time.Duration{10_050 * ms, 11_040 * ms}, 0},
		"busy: from beat to beat":                       {300 * ms, every(400, 10*ms), []time.Duration{1000 * ms, 2000 * ms, 3000 * ms, 4000 * ms, 5000 * ms}, 0},
		"busy, moved":                                   {300 * ms, every(400, 10*ms), []time.Duration{600 * ms, 1600 * ms, 2600 * ms, 3600 * ms}, 600 * ms},
		"busy, and back on the beat":                    {300 * ms, every(400, 10*ms), []time.Duration{775 * ms, 1400 * ms, 2400 * ms, 3400 * ms}, 400 * ms},
		"busy, and a commit is longer than an interval": {1500 * ms, every(300, 10*ms), []time.Duration{1000 * ms, 3250 * ms, 5500 * ms, 7750 * ms}, 0},
		"busy, and a commit takes far longer":           {5000 * ms, every(300, 10*ms), []time.Duration{1000 * ms, 7000 * ms, 13_000 * ms}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPaced(t, func() time.Duration { return c.took })
				p.runUnits(t, Limits{Phase: c.phase}, c.pauses, nil)
				if len(c.pauses) >= 300 { // it goes on like that
					p.starts = p.starts[:min(len(p.starts), len(c.want))]
				}
				if !slices.Equal(p.starts, c.want) {
					t.Errorf("commits began at %v, want %v", p.starts, c.want)
				}
			})
		})
	}
}

// TestPaceBounds: whatever comes when, two commits begin half an interval apart or more, no more than one between two beats, and
// no row that is written waits longer than an interval. A commit that is asked for at once is not late for that.
func TestPaceBounds(t *testing.T) {
	const interval = 400 * ms
	r := schematest.Rand(t)
	for _, asked := range []int{0, 20} { // of 100 units
		synctest.Test(t, func(t *testing.T) {
			p := newPaced(t, func() time.Duration {
				return time.Duration(r.IntN(int(2*interval/ms))) * ms / time.Duration(1+r.IntN(5))
			})
			pauses, urgent := make([]time.Duration, 500), make([]bool, 500)
			for i := range pauses {
				pauses[i] = time.Duration(r.IntN(1+[]int{0, 30, 300, 1500}[r.IntN(4)])) * ms
				urgent[i] = r.IntN(100) < asked
			}
			phase := time.Duration(r.IntN(int(interval/ms))) * ms
			written := p.runUnits(t, Limits{CommitInterval: interval, Phase: phase}, pauses, func(i int) bool { return urgent[i] })
			early := 0
			for i, w := range written {
				at, _ := slices.BinarySearch(p.starts, w)
				switch wait := p.starts[at] - w; {
				case wait > interval || urgent[i] && wait > 0:
					t.Errorf("unit %d, asked for: %v, waits %v for its commit", i, urgent[i], wait)
				case urgent[i]:
					early++
				}
			}
			period := func(at time.Duration) int64 { return p.begun.Add(at-phase).UnixNano() / int64(interval) }
			for i := range p.starts[1:] {
				if gap := p.starts[i+1] - p.starts[i]; gap < interval/2 {
					early--
				}
				if asked == 0 && period(p.starts[i]) == period(p.starts[i+1]) {
					t.Errorf("commits at %v and %v begin between the same two beats", p.starts[i], p.starts[i+1])
				}
			}
			if early < 0 || asked == 0 && early != 0 {
				t.Errorf("%d commits too many began less than half an interval after another", -early)
			}
		})
	}
}

// TestPaceLate: a busy table is committed once an interval and no more often, however late each commit begins, unless that is
// half an interval.
func TestPaceLate(t *testing.T) {
	const interval = time.Second
	r := schematest.Rand(t)
	now := time.Unix(1_700_000_000, 0)
	p, begun := newPace(Limits{CommitInterval: interval, Phase: 300 * ms}, now), now
	for range 1000 {
		now = now.Add(p.wait(now) + time.Duration(r.IntN(500))*ms)
		p.began(now)
		now = now.Add(time.Duration(r.IntN(400)) * ms)
		p.ended(now)
	}
	if took := now.Sub(begun); took > 1001*interval || took < 999*interval {
		t.Errorf("1000 commits took %v", took)
	}
}

// TestPaceBeat: tables whose phases are spread over the interval, that begin at the same time and whose timers are late as timers
// are, are all on their beat after a few commits.
func TestPaceBeat(t *testing.T) {
	const tables = 100
	r := schematest.Rand(t)
	for i := range tables {
		now := time.Unix(1_700_000_000, int64(r.IntN(1e9)))
		p := newPace(Limits{CommitInterval: time.Second, Phase: time.Duration(i) * time.Second / tables}, now)
		for range 5 {
			now = now.Add(p.wait(now) + time.Duration(1+r.IntN(500))*time.Microsecond)
			p.began(now)
			p.ended(now.Add(5 * ms))
		}
		if late := time.Second - p.beat(now); late > ms {
			t.Errorf("table %d begins %v behind its beat", i, late)
		}
	}
}

// TestPaceBack: a clock that is set back makes nobody wait longer than an interval.
func TestPaceBack(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := newPace(Limits{CommitInterval: time.Second}, now)
	if w := p.wait(now.Add(-time.Hour)); w != time.Second {
		t.Errorf("a row waits %v", w)
	}
	if p := newPace(Limits{CommitInterval: 20 * ms}, now); p.wait(now.Add(time.Hour)) != 2*ms {
		t.Errorf("a short interval's linger is %v", p.linger)
	}
}

// TestPushPace: a request to a quiet table is answered at once, one after the other every interval.
func TestPushPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 100 * ms
		table := newPaced(t, func() time.Duration { return took })
		p, err := NewPusher(t.Context(), PushConfig{}, table, &list{}, testEnv(), Events{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(10 * time.Second)
		for i := range 5 {
			began := time.Now()
			if _, err := p.Push(ctx, push(fmt.Sprintf(`{"v":%d}`, i))); err != nil {
				t.Fatal(err)
			}
			// The second comes at 10.15 s and waits for the beat at 11 s, the others come behind a commit that began on one.
			want := []time.Duration{50*ms + took, 950 * ms, time.Second, time.Second, time.Second}[i]
			if w := time.Since(began); w != want {
				t.Errorf("request %d is answered after %v", i, w)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(table.starts) != 5 {
			t.Errorf("commits at %v", table.starts)
		}
	})
}
