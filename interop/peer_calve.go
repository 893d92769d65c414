//go:build interop

package interop

import (
	"context"
	"fmt"
)

func init() { RegisterJudge(calveJudge{}) }

// calveJudge lets calve read its own tables: every snapshot as the model says, the change stream folded to the rows,
// and its own verification.
type calveJudge struct{}

func (calveJudge) Name() string                      { return "calve" }
func (calveJudge) Start(context.Context, *Lab) error { return nil }
func (calveJudge) Applies(*Case) string              { return "" }

func (calveJudge) Check(ctx context.Context, s *Subject) error {
	for _, p := range []*Played{s.Local, s.Remote} {
		if err := p.checkOwn(ctx, s); err != nil {
			return fmt.Errorf("on %s: %w", p.Name, err)
		}
	}
	return checkStates(ctx, calveReader{s.Local.Calve}, s)
}

// checkOwn compares calve's scan and folded tail with what must be in the table, and verifies it.
func (p *Played) checkOwn(ctx context.Context, s *Subject) error {
	if p.Latest > 0 {
		rows, err := p.Scan(ctx, s.Table, 0, s.Columns)
		if err == nil {
			err = p.Final.Compare(rows)
		}
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		folded, err := p.Fold(ctx, s.Table, s.Columns, s.Key)
		if err == nil {
			err = p.Final.Compare(folded)
		}
		if err != nil {
			return fmt.Errorf("the folded change stream: %w", err)
		}
	}
	return p.Verify(ctx, s.Table)
}

// calveReader reads with `calve scan`.
type calveReader struct{ *Calve }

func (c calveReader) Read(ctx context.Context, t PaimonTable, snapshot int64, columns []Column) (*Rows, error) {
	return c.Scan(ctx, t.Name, snapshot, columns)
}
