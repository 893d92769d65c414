package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxTableName bounds the name of a database or table that comes from a topic: what Hive's metastore takes.
const maxTableName = 128

// Many reports whether the pipeline reads any number of topics, each into a table of its own.
func (p Pipeline) Many() bool { return len(p.Kafka.Topics) > 0 || p.Kafka.TopicPattern != "" }

// Topics chooses the topics of a pipeline that reads many.
type Topics struct {
	pipeline        Pipeline
	pattern, except *regexp.Regexp
}

// NewTopics compiles the patterns of a pipeline.
func NewTopics(p Pipeline) (*Topics, error) {
	t := &Topics{pipeline: p}
	for _, x := range []struct {
		key, text string
		to        **regexp.Regexp
	}{{"topic-pattern", p.Kafka.TopicPattern, &t.pattern}, {"except-pattern", p.Kafka.ExceptPattern, &t.except}} {
		if x.text == "" {
			continue
		}
		re, err := regexp.Compile(`^(?:` + x.text + `)$`)
		if err != nil {
			return nil, fmt.Errorf("kafka.%s: %q is no regular expression (RE2): %w", x.key, x.text, err)
		}
		*x.to = re
	}
	for _, hole := range holes.FindAllStringSubmatch(p.Table, -1) {
		if n, err := strconv.Atoi(hole[1]); err == nil && (t.pattern == nil || n < 1 || n > t.pattern.NumSubexp() || len(p.Kafka.Topics) > 0) {
			return nil, fmt.Errorf("table: {%d} stands for a group in kafka.topic-pattern, which must have it and be the only choice of topics", n)
		} else if err != nil && hole[1] != "topic" {
			return nil, fmt.Errorf("table: {%s} is unknown; use {topic}, or {1}, {2} … for the groups of kafka.topic-pattern", hole[1])
		}
	}
	if !holes.MatchString(p.Table) {
		return nil, fmt.Errorf("table: %q is the same for all topics; it must have {topic}, or {1}, {2} … for the groups of kafka.topic-pattern", p.Table)
	}
	if _, err := TablePath(holes.ReplaceAllString(p.Table, "x")); err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	return t, nil
}

// holes are the places of a table's template that a topic fills.
var holes = regexp.MustCompile(`\{([^{}]*)\}`)

// Has reports whether the pipeline reads a topic of this name.
func (t *Topics) Has(topic string) bool {
	if t.except != nil && t.except.MatchString(topic) {
		return false
	}
	return slices.Contains(t.pipeline.Kafka.Topics, topic) || t.pattern != nil && t.pattern.MatchString(topic)
}

// For gives the pipeline of one topic: it is named NAME:TOPIC, and its table as the template says, with TableName of what
// the topic fills in. Different topics may give one table; who runs them must see to that.
func (t *Topics) For(topic string) (Pipeline, error) {
	p := t.pipeline
	p.Name += ":" + topic
	p.Kafka.Topic, p.Kafka.Topics, p.Kafka.TopicPattern, p.Kafka.ExceptPattern = topic, nil, "", ""
	var groups []string
	if t.pattern != nil {
		groups = t.pattern.FindStringSubmatch(topic)
	}
	parts := strings.SplitN(t.pipeline.Table, ".", 2)
	for i, part := range parts {
		name := holes.ReplaceAllStringFunc(part, func(hole string) string {
			text := topic
			if n, err := strconv.Atoi(hole[1 : len(hole)-1]); err == nil {
				text = groups[n] // NewTopics has seen that there are as many
			}
			return TableName(text)
		})
		if name != "" && strings.HasPrefix(part, "{") && strings.ContainsRune("0123456789_", rune(name[0])) {
			name = "t" + name
		}
		if name == "" || len(name) > maxTableName {
			return p, fmt.Errorf("topic %q makes %q of %q in table %q: a name has 1 to %d characters", topic, name, part, t.pipeline.Table, maxTableName)
		}
		parts[i] = name
	}
	p.Table = strings.Join(parts, ".")
	_, err := TablePath(p.Table)
	return p, err
}

// TableName makes of a topic's name one that every engine takes: upper-case letters become lower-case ones, and whatever
// is not a letter a to z, a digit or _ becomes _. Topics that differ in nothing else become one name. A name that begins
// with a digit or _ gets a t before it (Topics.For), for file systems hide names with _ and SQL wants letters.
func TableName(topic string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '_'
	}, topic)
}
