package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Route bounds the tables that records choose by their headers or fields ({header:NAME} or {field:PATH} in the table).
type Route struct {
	Allow string `yaml:"allow" doc:"Where a header or field of the record is in the table's name: regular expression (RE2) of the whole values that may be; records with others go to the dead letters. Of avro and protobuf a field may be a string, an enum, a whole number or a truth value, of avro also a date (as YYYY-MM-DD) or a UUID." default:"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"`
	Max   int    `yaml:"max-tables" doc:"Most tables that a pipeline may have by it; records that would make one more go to the dead letters." default:"100"`
}

// maxRouted keeps what is remembered of tables small.
const maxRouted = 10_000

// Routed reports whether each record chooses its table by a header or a field.
func (p *Pipeline) Routed() bool {
	for _, hole := range holes.FindAllStringSubmatch(p.Table, -1) {
		if _, _, ok := choiceOf(hole[1]); ok {
			return true
		}
	}
	return false
}

// Choice is what of a record is a part of its table's name.
type Choice struct {
	Header bool   // else a field
	Name   string // of the header, or the path to the field
}

// String is as it stands in a template.
func (c Choice) String() string {
	if c.Header {
		return "header:" + c.Name
	}
	return "field:" + c.Name
}

func choiceOf(hole string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(hole, ":")
	return kind, name, ok && (kind == "header" || kind == "field") && name != ""
}

// Routes gives the tables of a pipeline whose records choose theirs.
type Routes struct {
	pipeline Pipeline
	allow    *regexp.Regexp
	choices  []Choice
}

// NewRoutes checks the template of a pipeline.
func NewRoutes(p Pipeline) (*Routes, error) {
	r := &Routes{pipeline: p}
	for _, hole := range holes.FindAllStringSubmatch(p.Table, -1) {
		kind, name, ok := choiceOf(hole[1])
		if !ok {
			return nil, fmt.Errorf("table: {%s} is unknown beside {header:NAME} and {field:PATH}", hole[1])
		}
		choice := Choice{kind == "header", name}
		if !choice.Header && slices.Contains(strings.Split(name, "."), "") {
			return nil, fmt.Errorf("table: {%s} has an empty name; use {field:NAME}, or {field:NAME.NAME} for a field within another", choice)
		}
		r.choices = append(r.choices, choice)
	}
	re, err := regexp.Compile(`^(?:` + p.Route.Allow + `)$`)
	if err != nil {
		return nil, fmt.Errorf("route.allow: %q is no regular expression (RE2): %w", p.Route.Allow, err)
	}
	r.allow = re
	if _, err := TablePath(holes.ReplaceAllString(p.Table, "x")); err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	return r, nil
}

// Choices are what of a record chooses its table, in the order of the values that For takes.
func (r *Routes) Choices() []Choice { return r.choices }

// For gives the pipeline of the table that a record with these values chooses; it is named NAME:DATABASE.TABLE. Values
// become names as those of topics do (TableName), so different ones may give one table; who runs them must see to that.
// The error says why a record with the values has no table.
func (r *Routes) For(values []string) (Pipeline, error) {
	p := r.pipeline
	for i, v := range values {
		if !r.allow.MatchString(v) {
			return p, fmt.Errorf("%s is %q, which route.allow (%s) does not match", r.choices[i], shorten(v), r.pipeline.Route.Allow)
		}
	}
	n := 0
	parts := splitTemplate(p.Table)
	for i, part := range parts {
		name := holes.ReplaceAllStringFunc(part, func(string) string {
			n++
			return TableName(values[n-1])
		})
		if name != "" && strings.HasPrefix(part, "{") && strings.ContainsRune("0123456789_", rune(name[0])) {
			name = "t" + name
		}
		if name == "" || len(name) > maxTableName {
			return p, fmt.Errorf("values %q make %q of %q in table %q: a name has 1 to %d characters", values, name, part, p.Table, maxTableName)
		}
		parts[i] = name
	}
	p.Table = strings.Join(parts, ".")
	p.Dead.Table = "" // it is of the records without table
	p.Name += ":" + p.Table
	_, err := TablePath(p.Table)
	return p, err
}

// splitTemplate parts the database from the table at the first point that is not within braces.
func splitTemplate(table string) []string {
	deep := 0
	for i, c := range table {
		switch c {
		case '{':
			deep++
		case '}':
			deep--
		case '.':
			if deep == 0 {
				return []string{table[:i], table[i+1:]}
			}
		}
	}
	return []string{table}
}

// shorten cuts a value that is quoted in a message.
func shorten(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Unrouted is the table of the records that have none: dead-letters.table, else one named for the pipeline, in the
// template's database if that is the same for all.
func (r *Routes) Unrouted() string {
	p := &r.pipeline
	if p.Dead.Table != "" {
		return p.Dead.Table
	}
	table := DeadTable(TableName(p.Name))
	if parts := splitTemplate(p.Table); len(parts) > 1 && !holes.MatchString(parts[0]) {
		table = parts[0] + "." + table
	}
	return table
}

// Makes reports whether the pipeline's template may give a table of this name.
func (p *Pipeline) Makes(table string) bool {
	var b strings.Builder
	at := 0
	for _, hole := range holes.FindAllStringIndex(p.Table, -1) {
		b.WriteString(regexp.QuoteMeta(p.Table[at:hole[0]]) + "[a-z0-9_]+")
		at = hole[1]
	}
	if at == 0 {
		return false
	}
	ok, err := regexp.MatchString("^"+b.String()+regexp.QuoteMeta(p.Table[at:])+"$", table)
	return ok && err == nil
}
