package decode

import "github.com/calve-io/calve/schema"

// Dates and times as text (ISO 8601 and its SQL spelling with a space) and as numbers.

// EpochUnit is the unit of a timestamp that comes as a number.
type EpochUnit string

// Units of timestamps. The default of a column is the one that Debezium's adaptive mode uses for its precision:
// milliseconds for TIMESTAMP(0) to (3), microseconds up to (6), nanoseconds above.
const (
	Seconds      EpochUnit = "s"
	Milliseconds EpochUnit = "ms"
	Microseconds EpochUnit = "us"
	Nanoseconds  EpochUnit = "ns"
)

// digits gives the decimal places below a second.
func (u EpochUnit) digits() (int, bool) {
	switch u {
	case Seconds:
		return 0, true
	case Milliseconds:
		return 3, true
	case Microseconds:
		return 6, true
	case Nanoseconds:
		return 9, true
	}
	return 0, false
}

// storedDigits gives the decimal places of the Arrow unit of a timestamp column.
func storedDigits(t schema.Type) int {
	switch {
	case t.Precision <= 3:
		return 3
	case t.Precision <= 6:
		return 6
	}
	return 9
}

const (
	minDay    = -719162 // 0001-01-01
	maxDay    = 2932896 // 9999-12-31
	dayMillis = 86400000
)

// civilDays gives the days from 1970-01-01 to a date of the proleptic Gregorian calendar. Years are counted from March,
// so that the leap day is a year's last. y must be at least 1.
func civilDays(y, m, d int) int {
	m -= 3
	if m < 0 {
		m += 12
		y--
	}
	era, yoe := y/400, y%400
	doy := (153*m+2)/5 + d - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

var monthDays = [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func validDate(y, m, d int) bool {
	if y < 1 || m < 1 || m > 12 || d < 1 || d > monthDays[m] {
		return false
	}
	return m != 2 || d != 29 || y%4 == 0 && (y%100 != 0 || y%400 == 0)
}

// two reads two digits, or gives -1.
func two(s []byte, i int) int {
	if i+2 > len(s) || s[i]-'0' > 9 || s[i+1]-'0' > 9 {
		return -1
	}
	return int(s[i]-'0')*10 + int(s[i+1]-'0')
}

// parseDate reads YYYY-MM-DD at the start of s: days since 1970.
func parseDate(s []byte) (days int, ok bool) {
	if len(s) < 10 || s[4] != '-' || s[7] != '-' {
		return 0, false
	}
	c, y, m, d := two(s, 0), two(s, 2), two(s, 5), two(s, 8)
	if c < 0 || y < 0 || !validDate(c*100+y, m, d) {
		return 0, false
	}
	return civilDays(c*100+y, m, d), true
}

// parseClock reads HH:MM[:SS[.fraction]] at the start of s: nanoseconds since midnight (digits beyond the ninth are
// dropped) and how many bytes it took.
func parseClock(s []byte) (nanos int64, n int, ok bool) {
	if len(s) < 5 || s[2] != ':' {
		return 0, 0, false
	}
	h, m, sec := two(s, 0), two(s, 3), 0
	n = 5
	if len(s) > 5 && s[5] == ':' {
		sec = two(s, 6)
		n = 8
	}
	if h < 0 || h > 23 || m < 0 || m > 59 || sec < 0 || sec > 59 {
		return 0, 0, false
	}
	nanos = int64(h*3600+m*60+sec) * 1e9
	if n < 8 || n >= len(s) || s[n] != '.' {
		return nanos, n, true
	}
	end := digits(s, n+1)
	if end == n+1 {
		return 0, 0, false
	}
	f, k := scanDigits(s[:min(end, n+10)], n+1, 0)
	return nanos + int64(f*pow10[9-(k-n-1)]), end, true
}

// parseZone reads Z, ±HH, ±HHMM or ±HH:MM, which must be all of s: seconds east of UTC. Empty means UTC.
func parseZone(s []byte) (seconds int, ok bool) {
	if len(s) == 0 || len(s) == 1 && s[0]|0x20 == 'z' {
		return 0, true
	}
	if s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	h, m := two(s, 1), 0
	switch {
	case len(s) == 3:
	case len(s) == 5:
		m = two(s, 3)
	case len(s) == 6 && s[3] == ':':
		m = two(s, 4)
	default:
		return 0, false
	}
	if h < 0 || h > 18 || m < 0 || m > 59 {
		return 0, false
	}
	seconds = h*3600 + m*60
	if s[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// parseTimestamp reads a date, or a date and a clock with an optional zone, to units of 10^-digits seconds since 1970
// UTC; finer digits are dropped (towards the past). A text without zone is taken as UTC.
func parseTimestamp(s []byte, digits int) (v int64, reason string) {
	days, ok := parseDate(s)
	if !ok {
		return 0, badTimestamp
	}
	var nanos int64
	if len(s) > 10 {
		if c := s[10]; c != ' ' && c|0x20 != 't' {
			return 0, badTimestamp
		}
		n := 0
		if nanos, n, ok = parseClock(s[11:]); !ok {
			return 0, badTimestamp
		}
		zone := s[11+n:]
		if len(zone) > 1 && zone[0] == ' ' { // "2001-01-01 00:00:00 +01:00"
			zone = zone[1:]
		}
		east, ok := parseZone(zone)
		if !ok {
			return 0, badTimestamp
		}
		nanos -= int64(east) * 1e9
	}
	return joinTimestamp(int64(days), nanos, digits)
}

const badTimestamp = "is no timestamp (want YYYY-MM-DD HH:MM:SS[.fraction][zone], YYYY-MM-DD, or a number)"

// joinTimestamp puts days and nanoseconds (which may lie outside the day) together.
func joinTimestamp(days, nanos int64, digits int) (int64, string) {
	const dayNanos = dayMillis * 1000000
	for nanos < 0 {
		nanos += dayNanos
		days--
	}
	for nanos >= dayNanos {
		nanos -= dayNanos
		days++
	}
	perDay := int64(86400 * pow10[digits])
	if !inRange(days, digits) {
		return 0, outOfRange
	}
	return days*perDay + nanos/int64(pow10[9-digits]), ""
}

const outOfRange = "is out of range (years 0001 to 9999; at nanoseconds 1678 to 2261)"

// inRange reports whether all moments of a day can be stored.
func inRange(days int64, digits int) bool {
	if digits == 9 {
		return days >= -106751 && days <= 106750 // ±2^63 ns
	}
	return days >= minDay && days <= maxDay
}

// epochTimestamp takes a number in 10^-from seconds to 10^-to seconds since 1970, dropping finer digits towards the past.
func epochTimestamp(num number, from, to int) (int64, string) {
	v, _, ok := num.scaled(to - from)
	if !ok {
		return 0, outOfRange
	}
	perDay := int64(86400 * pow10[to])
	days := v / perDay
	if v%perDay < 0 {
		days--
	}
	if !inRange(days, to) {
		return 0, outOfRange
	}
	return v, ""
}
