package main

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"strings"
	"text/template"
)

// pageText is the page around the table.
//
//go:embed readme.md.tmpl
var pageText string

// pageData is what the page is filled with.
type pageData struct {
	Facts          facts
	Kit            *kit
	Results, Table string
}

// CPU, Cores, Go, FS, Commit and Date are the facts the page tells.
func (p pageData) CPU() string    { return p.Facts.cpu }
func (p pageData) Cores() int     { return p.Facts.cores }
func (p pageData) Go() string     { return p.Facts.goVersion }
func (p pageData) FS() string     { return p.Facts.fs }
func (p pageData) Commit() string { return p.Facts.commit }
func (p pageData) Date() string   { return p.Facts.date }
func (p pageData) Rounds() int    { return p.Kit.count }

// RunRows and KafkaRecords are the sizes the page tells.
func (p pageData) RunRows() string      { return thousands(p.Kit.runRows) }
func (p pageData) KafkaRecords() string { return thousands(p.Kit.kafka) }

func writePage(w io.Writer, d pageData) error {
	t, err := template.New("readme").Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, d)
}

// markdown is the table: a line for each figure with its limit.
func markdown(rows []row) string {
	var b strings.Builder
	b.WriteString("| what | cores | figure (least–most) | limit | reached |\n|---|--:|---|---|--:|\n")
	for _, r := range rows {
		unit := unitText(r.unit)
		limit, ratio := r.what, ""
		if !math.IsNaN(r.limit) {
			limit, ratio = number(r.limit)+" "+unit+": "+r.what, fmt.Sprintf("%.0f %%", 100*r.ratio)
		}
		fmt.Fprintf(&b, "| %s | %s | **%s** %s (%s–%s) | %s | %s |\n", r.title, r.cores, number(r.median), unit, number(r.min), number(r.max), limit, ratio)
	}
	return b.String()
}

// unitText is a unit as people read it. Times are medians of single operations, unless the title says otherwise.
func unitText(unit string) string {
	switch unit {
	case "Mrows/s":
		return "M rows/s"
	case "Mrows/cpu-s":
		return "M rows/CPU s"
	case "p50-ms", "p99-ms", "over-ms", "commit-p50-ms":
		return "ms"
	}
	return unit
}
