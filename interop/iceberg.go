//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Route is a way to an exported table.
type Route string

// The ways to an exported table.
const (
	Directory Route = "directory" // its folder on the local disk, by version-hint.text
	RESTLocal Route = "rest"      // calve's REST catalog, files on the local disk
	RESTS3    Route = "rest+s3"   // calve's REST catalog, files on S3
)

// IcebergTable is where an exported table is.
type IcebergTable struct {
	Route           Route
	Warehouse       string // folder of the namespaces' folders, for a Hadoop catalog
	Folder          string // URL of the table's folder
	Catalog         string // URI of the REST catalog
	Namespace, Name string
	S3              *S3
}

func (t IcebergTable) request(snapshot int64) map[string]any {
	r := map[string]any{"route": "directory", "location": t.Folder, "warehouse": t.Warehouse, "namespace": t.Namespace,
		"table": t.Name, "snapshot": snapshot}
	if t.Route != Directory {
		r["route"], r["catalog"] = "rest", t.Catalog
	} else {
		r["namespace"] = t.Namespace + ".db" // a Hadoop catalog takes folders as they are
	}
	if t.S3 != nil {
		r["s3"] = t.S3.Request()
	}
	return r
}

// IcebergDescription is what a reader says about an exported table; what it cannot say is empty.
type IcebergDescription struct {
	Fields []struct {
		Name, Type string
		ID         int
		Required   *bool
	}
	PartitionKeys []string
	FormatVersion int
	Current       int64
}

// Iceberg is where a subject's exported table is on a route.
func (s *Subject) Iceberg(ctx context.Context, route Route) (IcebergTable, *Played, error) {
	p := s.Local
	if route == RESTS3 {
		p = s.Remote
	}
	_, name, _ := strings.Cut(s.Table, ".")
	t := IcebergTable{Route: route, Warehouse: "file://" + p.Dir, Folder: "file://" + p.folder(s.Table),
		Namespace: s.Namespace, Name: name, S3: p.S3}
	if route == Directory {
		return t, p, nil
	}
	var err error
	t.Catalog, err = p.Catalog(ctx)
	return t, p, err
}

// icebergWorker is a peer program that reads Iceberg tables.
type icebergWorker struct {
	*Worker
	routes []Route
	types  map[string]string // the peer's words for types → Iceberg's, where they differ
}

// Routes gives the ways by which this peer comes to a table.
func (w icebergWorker) Routes() []Route { return w.routes }

// Describe gives the columns and what else the peer can say.
func (w icebergWorker) Describe(ctx context.Context, t IcebergTable) (d IcebergDescription, err error) {
	err = w.Ask(ctx, "describe", t.request(0), &d)
	for i, f := range d.Fields {
		d.Fields[i].Type = icebergWords(f.Type, w.types)
	}
	return d, err
}

// Read reads the rows of a snapshot; 0 is the current one.
func (w icebergWorker) Read(ctx context.Context, t IcebergTable, snapshot int64, columns []Column) (*Rows, error) {
	r, err := NewRows(columns)
	if err != nil {
		return nil, err
	}
	request := t.request(snapshot)
	request["columns"] = profileColumns(r)
	return w.Rows(ctx, "read", request, columns)
}

// Count counts the rows that have a value.
func (w icebergWorker) Count(ctx context.Context, t IcebergTable, c Column, kind Kind, value Cell) (int64, error) {
	request := t.request(0)
	request["column"], request["kind"], request["value"] = c.Name, kind.Word, value.Text
	request["precision"], request["scale"] = kind.Precision, kind.Scale
	var answer struct{ Count int64 }
	err := w.Ask(ctx, "count", request, &answer)
	return answer.Count, err
}

// Profile lets the peer compute count, least, greatest and sum of each column.
func (w icebergWorker) Profile(ctx context.Context, t IcebergTable, like *Rows) (Profile, error) {
	request := t.request(0)
	request["columns"] = profileColumns(like)
	object, err := w.Object(ctx, "profile", request)
	if err != nil {
		return nil, err
	}
	return ReadProfile(object, like)
}

func icebergWords(t string, words map[string]string) string {
	t = strings.ReplaceAll(strings.ToLower(t), " ", "")
	for from, to := range words {
		if t == strings.ReplaceAll(from, " ", "") {
			return to
		}
	}
	return t
}

// icebergType is the Iceberg type that a column must have (paimon-format: types of the export).
func icebergType(k Kind) string {
	switch k.Word {
	case "TINYINT", "SMALLINT", "INT":
		return "int"
	case "BIGINT":
		return "long"
	case "DECIMAL":
		return fmt.Sprintf("decimal(%d,%d)", k.Precision, k.Scale)
	case "CHAR", "VARCHAR", "STRING":
		return "string"
	case "BINARY", "VARBINARY", "BYTES":
		return "binary"
	case "TIMESTAMP_LTZ":
		return "timestamptz"
	}
	return strings.ToLower(k.Word)
}

// checkIceberg is what every reader of the export must find, on each of its routes: the columns, the rows of every
// publication (time travel), and at the end the profile and the count for each predicate.
func checkIceberg(ctx context.Context, r IcebergReader, s *Subject) error {
	for _, route := range r.Routes() {
		t, p, err := s.Iceberg(ctx, route)
		if err == nil {
			err = checkRoute(ctx, r, t, p, s)
		}
		if err != nil {
			return fmt.Errorf("by %s: %w", route, err)
		}
	}
	return nil
}

func checkRoute(ctx context.Context, r IcebergReader, t IcebergTable, p *Played, s *Subject) error {
	d, err := r.Describe(ctx, t)
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	if err := checkIcebergSchema(d, s); err != nil {
		return err
	}
	last := p.Exports[len(p.Exports)-1]
	if d.Current > 0 && d.Current != last.Snapshot {
		return fmt.Errorf("the current snapshot is %d, expected %d", d.Current, last.Snapshot)
	}
	for i, e := range p.Exports {
		id := e.Snapshot
		if i == len(p.Exports)-1 {
			id = 0 // as users read: the current one
		} else if id == 0 {
			continue // published when there was no snapshot
		}
		got, err := r.Read(ctx, t, id, s.Columns)
		if err == nil {
			err = e.Rows.Compare(got)
		}
		if err != nil {
			return fmt.Errorf("rows of publication %d (snapshot %d): %w", i+1, e.Snapshot, err)
		}
	}
	profile, err := r.Profile(ctx, t, last.Rows)
	if err == nil {
		err = NewProfile(last.Rows).Compare(profile)
	}
	if err != nil {
		return err
	}
	return eachPredicate(last.Rows, func(i int, value Cell, want int64) error {
		got, err := r.Count(ctx, t, s.Columns[i], last.Rows.Kinds[i], value)
		if err == nil && got != want {
			err = fmt.Errorf("%d rows have %s = %s, expected %d", got, s.Columns[i].Name, value.show(true), want)
		}
		return err
	})
}

func checkIcebergSchema(d IcebergDescription, s *Subject) error {
	if len(d.Fields) != len(s.Columns) {
		return fmt.Errorf("%d columns %v, expected %d", len(d.Fields), d.Fields, len(s.Columns))
	}
	id := 1
	for i, f := range d.Fields {
		c, k := s.Columns[i], s.Local.Final.Kinds[i]
		if want := icebergType(k); f.Name != c.Name || f.Type != want && !k.isNested() { // what is inside shows in the rows
			return fmt.Errorf("column %d is %s %s, expected %s %s", i+1, f.Name, f.Type, c.Name, want)
		}
		if f.ID != 0 && f.ID != id {
			return fmt.Errorf("column %s has field id %d, in the table it has %d", f.Name, f.ID, id)
		}
		id += k.ids()
		required := k.NotNull || slices.Contains(s.Key, c.Name)
		if f.Required != nil && *f.Required != required {
			return fmt.Errorf("column %s: required is %v, expected %v", f.Name, *f.Required, required)
		}
	}
	if d.FormatVersion != 0 && d.FormatVersion != 2 {
		return fmt.Errorf("format version %d, expected 2", d.FormatVersion)
	}
	if d.FormatVersion == 0 { // this reader says nothing about partitions either
		return nil
	}
	var want []string
	for _, name := range s.Partition {
		want = append(want, name+":identity")
	}
	if !slices.Equal(d.PartitionKeys, want) {
		return fmt.Errorf("partition spec %v, expected %v", d.PartitionKeys, want)
	}
	return nil
}
