package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/go-analyze/charts"
)

// picture shows how much of its limit each figure reaches: a bar for each line of the table that has a limit.
func picture(rows []row) ([]byte, error) {
	var names []string
	var values []float64
	for i := len(rows) - 1; i >= 0; i-- { // the first line stands on top
		if r := rows[i]; !math.IsNaN(r.ratio) && r.unit != "over-ms" {
			names = append(names, shortTitle(r))
			values = append(values, math.Round(100*r.ratio))
		}
	}
	opt := charts.NewBarChartOptionWithData([][]float64{values})
	opt.Horizontal = true
	opt.Title.Text = "Share of the limit that is reached, in percent"
	opt.CategoryAxis.Labels = names
	opt.CategoryAxis.LabelCount = len(names)
	opt.SeriesList[0].Label.Show = charts.Ptr(true)
	opt.SeriesList[0].Label.ValueFormatter = func(v float64) string { return fmt.Sprintf("%.0f", v) }
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: 1100, Height: 80 + 24*len(names)})
	if err := p.BarChart(opt); err != nil {
		return nil, fmt.Errorf("picture: %w", err)
	}
	return p.Bytes()
}

// shortTitle ends with some room, because the fonts of most readers are wider than the one with which the library
// measures: labels must end before the bars.
func shortTitle(r row) string {
	title := r.title
	if r.cores != "all" {
		title += ", cores: " + r.cores
	}
	return title + strings.Repeat("\u00a0", 2+len(title)/5)
}
