package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress shows a count and its rate on one line of a terminal; elsewhere it shows nothing.
type progress struct {
	w     io.Writer
	start time.Time
	n     int64
	shown bool
}

func newProgress(w io.Writer, wanted bool) *progress {
	p := &progress{start: time.Now()}
	if f, ok := w.(*os.File); ok && wanted {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			p.w = w
		}
	}
	return p
}

func (p *progress) add(n int64, what string) {
	p.n += n
	if p.w != nil {
		p.shown = true
		fmt.Fprintf(p.w, "\r%d %s, %.0f a second ", p.n, what, float64(p.n)/time.Since(p.start).Seconds())
	}
}

func (p *progress) end() {
	if p.shown {
		fmt.Fprintln(p.w)
	}
}
