package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/storage"
)

func TestEveryDay(t *testing.T) {
	c := withOrders(t)
	if got, want := c.ok("", "scan", "shop.orders"), `{"id":1,"item":"ice","price":"2.50"}
{"id":3,"item":"hail","price":"7.00"}
`; got != want {
		t.Errorf("scan:\n%s", got)
	}
	if got, want := c.ok("", "tail", "shop.orders"), `{"snapshot":1,"kind":"+I","row":{"id":1,"item":"ice","price":"2.50"}}
{"snapshot":1,"kind":"+I","row":{"id":2,"item":"snow","price":"0.10"}}
{"snapshot":1,"kind":"+I","row":{"id":3,"item":"hail","price":null}}
{"snapshot":2,"kind":"-D","row":{"id":2,"item":null,"price":null}}
{"snapshot":2,"kind":"+U","row":{"id":3,"item":"hail","price":"7.00"}}
`; got != want {
		t.Errorf("tail:\n%s", got)
	}
	if got := c.ok("", "compact", "shop.orders", "--full"); !strings.HasPrefix(got, "shop.orders: 1 compaction, 2 files into 1 (0 only moved), 5 rows into 2, ") || !strings.HasSuffix(got, ", snapshot 3\n") {
		t.Errorf("compact: %s", got)
	}
	if got := c.ok("", "compact", "shop.orders", "--full"); got != "shop.orders: nothing to compact\n" {
		t.Errorf("second compact: %s", got)
	}
	if got := c.ok("", "export", "shop.orders"); !strings.HasPrefix(got, "shop.orders: published Iceberg snapshot 3: 1 file, 2 rows (+1 −0 files)\nfile://"+c.dir+"/shop.db/orders/metadata/v1.metadata.json\n") {
		t.Errorf("export: %s", got)
	}
	if got := c.ok("", "export", "shop.orders"); !strings.HasPrefix(got, "shop.orders: up to date at Iceberg snapshot 3: 1 file, 2 rows") {
		t.Errorf("second export: %s", got)
	}
	if got := c.ok("", "verify", "shop.orders"); !strings.HasPrefix(got, "shop.orders: sound at snapshot 3: 1 file, ") || !strings.HasSuffix(got, "files per level [0 0 1]; 5 changes in the stream fold to the table's 2 rows\n") {
		t.Errorf("verify: %s", got)
	}
	if got := c.ok("", "ls"); got != "shop.orders\n" {
		t.Errorf("ls: %s", got)
	}
	got := c.ok("", "describe", "shop.orders")
	for _, want := range []string{"columns      id BIGINT NOT NULL\n", "price DECIMAL(10, 2)\n", "primary key  id\n", "bucket = 1\n", "snapshot     3 (COMPACT, ", "level 2: 1 file\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("describe has no %q:\n%s", want, got)
		}
	}
}

func TestJSON(t *testing.T) {
	c := newCLI(t)
	check := func(v map[string]any, want map[string]any) {
		t.Helper()
		for k, w := range want {
			if fmt.Sprint(v[k]) != fmt.Sprint(w) {
				t.Errorf("%s is %v, want %v, in %v", k, v[k], w, v)
			}
		}
	}
	location := "file://" + c.dir + "/shop.db/orders"
	check(c.object("create", "shop.orders", "--columns", orders, "--primary-key", "id", "--option", "bucket=2", "--comment", "all", "--json"),
		map[string]any{"table": "shop.orders", "location": location, "created": true})
	check(c.object("create", "shop.orders", "--columns", "other INT", "--if-not-exists", "--json"), map[string]any{"created": false})
	check(c.object("verify", "shop.orders", "--json"), map[string]any{"ok": true, "snapshot": 0})
	check(c.object("describe", "shop.orders", "--json"), map[string]any{"files": 0, "filesPerLevel": "[]"})
	put := c.ok("{\"id\":1}\n{\"id\":2}\n", "put", "shop.orders", "--json")
	if want := `{"lines":2,"rows":2,"rejected":0,"bytes":16,"snapshot":1}` + "\n"; put != want {
		t.Errorf("put: %s, want %s", put, want)
	}
	check(c.object("scan", "shop.orders", "--count", "--json"), map[string]any{"rows": 2})
	check(c.object("compact", "shop.orders", "--full", "--json"), map[string]any{"rowsIn": 2, "rowsOut": 2})
	check(c.object("export", "shop.orders", "--json"), map[string]any{"published": true, "rows": 2, "metadata": location + "/metadata/v1.metadata.json"})
	check(c.object("verify", "shop.orders", "--json"), map[string]any{"ok": true, "rows": 2, "changes": 2, "folded": true})
	check(c.object("verify", "shop.orders", "--quick", "--json"), map[string]any{"ok": true, "folded": false})
	check(c.object("ls", "--json"), map[string]any{"tables": "[shop.orders]"})
	check(c.object("ls", "nothing", "--json"), map[string]any{"tables": "[]"})
	d := c.object("describe", "shop.orders", "--json")
	check(d, map[string]any{"table": "shop.orders", "location": location})
	if s := d["schema"].(map[string]any); s["comment"] != "all" || s["options"].(map[string]any)["bucket"] != "2" {
		t.Errorf("schema: %v", s)
	}
	check(c.object("version", "--json"), map[string]any{"version": version})
}

func TestScan(t *testing.T) {
	c := withOrders(t)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--limit", "1"}, `{"id":1,"item":"ice","price":"2.50"}` + "\n"},
		{[]string{"--columns", "price,id"}, `{"price":"2.50","id":1}` + "\n" + `{"price":"7.00","id":3}` + "\n"},
		{[]string{"--columns", "item"}, `{"item":"ice"}` + "\n" + `{"item":"hail"}` + "\n"},
		{[]string{"--snapshot", "1", "--count"}, "3\n"},
		{[]string{"--count"}, "2\n"},
		{[]string{"--where", "price > 2.5 OR item IS NULL"}, `{"id":3,"item":"hail","price":"7.00"}` + "\n"},
		{[]string{"--where", "item LIKE '%i%' AND NOT id = 3", "--columns", "item"}, `{"item":"ice"}` + "\n"},
		{[]string{"--where", "price BETWEEN 2 AND 3", "--count", "--json"}, `{"rows":1}` + "\n"},
		{[]string{"--snapshot", "1", "--columns", "item", "--limit", "2"}, `{"item":"ice"}` + "\n" + `{"item":"snow"}` + "\n"},
	} {
		if got := c.ok("", append([]string{"scan", "shop.orders"}, tc.args...)...); got != tc.want {
			t.Errorf("scan %v: %s", tc.args, got)
		}
	}
}

func TestTail(t *testing.T) {
	c := withOrders(t)
	if got := c.ok("", "tail", "shop.orders", "--from", "latest"); got != "" {
		t.Errorf("tail from latest: %s", got)
	}
	if got := c.ok("", "tail", "shop.orders", "--from", "snapshot:2", "--columns", "id"); got != `{"snapshot":2,"kind":"-D","row":{"id":2}}`+"\n"+`{"snapshot":2,"kind":"+U","row":{"id":3}}`+"\n" {
		t.Errorf("tail from snapshot 2: %s", got)
	}
	if got := c.ok("", "tail", "shop.orders", "--from", "snapshot:2", "--columns", "id", "--format", "csv"); got != "snapshot,kind,id\n2,-D,2\n2,+U,3\n" {
		t.Errorf("tail as CSV: %s", got)
	}
	if got := c.ok("", "tail", "shop.orders", "--from", "snapshot:2", "--columns", "id", "--format", "debezium"); !strings.HasPrefix(got, `{"before":{"id":2},"after":null,"source":{"connector":"calve","db":"shop","table":"orders","snapshot_id":2,"ts_ms":`) {
		t.Errorf("tail as Debezium: %s", got)
	}
	if got := c.ok("", "tail", "shop.orders", "--from", "snapshot:2", "--where", "price > 1", "--columns", "id"); got != `{"snapshot":2,"kind":"-D","row":{"id":2}}`+"\n"+`{"snapshot":2,"kind":"+U","row":{"id":3}}`+"\n" {
		t.Errorf("tail with a condition: %s", got)
	}
	if got := c.ok("", "tail", "shop.orders", "--from", "at:2.1", "--columns", "id", "--positions"); got != `{"snapshot":2,"kind":"+U","row":{"id":3},"at":"2.2"}`+"\n"+`{"snapshot":2,"event":"end","at":"3.0"}`+"\n" {
		t.Errorf("tail from a position: %s", got)
	}
	if got := c.ok("", "tail", "shop.orders", "--until", "snapshot:1", "--columns", "id", "--share", "0/1", "--on-gap", "rescan"); strings.Count(got, "\n") != 3 {
		t.Errorf("tail until snapshot 1: %s", got)
	}
	c.fails("", []string{"tail", "shop.orders", "--format", "xml"}, "--format: format \"xml\": there are json, debezium, csv, arrow")
	b := c.background("tail", "shop.orders", "--follow", "--poll", "5ms", "--from", "snapshot:2")
	wait := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(b.String(), want); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no %s in %s", want, b)
			}
		}
	}
	wait(`{"snapshot":2,"kind":"-D"`)
	c.ok(`{"id":9,"item":"frost"}`, "put", "shop.orders")
	wait(`{"snapshot":3,"kind":"+I","row":{"id":9,"item":"frost","price":null}}`)
	b.cancel()
	if err := <-b.done; err != nil {
		t.Fatalf("an interrupted tail fails: %v", err)
	}
}

func TestPut(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "t", "--columns", "id INT NOT NULL, kind STRING, op STRING", "--primary-key", "id")
	// "op" is a column here: it is data unless --op says so.
	c.ok(`{"id":1,"op":"D","kind":"I"}`, "put", "t")
	c.ok(`{"id":2,"op":"x","kind":"I"}`+"\n", "put", "t", "--op", "-")
	if got := c.ok("", "scan", "t"); got != `{"id":1,"kind":"I","op":"D"}`+"\n"+`{"id":2,"kind":"I","op":"x"}`+"\n" {
		t.Errorf("scan: %s", got)
	}
	c.fails("{\"id\":5}\n\n{\"id\":\"many\"}\n[]\n{\"kind\":\"x\"}\n{\"id\":6", []string{"put", "t"},
		"4 lines refused and kept in the table t__dead; the first is line 3: column \"id\": ")
	var letters []ingest.Letter
	st, err := storage.NewLocal(filepath.Join(c.dir, "default.db", "t__dead"))
	if err != nil {
		t.Fatal(err)
	}
	for l, err := range ingest.ReadDeadLetters(t.Context(), st, ingest.LetterQuery{}, engineEnv(slog.New(slog.DiscardHandler))) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, l)
	}
	if len(letters) != 4 || string(letters[0].Raw) != `{"id":"many"}` || letters[0].Offset != 3 || letters[0].Topic != "stdin" || string(letters[3].Raw) != `{"id":6` {
		t.Errorf("dead letters: %+v", letters)
	}
	if got := c.ok("", "scan", "t", "--count"); got != "3\n" {
		t.Errorf("the good line is not there: %s", got)
	}
	if got := c.ok("", "put", "t"); got != "t: nothing to write in 0 lines\n" {
		t.Errorf("empty input: %s", got)
	}
	c.fails("", []string{"put", "t", "--format", "xml"}, "xml", "debezium-json")
	c.ok(`{"before":null,"after":{"id":7,"kind":"k","op":"o"},"op":"c"}`, "put", "t", "--format", "debezium-json")
	if got := c.ok("", "scan", "t", "--count"); got != "4\n" {
		t.Errorf("debezium: %s", got)
	}
}

// TestPutResumes: a job goes on behind the last line it has committed, and only with the same input.
// TestPutIsSeen: what put has written is seen and told when it ends, whatever the table needs for that.
func TestPutIsSeen(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "shop.orders", "--columns", orders, "--primary-key", "id", "--option", "changelog-producer=lookup", "--option", "deletion-vectors.enabled=true")
	c.ok(`{"id":1,"item":"ice"}`+"\n"+`{"id":2,"item":"snow"}`+"\n", "put", "shop.orders")
	c.ok(`{"id":1,"item":"hail"}`+"\n"+`{"op":"D","id":2}`+"\n", "put", "shop.orders")
	if got, want := c.ok("", "scan", "shop.orders"), `{"id":1,"item":"hail","price":null}`+"\n"; got != want {
		t.Errorf("scan:\n%s", got)
	}
	if got, want := c.ok("", "tail", "shop.orders"), `{"snapshot":2,"kind":"+I","row":{"id":1,"item":"ice","price":null}}
{"snapshot":2,"kind":"+I","row":{"id":2,"item":"snow","price":null}}
{"snapshot":4,"kind":"-U","row":{"id":1,"item":"ice","price":null}}
{"snapshot":4,"kind":"+U","row":{"id":1,"item":"hail","price":null}}
{"snapshot":4,"kind":"-D","row":{"id":2,"item":"snow","price":null}}
`; got != want {
		t.Errorf("tail:\n%s", got)
	}
	c.ok("", "verify", "shop.orders")
}

func TestPutResumes(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "t", "--columns", "id INT")
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put := []string{"put", "t", "--file", file, "--job", "load"}
	write("{\"id\":1}\n{\"id\":2}\n")
	c.ok("", put...)
	write("{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n")
	if got := c.ok("", put...); !strings.HasPrefix(got, "t: 1 row from 1 line, ") {
		t.Errorf("second put: %s", got)
	}
	if got := c.ok("", put...); got != "t: nothing to write in 0 lines\n" {
		t.Errorf("third put: %s", got)
	}
	write("{\"id\":4}\n{\"id\":2}\n{\"id\":3}\n{\"id\":5}\n")
	c.fails("", put, "does not begin with the 3 lines", "give the same input")
	if got := c.ok("", "scan", "t"); got != "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n" {
		t.Errorf("scan: %s", got)
	}
}

// endless is an input that gives a line and then blocks until the test ends it.
type endless struct {
	line []byte
	end  chan struct{}
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.line) > 0 {
		n := copy(p, e.line)
		e.line = e.line[n:]
		return n, nil
	}
	<-e.end
	return 0, errors.New("ended")
}

// TestPutInterrupted: an interrupted put commits what it has read and says that this was not all.
func TestPutInterrupted(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "t", "--columns", "id INT")
	in := &endless{line: []byte("{\"id\":1}\n"), end: make(chan struct{})}
	defer close(in.end)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	cmd := newApp(in, &out, &out).command()
	cmd.SetArgs([]string{"put", "t", "--commit-interval", "1ms", "--job", "j"})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	for deadline := time.Now().Add(time.Minute); c.ok("", "scan", "t", "--count") != "1\n"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the row is not committed")
		}
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "interrupted after 1 line of this run") || out.Len() > 0 {
		t.Fatalf("%v %s", err, out.String())
	}
	if _, err := os.Stat(filepath.Join(c.dir, "default.db/t/calve/jobs/j/closed-1")); err != nil {
		t.Errorf("the job was not closed: %v", err)
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	damage := map[string]func(t *testing.T, file string){
		"missing": func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		"cut": func(t *testing.T, file string) {
			if err := os.Truncate(file, 100); err != nil {
				t.Fatal(err)
			}
		},
		"altered": func(t *testing.T, file string) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := 8; i < len(b)/2; i++ {
				b[i] ^= 0x55
			}
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			c := withOrders(t)
			files, err := filepath.Glob(filepath.Join(c.dir, "shop.db/orders/bucket-0/*.parquet"))
			if err != nil || len(files) != 2 {
				t.Fatal(files, err)
			}
			f(t, files[0])
			c.fails("", []string{"verify", "shop.orders"}, "problem: ", filepath.Base(files[0]), "shop.orders: NOT SOUND at snapshot 2")
			r := c.run("", "verify", "shop.orders", "--json")
			if !errors.Is(r.failed, errReported) || !strings.Contains(r.out, `{"ok":false,`) {
				t.Errorf("%v %s", r.failed, r.out)
			}
		})
	}
}

// TestErrorsSayWhatToDo goes through mistakes that people make.
// TestTailTo: the stream goes into a topic, once.
func TestTailTo(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	c := withOrders(t)
	to := "kafka://" + strings.Join(k.ListenAddrs(), ",") + "/orders?id=x"
	for range 2 {
		c.ok("", "tail", "shop.orders", "--to", to)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var got []string
	for len(got) < 5 {
		cl.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Key)+string(r.Value)) })
	}
	if want := []string{`{"id":1}{"id":1,"item":"ice","price":"2.50"}`, `{"id":2}{"id":2,"item":"snow","price":"0.10"}`, `{"id":3}{"id":3,"item":"hail","price":null}`,
		`{"id":2}`, `{"id":3}{"id":3,"item":"hail","price":"7.00"}`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for to, want := range map[string]string{"orders": "use kafka://BROKER", "kafka://a:1": "use kafka://BROKER", "kafka://u:p@a:1/t": "credentials are given as", "kafka://a:1/t?x=1": `"x" is unknown`,
		"kafka://a:1/t?user=me": "belong together", "kafka://a:1/t?password-env=CALVE_NO_SUCH": "is empty or not set", "kafka://a:1/t?tls=maybe": "use true or false"} {
		c.fails("", []string{"tail", "shop.orders", "--to", to}, "--to: ", want)
	}
}

// TestConsumers: a tail with a consumer goes on where it ended; consumers are listed, moved and dropped.
func TestConsumers(t *testing.T) {
	c := withOrders(t)
	if got := c.ok("", "tail", "shop.orders", "--consumer", "audit", "--until", "snapshot:1", "--columns", "id"); strings.Count(got, "\n") != 3 {
		t.Error(got)
	}
	if got := c.ok("", "consumer", "ls", "shop.orders"); !strings.HasPrefix(got, "audit  next snapshot 2  renewed ") {
		t.Error(got)
	}
	for _, want := range []int{2, 0} {
		if got := c.ok("", "tail", "shop.orders", "--consumer", "audit", "--columns", "id"); strings.Count(got, "\n") != want {
			t.Error(got)
		}
	}
	if got := c.ok("", "tail", "shop.orders", "--consumer", "audit", "--from", "earliest", "--columns", "id"); strings.Count(got, "\n") != 5 {
		t.Error(got)
	}
	c.ok("", "scan", "shop.orders", "--lease")
	c.ok("", "consumer", "reset", "shop.orders", "audit", "1")
	var list []map[string]any
	if err := json.Unmarshal([]byte(c.ok("", "consumer", "ls", "shop.orders", "--json")), &list); err != nil || len(list) != 1 || list[0]["nextSnapshot"] != 1.0 {
		t.Error(list, err)
	}
	if got := c.object("consumer", "drop", "shop.orders", "audit", "--json"); got["dropped"] != true {
		t.Error(got)
	}
	c.fails("", []string{"consumer", "drop", "shop.orders", "audit"}, `no such consumer: "audit"`)
	c.fails("", []string{"consumer", "reset", "shop.orders", "audit", "0"}, `snapshot "0": use its number`)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	c := withOrders(t)
	for _, tc := range []struct {
		args string
		want string
	}{
		{"nope", `unknown command "nope" for "calve"`},
		{"scan", "calve scan takes one table, as in `calve scan shop.orders`, not 0 arguments; see `calve scan --help`"},
		{"scan a b", "not 2 arguments"},
		{"demo x", "calve demo takes no arguments"},
		{"scan shop.orders --limitt 3", "unknown flag: --limitt; see `calve scan --help`"},
		{"scan shop.orders --limit many", "see `calve scan --help`"},
		{"scan shop.nope", "no table shop.nope in file://" + c.dir + "; `calve ls` shows what is there, `calve create` makes one"},
		{"describe nope", "`calve create` makes one"},
		{"tail nope", "`calve create` makes one"},
		{"put nope", "`calve create` makes one"},
		{"compact nope", "`calve create` makes one"},
		{"export nope", "`calve create` makes one"},
		{"verify nope", "`calve create` makes one"},
		{"scan a.b.c", "use database.table"},
		{"scan shop.orders --snapshot 99", "the table has snapshots 1 to 2"},
		{"scan shop.orders --where foo=1", `condition "foo=1", character 1: no column "foo"; the table has id, item, price`},
		{"scan shop.orders --columns foo", `no column "foo"; the table has id, item, price`},
		{"scan shop.orders --log-level loud", "use debug, info, warn or error"},
		{"tail shop.orders --from yesterday", `--from: invalid query: start "yesterday": use earliest, latest, full, time:`},
		{"tail shop.orders --from snapshot:0", "with N ≥ 1"},
		{"tail shop.orders --until never", `--until: invalid query: end "never": use latest, time:`},
		{"tail shop.orders --share 2/2", `--share: invalid query: share "2/2": use I/N`},
		{"tail shop.orders --on-gap wait", `--on-gap: invalid query: on gap "wait": use fail or rescan`},
		{"tail shop.orders --from tag:none", `no such tag: "none"`},
		{"tail shop.orders --where cost>1", `no column`},
		{"tail shop.orders --positions --format csv", "--positions: csv has no place for them"},
		{"consumer reset shop.orders audit", "takes a table, the name of a consumer and a snapshot"},
		{"create shop.orders --columns i_INT", "--columns: "},
		{"create shop.orders", `at least one of the flags in the group [columns avro parquet] is required`},
		{"put shop.orders --file /does/not/exist", "/does/not/exist"},
		{"ls -w ftp://x", "use a path, file://, s3:// or mem://"},
		{"serve -c /does/not/exist.yaml", "/does/not/exist.yaml"},
	} {
		c.fails("", strings.Fields(tc.args), tc.want)
	}
	c.fails("", []string{"create", "shop.orders", "--columns", "i INT"}, "already exists", "--if-not-exists leaves it as it is", "calve describe shop.orders")
	c.fails("", []string{"create", "t", "--columns", "i WHAT"}, `unknown type "WHAT"; known are BOOLEAN`)
	c.fails("", []string{"create", "t", "--columns", "i INT", "--option", "bucket"}, `--option "bucket": use key=value`)
	c.fails("", []string{"create", "t", "--columns", "i INT", "--primary-key", "j"}, `"j" is not a column`)
	c.fails("", []string{"create", "t", "--columns", "i INT", "--option", "colour=red"}, `"colour"`, "correct its name or remove it")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	for _, name := range []string{"scan", "put"} {
		r := c.run("", name, "t", "-w", "s3://b/p?endpoint=http://127.0.0.1:1&region=r&access_key=a&secret_key=hush")
		if r.failed == nil || strings.Contains(r.failed.Error()+r.out+r.err, "hush") {
			t.Errorf("%s tells a secret: %v", name, r.failed)
		}
	}
	t.Setenv("CALVE_WAREHOUSE", "")
	c.fails("", []string{"ls"}, "--warehouse file:///path", "$CALVE_WAREHOUSE")
}

func TestCompactAppendTable(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "t", "--columns", "id INT")
	c.ok(`{"id":1}`, "put", "t")
	c.ok(`{"id":2}`, "put", "t")
	c.ok("", "compact", "t", "--full")
	if got := c.ok("", "export", "t"); !strings.Contains(got, "1 file, 2 rows") {
		t.Errorf("export: %s", got)
	}
}

func TestConfig(t *testing.T) {
	c := newCLI(t)
	file := filepath.Join(t.TempDir(), "calve.yaml")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var schema map[string]any
	if err := json.Unmarshal([]byte(c.ok("", "config", "schema")), &schema); err != nil || schema["properties"] == nil {
		t.Errorf("config schema: %v", err)
	}
	write("warehouse: mem://\npipelines:\n- name: a\n  table: x.y\n  kafka: {brokers: [b:1], topic: t}\n  create: {columns: id INT}\n")
	if got := c.ok("", "config", "check", "-c", file); got != file+" is fine: 1 pipeline into mem://\n" {
		t.Errorf("config check: %s", got)
	}
	write("warehouse: mem://\npipelines:\n- name: a\n  table: x.y\n  kafka: {brokers: [b:1], topic: t}\n  create: {columns: id WHAT}\n")
	c.fails("", []string{"config", "check", "-c", file}, "pipeline a: ", `unknown type "WHAT"`)
	write("warehouse: mem://\npipelins: []\n")
	c.fails("", []string{"config", "check", "-c", file}, file+":2: pipelins: unknown key; allowed keys here: warehouse, s3, listen, http, log, write-memory, compaction, lookup-cache, registry, share, pipelines")
	c.fails("", []string{"serve", "-c", file}, file+":2: pipelins: unknown key")

	write("warehouse: mem://\nlisten: 127.0.0.1:0\n")
	b := c.background("serve", "-c", file, "-w", "file://"+c.dir)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(b.String(), "iceberg_catalog=http://127.0.0.1:"); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("serve says: %s", b)
		}
	}
	b.cancel()
	if err := <-b.done; err != nil {
		t.Fatal(err)
	}
}

// TestTimeTravel reads the past of a table by snapshot, tag and time, and what happened in between.
func TestTimeTravel(t *testing.T) {
	c := withOrders(t)
	const first = `{"id":1,"item":"ice","price":"2.50"}
{"id":2,"item":"snow","price":"0.10"}
{"id":3,"item":"hail","price":null}
`
	if got := c.ok("", "scan", "shop.orders", "--snapshot", "1"); got != first {
		t.Errorf("by snapshot: %s", got)
	}
	if got := c.ok("", "tag", "create", "shop.orders", "one", "--snapshot", "1", "--keep", "30 d"); got != "shop.orders: tag one is snapshot 1\n" {
		t.Errorf("tag create: %s", got)
	}
	if got := c.ok("", "tag", "create", "shop.orders", "two", "--json"); got != `{"snapshot":2,"tag":"two"}`+"\n" {
		t.Errorf("tag create: %s", got)
	}
	if got := c.ok("", "tag", "ls", "shop.orders"); !strings.Contains(got, "one  snapshot 1  ") || !strings.Contains(got, "kept for 720h0m0s from ") {
		t.Errorf("tag ls: %s", got)
	}
	if got := c.ok("", "scan", "shop.orders", "--tag", "one"); got != first {
		t.Errorf("by tag: %s", got)
	}
	want := `{"snapshot":2,"kind":"+U","row":{"id":3,"item":"hail","price":"7.00"}}
{"snapshot":2,"kind":"-D","row":{"id":2,"item":"snow","price":"0.10"}}
`
	got := c.ok("", "scan", "shop.orders", "--between", "one,two")
	lines := strings.SplitAfter(got, "\n")
	if slices.Sort(lines); strings.Join(lines, "") != want {
		t.Errorf("between tags: %s", got)
	}
	if got := c.ok("", "scan", "shop.orders", "--between", "1,2"); got != `{"snapshot":2,"kind":"-D","row":{"id":2,"item":null,"price":null}}
{"snapshot":2,"kind":"+U","row":{"id":3,"item":"hail","price":"7.00"}}
` {
		t.Errorf("between snapshots: %s", got)
	}
	if got := c.ok("", "scan", "shop.orders", "--between", "2020-01-01,2999-01-01", "--times", "--limit", "1"); got != `{"snapshot":1,"kind":"+I","row":{"id":1,"item":"ice","price":"2.50"}}`+"\n" {
		t.Errorf("between times: %s", got)
	}
	if got := c.ok("", "scan", "shop.orders", "--at", "2999-01-01", "--count"); got != "2\n" {
		t.Errorf("in the future: %s", got)
	}
	c.fails("", []string{"scan", "shop.orders", "--at", "2020-01-01"}, "at 2020-01-01T00:00:00.000Z; the earliest snapshot")
	c.fails("", []string{"scan", "shop.orders", "--tag", "three"}, "has one, two")
	c.fails("", []string{"scan", "shop.orders", "--between", "1,2", "--tag", "one"}, "--between goes with")
	c.fails("", []string{"tag", "create", "shop.orders", "one"}, "already exists")
	if got := c.ok("", "tag", "delete", "shop.orders", "one"); got != "shop.orders: tag one deleted, with 0 data files and 0 metadata files that only it kept\n" {
		t.Errorf("tag delete: %s", got)
	}
	c.fails("", []string{"tag", "delete", "shop.orders", "one"}, "no such tag")
	c.fails("", []string{"scan", "shop.orders$branch_b"}, "has no branches")
}
