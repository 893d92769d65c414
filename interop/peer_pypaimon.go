//go:build interop

package interop

import (
	"context"
)

func init() { RegisterJudge(&pypaimon{}) }

// pypaimon is Paimon's Python library, a second implementation of the format (2.1.0; 1.3.1 reads wrongly).
type pypaimon struct{ paimonWorker }

func (*pypaimon) Name() string         { return "pypaimon" }
func (*pypaimon) Applies(*Case) string { return "" }

func (p *pypaimon) Start(ctx context.Context, l *Lab) (err error) {
	p.Worker, err = l.Python(ctx, "pypaimon", "paimon_reader.py", nil)
	return err
}

func (p *pypaimon) Check(ctx context.Context, s *Subject) error { return p.check(ctx, s) }
