package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Parse reads a configuration; name is the file's name for errors. All errors are reported at once, a line each, as
// file:line: key: what is wrong and what is allowed.
func Parse(name string, data []byte) (*Config, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("configuration %s is not YAML: %w", name, err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || !errors.Is(dec.Decode(&yaml.Node{}), io.EOF) {
		return nil, fmt.Errorf("configuration %s: want one YAML document with the keys %s", name, strings.Join(keysOf(reflect.TypeFor[Config]()), ", "))
	}
	c := &checker{file: name, nodes: map[string]*yaml.Node{}}
	out := &Config{}
	c.value("", doc.Content[0], reflect.ValueOf(out).Elem(), "")
	if len(c.errs) == 0 {
		c.together(out)
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	return out, nil
}

// together holds the rules that span several keys.
func (c *checker) together(cfg *Config) {
	if h := cfg.HTTP; (h.Certificate == "") != (h.Key == "") {
		c.failAt("http", "certificate and key belong together")
	}
	c.registry(cfg)
	jobs, tables := map[string]bool{}, map[string]string{}
	for i, p := range cfg.Pipelines {
		at := fmt.Sprintf("pipelines[%d]", i)
		if jobs[p.Name] {
			c.failAt(at+".name", "%q is used twice", p.Name)
		}
		jobs[p.Name] = true
		c.topics(at, p)
		if other, ok := tables[p.Table]; ok && !p.Many() && !p.Routed() {
			c.failAt(at+".table", "%q is already written by pipeline %q; one pipeline a table", p.Table, other)
		}
		if (len(p.Kafka.Brokers) > 0) == (p.Push != nil) {
			c.failAt(at, "give either kafka or push as the source of the records")
		}
		if p.Push != nil && p.Format.Type != "json" {
			c.failAt(at+".format.type", "%q cannot be pushed; allowed with push: json", p.Format.Type)
		}
		if p.Push != nil && p.Create != nil && p.Create.Columns == "" {
			c.failAt(at+".create", "columns is missing: with push there are no records to take them from before the table is there")
		}
		if p.Create != nil && p.Create.Message != "" && (p.Format.Type != "protobuf" || p.Create.Columns != "") {
			c.failAt(at+".create.message", "it needs format.type protobuf, and no columns beside it")
		}
		if p.Push != nil && p.Push.Remember > maxRemember {
			c.failAt(at+".push.remember", "%d is more than %d", p.Push.Remember, maxRemember)
		}
		switch {
		case p.Routed():
			c.routes(at, p, tables)
		case !p.Many():
			tables[p.Table] = p.Name
			c.dead(at, p, tables)
		}
		if p.Transactions != "" && p.Format.Type != "debezium-json" {
			c.failAt(at+".transactions", "needs format.type debezium-json, whose events tell their transaction")
		}
		if p.Transactions != "" && p.TransactionFor <= 0 {
			c.failAt(at+".transaction-wait", "must be more than 0s")
		}
		if p.Dead.Percent > 100 {
			c.failAt(at+".dead-letters.pause-percent", "%d is more than 100", p.Dead.Percent)
		}
		for _, col := range slices.Sorted(maps.Keys(p.Kafka.Fields)) {
			if from := p.Kafka.Fields[col]; !slices.Contains(recordFields, from) {
				c.failAt(at+".kafka.fields."+col, "%q is not one of %s", from, strings.Join(recordFields, ", "))
			}
		}
		if s := p.Kafka.SASL; s.Mechanism != "" && s.User == "" || s.Mechanism == "" && s != (SASL{}) {
			c.failAt(at+".kafka.sasl", "mechanism and user belong together")
		} else if (s.Password != "" && s.PasswordEnv != "") || (s.Password+s.PasswordEnv != "" && s.PasswordFile != "") {
			c.failAt(at+".kafka.sasl", "use one of password, password-env and password-file")
		}
	}
}

// maxRemember keeps what is remembered of requests well below what a snapshot may hold (16 MiB).
const maxRemember = 50_000

// dead checks the table of a pipeline's dead letters.
func (c *checker) dead(at string, p Pipeline, tables map[string]string) {
	dead := p.DeadTable()
	if _, err := TablePath(dead); err != nil {
		c.failAt(at+".dead-letters.table", "%v", err)
	}
	if other, ok := tables[dead]; ok {
		c.failAt(at+".dead-letters.table", "%q is already written by pipeline %q; dead letters have a table for each pipeline", dead, other)
	}
	tables[dead] = p.Name
}

// topics checks which topics a pipeline reads, and into which tables.
func (c *checker) topics(at string, p Pipeline) {
	if p.Push == nil && p.Many() == (p.Kafka.Topic != "") {
		c.failAt(at+".kafka", "give topic for one table; or topics, topic-pattern or both for a table for each topic")
		return
	}
	if strings.Contains(p.Name, ":") {
		c.failAt(at+".name", "%q has a colon, which is for the jobs of pipelines with many topics", p.Name)
	}
	if p.Many() && p.Dead.Table != "" {
		c.failAt(at+".dead-letters.table", "each topic's dead letters have a table of their own; leave the name out")
	}
	var err error
	switch {
	case p.Routed():
		_, err = NewRoutes(p)
	case p.Many():
		_, err = NewTopics(p)
	default:
		_, err = TablePath(p.Table)
	}
	if err != nil {
		c.failAt(at+".table", "%v", err)
	}
}

// routes checks a pipeline whose records choose their tables.
func (c *checker) routes(at string, p Pipeline, tables map[string]string) {
	r, err := NewRoutes(p)
	if err != nil {
		return // it was told
	}
	if p.Many() || p.Push != nil {
		c.failAt(at+".table", "records choose their table by a header or a field only where kafka.topic is given")
	}
	if p.Transactions != "" {
		c.failAt(at+".transactions", "a transaction cannot be kept whole where its events go to several tables")
	}
	for _, choice := range r.Choices() {
		if !choice.Header {
			c.before(at, p.Format, choice)
		}
	}
	if p.Route.Max < 1 || p.Route.Max > maxRouted {
		c.failAt(at+".route.max-tables", "%d is not between 1 and %d", p.Route.Max, maxRouted)
	}
	dead := r.Unrouted()
	if _, err := TablePath(dead); err != nil {
		c.failAt(at+".dead-letters.table", "%v", err)
	}
	if other, ok := tables[dead]; ok {
		c.failAt(at+".dead-letters.table", "%q is already written by pipeline %q; dead letters have a table for each pipeline", dead, other)
	}
	tables[dead] = p.Name
}

// before checks that events tell in which table the row before them is. By default PostgreSQL tells the key alone and has
// placeholders for the rest, by which a delete would go to a table where the row never was.
func (c *checker) before(at string, f Format, by Choice) {
	switch {
	case (f.Type == "debezium-json" || f.Type == "debezium-avro") && f.Before == "":
		c.failAt(at+".table", "{%s}: events of Debezium choose a table by a field only where they tell it of the row before, too: say format.before: full (all columns, as with REPLICA IDENTITY FULL or MySQL), or key if the field is a part of the source's key; else use {header:NAME}", by)
	case f.Type == "debezium-flat-json" && f.Before != "key":
		c.failAt(at+".table", "{%s}: records of format %q do not tell the row before, so a row whose field changes would stay in its old table: say format.before: key if the field is a part of the source's key; else use debezium-json or debezium-avro with format.before: full, or {header:NAME}", by, f.Type)
	}
}

var recordFields = []string{"topic", "partition", "offset", "timestamp", "key", "row-hash", "copies"}

type checker struct {
	file  string
	nodes map[string]*yaml.Node // where each key is
	errs  []error
}

func (c *checker) fail(n *yaml.Node, path, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s:%d: %s: %s", c.file, n.Line, cmp.Or(path, "file"), fmt.Sprintf(format, args...)))
}

// failAt is fail for a key that was read before.
func (c *checker) failAt(path, format string, args ...any) {
	n := c.nodes[path]
	if n == nil {
		n = &yaml.Node{}
	}
	c.fail(n, path, format, args...)
}

// value fills v from the node n of the key path.
func (c *checker) value(path string, n *yaml.Node, v reflect.Value, enum string) {
	c.nodes[path] = n
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch v.Interface().(type) {
	case Duration:
		if d, err := time.ParseDuration(scalar(n)); err == nil && d >= 0 {
			v.SetInt(int64(d))
		} else {
			c.fail(n, path, "%s is not a duration; allowed: a number with unit such as 500ms, 1s, 2m", shown(n))
		}
		return
	case Size:
		if b, err := parseSize(scalar(n)); err == nil {
			v.SetInt(b)
		} else {
			c.fail(n, path, "%s is not a size; allowed: a number with unit such as 512kb, 64mb, 1gb", shown(n))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		c.value(path, n, v.Elem(), enum)
	case reflect.Struct:
		c.structure(path, n, v)
	case reflect.Slice:
		c.list(path, n, v)
	case reflect.Map:
		c.mapping(path, n, v)
	case reflect.String:
		c.text(path, n, v, enum)
	case reflect.Bool:
		if isScalar(n, "!!bool") {
			v.SetBool(strings.EqualFold(n.Value, "true"))
		} else {
			c.fail(n, path, "%s is not a truth value; allowed: true, false", shown(n))
		}
	case reflect.Int:
		i, err := strconv.Atoi(scalar(n))
		if !isScalar(n, "!!int") || err != nil || i < 0 {
			c.fail(n, path, "%s is not a number; allowed: whole numbers from 0", shown(n))
			return
		}
		v.SetInt(int64(i))
	}
}

func (c *checker) text(path string, n *yaml.Node, v reflect.Value, enum string) {
	if !isScalar(n, "!!str", "!!int", "!!float", "!!timestamp") {
		c.fail(n, path, "%s is not a text", shown(n))
		return
	}
	s := scalar(n)
	if allowed := strings.Split(enum, ","); enum != "" && !slices.Contains(allowed, s) {
		c.fail(n, path, "%q is not allowed; allowed: %s", s, strings.Join(allowed, ", "))
		return
	}
	v.SetString(s)
}

func (c *checker) structure(path string, n *yaml.Node, v reflect.Value) {
	entries, ok := pairs(n)
	if !ok {
		c.fail(n, path, "%s is not a mapping; allowed keys: %s", shown(n), strings.Join(keysOf(v.Type()), ", "))
		return
	}
	seen, given := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		key := e.key.Value
		f, ok := fieldOf(v.Type(), key)
		if !ok {
			c.fail(e.key, join(path, key), "unknown key; allowed keys here: %s", strings.Join(keysOf(v.Type()), ", "))
			continue
		}
		if given[key] {
			c.fail(e.key, join(path, key), "the key is given twice")
			continue
		}
		given[key] = true
		if isScalar(e.value, "!!null") {
			continue // as if it were not there
		}
		seen[key] = true
		errs := len(c.errs)
		field := v.FieldByIndex(f.Index)
		c.value(join(path, key), e.value, field, f.Tag.Get("enum"))
		if f.Tag.Get("required") == "true" && len(c.errs) == errs && (field.Kind() == reflect.String || field.Kind() == reflect.Slice) && field.Len() == 0 {
			c.fail(e.value, join(path, key), "must not be empty: %s", f.Tag.Get("doc"))
		}
	}
	c.defaults(path, n, v, seen)
}

// defaults fills keys that the file leaves out, and misses those it must have.
func (c *checker) defaults(path string, n *yaml.Node, v reflect.Value, seen map[string]bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("yaml")
		if seen[key] {
			continue
		}
		if f.Tag.Get("required") == "true" {
			c.fail(n, join(path, key), "missing: %s", f.Tag.Get("doc"))
			continue
		}
		if f.Tag.Get("optional") == "true" {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			c.defaults(join(path, key), n, v.Field(i), nil)
			continue
		}
		setDefault(v.Field(i), f.Tag.Get("default"))
	}
}

func setDefault(v reflect.Value, def string) {
	if def == "" {
		return
	}
	switch v.Interface().(type) {
	case Duration:
		d, _ := time.ParseDuration(def)
		v.SetInt(int64(d))
		return
	case Size:
		b, _ := parseSize(def)
		v.SetInt(b)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(def)
	case reflect.Bool:
		v.SetBool(def == "true")
	case reflect.Int:
		i, _ := strconv.Atoi(def)
		v.SetInt(int64(i))
	}
}

func (c *checker) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		c.fail(n, path, "%s is not a list; write one item a line after \"- \", or [a, b]", shown(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		c.value(fmt.Sprintf("%s[%d]", path, i), item, out.Index(i), "")
	}
	v.Set(out)
}

func (c *checker) mapping(path string, n *yaml.Node, v reflect.Value) {
	entries, ok := pairs(n)
	if !ok {
		c.fail(n, path, "%s is not a mapping of names to texts", shown(n))
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, e := range entries {
		if e.value.Kind == yaml.AliasNode {
			e.value = e.value.Alias
		}
		item := reflect.New(v.Type().Elem()).Elem()
		key := e.key.Value
		if isScalar(e.value, "!!bool") { // options are texts: true means "true"
			item.SetString(e.value.Value)
		} else {
			c.value(join(path, key), e.value, item, "")
		}
		out.SetMapIndex(reflect.ValueOf(key), item)
	}
	v.Set(out)
}

type pair struct{ key, value *yaml.Node }

func pairs(n *yaml.Node) ([]pair, bool) {
	if n.Kind != yaml.MappingNode {
		return nil, false
	}
	var out []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, pair{n.Content[i], n.Content[i+1]})
	}
	return out, true
}

func isScalar(n *yaml.Node, tags ...string) bool {
	return n.Kind == yaml.ScalarNode && slices.Contains(tags, n.ShortTag())
}

func scalar(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		keys = append(keys, t.Field(i).Tag.Get("yaml"))
	}
	return keys
}

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == key {
			return t.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

func parseSize(s string) (int64, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		size   int64
	}{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"b", 1}} {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("not a size: %q", s)
	}
	return n * unit, nil
}
