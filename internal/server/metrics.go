package server

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// collector reads the figures of all pipelines when Prometheus asks.
type collector struct {
	s     *Server
	descs []metric
	files *prometheus.Desc
	bytes *prometheus.Desc
	here  *prometheus.Desc
}

type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*PipelineStatus) float64
}

func newCollector(s *Server) *collector {
	labels := []string{"pipeline", "table"}
	c := &collector{s: s,
		files: prometheus.NewDesc("calve_files", "Live data files.", append(labels, "level"), nil),
		bytes: prometheus.NewDesc("calve_file_bytes", "Size of live data files.", append(labels, "level"), nil),
		here:  prometheus.NewDesc("calve_warehouse_up", "0 from the start until the warehouse has answered: nothing runs before.", nil, nil),
	}
	add := func(name, help string, kind prometheus.ValueType, get func(*PipelineStatus) float64) {
		c.descs = append(c.descs, metric{prometheus.NewDesc("calve_"+name, help, labels, nil), kind, get})
	}
	count, gauge := prometheus.CounterValue, prometheus.GaugeValue
	add("up", "1 while the pipeline runs.", gauge, func(p *PipelineStatus) float64 { return b2f(p.State == Running) })
	add("paused", "1 while the pipeline is paused because it refuses too many records.", gauge, func(p *PipelineStatus) float64 { return b2f(p.State == Paused) })
	add("restarts_total", "Restarts after a failure.", count, func(p *PipelineStatus) float64 { return float64(p.Restarts) })
	add("records_total", "Records read and committed.", count, func(p *PipelineStatus) float64 { return float64(p.Records) })
	add("rows_total", "Rows committed.", count, func(p *PipelineStatus) float64 { return float64(p.Rows) })
	add("rejected_total", "Records that went to the dead letters.", count, func(p *PipelineStatus) float64 { return float64(p.Rejected) })
	add("bytes_total", "Bytes of records read.", count, func(p *PipelineStatus) float64 { return float64(p.Bytes) })
	add("lag_records", "Records in the log that are not read yet; -1 unknown.", gauge, func(p *PipelineStatus) float64 { return float64(p.Lag) })
	add("lag_bytes", "About the size of records in the log that are not read yet; -1 unknown.", gauge, func(p *PipelineStatus) float64 { return float64(p.LagBytes) })
	add("waits_for_person", "1 while the pipeline failed and waits to be resumed.", gauge, func(p *PipelineStatus) float64 { return b2f(p.State == Failed) })
	add("last_error_timestamp_seconds", "Time of the last error; 0 before the first.", gauge, func(p *PipelineStatus) float64 {
		if p.LastErrorAt.IsZero() {
			return 0
		}
		return float64(p.LastErrorAt.UnixMilli()) / 1000
	})
	add("last_commit_age_seconds", "Time since the last commit; 0 before the first. A table without new records has none.", gauge, func(p *PipelineStatus) float64 {
		if p.LastCommit.IsZero() {
			return 0
		}
		return max(0, c.s.env.Now().Sub(p.LastCommit).Seconds())
	})
	add("commits_total", "Snapshots with rows or progress.", count, func(p *PipelineStatus) float64 { return float64(p.Commits) })
	add("commit_seconds", "Duration of the last commit.", gauge, func(p *PipelineStatus) float64 { return p.metrics.LastCommit.Seconds() })
	add("last_commit_timestamp_seconds", "Time of the last commit.", gauge, func(p *PipelineStatus) float64 {
		if p.LastCommit.IsZero() {
			return 0
		}
		return float64(p.LastCommit.UnixMilli()) / 1000
	})
	add("snapshot", "Newest snapshot.", gauge, func(p *PipelineStatus) float64 { return float64(p.Snapshot) })
	add("epoch", "Epoch of the job.", gauge, func(p *PipelineStatus) float64 { return float64(p.Epoch) })
	add("buffered_rows", "Rows written and not flushed yet.", gauge, func(p *PipelineStatus) float64 { return float64(p.BufferedRows) })
	add("conflicts_total", "Compactions dropped because another writer had taken their files, and picked anew.", count, func(p *PipelineStatus) float64 { return float64(p.Conflicts) })
	add("commit_races_total", "Times another writer published first and a commit was tried again on top of it.", count, func(p *PipelineStatus) float64 { return float64(p.CommitRaces) })
	add("compactions_total", "Compactions installed.", count, func(p *PipelineStatus) float64 { return float64(p.metrics.Compactions) })
	add("compactions_failed_total", "Compactions that failed and were or will be tried again.", count, func(p *PipelineStatus) float64 { return float64(p.metrics.CompactFailed) })
	add("compaction_read_bytes_total", "Bytes read by compactions.", count, func(p *PipelineStatus) float64 { return float64(p.metrics.CompactBytesIn) })
	add("compaction_written_bytes_total", "Bytes written by compactions.", count, func(p *PipelineStatus) float64 { return float64(p.metrics.CompactBytesOut) })
	add("compaction_queue", "Compactions that wait for a worker.", gauge, func(p *PipelineStatus) float64 { return float64(p.metrics.CompactionQueue) })
	add("compaction_debt_bytes", "Bytes that compactions which are asked for, or run, read.", gauge, func(p *PipelineStatus) float64 { return float64(p.CompactionDebt) })
	add("write_amplification", "Bytes written by flushes and compactions for each byte of the flushes.", gauge, func(p *PipelineStatus) float64 { return p.WriteAmplification })
	add("space_amplification", "Bytes of all live files for each byte of the highest level; 0 while that is empty.", gauge, func(p *PipelineStatus) float64 { return p.SpaceAmplification })
	add("sorted_runs", "Most sorted runs of a bucket.", gauge, func(p *PipelineStatus) float64 { return float64(p.SortedRuns) })
	add("top_age_seconds", "Age of the oldest rows that are not on the highest level.", gauge, func(p *PipelineStatus) float64 { return p.metrics.TopAge.Seconds() })
	add("stalled", "1 while writing waits for compaction.", gauge, func(p *PipelineStatus) float64 { return b2f(p.Stalled) })
	add("stall_seconds_total", "Time that writing has waited for compaction.", count, func(p *PipelineStatus) float64 { return p.StallSeconds })
	add("flushed_bytes_total", "Bytes of files that rows were flushed to.", count, func(p *PipelineStatus) float64 { return float64(p.metrics.FlushedBytes) })
	add("iceberg_snapshot", "Current Iceberg snapshot.", gauge, func(p *PipelineStatus) float64 { return float64(p.IcebergSnapshot) })
	add("iceberg_rows", "Rows of the Iceberg table.", gauge, func(p *PipelineStatus) float64 { return float64(p.IcebergRows) })
	add("export_failing", "1 while the last export failed.", gauge, func(p *PipelineStatus) float64 { return b2f(p.ExportError != "") })
	return c
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe is for Prometheus.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.descs {
		ch <- m.desc
	}
	ch <- c.files
	ch <- c.bytes
	ch <- c.here
}

// Collect is for Prometheus.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.here, prometheus.GaugeValue, b2f(c.s.problemOfWarehouse() == ""))
	for _, p := range c.s.all() {
		st := p.status()
		for _, m := range c.descs {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.get(&st), st.Name, st.Table)
		}
		for l := range st.FilesPerLevel {
			ch <- prometheus.MustNewConstMetric(c.files, prometheus.GaugeValue, float64(st.FilesPerLevel[l]), st.Name, st.Table, strconv.Itoa(l))
			ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(st.BytesPerLevel[l]), st.Name, st.Table, strconv.Itoa(l))
		}
	}
}

func (s *Server) metricsHandler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(s), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}
