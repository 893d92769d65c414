//go:build interop

package interop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/schema"
)

// generator makes one random history.
type generator struct {
	valuer
	*History
	kinds     map[string]Kind
	keys      []map[string]any // values of the key columns that rows are made of, so that rows meet
	tags      []string
	made      int      // tags so far
	altered   int      // changes of the schema so far
	now       []Column // after them
	rowKinds  []string // that the merge engine takes; none: all
	odd       bool     // names of columns that are no plain words
	certain   bool     // only what calve reads and writes for certain
	timeField string   // the column of record-level.time-field
	// tagShapes has the tags that branches can be made of: the schema had not changed since the last snapshot.
	tagShapes map[string]tableShape
	branches  map[string]tableShape
	stale     bool  // the schema has changed since the last snapshot
	watermark int64 // of the last write that had one
}

// generate makes the history of a seed. When it has something that calve refuses to read, one without that takes its
// place; the dimensions that had to go are named.
func generate(seed uint64) (h *History, refused []string) {
	g := newGenerator(seed)
	g.shape()
	readErr, writeErr := g.access()
	if readErr != nil {
		refused = g.uncertain()
		g = newGenerator(seed)
		g.certain = true
		g.shape()
		readErr, writeErr = g.access()
	}
	g.Refusal = readErr
	if writeErr != nil && readErr == nil {
		if len(g.uncertain()) > 0 {
			g.ReadOnly, g.Creator = true, byJava
		} else {
			g.Refusal = writeErr
		}
	}
	g.now = slices.Clone(g.Columns)
	if g.Refusal == nil {
		g.Refusal = g.takeKinds()
	}
	g.makeKeys()
	g.makeSteps()
	slices.Sort(g.Features)
	g.Features = slices.Compact(g.Features)
	return g.History, refused
}

// uncertain are the features of the history that calve may refuse.
func (g *generator) uncertain() []string {
	var out []string
	for _, d := range dimensions {
		if d.may == maybe && g.has(d.name) {
			out = append(out, d.name)
		}
	}
	for _, name := range g.Features {
		if name == nanoseconds || name == nestedTypes || name == dynamicBuckets || name == variants || strings.HasPrefix(name, "merge-") {
			out = append(out, name)
		}
	}
	return out
}

func newGenerator(seed uint64) *generator {
	g := &generator{valuer: valuer{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}, kinds: map[string]Kind{},
		tagShapes: map[string]tableShape{}, branches: map[string]tableShape{}}
	g.History = &History{Seed: seed, Options: map[string]string{}, Creator: oneOf(g.valuer, byCalve, byJava)}
	return g
}

// shape makes the table: columns, keys and options.
func (g *generator) shape() {
	keyed := g.chance(75)
	g.odd = g.chance(15)
	partitions := oneOf(g.valuer, 0, 0, 1, 2)
	for i := range partitions {
		t := g.partitionType()
		g.Partition = append(g.Partition, g.column(fmt.Sprintf("p%d", i), t, keyed))
		if g.kinds[g.Partition[i]].Word == "TIMESTAMP_LTZ" {
			g.Options["partition.legacy-name"] = "true" // calve refuses the other folder names of such partitions
		}
	}
	if keyed {
		for i := range oneOf(g.valuer, 1, 1, 2, 3) {
			g.Key = append(g.Key, g.column(fmt.Sprintf("k%d", i), g.keyType(), true))
		}
	}
	for i := range 1 + g.IntN(6) {
		g.column(fmt.Sprintf("v%d", i), g.anyType(), g.chance(15))
	}
	g.specialColumns()
	if keyed && g.chance(38) && !g.certain && !g.odd { // options are named after columns
		g.mergeEngine()
	}
	g.Shuffle(len(g.Columns), func(i, j int) { g.Columns[i], g.Columns[j] = g.Columns[j], g.Columns[i] })
	if keyed {
		g.Key = append(g.Key, g.Partition...)
		g.Shuffle(len(g.Key), func(i, j int) { g.Key[i], g.Key[j] = g.Key[j], g.Key[i] })
		g.feature("keyed")
	} else {
		g.feature("append")
	}
	if len(g.Partition) > 0 {
		g.feature("partitions")
	}
	if g.odd {
		g.feature("odd-names")
	}
	for _, d := range dimensions {
		if g.chance(d.percent) && (d.fits == nil || d.fits(g)) && (d.may == always || !g.certain) {
			g.feature(d.name)
			if d.apply != nil {
				d.apply(g)
			}
		}
	}
	g.bucketing()
}

// Features that are no dimension, because they change columns or buckets.
const nanoseconds, nestedTypes, dynamicBuckets, variants = "nanoseconds", "nested-types", "dynamic-buckets", "variant"

// specialColumns are columns of types that calve may refuse.
func (g *generator) specialColumns() {
	if g.chance(12) && !g.certain {
		g.feature(nanoseconds)
		g.column("n0", fmt.Sprintf("TIMESTAMP(%d)%s", 7+g.IntN(3), oneOf(g.valuer, "", " WITH LOCAL TIME ZONE")), false)
	}
	if g.chance(8) && !g.certain {
		g.feature(variants)
		g.column("w0", "VARIANT", g.chance(15))
	}
	if g.chance(25) && !g.certain {
		g.feature(nestedTypes)
		for i := range 1 + g.IntN(3) {
			g.column(fmt.Sprintf("s%d", i), g.nestedType(3), g.chance(15))
		}
	}
}

// nestedType chooses ARRAY, MAP, MULTISET or ROW of types that may be nested, too.
func (g *generator) nestedType(depth int) string {
	inner := func() string {
		t := g.anyType()
		if depth > 1 && g.chance(35) {
			t = g.nestedType(depth - 1)
		}
		if g.chance(15) {
			t += " NOT NULL"
		}
		return t
	}
	switch g.IntN(7) {
	case 0:
		return fmt.Sprintf("MAP<%s, %s>", g.mapKeyType(), inner())
	case 1:
		return fmt.Sprintf("MULTISET<%s>", oneOf(g.valuer, "STRING NOT NULL", "INT NOT NULL")) // Java cannot read one of decimals
	case 2, 3:
		return fmt.Sprintf("ARRAY<%s>", inner())
	}
	var fields []string
	for i := range 1 + g.IntN(3) {
		fields = append(fields, fmt.Sprintf("`f%d` %s", i, inner()))
	}
	return fmt.Sprintf("ROW<%s>", strings.Join(fields, ", "))
}

// mapKeyType chooses a type of keys of maps; they are never null.
func (g *generator) mapKeyType() string {
	return oneOf(g.valuer, "STRING NOT NULL", "INT NOT NULL", "BIGINT NOT NULL", "DATE NOT NULL", "DECIMAL(20, 3) NOT NULL")
}

// schema is the table as Java would create it.
func (g *generator) schema() (*schema.Schema, error) {
	s := &schema.Schema{Version: 3, PrimaryKeys: g.Key, PartitionKeys: g.Partition, Options: g.Options}
	ids := len(g.Columns)
	for i, c := range g.Columns {
		t, err := calveType(c.Type, &ids)
		if err != nil {
			return nil, err
		}
		s.Fields = append(s.Fields, schema.Field{ID: i, Name: c.Name, Type: t})
	}
	s.HighestFieldID = ids
	return s, nil
}

// access asks calve what it would do with the table.
func (g *generator) access() (readErr, writeErr error) {
	s, err := g.schema()
	if err != nil {
		return err, err
	}
	return s.CheckReadable(), s.CheckWritable()
}

func (g *generator) feature(name string) { g.Features = append(g.Features, name) }

func (g *generator) has(name string) bool { return slices.Contains(g.Features, name) }

func (g *generator) keyed() bool { return len(g.Key) > 0 }

func (g *generator) column(name, columnType string, notNull bool) string {
	k, err := ParseKind(columnType)
	if err != nil {
		panic(err) // a type of the generator's own
	}
	if g.odd {
		name += oneOf(g.valuer, "", " with space", ".dot", "Größe", "`'\"", "-", "_KEY_", "/%", "日本")
	}
	k.NotNull = notNull
	g.kinds[name] = k
	if notNull {
		columnType += " NOT NULL"
	}
	g.Columns = append(g.Columns, Column{name, columnType})
	g.now = append(g.now, Column{name, columnType})
	return name
}

// anyType chooses a type for a column.
func (g *generator) anyType() string {
	switch g.IntN(15) {
	case 0:
		return "BOOLEAN"
	case 1:
		return oneOf(g.valuer, "FLOAT", "DOUBLE")
	case 2:
		return oneOf(g.valuer, "BINARY(4)", "VARBINARY(9)", "BYTES")
	case 3:
		return oneOf(g.valuer, "TINYINT", "SMALLINT")
	case 4, 5:
		return oneOf(g.valuer, "INT", "BIGINT")
	}
	return g.partitionType()
}

// keyType chooses a type for a key column.
func (g *generator) keyType() string {
	for {
		if t := g.anyType(); t != "BOOLEAN" || g.chance(30) { // two keys make a dull history
			return t
		}
	}
}

// partitionType chooses a type that calve partitions by.
func (g *generator) partitionType() string {
	switch g.IntN(9) {
	case 0:
		return oneOf(g.valuer, "INT", "INT", "SMALLINT", "TINYINT", "BOOLEAN")
	case 1:
		return "BIGINT"
	case 2:
		return "DATE"
	case 3:
		p := 1 + g.IntN(38)
		return fmt.Sprintf("DECIMAL(%d, %d)", p, g.IntN(p+1))
	case 4:
		return fmt.Sprintf("TIME(%d)", oneOf(g.valuer, 0, 3))
	case 5:
		return fmt.Sprintf("TIMESTAMP(%d)", oneOf(g.valuer, 0, 3, 6, g.IntN(7)))
	case 6:
		return fmt.Sprintf("%s(%d)", oneOf(g.valuer, "CHAR", "VARCHAR"), 1+g.IntN(12))
	case 7:
		return fmt.Sprintf("TIMESTAMP(%d) WITH LOCAL TIME ZONE", oneOf(g.valuer, 0, 3, 6))
	}
	return "STRING"
}

// bucketing chooses what calve writes: fixed buckets, or none for a table without key.
func (g *generator) bucketing() {
	if !g.keyed() {
		var free []string
		for _, c := range g.Columns {
			if !slices.Contains(g.Partition, c.Name) && len(g.kinds[c.Name].Fields) == 0 {
				free = append(free, c.Name)
			}
		}
		if g.chance(50) || len(free) == 0 {
			g.feature("bucket-unaware")
			g.Options["bucket"] = "-1"
			return
		}
		g.Options["bucket-key"] = oneOf(g.valuer, free...)
	}
	if g.keyed() && g.chance(15) && !g.certain && !g.has("float-keys-zero") {
		g.feature(dynamicBuckets)
		g.Options["bucket"] = "-1"
		g.Options["dynamic-bucket.target-row-num"] = oneOf(g.valuer, "1", "3", "10", "1000")
		return
	}
	if g.keyed() && g.chance(20) { // in an order of its own
		free := slices.DeleteFunc(slices.Clone(g.Key), func(name string) bool { return slices.Contains(g.Partition, name) })
		g.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		g.feature("bucket-key")
		g.Options["bucket-key"] = strings.Join(free[:1+g.IntN(len(free))], ",")
	}
	g.Options["bucket"] = strconv.Itoa(1 + g.IntN(4))
	if g.has("float-keys-zero") {
		g.Options["bucket"] = "1" // the zeros are one key, but not to the function that chooses the bucket
	}
}

// makeKeys makes the pool of keys. Tables without key repeat rows of the pool, too.
func (g *generator) makeKeys() {
	partitions := make([]map[string]any, 1+g.IntN(4))
	for i := range partitions {
		partitions[i] = g.values(g.Partition)
	}
	for range 3 + g.IntN(30) {
		key := g.values(g.Key)
		for name, value := range oneOf(g.valuer, partitions...) {
			key[name] = value
		}
		g.keys = append(g.keys, key)
	}
}

func (g *generator) values(names []string) map[string]any {
	row := map[string]any{}
	for _, name := range names {
		row[name] = g.cell(name)
	}
	return row
}

// cell makes a value for a column, or null.
func (g *generator) cell(name string) any {
	k := g.kinds[name]
	if name == g.Options["rowkind.field"] && name != "" {
		return "+I" // changes sets it to the kind of the row
	}
	if !k.NotNull && g.chance(20) {
		return nil
	}
	if name == g.timeField {
		return g.age(k)
	}
	for {
		v := g.value(k)
		if slices.Contains(g.Key, name) && (v == "NaN" || v == "-0.0" && !g.has("float-keys-zero")) {
			continue
		}
		const longestFolder = 60 // in bytes before escaping
		if text, ok := v.(string); ok && slices.Contains(g.Partition, name) &&
			(len(text) > longestFolder || g.lookup() && strings.Contains(text, "\u0000")) { // Java's lookup files have the text in their names
			continue
		}
		return v
	}
}

// row makes a row of one of the keys.
func (g *generator) row() map[string]any {
	key := oneOf(g.valuer, g.keys...)
	row := map[string]any{}
	for _, c := range g.now {
		if v, ok := key[c.Name]; ok {
			row[c.Name] = v
		} else {
			row[c.Name] = g.cell(c.Name)
		}
	}
	return row
}

func (g *generator) changes() []Op {
	n := 1 + g.IntN(25)
	if g.has("large-writes") && g.chance(30) {
		n = 300
	}
	if g.chance(10) {
		n = 1
	}
	var out []Op
	for range n {
		row := g.row()
		switch {
		case !g.keyed():
			out = append(out, Op{"+I", row})
		case len(g.rowKinds) > 0:
			out = append(out, Op{oneOf(g.valuer, g.rowKinds...), row})
		case g.chance(25):
			out = append(out, Op{"-D", row})
		case g.has("update-before") && g.chance(30):
			after := g.row()
			for _, k := range g.Key {
				after[k] = row[k]
			}
			out = append(out, Op{"-U", row}, Op{"+U", after})
		default:
			out = append(out, Op{oneOf(g.valuer, "+I", "+U"), row})
		}
	}
	for i := range out {
		if name := g.Options["rowkind.field"]; name != "" {
			out[i].Row[name] = out[i].Kind
		}
	}
	return out
}

// makeSteps makes the story: it begins with a write, for a table without snapshot has nothing to compact or tag.
func (g *generator) makeSteps() {
	n := 3 + g.IntN(8)
	if g.has("branches") || g.has("consumers") {
		n += 3
	}
	g.Steps = append(g.Steps, g.write())
	for len(g.Steps) < n {
		g.Steps = append(g.Steps, g.anyStep())
	}
	for i := range g.Steps {
		s := &g.Steps[i]
		s.Look = g.Uint64()
		g.feature(fmt.Sprintf("%s-by-%s", featureWord[s.Do], s.By))
		if s.Alter != nil {
			g.feature("alter-" + strings.ReplaceAll(s.Alter.What, " ", "-"))
		}
		if !g.keyed() && (s.Do == doCompact || s.Do == doCompactFull) {
			g.feature(fmt.Sprintf("append-compact-by-%s", s.By))
		}
	}
	g.turns()
}

// turns notes histories in which both sides write behind each other.
func (g *generator) turns() {
	turns := ""
	for _, s := range g.Steps {
		if s.Do == doWrite && !strings.HasSuffix(turns, string(s.By)) {
			turns += string(s.By)
		}
	}
	for _, by := range []side{byJava, byCalve} {
		if other := map[side]side{byJava: byCalve, byCalve: byJava}[by]; strings.Contains(turns, string(by+other+by)) {
			g.feature(fmt.Sprintf("%s-%s-%s", by, other, by))
		}
	}
}

var featureWord = map[action]string{doWrite: "write", doOverwrite: "overwrite", doCompact: "compact", doCompactFull: "full-compact",
	doExpire: "expire", doTag: "tag", doDeleteTag: "delete-tag",
	doAlter: "alter", doBranch: "branch", doBranchWrite: "branch-write", doDeleteBranch: "delete-branch",
	doConsumer: "consumer", doNoConsumer: "delete-consumer"}

// side chooses who does a step.
func (g *generator) side() side {
	by := oneOf(g.valuer, byCalve, byJava)
	if g.ReadOnly {
		by = byJava
	}
	return by
}

func (g *generator) anyStep() HistoryStep {
	if s, ok := g.beside(); ok {
		return s
	}
	by := g.side()
	switch x := g.IntN(100); {
	case x < 27:
		s := HistoryStep{By: by, Do: doCompact}
		if x < 12 {
			s.Do = doCompactFull
		}
		if by == byJava && g.Options["write-only"] == "true" {
			s.Dynamic = map[string]string{"write-only": "false"} // what a dedicated compaction job does
		}
		return s
	case x < 35 && g.has("expiry"):
		return HistoryStep{By: by, Do: doExpire}
	case x < 43:
		g.made++
		g.tags = append(g.tags, fmt.Sprintf("tag %d", g.made))
		if !g.stale {
			g.tagShapes[g.tags[len(g.tags)-1]] = g.shapeNow()
		}
		return HistoryStep{By: oneOf(g.valuer, byCalve, byJava), Do: doTag, Tag: g.tags[len(g.tags)-1]}
	case x < 43+g.alters():
		g.stale = true
		return g.alter()
	case x < 70 && x >= 63 && g.has("overwrite"):
		return g.overwrite()
	case x >= 96 && len(g.tags) > 0:
		tag := g.tags[0]
		g.tags = g.tags[1:]
		delete(g.tagShapes, tag)
		return HistoryStep{By: oneOf(g.valuer, byCalve, byJava), Do: doDeleteTag, Tag: tag}
	}
	return g.write()
}

// alters is how many of a hundred steps change the schema.
func (g *generator) alters() int {
	if g.has("schema-changes") {
		return 20
	}
	return 0
}

func (g *generator) write() HistoryStep {
	g.stale = false
	s := HistoryStep{By: g.side(), Do: doWrite, Changes: g.changes()}
	if g.has("watermarks") && g.chance(60) {
		g.watermark += int64(g.IntN(1000)) - 100 // that of a snapshot never goes back
		s.Watermark = max(1, g.watermark)
	}
	if s.By == byJava {
		s.Wait = g.chance(50) || g.lookup()
		if g.chance(40) && !g.lookup() {
			s.Dynamic = map[string]string{"write-only": "true"}
		}
	}
	return s
}

// lookup reports whether rows show, or are told, only after a compaction: then every write must do its own.
func (g *generator) lookup() bool {
	return g.option("changelog-producer", "none") == "lookup" || g.option("deletion-vectors.enabled", "false") == "true" ||
		g.option("merge-engine", "") == "first-row"
}

// overwrite replaces the partitions of its rows, one partition, or the whole table.
func (g *generator) overwrite() HistoryStep {
	s := HistoryStep{By: byJava, Do: doOverwrite}
	g.stale = false
	for range 1 + g.IntN(8) {
		s.Changes = append(s.Changes, Op{"+I", g.row()})
	}
	if len(g.Partition) == 0 || g.chance(20) {
		return s
	}
	if g.chance(50) {
		s.Touched = true
		return s
	}
	row := s.Changes[0].Row // one partition, named by text, when its types have an obvious one
	spec := map[string]string{}
	for _, name := range g.Partition {
		switch text := fmt.Sprint(row[name]); g.kinds[name].Word {
		case "INT", "BIGINT", "SMALLINT", "TINYINT", "DATE":
			spec[name] = text
		case "STRING", "VARCHAR":
			spec[name] = text
		}
		if row[name] == nil || strings.TrimSpace(spec[name]) == "" || strings.ContainsAny(spec[name], "\ufeff\u0000") {
			return s
		}
	}
	s.Spec = spec
	for i := range s.Changes {
		s.Changes[i].Row = maps.Clone(s.Changes[i].Row)
		for _, name := range g.Partition {
			s.Changes[i].Row[name] = row[name]
		}
	}
	return s
}
