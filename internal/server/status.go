package server

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/calve-io/calve/engine"
)

// Status is the answer of GET /status.
type Status struct {
	Version   string        `json:"version"`
	Warehouse string        `json:"warehouse"`
	Uptime    string        `json:"uptime"`
	States    map[State]int `json:"states"` // how many pipelines are in which
	// Problems are what keeps everything from running, or topics, or tables that records choose, from being found.
	Problems  []string         `json:"problems,omitempty"`
	Found     int              `json:"found"` // pipelines that a request asked for; Pipelines may be the first of them
	Pipelines []PipelineStatus `json:"pipelines"`
}

// PipelineStatus tells about one pipeline since the process started.
type PipelineStatus struct {
	Name             string    `json:"name"`
	Table            string    `json:"table"`
	Location         string    `json:"location"`
	State            State     `json:"state"`
	Owner            string    `json:"owner,omitempty"` // the process that owns the table, where processes share them
	Error            string    `json:"error,omitempty"`
	LastError        string    `json:"lastError,omitempty"` // also if it is over
	LastErrorAt      time.Time `json:"lastErrorAt,omitzero"`
	Since            time.Time `json:"since"`
	Restarts         int64     `json:"restarts"`
	Records          int64     `json:"records"`
	Rows             int64     `json:"rows"`
	Rejected         int64     `json:"rejected"`
	Bytes            int64     `json:"bytes"`
	Lag              int64     `json:"lag"`      // records in the log not read yet; -1: unknown
	LagBytes         int64     `json:"lagBytes"` // about their size, if they are like those that were read; -1: unknown
	Commits          int64     `json:"commits"`
	Snapshot         int64     `json:"snapshot"`
	LastCommit       time.Time `json:"lastCommit,omitzero"`
	Epoch            int64     `json:"epoch"`
	FilesPerLevel    []int64   `json:"filesPerLevel"`
	BytesPerLevel    []int64   `json:"bytesPerLevel"`
	BufferedRows     int64     `json:"bufferedRows"`
	Compactions      int64     `json:"compactions"`
	CompactionFailed int64     `json:"compactionsFailed"`
	Conflicts        int64     `json:"conflicts"`
	CommitRaces      int64     `json:"commitRaces"`
	CompactionDebt   int64     `json:"compactionDebtBytes"` // what compactions that are asked for, or run, read
	SortedRuns       int       `json:"sortedRuns"`          // most of a bucket
	Stalled          bool      `json:"stalled"`             // writing waits for compaction
	StallSeconds     float64   `json:"stallSeconds"`        // it has waited so far
	// WriteAmplification is bytes written for each byte flushed; SpaceAmplification all bytes for each of the highest
	// level. 0: not known yet.
	WriteAmplification float64 `json:"writeAmplification"`
	SpaceAmplification float64 `json:"spaceAmplification"`
	IcebergSnapshot    int64   `json:"icebergSnapshot"`
	IcebergRows        int64   `json:"icebergRows"`
	IcebergFiles       int     `json:"icebergFiles"`
	ExportError        string  `json:"exportError,omitempty"`
	metrics            engine.Metrics
}

func (p *pipeline) status() PipelineStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.totals
	st := PipelineStatus{
		Name: p.cfg.Name, Table: p.cfg.Table, Location: p.store.URL(""), State: p.state, Owner: p.owner, Since: p.since, Restarts: p.restarts,
		Records: t.Records, Rows: t.Rows, Rejected: t.Rejected, Bytes: t.Bytes, Lag: t.Lag, Commits: t.Commits,
		Snapshot: t.LastSnapshot, LastCommit: t.LastCommit, FilesPerLevel: []int64{}, BytesPerLevel: []int64{},
		IcebergSnapshot: p.export.IcebergSnapshot, IcebergRows: p.export.Rows, IcebergFiles: p.export.Files, metrics: t.Before,
	}
	st.LagBytes = -1
	if t.Lag == 0 {
		st.LagBytes = 0
	} else if t.Lag > 0 && t.Records > 0 {
		st.LagBytes = int64(float64(t.Lag) * float64(t.Bytes) / float64(t.Records))
	}
	if p.lastErr != nil {
		st.LastError, st.LastErrorAt = p.lastErr.Error(), p.lastErrAt
	}
	switch {
	case p.err != nil:
		st.Error = p.err.Error()
	case p.retrying != nil:
		st.Error = p.retrying.Error()
	}
	if p.exportErr != nil {
		st.ExportError = p.exportErr.Error()
	}
	if p.table != nil {
		m := p.table.Metrics()
		st.Epoch, st.FilesPerLevel, st.BytesPerLevel, st.BufferedRows = p.table.Epoch(), m.Files, m.Bytes, m.BufferedRows
		st.Snapshot = max(st.Snapshot, m.Snapshot)
		st.metrics = t.Before.Plus(m)
	}
	st.Compactions, st.CompactionFailed = st.metrics.Compactions, st.metrics.CompactFailed
	st.Conflicts, st.CommitRaces = st.metrics.Conflicts, st.metrics.Races
	st.CompactionDebt, st.SortedRuns, st.Stalled = st.metrics.CompactionDebt, st.metrics.Runs, st.metrics.Stalled
	st.StallSeconds = st.metrics.StallTime.Seconds()
	st.WriteAmplification, st.SpaceAmplification = st.metrics.WriteAmplification(), st.metrics.SpaceAmplification()
	return st
}

// Status tells what all pipelines do.
func (s *Server) Status() Status {
	st := Status{Version: s.opts.Version, Warehouse: s.warehouse.URL(""), Uptime: s.env.Now().Sub(s.started).Round(time.Second).String()}
	st.States = map[State]int{}
	all := s.all()
	st.Pipelines = make([]PipelineStatus, 0, len(all))
	for _, p := range all {
		st.Pipelines = append(st.Pipelines, p.status())
		st.States[st.Pipelines[len(st.Pipelines)-1].State]++
	}
	st.Found = len(st.Pipelines)
	if away := s.problemOfWarehouse(); away != "" {
		st.Problems = append(st.Problems, away)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.families {
		if f.err != nil {
			st.Problems = append(st.Problems, fmt.Sprintf("pipeline %s cannot look for topics: %v", f.cfg.Name, f.err))
		}
	}
	for _, rt := range s.routed {
		err := rt.err
		if err == nil && rt.route != nil {
			err = rt.route.Err()
		}
		if err != nil {
			st.Problems = append(st.Problems, fmt.Sprintf("pipeline %s cannot find tables for the records of topic %s: %v", rt.cfg.Name, rt.cfg.Kafka.Topic, err))
		}
	}
	return st
}

// statusJSON answers GET /status; the parameters are those of viewOf. The status is 503 while the warehouse does not answer.
func (s *Server) statusJSON(w http.ResponseWriter, r *http.Request) {
	v, err := viewOf(r.URL.Query(), view{})
	if err != nil {
		refuse(w, problem{Status: http.StatusBadRequest, What: err.Error(), Where: r.URL.Path, Do: "parameters: name, state, sort, limit"})
		return
	}
	st := s.Status()
	st.Pipelines, st.Found = v.pick(st.Pipelines)
	w.Header().Set("Content-Type", "application/json")
	if s.problemOfWarehouse() != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(st) // the client is gone
}

// health answers 200 while the warehouse is there and every pipeline runs or starts, else 503.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if away := s.problemOfWarehouse(); away != "" {
		http.Error(w, away, http.StatusServiceUnavailable)
		return
	}
	for _, p := range s.all() {
		if st := p.status(); st.needsHelp() {
			http.Error(w, "pipeline "+st.Name+" is "+string(st.State)+": "+st.Error, http.StatusServiceUnavailable)
			return
		}
	}
	_, _ = w.Write([]byte("ok\n"))
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	v, err := viewOf(r.URL.Query(), view{Worst: true, Limit: pageLimit})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := struct {
		Status
		Now   time.Time
		Bad   int
		Total int
		View  view
	}{Status: s.Status(), Now: s.env.Now(), View: v}
	page.Total = len(page.Pipelines)
	for i := range page.Pipelines {
		if page.Pipelines[i].needsHelp() {
			page.Bad++
		}
	}
	page.Pipelines, page.Found = v.pick(page.Pipelines)
	_ = pageTemplate.Execute(w, page) // the client is gone
}

// pageTemplate shows the same figures to people. It needs no script and nothing from elsewhere.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"num":  func(n any) string { return thousands(fmt.Sprint(n)) },
	"size": func(n int64) string { return thousands(fmt.Sprint((n+1<<20-1)>>20)) + " MiB" },
	"seconds": func(s float64) string {
		return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
	},
	"factor": func(f float64) string {
		if f == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", f)
	},
	"ago": func(at time.Time, now time.Time) string {
		if at.IsZero() {
			return "–"
		}
		return max(0, now.Sub(at).Truncate(time.Second)).String() + " ago"
	},
}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>calve{{if .Bad}} · {{.Bad}} of {{.Total}} need help{{end}}</title><meta http-equiv="refresh" content="{{if gt .Total 50}}10{{else}}2{{end}}">
<meta name="viewport" content="width=device-width"><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#123;background:#f7fafc}h1{margin:0}
table{border-collapse:collapse;background:#fff}th,td{padding:.4rem .8rem;border:1px solid #d5e0ea;text-align:right;white-space:nowrap;vertical-align:top}
th{background:#e8f0f7;vertical-align:bottom}td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}td:nth-child(2){white-space:normal;min-width:14rem}
b{font-weight:600}small{color:#567;overflow-wrap:anywhere}.running b{color:#0a7d32}.waiting b,.starting b{color:#b36b00}.elsewhere b{color:#567}.failed b,.paused b{color:#c00}
</style></head><body>
<h1>calve</h1><p><small>version {{.Version}} · {{.Warehouse}} · up {{.Uptime}} · <a href="status">status as JSON</a> · <a href="metrics">metrics</a> · <a href="iceberg/v1/config">Iceberg catalog</a></small></p>
{{range .Problems}}<p class="failed"><b>{{.}}</b></p>
{{end}}{{if .Total}}<form><p><small>{{range $s, $n := .States}}<a href="?state={{$s}}">{{num $n}} {{$s}}</a> · {{end}}<input name="name" value="{{.View.Name}}" placeholder="name or table"><input type="hidden" name="state" value="{{.View.States}}"> {{if lt (len .Pipelines) .Found}}the {{len .Pipelines}} that need help most of {{num .Found}} · <a href="?limit=0&amp;name={{.View.Name}}&amp;state={{.View.States}}">all</a>{{end}}</small></p></form>
<table><tr><th>pipeline<br>table</th><th>state</th><th>rows</th><th>refused</th><th>lag<br>records</th><th>snapshot</th><th>last<br>commit</th><th>files on<br>levels 0 / 1 / 2</th><th>compactions</th><th>to<br>compact</th><th>waited for<br>compaction</th><th>amplification<br>write / space</th><th>Iceberg<br>snapshot</th><th>Iceberg<br>rows</th></tr>
{{$now := .Now}}{{range .Pipelines}}<tr><td>{{.Name}}<br><small>{{.Table}}</small></td><td class="{{.State}}"><b>{{.State}}</b>{{if .Restarts}} <small>restarted {{num .Restarts}}×</small>{{end}}{{if .Error}}<br><small>{{.Error}}</small>{{end}}{{if .ExportError}}<br><small>export: {{.ExportError}}</small>{{end}}</td><td>{{num .Rows}}</td><td>{{num .Rejected}}</td><td>{{if lt .Lag 0}}?{{else}}{{num .Lag}}{{end}}</td><td>{{num .Snapshot}}</td><td>{{ago .LastCommit $now}}</td><td>{{range $i, $n := .FilesPerLevel}}{{if $i}} / {{end}}{{num $n}}{{else}}–{{end}}</td><td>{{num .Compactions}}</td><td>{{size .CompactionDebt}}</td><td>{{if .Stalled}}<b>waits</b>, {{end}}{{seconds .StallSeconds}}</td><td>{{factor .WriteAmplification}} / {{factor .SpaceAmplification}}</td><td>{{num .IcebergSnapshot}}</td><td>{{num .IcebergRows}}</td></tr>
{{end}}</table>
<p><small>Refused records are in the table TABLE__dead: <code>calve dead ls TABLE</code>. Iceberg shows the compacted rows; everything is in the Paimon table.</small></p>
{{else}}<p>There are no pipelines: the Iceberg catalog serves the tables of the warehouse.</p>{{end}}</body></html>
`))

// thousands sets commas into a whole number.
func thousands(digits string) string {
	head := len(digits) % 3
	if head == 1 && digits[0] == '-' {
		head = 4
	}
	var b strings.Builder
	b.WriteString(digits[:min(head, len(digits))])
	for i := head; i < len(digits); i += 3 {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(digits[i : i+3])
	}
	return b.String()
}
