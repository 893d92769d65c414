package server

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// view is which pipelines a client wants to see of many.
type view struct {
	Name   string // part of the name or table
	States string // separated by commas; "": all
	Worst  bool   // those that need help first
	Limit  int    // 0: all
}

// pageLimit is how many pipelines the page shows unless it is asked for others.
const pageLimit = 200

// viewOf reads the parameters name, state, sort (worst or config) and limit.
func viewOf(q url.Values, v view) (view, error) {
	v.Name, v.States = q.Get("name"), q.Get("state")
	switch sort := q.Get("sort"); sort {
	case "":
	case "worst", "config":
		v.Worst = sort == "worst"
	default:
		return v, fmt.Errorf("sort=%s is unknown; use worst or config", sort)
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return v, fmt.Errorf("limit=%s is no number from 0 (all)", text)
		}
		v.Limit = n
	}
	return v, nil
}

// pick gives the pipelines that are wanted, and how many there would be without the limit.
func (v view) pick(all []PipelineStatus) (out []PipelineStatus, found int) {
	states := strings.Split(v.States, ",")
	out = []PipelineStatus{}
	for _, p := range all {
		if (v.States == "" || slices.Contains(states, string(p.State))) && (strings.Contains(p.Name, v.Name) || strings.Contains(p.Table, v.Name)) {
			out = append(out, p)
		}
	}
	if v.Worst {
		slices.SortStableFunc(out, func(a, b PipelineStatus) int {
			return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.LagBytes, a.LagBytes), cmp.Compare(a.Name, b.Name))
		})
	}
	if found = len(out); v.Limit > 0 && found > v.Limit {
		out = out[:v.Limit]
	}
	return out, found
}

// rank is lower the more a pipeline needs help.
func (p *PipelineStatus) rank() int {
	switch p.State {
	case Failed:
		return 0
	case Paused:
		return 1
	case Waiting:
		return 2
	case Running:
		if p.Error != "" || p.ExportError != "" || p.Stalled {
			return 3
		}
		return 5
	case Starting:
		return 4
	}
	return 6
}

// needsHelp reports whether a pipeline stands still because of an error.
func (p *PipelineStatus) needsHelp() bool {
	return p.State == Failed || p.State == Waiting || p.State == Paused
}
