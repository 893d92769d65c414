package schema

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits are Paimon's names for powers of 1024 (`options.MemorySize`).
var sizeUnits = map[string]int64{
	"": 1, "b": 1, "bytes": 1,
	"k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
	"m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
	"t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}

// timeUnits are Paimon's names for time units (`utils.TimeUtils`); without one the number means milliseconds.
var timeUnits = map[string]time.Duration{
	"":  time.Millisecond,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"min": time.Minute, "m": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"ms": time.Millisecond, "milli": time.Millisecond, "millis": time.Millisecond,
	"millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"µs": time.Microsecond, "micro": time.Microsecond, "micros": time.Microsecond,
	"microsecond": time.Microsecond, "microseconds": time.Microsecond,
	"ns": time.Nanosecond, "nano": time.Nanosecond, "nanos": time.Nanosecond,
	"nanosecond": time.Nanosecond, "nanoseconds": time.Nanosecond,
}

// ParseSize reads a size as Paimon's options hold it: "512 mb", "8mb", "1 g", "4096" (bytes).
func ParseSize(s string) (int64, error) {
	n, unit, err := numberAndUnit(s)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w; write it like \"512 mb\"", s, err)
	}
	mul, ok := sizeUnits[unit]
	if !ok {
		return 0, fmt.Errorf("size %q: unknown unit %q; known are b, kb, mb, gb and tb", s, unit)
	}
	if n > math.MaxInt64/mul {
		return 0, fmt.Errorf("size %q is more than 2^63 bytes", s)
	}
	return n * mul, nil
}

// ParseDuration reads a time span as Paimon's options hold it: "1 h", "30 min", "500 ms", "1000" (milliseconds).
// Spans longer than Go's Duration (292 years) are cut to it.
func ParseDuration(s string) (time.Duration, error) {
	n, unit, err := numberAndUnit(s)
	if err != nil {
		return 0, fmt.Errorf("time span %q: %w; write it like \"1 h\"", s, err)
	}
	mul, ok := timeUnits[unit]
	if !ok {
		return 0, fmt.Errorf("time span %q: unknown unit %q; known are d, h, min, s, ms, µs and ns", s, unit)
	}
	if n > math.MaxInt64/int64(mul) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * mul, nil
}

// numberAndUnit cuts "12 mb" in its number and its unit in lower case.
func numberAndUnit(s string) (int64, string, error) {
	s = strings.TrimSpace(s)
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	if digits == 0 {
		return 0, "", fmt.Errorf("it does not start with a number")
	}
	n, err := strconv.ParseInt(s[:digits], 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("the number is more than 2^63")
	}
	return n, strings.ToLower(strings.TrimSpace(s[digits:])), nil
}

// splitNames cuts a comma list of names.
func splitNames(s string) []string {
	var out []string
	for _, n := range strings.Split(s, ",") {
		if n = strings.TrimSpace(n); n != "" {
			out = append(out, n)
		}
	}
	return out
}
