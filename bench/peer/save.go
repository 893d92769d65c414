package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-analyze/charts"
)

// save writes the page, its picture and the lines of all rounds.
func (r *report) save(dir string) error {
	picture, err := r.picture()
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	for name, data := range map[string][]byte{
		filepath.Join("results", r.date+"-"+r.commit+"-peers.txt"): []byte(r.lines() + r.line() + "\n"),
		"PEERS.md":  []byte(r.page() + "\n    " + r.line() + "\n"),
		"peers.svg": picture,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
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
