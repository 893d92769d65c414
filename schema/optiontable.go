package schema

import (
	"slices"
	"strings"
)

// Use says what calve does with a table option.
type Use uint8

const (
	// Honoured: calve does what the option says, or refuses the value with a reason of its own.
	Honoured Use = iota
	// Harmless: calve may ignore the option, whatever its value.
	Harmless
	// Refused: calve does not write a table where the option has another value than those of TableOption.Off; with
	// TableOption.Reads it does not read it either.
	Refused
)

// String gives the word that OPTIONS.md uses.
func (u Use) String() string { return [...]string{"honoured", "harmless", "refused"}[u] }

// TableOption is one line of the table of all table options.
type TableOption struct {
	// Name is the key. A family of keys is written with `*` for what varies: "fields.*.stats-mode", "parquet.*".
	Name string
	Use  Use
	// Off are the values, in lower case, that ask for nothing of what is refused. Empty: the option must not be set.
	Off []string
	// Reads says of a refused option that ignoring it would give wrong rows to readers too.
	Reads bool
	// Fixed: the option cannot change once the table has a snapshot (`CoreOptions.IMMUTABLE_OPTIONS`).
	Fixed bool
	// Why is the reason of what calve does.
	Why string
}

// TableOptions gives the table of all table options that calve knows: those of `CoreOptions` and `IcebergOptions` of
// Paimon 1.3.1, 1.4.2 and of its 2.1 line, and families of options of file formats and of Flink's and Spark's connectors.
func TableOptions() []TableOption { return slices.Clone(optionTable) }

// FindOption gives the line that speaks of an option: the one of its name, else that of the first family it is in.
func FindOption(name string) (TableOption, bool) {
	if i, ok := optionIndex[name]; ok {
		return optionTable[i], true
	}
	for _, i := range optionFamilies {
		if inFamily(optionTable[i].Name, name) {
			return optionTable[i], true
		}
	}
	return TableOption{}, false
}

// inFamily matches a name with a pattern that has one `*` for any text that is not empty.
func inFamily(pattern, name string) bool {
	before, after, _ := strings.Cut(pattern, "*")
	return len(name) > len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
}

var (
	optionTable    = makeOptionTable()
	optionIndex    = map[string]int{} // by name
	optionFamilies []int              // in the order of the table
)

func init() {
	for i, o := range optionTable {
		if strings.Contains(o.Name, "*") {
			optionFamilies = append(optionFamilies, i)
		} else {
			optionIndex[o.Name] = i
		}
	}
}

// makeOptionTable joins the lists of optionlist.go and marks what is fixed.
func makeOptionTable() []TableOption {
	var out []TableOption
	for _, g := range optionGroups {
		for _, name := range g.names {
			out = append(out, TableOption{Name: name, Use: g.use, Off: g.off, Reads: g.reads, Why: g.why,
				Fixed: slices.Contains(fixedOptions, name)})
		}
	}
	slices.SortStableFunc(out, func(a, b TableOption) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// optionGroup are options with which calve does the same for the same reason.
type optionGroup struct {
	use   Use
	why   string
	off   []string
	reads bool
	names []string
}

// honours are options that calve obeys.
func honours(why string, names ...string) optionGroup {
	return optionGroup{use: Honoured, why: why, names: names}
}

// ignores are options that calve may ignore.
func ignores(why string, names ...string) optionGroup {
	return optionGroup{use: Harmless, why: why, names: names}
}

// refusesWriting is an option that calve cannot obey as a writer, unless it has a value of off.
func refusesWriting(name string, off []string, why string) optionGroup {
	return optionGroup{use: Refused, off: off, why: why, names: []string{name}}
}

// refusesAll is an option without which readers would see wrong rows too.
func refusesAll(name string, off []string, why string) optionGroup {
	return optionGroup{use: Refused, off: off, why: why, names: []string{name}, reads: true}
}
