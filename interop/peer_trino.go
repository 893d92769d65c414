//go:build interop

package interop

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

func init() { RegisterJudge(&trino{}) }

// trino is a Trino server that reads by calve's REST catalog, with the files on S3.
type trino struct {
	lab      *Lab
	address  string // http://host:port
	mu       sync.Mutex
	catalogs map[string]string // REST URI → Trino's catalog
}

func (*trino) Name() string           { return "trino" }
func (*trino) Applies(c *Case) string { return c.Refusal }
func (*trino) Routes() []Route        { return []Route{RESTS3} }

func (t *trino) Check(ctx context.Context, s *Subject) error { return checkIceberg(ctx, t, s) }

func (t *trino) Start(ctx context.Context, l *Lab) error {
	home, err := Java24(ctx)
	if err != nil {
		return err
	}
	server, err := l.Cache.Archive(ctx, "trino", "io.trino:trino-server:476", func(path string) bool {
		plugin, ok := strings.CutPrefix(path, "plugin/")
		return !ok || plugin == "iceberg" || strings.HasPrefix(plugin, "iceberg/")
	})
	if err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	etc, err := l.trinoConfig(port)
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(server, "bin", "launcher"), "run", "--etc-dir", etc)
	cmd.Env = append(os.Environ(), "JAVA_HOME="+home, "PATH="+filepath.Join(home, "bin")+":"+os.Getenv("PATH"))
	p, err := l.Start("trino", cmd)
	if err != nil {
		return err
	}
	t.lab, t.address, t.catalogs = l, fmt.Sprintf("http://127.0.0.1:%d", port), map[string]string{}
	return p.WaitReady(ctx, 5*time.Minute, func(ctx context.Context) error {
		started := func(body string) bool { return strings.Contains(body, `"starting":false`) }
		if err := probeHTTP(t.address+"/v1/info", started)(ctx); err != nil {
			return err
		}
		_, err := t.query(ctx, "SELECT count(*) FROM system.runtime.nodes WHERE state = 'active'")
		return err
	})
}

func (l *Lab) trinoConfig(port int) (string, error) {
	etc := filepath.Join(l.Data, "trino", "etc")
	files := map[string]string{
		"node.properties": "node.environment=interop\nnode.id=calve\nnode.data-dir=" + filepath.Join(l.Data, "trino", "data") + "\n",
		"config.properties": fmt.Sprintf("coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port=%d\n"+
			"node.internal-address=127.0.0.1\ndiscovery.uri=http://127.0.0.1:%[1]d\ncatalog.management=dynamic\n"+
			"catalog.store=memory\nquery.max-memory=512MB\nquery.max-memory-per-node=512MB\n", port),
		"jvm.config":     "-Xmx1500m\n-XX:+ExitOnOutOfMemoryError\n-Djdk.attach.allowAttachSelf=true\n",
		"log.properties": "io.trino=WARN\n",
	}
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return "", err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return etc, nil
}

// catalog makes a Trino catalog of a REST catalog when it is first asked for.
func (t *trino) catalog(ctx context.Context, table IcebergTable) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name, ok := t.catalogs[table.Catalog]; ok {
		return name, nil
	}
	name := fmt.Sprintf("c%d", len(t.catalogs))
	s := table.S3
	_, err := t.query(ctx, fmt.Sprintf(`CREATE CATALOG %s USING iceberg WITH ("iceberg.catalog.type" = 'rest',
		"iceberg.rest-catalog.uri" = '%s', "fs.native-s3.enabled" = 'true', "s3.endpoint" = '%s', "s3.region" = '%s',
		"s3.aws-access-key" = '%s', "s3.aws-secret-key" = '%s', "s3.path-style-access" = 'true')`,
		name, table.Catalog, s.Endpoint, s.Region, s.Access, s.Secret))
	if err != nil {
		return "", err
	}
	t.catalogs[table.Catalog] = name
	return name, nil
}

// from gives a table's place in a FROM clause.
func (t *trino) from(ctx context.Context, table IcebergTable, snapshot int64) (string, error) {
	catalog, err := t.catalog(ctx, table)
	if err != nil {
		return "", err
	}
	at := ""
	if snapshot > 0 {
		at = fmt.Sprintf(" FOR VERSION AS OF BIGINT '%d'", snapshot)
	}
	return fmt.Sprintf("%s.%s.%s%s", catalog, quoted(table.Namespace), quoted(table.Name), at), nil
}

// Describe gives the columns.
func (t *trino) Describe(ctx context.Context, table IcebergTable) (d IcebergDescription, err error) {
	from, err := t.from(ctx, table, 0)
	if err != nil {
		return d, err
	}
	r, err := t.query(ctx, "SELECT * FROM "+from+" LIMIT 0")
	if err != nil {
		return d, err
	}
	words := map[string]string{"integer": "int", "bigint": "long", "real": "float", "varchar": "string",
		"varbinary": "binary", "timestamp(6)": "timestamp", "timestamp(6) with time zone": "timestamptz"}
	for _, c := range r.columns {
		d.Fields = append(d.Fields, struct {
			Name, Type string
			ID         int
			Required   *bool
		}{Name: c.Name, Type: icebergWords(c.Type, words)})
	}
	return d, nil
}

// Read reads the rows of a snapshot; 0 is the current one.
func (t *trino) Read(ctx context.Context, table IcebergTable, snapshot int64, columns []Column) (*Rows, error) {
	from, err := t.from(ctx, table, snapshot)
	if err != nil {
		return nil, err
	}
	r, err := t.query(ctx, "SELECT * FROM "+from)
	if err != nil {
		return nil, err
	}
	rows, err := NewRows(columns)
	if err != nil {
		return nil, err
	}
	for i := range r.rows {
		row := r.object(i)
		for c, column := range columns {
			if rows.Kinds[c].isNested() {
				if row[column.Name], err = rows.Kinds[c].fromTrino(row[column.Name]); err != nil {
					return nil, fmt.Errorf("column %s: %w", column.Name, err)
				}
			}
		}
		if err := rows.Add(row); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// fromTrino turns a value of Trino's protocol into the normal form: a ROW is a list, a MAP an object with its keys as
// texts, binaries are base64.
func (k Kind) fromTrino(v any) (any, error) {
	wrong := fmt.Errorf("a %s is a %T", k.Word, v)
	switch k.Word {
	case "ARRAY", "ROW":
		list, ok := v.([]any)
		if v == nil || !ok {
			return nil, map[bool]error{false: wrong}[v == nil]
		}
		out := make([]any, len(list))
		object := map[string]any{}
		for i := range list {
			at := 0
			if k.Word == "ROW" {
				if at = i; len(list) != len(k.Fields) {
					return nil, wrong
				}
			}
			var err error
			if out[i], err = k.Fields[at].fromTrino(list[i]); err != nil {
				return nil, err
			}
			object[k.Fields[at].Name] = out[i]
		}
		if k.Word == "ROW" {
			return object, nil
		}
		return out, nil
	case "MAP", "MULTISET":
		object, ok := v.(map[string]any)
		if v == nil || !ok {
			return nil, map[bool]error{false: wrong}[v == nil]
		}
		out := []any{}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			key, err := k.Fields[0].fromTrino(name)
			value := object[name]
			if err == nil && k.Word == "MAP" {
				value, err = k.Fields[1].fromTrino(value)
			}
			if err != nil {
				return nil, err
			}
			out = append(out, []any{key, value})
		}
		return out, nil
	case "BINARY", "VARBINARY", "BYTES":
		if text, ok := v.(string); ok {
			b, err := base64.StdEncoding.DecodeString(text)
			return hex.EncodeToString(b), err
		}
	}
	return v, nil
}

// Count counts the rows that have a value.
func (t *trino) Count(ctx context.Context, table IcebergTable, c Column, kind Kind, value Cell) (int64, error) {
	from, err := t.from(ctx, table, 0)
	if err != nil {
		return 0, err
	}
	r, err := t.query(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s = %s", from, quoted(c.Name), trinoLiteral(kind, value.Text)))
	if err != nil {
		return 0, err
	}
	n, ok := r.rows[0][0].(json.Number)
	if !ok {
		return 0, fmt.Errorf("count is %v", r.rows[0][0])
	}
	return n.Int64()
}

// Profile lets Trino compute count, least, greatest and sum of each column.
func (t *trino) Profile(ctx context.Context, table IcebergTable, like *Rows) (Profile, error) {
	from, err := t.from(ctx, table, 0)
	if err != nil {
		return nil, err
	}
	parts := []string{`count(*) AS "rows"`}
	for _, c := range profileColumns(like) {
		name := quoted(c.Name)
		parts = append(parts, fmt.Sprintf(`count(%s) AS %s`, name, quoted(c.Name+"#count")))
		if c.Bounds {
			parts = append(parts, fmt.Sprintf(`min(%s) AS %s`, name, quoted(c.Name+"#min")),
				fmt.Sprintf(`max(%s) AS %s`, name, quoted(c.Name+"#max")))
		}
		if c.Sum {
			parts = append(parts, fmt.Sprintf(`sum(CAST(%s AS DECIMAL(38,%d))) AS %s`, name, c.Scale, quoted(c.Name+"#sum")))
		}
	}
	r, err := t.query(ctx, "SELECT "+strings.Join(parts, ", ")+" FROM "+from)
	if err != nil {
		return nil, err
	}
	return ReadProfile(r.object(0), like)
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func trinoLiteral(kind Kind, text string) string {
	switch kind.Word {
	case "BOOLEAN":
		return text
	case "TINYINT", "SMALLINT", "INT", "BIGINT":
		return "CAST('" + text + "' AS BIGINT)"
	case "DECIMAL":
		return fmt.Sprintf("CAST('%s' AS DECIMAL(%d,%d))", text, kind.Precision, kind.Scale)
	case "BINARY", "VARBINARY", "BYTES":
		return "X'" + text + "'"
	case "DATE":
		return "DATE '" + text + "'"
	case "TIMESTAMP":
		return "TIMESTAMP '" + strings.Replace(text[:26], "T", " ", 1) + "'"
	case "TIMESTAMP_LTZ":
		return "TIMESTAMP '" + strings.Replace(text[:26], "T", " ", 1) + " UTC'"
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

type trinoColumn struct{ Name, Type string }

type trinoResult struct {
	columns []trinoColumn
	rows    [][]any
}

// object gives a row in the normal form.
func (r *trinoResult) object(i int) map[string]any {
	row := map[string]any{}
	for j, c := range r.columns {
		v := r.rows[i][j]
		if text, ok := v.(string); ok && c.Type == "varbinary" {
			if b, err := base64.StdEncoding.DecodeString(text); err == nil {
				v = hex.EncodeToString(b)
			}
		}
		row[c.Name] = v
	}
	return row
}

// query runs a statement by Trino's HTTP protocol: post it, then follow the links until there is none.
func (t *trino) query(ctx context.Context, sql string) (*trinoResult, error) {
	page, err := t.page(ctx, http.MethodPost, t.address+"/v1/statement", sql)
	result := &trinoResult{}
	for err == nil {
		if page.Error != nil {
			return nil, fmt.Errorf("trino: %s (%s): %s", page.Error.Message, page.Error.ErrorName, clip(sql))
		}
		if page.Columns != nil {
			result.columns = page.Columns
		}
		result.rows = append(result.rows, page.Data...)
		if page.NextURI == "" {
			return result, nil
		}
		page, err = t.page(ctx, http.MethodGet, page.NextURI, "")
	}
	return nil, err
}

type trinoPage struct {
	NextURI string        `json:"nextUri"`
	Columns []trinoColumn `json:"columns"`
	Data    [][]any       `json:"data"`
	Error   *struct{ Message, ErrorName string }
}

func (t *trino) page(ctx context.Context, method, url, body string) (*trinoPage, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("X-Trino-User", "calve")
		req.Header.Set("X-Trino-Time-Zone", "UTC")
		req.Header.Set("X-Trino-Client-Capabilities", "PARAMETRIC_DATETIME") // else times come in milliseconds
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		page, busy, err := readTrinoPage(resp)
		if !busy {
			return page, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func readTrinoPage(resp *http.Response) (page *trinoPage, busy bool, err error) {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return nil, resp.StatusCode == http.StatusServiceUnavailable, fmt.Errorf("trino: %s: %s", resp.Status, text)
	}
	d := json.NewDecoder(resp.Body)
	d.UseNumber()
	page = &trinoPage{}
	return page, false, d.Decode(page)
}
