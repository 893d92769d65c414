package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// writeFacts writes the head of a result file: configuration lines of Go's benchmark format.
func writeFacts(w io.Writer, f facts) error {
	_, err := fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: %s\ncpu: %s\ncores: %d\ngo: %s\nfs: %s\ncommit: %s\ndate: %s\n\n",
		f.goos, f.goarch, pkg, f.cpu, f.cores, f.goVersion, f.fs, f.commit, f.date)
	return err
}

// writeSample writes one result in Go's benchmark format. As there, the suffix -N is GOMAXPROCS, left out for 1.
func writeSample(w io.Writer, s sample) error {
	var b strings.Builder
	b.WriteString("Benchmark")
	b.WriteString(s.name)
	if s.procs != 1 {
		fmt.Fprintf(&b, "-%d", s.procs)
	}
	fmt.Fprintf(&b, "\t%8d", s.n)
	for _, m := range s.metrics {
		fmt.Fprintf(&b, "\t%10s %s", number(m.value), m.unit)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// number prints about four significant digits, and no exponent.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a >= 1000 || v == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 4, 64)
}

// parseSample reads a line of `go test -bench`; ok is false for other lines.
func parseSample(line string) (s sample, ok bool) {
	f := strings.Fields(line)
	if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
		return sample{}, false
	}
	s.name, s.procs = strings.TrimPrefix(f[0], "Benchmark"), 1
	if i := strings.LastIndexByte(s.name, '-'); i >= 0 {
		if n, err := strconv.Atoi(s.name[i+1:]); err == nil && n > 0 {
			s.name, s.procs = s.name[:i], n
		}
	}
	var err error
	if s.n, err = strconv.Atoi(f[1]); err != nil {
		return sample{}, false
	}
	for i := 2; i < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return sample{}, false
		}
		s.metrics = append(s.metrics, metric{v, f[i+1]})
	}
	return s, true
}
