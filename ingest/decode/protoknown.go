package decode

import (
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoKnown are the messages that stand for a single value.
type protoKnown uint8

const (
	knownNot protoKnown = iota
	knownTimestamp
	knownDuration
	knownDate
	knownTime
	knownDecimal
	knownWrapper
	knownStruct
	knownValue
	knownList
)

// knownMessages are named with the fields that they must have, by number.
var knownMessages = map[protoreflect.FullName]struct {
	known  protoKnown
	fields []protoreflect.Name
}{
	"google.protobuf.Timestamp":   {knownTimestamp, []protoreflect.Name{"seconds", "nanos"}},
	"google.protobuf.Duration":    {knownDuration, []protoreflect.Name{"seconds", "nanos"}},
	"google.type.Date":            {knownDate, []protoreflect.Name{"year", "month", "day"}},
	"google.type.TimeOfDay":       {knownTime, []protoreflect.Name{"hours", "minutes", "seconds", "nanos"}},
	"confluent.type.Decimal":      {knownDecimal, nil}, // by name: versions of it differ
	"google.protobuf.Struct":      {knownStruct, []protoreflect.Name{"fields"}},
	"google.protobuf.Value":       {knownValue, []protoreflect.Name{"null_value", "number_value", "string_value", "bool_value", "struct_value", "list_value"}},
	"google.protobuf.ListValue":   {knownList, []protoreflect.Name{"values"}},
	"google.protobuf.DoubleValue": {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.FloatValue":  {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.Int64Value":  {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.UInt64Value": {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.Int32Value":  {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.UInt32Value": {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.BoolValue":   {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.StringValue": {knownWrapper, []protoreflect.Name{"value"}},
	"google.protobuf.BytesValue":  {knownWrapper, []protoreflect.Name{"value"}},
}

// knownOf says what a message stands for.
func knownOf(md protoreflect.MessageDescriptor) protoKnown {
	k, ok := knownMessages[md.FullName()]
	if !ok {
		return knownNot
	}
	for i, name := range k.fields { // a schema may have its own of the name
		if fd := md.Fields().ByNumber(protoreflect.FieldNumber(i + 1)); fd == nil || fd.Name() != name {
			return knownNot
		}
	}
	if k.known == knownDecimal {
		value, scale := md.Fields().ByName("value"), md.Fields().ByName("scale")
		if value == nil || scale == nil || value.Kind() != protoreflect.BytesKind || scale.Kind() != protoreflect.Int32Kind {
			return knownNot
		}
	}
	return k.known
}

// choose chooses what is done with a message that stands for a value; putSkip: it is to be read as a message.
func (n *protoNode) choose(md protoreflect.MessageDescriptor) {
	s := n.to.shape
	text := s == shapeText
	switch n.known {
	case knownTimestamp:
		if text || s == shapeTimestamp {
			n.put = putTimestamp
		}
	case knownDuration:
		if text || numeric(s) {
			n.put = putNumeral
		}
	case knownDate:
		if text || s == shapeDate {
			n.put = putDate
		}
	case knownTime:
		if text || s == shapeTime {
			n.put = putTime
		}
	case knownDecimal:
		if text || numeric(s) {
			n.put = putScaled
			n.value, n.digits = md.Fields().ByName("value").Number(), md.Fields().ByName("scale").Number()
		}
	case knownStruct, knownValue, knownList:
		if text {
			n.put = putText
		}
	}
}

// parts reads the fields of a message that stands for a value: whole numbers by their number, and of decimals the bytes.
func (d *protoDecoder) parts(b []byte, i int, n *protoNode) int {
	for i < len(b) {
		number, wire, e := protoTag(b, i)
		if e < 0 {
			return d.broken(i, n.to)
		}
		switch {
		case n.known == knownDecimal && number == n.value && wire == protowire.BytesType:
			s, end := lengthOf(b, e)
			if end < 0 {
				return d.broken(i, n.to)
			}
			n.bytes, i = b[s:end], end
			continue
		case wire == protowire.VarintType && n.known != knownDecimal && number <= protowire.Number(len(n.part)):
			v, end := uvarint(b, e)
			if end < 0 {
				return d.broken(i, n.to)
			}
			if n.part[number-1] = int64(v); number > 1 || n.known >= knownDate {
				n.part[number-1] = int64(int32(v))
			}
			i = end
			continue
		case wire == protowire.VarintType && number == n.digits:
			v, end := uvarint(b, e)
			if end < 0 {
				return d.broken(i, n.to)
			}
			n.part[0], i = int64(int32(v)), end
			continue
		}
		if i = skipProto(b, e, number, wire); i < 0 {
			return d.broken(e, n.to)
		}
	}
	return i
}

// putKnown reads a message that stands for a value; of one that occurs twice the second adds to the first.
func (d *protoDecoder) putKnown(b []byte, i int, n *protoNode, first bool) int {
	if n.known >= knownStruct {
		return d.putJSON(b, i, n)
	}
	if first {
		n.part, n.bytes = [4]int64{}, nil
	}
	if d.parts(b, i, n) < 0 {
		return -1
	}
	end := len(b)
	switch p := &n.part; n.known {
	case knownTimestamp:
		return d.putMoment(p[0], p[1], i, end, n.to)
	case knownDuration:
		return d.putDuration(p[0], p[1], i, end, n.to)
	case knownDate:
		if p[0] > 9999 || p[1] > 12 || p[2] > 31 || !validDate(int(p[0]), int(p[1]), int(p[2])) {
			return d.fail(i, n.to, "is no date: year "+strconv.FormatInt(p[0], 10)+", month "+strconv.FormatInt(p[1], 10)+", day "+strconv.FormatInt(p[2], 10))
		}
		days := civilDays(int(p[0]), int(p[1]), int(p[2]))
		if n.to.shape == shapeText {
			d.text = appendDay(d.text[:0], int64(days))
			return d.putMade(d.text, i, end, n.to)
		}
		n.to.i32[d.at] = int32(days)
		return end
	case knownTime:
		if p[0] < 0 || p[0] > 23 || p[1] < 0 || p[1] > 59 || p[2] < 0 || p[2] > 59 || p[3] < 0 || p[3] > 999999999 {
			return d.fail(i, n.to, "is no time of day")
		}
		nanos := (p[0]*3600+p[1]*60+p[2])*1e9 + p[3]
		if n.to.shape == shapeText {
			d.text = appendClock(d.text[:0], nanos, 9)
			return d.putMade(d.text, i, end, n.to)
		}
		n.to.i32[d.at] = int32(nanos / 1e6)
		return end
	}
	if n.part[0] < -maxDigits || n.part[0] > maxDigits {
		return d.fail(i, n.to, "a decimal of scale "+strconv.FormatInt(n.part[0], 10))
	}
	return d.putUnscaledBytes(n.bytes, int(n.part[0]), i, end, n.to)
}

// putMoment stores a google.protobuf.Timestamp; as text in the form that it has in JSON.
func (d *protoDecoder) putMoment(sec, nanos int64, at, end int, c *column) int {
	days, rest := sec/86400, sec%86400
	if rest < 0 {
		days--
		rest += 86400
	}
	if nanos < 0 || nanos > 999999999 {
		return d.fail(at, c, "a timestamp of "+strconv.FormatInt(nanos, 10)+" nanoseconds")
	}
	if c.shape == shapeText {
		if !inRange(days, 3) {
			return d.fail(at, c, "a timestamp of "+strconv.FormatInt(sec, 10)+" seconds "+outOfRange)
		}
		d.text = append(appendDay(d.text[:0], days), 'T')
		d.text = append(appendClock(d.text, rest*1e9+nanos, 9), 'Z')
		return d.putMade(d.text, at, end, c)
	}
	v, reason := joinTimestamp(days, rest*1e9+nanos, c.stored)
	if reason != "" {
		return d.putSpecial(sec, reason, at, end, c)
	}
	c.i64[d.at] = v
	return end
}

// appendDay writes a date of the years 1 to 9999 as YYYY-MM-DD.
func appendDay(to []byte, days int64) []byte {
	z := days + 719468
	era, doe := z/146097, z%146097
	if doe < 0 {
		era, doe = era-1, doe+146097
	}
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	y, m, day := yoe+era*400, mp+3, doy-(153*mp+2)/5+1
	if m > 12 {
		y, m = y+1, m-12
	}
	return append(to, byte('0'+y/1000%10), byte('0'+y/100%10), byte('0'+y/10%10), byte('0'+y%10), '-',
		byte('0'+m/10), byte('0'+m%10), '-', byte('0'+day/10), byte('0'+day%10))
}

// maxDuration bounds the seconds of a google.protobuf.Duration: 10,000 years.
const maxDuration = 315_576_000_000

// putDuration stores a google.protobuf.Duration in seconds; as text in the form that it has in JSON.
func (d *protoDecoder) putDuration(sec, nanos int64, at, end int, c *column) int {
	if sec > maxDuration || sec < -maxDuration || nanos > 999999999 || nanos < -999999999 || sec > 0 && nanos < 0 || sec < 0 && nanos > 0 {
		return d.fail(at, c, "is no duration: "+strconv.FormatInt(sec, 10)+" seconds and "+strconv.FormatInt(nanos, 10)+" nanoseconds")
	}
	t := d.text[:0]
	if sec < 0 || nanos < 0 {
		t = append(t, '-')
	}
	t = append(strconv.AppendUint(t, magnitude(sec), 10), '.')
	below := magnitude(nanos)
	for k := 8; k >= 0; k-- {
		t = append(t, byte('0'+below/pow10[k]%10))
	}
	if d.text = t; c.shape == shapeText {
		d.text = append(d.text, 's')
		return d.putMade(d.text, at, end, c)
	}
	num, _ := scanNumber(d.text, 0)
	if d.putNumber(num, d.text, at, c) < 0 {
		return -1
	}
	return end
}

// putJSON stores a google.protobuf.Struct, Value or ListValue as JSON.
func (d *protoDecoder) putJSON(b []byte, i int, n *protoNode) int {
	why := ""
	if d.text, why = appendKnown(d.text[:0], b[i:], n.known, 0); why != "" {
		return d.refuse(Malformed, i, n.to, why)
	}
	return d.putMade(d.text, i, len(b), n.to)
}

// appendKnown writes a Struct, a Value or a ListValue as JSON; why says what is wrong with it. Members keep their order.
func appendKnown(to, b []byte, what protoKnown, depth int) (out []byte, why string) {
	if depth > maxNesting {
		return to, "more than " + strconv.Itoa(maxNesting) + " structs and lists within each other"
	}
	if what == knownValue {
		return appendValue(to, b, depth)
	}
	open, shut := byte('['), byte(']')
	if what == knownStruct {
		open, shut = '{', '}'
	}
	to = append(to, open)
	for i, many := 0, false; i < len(b); {
		number, wire, e := protoTag(b, i)
		if e < 0 {
			return to, brokenProto
		}
		if number != 1 || wire != protowire.BytesType {
			if i = skipProto(b, e, number, wire); i < 0 {
				return to, brokenProto
			}
			continue
		}
		s, end := lengthOf(b, e)
		if end < 0 {
			return to, brokenProto
		}
		if many {
			to = append(to, ',')
		}
		if many = true; what == knownStruct {
			to, why = appendMember(to, b[s:end], depth)
		} else {
			to, why = appendValue(to, b[s:end], depth)
		}
		if why != "" {
			return to, why
		}
		i = end
	}
	return append(to, shut), ""
}

// appendMember writes an entry of a Struct's map.
func appendMember(to, b []byte, depth int) (out []byte, why string) {
	var pair [2][]byte
	for i := 0; i < len(b); {
		number, wire, e := protoTag(b, i)
		if e < 0 {
			return to, brokenProto
		}
		if wire == protowire.BytesType && number <= 2 {
			s, end := lengthOf(b, e)
			if end < 0 {
				return to, brokenProto
			}
			pair[number-1], i = b[s:end], end
		} else if i = skipProto(b, e, number, wire); i < 0 {
			return to, brokenProto
		}
	}
	if to, why = appendQuoted(to, pair[0]); why != "" {
		return to, why
	}
	return appendValue(append(to, ':'), pair[1], depth)
}

// appendValue writes a Value: of its fields the last one counts. One without any is null.
func appendValue(to, b []byte, depth int) (out []byte, why string) {
	from := len(to)
	to = append(to, "null"...)
	for i := 0; i < len(b); {
		number, wire, e := protoTag(b, i)
		if e < 0 {
			return to, brokenProto
		}
		end := skipProto(b, e, number, wire)
		if end < 0 {
			return to, brokenProto
		}
		var v uint64
		var s []byte
		switch wire {
		case protowire.VarintType:
			v, _ = uvarint(b, e)
		case protowire.Fixed64Type:
			v, _ = protowire.ConsumeFixed64(b[e:])
		case protowire.BytesType:
			s, _ = protowire.ConsumeBytes(b[e:])
		}
		switch i = end; {
		case number == 1 && wire == protowire.VarintType:
			to = append(to[:from], "null"...)
		case number == 2 && wire == protowire.Fixed64Type:
			f := math.Float64frombits(v)
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return to, "a number that JSON does not have"
			}
			to = appendFloat(to[:from], f)
		case number == 3 && wire == protowire.BytesType:
			to, why = appendQuoted(to[:from], s)
		case number == 4 && wire == protowire.VarintType:
			to = strconv.AppendBool(to[:from], v != 0)
		case number == 5 && wire == protowire.BytesType:
			to, why = appendKnown(to[:from], s, knownStruct, depth+1)
		case number == 6 && wire == protowire.BytesType:
			to, why = appendKnown(to[:from], s, knownList, depth+1)
		}
		if why != "" {
			return to, why
		}
	}
	return to, ""
}

// appendFloat writes a number as JSON, as encoding/json does.
func appendFloat(to []byte, f float64) []byte {
	form := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	return strconv.AppendFloat(to, f, form, -1, 64)
}

// appendQuoted writes a JSON string.
func appendQuoted(to, s []byte) (out []byte, why string) {
	const hex = "0123456789abcdef"
	if !utf8.Valid(s) {
		return to, "is not valid UTF-8"
	}
	to = append(to, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < 0x20:
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			to = append(to, c)
		}
	}
	return append(to, '"'), ""
}
