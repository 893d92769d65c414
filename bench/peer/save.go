package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-analyze/charts"
)

// save writes the page, its picture and the lines of all rounds.
func (r *report) save(dir string) error {
	picture, err := r.picture()
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	beside, err := besideFlink(dir)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		filepath.Join("results", r.date+"-"+r.commit+"-peers.txt"): []byte(r.lines() + r.line() + "\n"),
		"PEERS.md":  []byte(r.page() + "\n    " + r.line() + "\n" + beside),
		"peers.svg": picture,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// saveLines writes the lines of -ingest or -follow to a file of results, and those of the page that tell of them anew.
func saveLines(ctx context.Context, dir, kind, text string) error {
	name := time.Now().UTC().Format(time.DateOnly) + "-" + commit(ctx) + "-" + kind + ".txt"
	if err := os.WriteFile(filepath.Join(dir, "results", name), []byte(text), 0o644); err != nil {
		return err
	}
	page := filepath.Join(dir, "PEERS.md")
	old, err := os.ReadFile(page)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	beside, err := besideFlink(dir)
	if err != nil {
		return err
	}
	head, _, _ := strings.Cut(string(old), flinkTitle)
	return os.WriteFile(page, []byte(head+beside), 0o644)
}

// flinkTitle begins the last section of the page.
const flinkTitle = "\n## Beside Flink\n"

// besideFlink is that section: the last lines of the newest results of each kind.
func besideFlink(dir string) (text string, err error) {
	for _, kind := range []struct{ name, about string }{
		{"ingest", "JSON messages of about 200 bytes from a real broker into a primary-key table of two buckets, compaction on: processes of their own,\n" +
			"measured from start to end, Flink 1.20.3 with Paimon 1.3.1 and commits every 10 s, calve every second. Kafka Connect 4.1.1 with the sink of\n" +
			"Iceberg 1.10.1 only appends the messages, every 10 s, in one round. Then from just before a message is produced to a tail in another process."},
		{"follow", "From just before a row is written to a tail of calve, and to Flink's streaming read of the same table."},
	} {
		files, err := filepath.Glob(filepath.Join(dir, "results", "*-"+kind.name+".txt"))
		if err != nil {
			return "", err
		}
		if len(files) == 0 {
			continue
		}
		data, err := os.ReadFile(files[len(files)-1])
		if err != nil {
			return "", err
		}
		if text == "" {
			text = flinkTitle
		}
		text += "\n" + kind.about + "\n\n"
		for line := range strings.Lines(string(data)) {
			if !strings.Contains(line, " round=") {
				text += "    " + line
			}
		}
	}
	return text, nil
}

// picture shows the ratios to Paimon Java per processor second: a group of bars for each data set.
func (r *report) picture() ([]byte, error) {
	values := make([][]float64, len(phases))
	var names []string
	for _, m := range r.sets {
		names = append(names, m.job.set.Name)
		for i, p := range phases {
			values[i] = append(values[i], m.vsPaimon(p, cpu).median)
		}
	}
	opt := charts.NewBarChartOptionWithData(values)
	opt.Title.Text = "Times as many rows per processor second as Paimon Java"
	opt.CategoryAxis.Labels = names
	opt.CategoryAxis.LabelCount = len(names)
	opt.CategoryAxis.LabelFontStyle.FontSize = 10
	opt.Legend.SeriesNames = phases
	opt.Legend.Offset = charts.OffsetStr{Left: charts.PositionRight, Top: "24"}
	for i := range opt.SeriesList {
		opt.SeriesList[i].Label.Show = charts.Ptr(true)
		opt.SeriesList[i].Label.ValueFormatter = func(v float64) string { return fmt.Sprintf("%.1f", v) }
	}
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: 200 + 130*len(names), Height: 420})
	if err := p.BarChart(opt); err != nil {
		return nil, err
	}
	return p.Bytes()
}
