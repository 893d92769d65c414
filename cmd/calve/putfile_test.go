package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
)

// TestPutFiles writes files of other forms than JSON lines.
func TestPutFiles(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "t", "--columns", "id BIGINT NOT NULL, s STRING", "--primary-key", "id")
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c.ok("", "put", "t", "--file", write("a.csv", []byte("s,id\n\"a\n1\",1\nb,2\n")))
	c.ok("id,s\n2,\n", "put", "t", "--format", "csv")
	s, err := avro.Parse(`{"type":"record","name":"T","fields":[{"name":"s","type":"string"},{"name":"id","type":"int"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := ocf.NewWriter(&b, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		if err := w.Encode(map[string]any{"s": "avro", "id": 3 + i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := write("b.avro", b.Bytes())
	for range 2 {
		c.ok("", "put", "t", "--file", path, "--job", "load")
	}
	if got := c.ok("", "scan", "t"); strings.Count(got, `"avro"`) != 3 || !strings.Contains(got, `"a\n1"`) || !strings.Contains(got, `{"id":2,"s":null}`) {
		t.Errorf("%s", got)
	}
	c.fails("", []string{"put", "t", "--format", "avro"}, "standard input", "--file")
	c.fails("", []string{"put", "t", "--file", write("c.avro", []byte("x"))}, "no Avro object container file")
	c.fails("", []string{"put", "t", "--file", write("d.csv", []byte("id,id\n"))}, `names "id" twice`)
	c.fails("", []string{"put", "t", "--file", write("e.csv", []byte("id\nx\n"))}, "1 line refused", "not a value of type BIGINT")
}

// TestPutParquet makes a table of a Parquet file, and writes it: one of calve's own.
func TestPutParquet(t *testing.T) {
	c := newCLI(t)
	c.ok("", "create", "a", "--columns", "id BIGINT, tags ARRAY<STRING>, at TIMESTAMP(6)")
	c.ok(`{"id":1,"tags":["x",null],"at":"2024-02-29T01:02:03Z"}`+"\n"+`{"id":2}`, "put", "a")
	files, err := filepath.Glob(filepath.Join(c.dir, "default.db/a/bucket-0/*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	c.ok("", "create", "b", "--parquet", files[0])
	for range 2 {
		c.ok("", "put", "b", "--file", files[0], "--job", "load")
	}
	if a, b := c.ok("", "scan", "a"), c.ok("", "scan", "b"); a != b || strings.Count(b, "\n") != 2 {
		t.Errorf("%s, want %s", b, a)
	}
	c.fails("", []string{"put", "b", "--format", "parquet"}, "parquet cannot be read from standard input", "--file")
	c.fails("", []string{"create", "c", "--parquet", files[0] + "x"}, "--parquet:")
}

// TestCreateFromAvro makes a table of an Avro schema.
func TestCreateFromAvro(t *testing.T) {
	c := newCLI(t)
	path := filepath.Join(t.TempDir(), "e.avsc")
	text := `{"type":"record","name":"E","fields":[{"name":"after","type":["null",{"type":"record","name":"V","fields":[{"name":"id","type":"long"},{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}}]}]}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.ok("", "create", "t", "--avro", path, "--avro-field", "after", "--primary-key", "id")
	c.ok(`{"id":1,"at":"2024-02-29T00:00:00Z"}`, "put", "t")
	if got := c.ok("", "scan", "t"); !strings.Contains(got, `{"id":1,"at":"2024-02-29T00:00:00.000000Z"}`) {
		t.Error(got)
	}
	c.fails("", []string{"create", "u", "--avro", path, "--avro-field", "before"}, `no record "before"`)
	c.fails("", []string{"create", "u", "--avro", path + "x"}, "--avro:")
}
