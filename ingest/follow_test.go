package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func alterTable(t *testing.T, st storage.Store, changes ...schema.Change) *schema.Schema {
	t.Helper()
	e := testEnv()
	s, _, err := manifest.Open(st, manifest.Env{Now: e.Now, NewID: e.NewID, Rand: e.Rand}).AlterSchema(context.Background(), changes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addColumn(name string) schema.Change {
	return schema.AddColumn{Path: []string{name}, Type: schema.Type{Root: schema.VarChar, Length: schema.MaxLength}}
}

func openTable(t *testing.T, st storage.Store, job string) *engine.Table {
	t.Helper()
	table, err := engine.Open(context.Background(), st, engine.Settings{Job: job}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return table
}

// TestLinesFollow: lines that come after a change of the schema fill the new column. A busy input learns of it by its
// commits, an idle one by looking.
func TestLinesFollow(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING")
	table := openTable(t, mem, "lines")
	in, out := io.Pipe()
	commits, followed := make(chan Committed, 100), make(chan *schema.Schema, 10)
	done := make(chan error, 1)
	go func() {
		_, err := RunLines(context.Background(), in, LinesConfig{Limits: Limits{CommitInterval: 5 * time.Millisecond}}, table, &list{}, testEnv(), Events{
			Committed: func(c Committed) { commits <- c }, Followed: func(s *schema.Schema) { followed <- s }})
		done <- err
	}()
	say := func(from, n int) {
		for i := from; i < from+n; i++ {
			if _, err := fmt.Fprintf(out, `{"id":%d,"v":"v","w":"w%d"}`+"\n", i, i); err != nil {
				t.Error(err)
			}
		}
	}
	say(0, 10)
	for n := int64(0); n < 10; n += (<-commits).Rows {
	}
	next := alterTable(t, mem, addColumn("w"))
	time.Sleep(20 * time.Millisecond) // a gap longer than the commit interval, after which the source looks
	say(10, 10)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := <-followed; s.ID != next.ID || table.Schema().ID != next.ID {
		t.Errorf("followed schema %d, the table has %d", s.ID, table.Schema().ID)
	}
	rows := scan(t, mem, 1)
	for i := range 20 {
		want := any(nil)
		if i >= 10 {
			want = fmt.Sprint("w", i)
		}
		if row := rows[fmt.Sprint(i)]; len(row) != 3 || row[2] != want {
			t.Errorf("row %d is %v", i, row)
		}
	}
}

// TestKafkaFollowsByCommit: a stream that never pauses goes on with the new column after one of its commits.
func TestKafkaFollowsByCommit(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING", "part INT", "off BIGINT")
	table := openTable(t, mem, "kafka")
	cfg := b.config()
	cfg.Limits.CommitInterval = time.Hour // no gap is ever long enough for a look
	cfg.Limits.CommitRows = 1
	followed := make(chan *schema.Schema, 1)
	var committed atomic.Int64
	p := start(cfg, table, &list{}, Events{Followed: func(s *schema.Schema) { followed <- s }, Committed: func(c Committed) { committed.Add(c.Rows) }})
	send := func(i int) { b.send("t", 0, "", fmt.Sprintf(`{"id":%d,"v":"v","w":"w%d"}`, i, i)) }
	n := 0
	for ; n < 10; n++ {
		send(n)
	}
	for end := time.Now().Add(30 * time.Second); committed.Load() < 10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first rows are not committed")
		}
	}
	next := alterTable(t, mem, addColumn("w"))
	for end := time.Now().Add(30 * time.Second); len(followed) == 0; n++ {
		if send(n); time.Now().After(end) {
			t.Fatal("the stream does not follow")
		}
	}
	last := n
	send(last)
	if s := <-followed; s.ID != next.ID {
		t.Errorf("followed schema %d", s.ID)
	}
	for end := time.Now().Add(30 * time.Second); committed.Load() <= int64(last); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d rows of %d are committed", committed.Load(), last+1)
		}
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	rows := scan(t, mem, 1)
	if len(rows) != last+1 || rows[fmt.Sprint(last)][4] != fmt.Sprint("w", last) || rows["0"][4] != nil {
		t.Errorf("%d rows, the last %v", len(rows), rows[fmt.Sprint(last)])
	}
}

// TestFollowNeedsPerson: a change after which the configuration does not fit the table, or after which calve cannot write
// it, ends the pipeline with an error that says so. What was read before is committed.
func TestFollowNeedsPerson(t *testing.T) {
	for name, c := range map[string]struct {
		change schema.Change
		want   error
	}{
		"metadata column dropped": {schema.DropColumn{Path: []string{"part"}}, ErrConfig},
		"buckets":                 {schema.SetOption{Name: "bucket", Value: "5"}, engine.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, kfake.SeedTopics(1, "t"))
			mem := createTable(t, []string{"id"}, "id BIGINT", "v STRING", "part INT", "off BIGINT")
			table := openTable(t, mem, "kafka")
			first := make(chan struct{}, 100)
			p := start(b.config(), table, &list{}, Events{Committed: func(c Committed) {
				if c.Rows > 0 {
					first <- struct{}{}
				}
			}})
			b.send("t", 0, "", `{"id":1,"v":"v"}`)
			<-first
			alterTable(t, mem, c.change)
			time.Sleep(50 * time.Millisecond)
			b.send("t", 0, "", `{"id":2,"v":"v"}`)
			if err := p.wait(t); !errors.Is(err, c.want) {
				t.Fatalf("%v", err)
			}
			if rows := scan(t, mem, 1); rows["1"] == nil {
				t.Errorf("rows %v", rows)
			}
		})
	}
}
