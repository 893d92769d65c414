package datafile

import (
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

const dayMillis = 86_400_000

func perSecond(t schema.Type) int64 {
	switch schema.TimeUnit(t) {
	case arrow.Millisecond:
		return 1e3
	case arrow.Microsecond:
		return 1e6
	}
	return 1e9
}

// toClock makes DATE and TIME. As in Paimon, days of a TIMESTAMP are cut towards 1970, so that before it they are one too
// late and times are negative; days of a TIMESTAMP_LTZ are cut down.
func toClock(from, to schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		days := array.NewDate32Builder(memory.DefaultAllocator)
		times := array.NewTime32Builder(memory.DefaultAllocator, arrow.FixedWidthTypes.Time32ms.(*arrow.Time32Type))
		var b array.Builder = days
		put := func(v int64) { days.UnsafeAppend(arrow.Date32(v)) }
		if to.Root == schema.Time {
			b, put = times, func(v int64) { times.UnsafeAppend(arrow.Time32(v)) }
		}
		if t, ok := a.(*array.String); ok {
			parse := parseDate
			if to.Root == schema.Time {
				parse = parseTime
			}
			return mapRows(a, b, func(i int) (bool, error) {
				v, ok := parse(t.Value(i))
				if !ok {
					return false, cannotRead(t.Value(i), from, to)
				}
				put(int64(v))
				return true, nil
			})
		}
		get, per := whole(a), perSecond(from)
		return mapRows(a, b, func(i int) (bool, error) {
			millis := floorDiv(get(i), per/1000)
			day := millis / dayMillis
			if from.Root == schema.TimestampLTZ {
				day = floorDiv(millis, dayMillis)
			}
			if to.Root == schema.Date {
				put(day)
			} else {
				put(millis - day*dayMillis)
			}
			return true, nil
		})
	}
}

// toTimestamp makes timestamps of numbers (seconds), days, times, texts and other timestamps.
func toTimestamp(from, to schema.Type, dt *arrow.TimestampType) caster {
	per := perSecond(to)
	return func(a arrow.Array) (arrow.Array, error) {
		b := array.NewTimestampBuilder(memory.DefaultAllocator, dt)
		// put takes milliseconds and nanoseconds of the millisecond.
		put := func(millis, nanos int64, i int) (bool, error) {
			v := millis
			if f := per / 1000; f > 1 {
				fine := nanos / (1_000_000 / f)
				if millis > (math.MaxInt64-fine)/f || millis < math.MinInt64/f {
					return false, cannotRead(a.ValueStr(i), from, to)
				}
				v = millis*f + fine
			}
			b.UnsafeAppend(arrow.Timestamp(v))
			return true, nil
		}
		if t, ok := a.(*array.String); ok {
			return mapRows(a, b, func(i int) (bool, error) {
				millis, nanos, ok := parseTimestamp(t.Value(i), to)
				if !ok {
					return false, cannotRead(t.Value(i), from, to)
				}
				return put(millis, nanos, i)
			})
		}
		get := whole(a)
		switch from.Root {
		case schema.Date:
			return mapRows(a, b, func(i int) (bool, error) { return put(get(i)*dayMillis, 0, i) })
		case schema.Time:
			return mapRows(a, b, func(i int) (bool, error) { return put(get(i), 0, i) })
		case schema.Int, schema.BigInt:
			return mapRows(a, b, func(i int) (bool, error) { return put(get(i)*1000, 0, i) })
		}
		milli := perSecond(from) / 1000
		return mapRows(a, b, func(i int) (bool, error) {
			v := get(i)
			millis := floorDiv(v, milli)
			nanos := (v - millis*milli) * (1_000_000 / milli)
			millis, nanos = cutTime(millis, nanos, to.Precision)
			return put(millis, nanos, i)
		})
	}
}

// cutTime cuts a time to a precision (`DateTimeUtils.truncate`): milliseconds towards zero, what is finer down. A time
// whose nanoseconds of the second have no more digits than the precision stays as it is.
func cutTime(millis, nanos int64, precision int) (int64, int64) {
	ofSecond := (millis-floorDiv(millis, 1000)*1000)*1_000_000 + nanos
	if ofSecond < int64(math.Pow10(precision)) && (precision > 0 || ofSecond == 0) {
		return millis, nanos
	}
	if precision <= 3 {
		f := int64(math.Pow10(3 - precision))
		return millis / f * f, 0
	}
	f := int64(math.Pow10(9 - precision))
	return millis, nanos / f * f
}

// appendDate writes yyyy-MM-dd.
func appendDate(dst []byte, days int64) []byte {
	y, m, d := arrow.Date32(days).ToTime().Date()
	if y < 0 {
		dst, y = append(dst, '-'), -y
	}
	dst = append(appendDigits(dst, int64(y), 4), '-')
	return appendDigits(append(appendDigits(dst, int64(m), 2), '-'), int64(d), 2)
}

// appendDigits writes a number that is not negative with leading zeros.
func appendDigits(dst []byte, v int64, width int) []byte {
	text := strconv.FormatInt(v, 10)
	for range width - len(text) {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

// appendSeconds writes HH:mm:ss of a time of the day in milliseconds.
func appendSeconds(dst []byte, millis int64) []byte {
	dst = append(appendDigits(dst, millis/3_600_000, 2), ':')
	dst = append(appendDigits(dst, millis/60_000%60, 2), ':')
	return appendDigits(dst, millis/1000%60, 2)
}

// appendTime writes HH:mm:ss and, for a precision, a fraction of at least one digit and without zeros behind that.
func appendTime(dst []byte, millis int64, precision int) []byte {
	dst = appendSeconds(dst, millis)
	if precision == 0 {
		return dst
	}
	dst = append(dst, '.')
	for ms := millis % 1000; precision > 0; precision-- {
		dst = append(dst, '0'+byte(ms/100))
		if ms = ms % 100 * 10; ms == 0 {
			break
		}
	}
	return dst
}

// appendTimestamp writes yyyy-MM-dd HH:mm:ss and as many digits of the fraction as the precision says, or more if there
// are more.
func appendTimestamp(dst []byte, v, per int64, precision int) []byte {
	seconds := floorDiv(v, per)
	days := floorDiv(seconds, 86400)
	dst = append(appendDate(dst, days), ' ')
	dst = appendSeconds(dst, (seconds-days*86400)*1000)
	fraction := string(appendDigits(nil, (v-seconds*per)*(1_000_000_000/per), 9))
	for len(fraction) > precision && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	if fraction == "" {
		return dst
	}
	return append(append(dst, '.'), fraction...)
}

// isWhole reports whether a text is an integer that stands for itself: digits, maybe with a minus.
func isWhole(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// digitsOf reads an int of digits with blanks around them.
func digitsOf(s string) (int32, bool) {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	v, err := strconv.ParseInt(s, 10, 32)
	return int32(v), err == nil
}

// parseDate reads days, or year[-month[-day]] with anything behind a blank (`BinaryStringUtils.toDate`).
func parseDate(s string) (int32, bool) {
	if isWhole(s) {
		v, ok := parseInt(s, schema.Int)
		return int32(v), ok
	}
	if i := strings.IndexByte(s, ' '); i > 0 {
		s = s[:i]
	}
	parts := strings.SplitN(s, "-", 3)
	n := [3]int32{1, 1, 1}
	for i, p := range parts {
		var ok bool
		if n[i], ok = digitsOf(p); !ok {
			return 0, false
		}
	}
	if n[0] > 9999 || n[1] < 1 || n[1] > 12 || n[2] < 1 || n[2] > monthDays(int64(n[0]), n[1]) {
		return 0, false
	}
	return int32(epochDay(int64(n[0]), int64(n[1]), int64(n[2]))), true
}

func monthDays(year int64, month int32) int32 {
	switch month {
	case 2:
		if year%400 == 0 || year%4 == 0 && year%100 != 0 {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// epochDay counts the days since 1970-01-01 in the Gregorian calendar, also before it was used.
func epochDay(y, m, d int64) int64 {
	if m <= 2 {
		y, m = y-1, m+12
	}
	return 365*y + floorDiv(y, 4) - floorDiv(y, 100) + floorDiv(y, 400) + (153*(m-3)+2)/5 + d - 1 - 719468
}

// parseTime reads milliseconds of the day, or hour[:minute[:second[.fraction]]] with an optional zone, whose offset
// Paimon adds (`DateTimeUtils.parseTime`). Nothing keeps the result within a day.
func parseTime(s string) (int32, bool) {
	if isWhole(s) {
		v, ok := parseInt(s, schema.Int)
		return int32(v), ok
	}
	zone, sign := strings.IndexByte(s, '-'), int32(-1)
	if zone < 0 {
		zone, sign = strings.IndexByte(s, '+'), 1
	}
	var zoneHour, zoneMinute int32
	clock := s
	ok := true
	if zone >= 0 {
		hour, minute, both := strings.Cut(s[zone+1:], ":")
		if zoneHour, ok = digitsOf(hour); !ok {
			return 0, false
		}
		if both {
			if zoneMinute, ok = digitsOf(minute); !ok {
				return 0, false
			}
		}
		clock = s[:zone]
	}
	parts := strings.SplitN(clock, ":", 3)
	var n [3]int32
	var millis int32
	for i, p := range parts {
		if i == 2 {
			var fraction string
			p, fraction, _ = strings.Cut(p, ".")
			millis = parseFraction(strings.TrimSpace(fraction))
		}
		if n[i], ok = digitsOf(p); !ok {
			return 0, false
		}
	}
	return (n[0]+sign*zoneHour)*3_600_000 + (n[1]+sign*zoneMinute)*60_000 + n[2]*1000 + millis, true
}

// parseFraction reads milliseconds, rounded by the fourth digit.
func parseFraction(s string) int32 {
	r, weight := int32(0), int32(100)
	for i := range min(len(s), 3) {
		if s[i] >= '0' && s[i] <= '9' {
			r += weight * int32(s[i]-'0')
		}
		weight /= 10
	}
	if len(s) > 3 && s[3] >= '5' {
		r++
	}
	return r
}

// parseTimestamp reads "yyyy-MM-dd[ HH:mm:ss[.fraction]]", where months, days and the rest may have one digit, or for
// TIMESTAMP an integer in the unit of the precision (`BinaryStringUtils.toTimestamp`), into milliseconds and nanoseconds
// of the millisecond.
func parseTimestamp(s string, to schema.Type) (millis, nanos int64, ok bool) {
	if to.Root == schema.Timestamp && isWhole(s) {
		v, ok := parseInt(s, schema.BigInt)
		switch {
		case !ok:
			return 0, 0, false
		case to.Precision == 0:
			return v * 1000, 0, true
		case to.Precision == 3:
			return v, 0, true
		case to.Precision == 6:
			m := floorDiv(v, 1000)
			return m, (v - m*1000) * 1000, true
		case to.Precision == 9:
			m := floorDiv(v, 1_000_000)
			return m, v - m*1_000_000, true
		}
		return 0, 0, false
	}
	date, clock, timed := strings.Cut(s, " ")
	day, ok := timestampDay(date)
	if !ok {
		return 0, 0, false
	}
	if !timed {
		return day * dayMillis, 0, true
	}
	ofDay, nano, ok := timestampClock(clock)
	if !ok {
		return 0, 0, false
	}
	f := int64(math.Pow10(9 - to.Precision))
	nano = nano / f * f
	return day*dayMillis + ofDay*1000 + nano/1_000_000, nano % 1_000_000, true
}

// timestampDay reads yyyy-M-d; a day behind the end of its month is its last.
func timestampDay(s string) (int64, bool) {
	parts := strings.Split(s, "-")
	if len(parts) != 3 || len(parts[0]) != 4 {
		return 0, false
	}
	y, ok1 := shortNumber(parts[0], 4, 9999)
	m, ok2 := shortNumber(parts[1], 2, 12)
	d, ok3 := shortNumber(parts[2], 2, 31)
	if !ok1 || !ok2 || !ok3 || y == 0 || m == 0 || d == 0 {
		return 0, false
	}
	return epochDay(y, m, min(d, int64(monthDays(y, int32(m))))), true
}

// timestampClock reads H:m:s[.fraction] into seconds and nanoseconds; 24:00:00 is the end of the day.
func timestampClock(s string) (seconds, nano int64, ok bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return 0, 0, false
	}
	whole, fraction, _ := strings.Cut(parts[2], ".")
	h, ok1 := shortNumber(parts[0], 2, 24)
	m, ok2 := shortNumber(parts[1], 2, 59)
	sec, ok3 := shortNumber(whole, 2, 59)
	if !ok1 || !ok2 || !ok3 || len(fraction) > 9 || strings.Trim(fraction, "0123456789") != "" {
		return 0, 0, false
	}
	if fraction != "" {
		nano, _ = strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	}
	if h == 24 && (m != 0 || sec != 0 || nano != 0) {
		return 0, 0, false
	}
	return h*3600 + m*60 + sec, nano, true
}

// shortNumber reads up to width digits.
func shortNumber(s string, width int, most int64) (int64, bool) {
	if s == "" || len(s) > width || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	v, err := strconv.ParseInt(s, 10, 64)
	return v, err == nil && v <= most
}
