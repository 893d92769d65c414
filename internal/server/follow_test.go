package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// alter changes the schema of a table as another process does.
func (l *lab) alter(table string, changes ...schema.Change) *schema.Schema {
	l.t.Helper()
	env := hastyEnv()
	meta := manifest.Open(storage.Sub(l.mem, table), manifest.Env{Now: env.Now, NewID: env.NewID, Rand: env.Rand})
	s, made, err := meta.AlterSchema(context.Background(), changes)
	if err != nil || !made {
		l.t.Fatal(made, err)
	}
	return s
}

// tail follows a table and keeps each row as text, and the schemas it saw.
type tail struct {
	mu      sync.Mutex
	rows    []string
	schemas []int64
}

func (l *lab) tail(ctx context.Context, table string) (*tail, *sync.WaitGroup) {
	out, wg := &tail{}, &sync.WaitGroup{}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for c, err := range l.reader(table).Tail(ctx, reader.TailSpec{Follow: true, Poll: time.Millisecond}) {
			if err != nil {
				l.t.Error(err)
				return
			}
			out.add(c)
		}
	}()
	return out, wg
}

func (x *tail) add(c reader.Changes) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.schemas); n == 0 || x.schemas[n-1] != c.Schema.ID {
		x.schemas = append(x.schemas, c.Schema.ID)
	}
	if c.Rec == nil {
		return
	}
	for i := range int(c.Rec.NumRows()) {
		row := ""
		for col, f := range c.Rec.Schema().Fields() {
			if f.Name != "off" && f.Name != "part" {
				row += fmt.Sprint(f.Name, "=", schema.Cell(c.Rec.Column(col), i), " ")
			}
		}
		x.rows = append(x.rows, row)
	}
}

func (x *tail) has(rows ...string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, want := range rows {
		if !slices.Contains(x.rows, want) {
			return false
		}
	}
	return true
}

// TestSchemaChangeWhileRunning: the stream, a tail and the Iceberg export of a table follow a change of its schema without
// a restart, and no row is lost or doubled.
func TestSchemaChangeWhileRunning(t *testing.T) {
	l := newLab(t, "events")
	const table = "shop.db/keyed"
	l.send("events", `{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`)
	r := l.start(Options{}, l.section("keyed", "events", keyedTable))
	r.awaitRecords("keyed", 2)
	ctx, stop := context.WithCancel(t.Context())
	seen, done := l.tail(ctx, "shop.keyed")
	defer func() { stop(); done.Wait() }()
	await(t, "the tail tells no row", func() bool { return seen.has("id=1 name=a ", "id=2 name=b ") })

	time.Sleep(30 * time.Millisecond) // the stream is idle for longer than a commit interval
	first := l.alter(table, schema.AddColumn{Path: []string{"note"}, Type: schema.Type{Root: schema.Int}, Place: schema.Place{At: schema.After, Ref: "name"}},
		schema.RenameColumn{Path: []string{"name"}, To: "label"})
	l.send("events", `{"id":3,"label":"c","note":7,"name":"gone"}`, `{"id":1,"label":"A","note":8}`)
	r.awaitRecords("keyed", 4)
	await(t, "the tail does not follow", func() bool { return seen.has("id=3 label=c note=7 ", "id=1 label=A note=8 ") })

	time.Sleep(30 * time.Millisecond)
	second := l.alter(table, schema.ChangeType{Path: []string{"note"}, Type: schema.Type{Root: schema.BigInt}},
		schema.DropColumn{Path: []string{"label"}})
	l.send("events", `{"id":4,"note":5000000000}`, `{"id":2,"note":9}`)
	st := r.awaitRecords("keyed", 6)
	if st.Restarts != 0 || st.Epoch != 1 || st.Rejected != 0 {
		t.Errorf("%+v", st)
	}
	await(t, "the tail does not follow", func() bool { return seen.has("id=4 note=5000000000 ", "id=2 note=9 ") })
	if seen.schemas[len(seen.schemas)-1] != second.ID || !slices.Contains(seen.schemas, first.ID) {
		t.Errorf("the tail saw the schemas %v", seen.schemas)
	}
	l.send("events", `{"id":5,"note":1}`) // one more sorted run: a compaction
	r.awaitRecords("keyed", 7)
	r.await("keyed", "export of the new schema", func(p PipelineStatus) bool {
		return p.ExportError == "" && p.IcebergRows > 0 && icebergSchema(r)["current"] == fmt.Sprint(second.ID)
	})
	if got, want := icebergSchema(r)["fields"], "[1 id long] [5 note long] [3 part int] [4 off long] "; sorted(got) != sorted(want) {
		t.Errorf("Iceberg fields %s", got)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if got := l.ids("shop.keyed"); len(got) != 5 {
		t.Errorf("ids %v", got)
	}
}

func sorted(s string) string {
	r := []rune(s)
	slices.Sort(r)
	return string(r)
}

// icebergSchema tells the current Iceberg schema.
func icebergSchema(r *running) map[string]string {
	meta := r.getJSON("/iceberg/v1/namespaces/shop/tables/keyed")["metadata"].(map[string]any)
	out := map[string]string{"current": fmt.Sprint(meta["current-schema-id"])}
	for _, s := range meta["schemas"].([]any) {
		s := s.(map[string]any)
		if fmt.Sprint(s["schema-id"]) != out["current"] {
			continue
		}
		for _, f := range s["fields"].([]any) {
			f := f.(map[string]any)
			out["fields"] += fmt.Sprintf("[%v %v %v] ", f["id"], f["name"], f["type"])
		}
	}
	return out
}
