package schema

import "slices"

// castRule says for a type which other types can be read as it: the rules of `types.DataTypeCasts` for which
// `casting.CastExecutors` has an executor (Paimon 1.4.2). Implicit ones lose nothing by Paimon's word; explicit ones are
// refused by tables with disable-explicit-type-casting. Nested types are not cast as a whole.
type castRule struct{ implicit, explicit []Root }

var (
	integers  = []Root{TinyInt, SmallInt, Int, BigInt}
	numbers   = []Root{TinyInt, SmallInt, Int, BigInt, Float, Double, Decimal}
	texts     = []Root{Char, VarChar}
	times     = []Root{Timestamp, TimestampLTZ}
	textLikes = []Root{Boolean, TinyInt, SmallInt, Int, BigInt, Float, Double, Decimal, Char, VarChar, Binary, VarBinary}
)

func join(lists ...[]Root) []Root {
	var out []Root
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

var castRules = map[Root]castRule{
	Boolean:      {nil, join(texts, integers)},
	TinyInt:      {nil, join([]Root{Boolean}, numbers, texts)},
	SmallInt:     {[]Root{TinyInt}, join([]Root{Boolean}, numbers, texts)},
	Int:          {[]Root{TinyInt, SmallInt}, join([]Root{Boolean}, numbers, texts, times)},
	BigInt:       {[]Root{TinyInt, SmallInt, Int}, join([]Root{Boolean}, numbers, texts, times)},
	Float:        {join(integers, []Root{Decimal}), join([]Root{Boolean}, numbers, texts)},
	Double:       {numbers, join([]Root{Boolean}, texts)},
	Decimal:      {numbers, join([]Root{Boolean}, texts)},
	Char:         {[]Root{Char}, textLikes},
	VarChar:      {texts, textLikes},
	Binary:       {[]Root{Binary}, join([]Root{VarBinary}, texts)},
	VarBinary:    {[]Root{Binary, VarBinary}, texts},
	Date:         {[]Root{Timestamp}, join([]Root{TimestampLTZ}, texts)},
	Time:         {[]Root{Timestamp}, join([]Root{TimestampLTZ}, texts)},
	Timestamp:    {times, join([]Root{Date, Time, Int, BigInt}, texts)},
	TimestampLTZ: {times, join([]Root{Date, Time, Int, BigInt}, texts)},
}

// CanCast reports whether values of one type can be read as another: what a change of a column's type needs.
// Without explicit only casts count that lose nothing. Lengths, precisions and scales may differ: longer texts are cut,
// and numbers that do not fit a DECIMAL become null. DATE, TIME and timestamps become STRING only, not shorter texts.
func CanCast(from, to Type, explicit bool) bool {
	if from.NotNull = to.NotNull; sameShape(from, to) {
		return true
	}
	switch from.Root {
	case Date, Time, Timestamp, TimestampLTZ:
		if to.Root == VarChar {
			return explicit && to.Length == MaxLength
		}
	}
	if from.Root == to.Root && to.Root == Time {
		return false
	}
	rule := castRules[to.Root]
	if slices.Contains(rule.implicit, from.Root) {
		return true
	}
	return explicit && slices.Contains(rule.explicit, from.Root)
}
