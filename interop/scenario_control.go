//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func init() { RegisterScenario(Scenario{Name: "control", Run: judgeControl}) }

// judgeControl lets the Iceberg readers read tables that PyIceberg wrote, through a REST catalog of the suite's own.
// When it fails, the fault is with the suite or the machine; when only the cases fail, it is calve's.
func judgeControl(ctx context.Context, l *Lab, report *Report) {
	s, stop, err := controlSubject(ctx, l)
	if err == nil {
		defer stop()
	}
	for _, j := range judges {
		reader, ok := j.Judge.(IcebergReader)
		if !ok {
			continue
		}
		report.Check("control", j.Name(), func() error {
			if err != nil {
				return err
			}
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			return checkIceberg(ctx, reader, s)
		})
	}
}

func controlSubject(ctx context.Context, l *Lab) (s *Subject, stop func(), err error) {
	maker := &pyIceberg{}
	if maker.Worker, err = l.Python(ctx, "pyiceberg", "pyiceberg_reader.py", nil); err != nil {
		return nil, nil, err
	}
	remote, err := l.Remote(ctx)
	if err != nil {
		return nil, nil, err
	}
	local := l.Local()
	local.Dir, remote.Dir = filepath.Join(l.Data, "control"), filepath.Join(remote.S3.Dir, "control")
	s = &Subject{Case: &Case{Name: "control", Columns: exportedTypes}, lab: l, Namespace: namespace, Table: namespace + ".control"}
	model, err := NewModel(s.Columns, nil)
	if err == nil {
		err = model.Apply(puts(exportedRows()))
	}
	if err != nil {
		return nil, nil, err
	}
	for _, p := range []*Place{local, remote} {
		played := &Played{Place: p}
		if played.Final, err = model.Rows(); err != nil {
			return nil, nil, err
		}
		if err := makeControl(ctx, maker, p, s); err != nil {
			return nil, nil, fmt.Errorf("make the control table on %s: %w", p.Name, err)
		}
		id, err := p.icebergSnapshot(s.Table)
		if err != nil {
			return nil, nil, err
		}
		played.Exports = []Export{{id, played.Final}}
		if p.S3 == nil {
			s.Local = played
		} else {
			s.Remote = played
		}
	}
	stop, err = serveControl(local, remote, s)
	return s, stop, err
}

// makeControl lets PyIceberg write the table and gives its metadata the name that a directory catalog needs.
func makeControl(ctx context.Context, maker *pyIceberg, p *Place, s *Subject) error {
	in := filepath.Join(p.lab.Scratch, "control.jsonl")
	rows := exportedRows()
	if err := writeChanges(in, puts(rows)); err != nil {
		return err
	}
	kinds := profileColumns(&Rows{Columns: s.Columns, Kinds: s.kinds()})
	location := "file://" + p.folder(s.Table)
	request := map[string]any{"in": in, "columns": kinds, "database": filepath.Join(p.lab.Scratch, "control-"+p.Name+".db")}
	if p.S3 != nil {
		location = "s3://" + p.S3.Bucket + "/control/" + namespace + ".db/control"
		request["s3"] = p.S3.Request()
	} else if err := os.MkdirAll(p.folder(s.Table), 0o755); err != nil {
		return err
	}
	request["location"] = location
	var answer struct{ Metadata string }
	if err := maker.Ask(ctx, "make", request, &answer); err != nil {
		return err
	}
	dir := filepath.Join(p.folder(s.Table), "metadata")
	text, err := os.ReadFile(filepath.Join(dir, filepath.Base(answer.Metadata)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "v1.metadata.json"), text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "version-hint.text"), []byte("1"), 0o644)
}

func (c *Case) kinds() []Kind {
	kinds := make([]Kind, len(c.Columns))
	for i, col := range c.Columns {
		kinds[i], _ = ParseKind(col.Type) // the model has parsed them
	}
	return kinds
}

// serveControl serves both places' table by the read side of the REST catalog protocol.
func serveControl(local, remote *Place, s *Subject) (stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	base := "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	for _, p := range []*Place{local, remote} {
		location := "file://" + p.folder(s.Table)
		if p.S3 != nil {
			location = "s3://" + p.S3.Bucket + "/control/" + namespace + ".db/control"
		}
		p.catalog = base + "/" + p.Name
		file := filepath.Join(p.folder(s.Table), "metadata", "v1.metadata.json")
		mux.Handle("/"+p.Name+"/", http.StripPrefix("/"+p.Name, controlCatalog(location, file)))
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with Close
	return func() { _ = server.Close() }, nil
}

func controlCatalog(location, file string) http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, make func() any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(make()) // the client is gone when this fails
		})
	}
	answer("GET /v1/config", func() any { return map[string]any{"defaults": map[string]string{}, "overrides": map[string]string{}} })
	answer("GET /v1/namespaces", func() any { return map[string]any{"namespaces": [][]string{{namespace}}} })
	answer("GET /v1/namespaces/"+namespace, func() any {
		return map[string]any{"namespace": []string{namespace}, "properties": map[string]string{}}
	})
	answer("GET /v1/namespaces/"+namespace+"/tables", func() any {
		return map[string]any{"identifiers": []any{map[string]any{"namespace": []string{namespace}, "name": "control"}}}
	})
	answer("GET /v1/namespaces/"+namespace+"/tables/control", func() any {
		text, err := os.ReadFile(file)
		if err != nil {
			return map[string]any{"error": map[string]any{"message": err.Error(), "type": "ServiceFailure", "code": 500}}
		}
		return map[string]any{"metadata-location": strings.TrimSuffix(location, "/") + "/metadata/v1.metadata.json",
			"metadata": json.RawMessage(text), "config": map[string]string{}}
	})
	return mux
}
