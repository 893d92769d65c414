//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

func init() { RegisterJudge(&pypaimon{}) }

// pypaimon is Paimon's Python library, a second implementation of the format (2.1.0; 1.3.1 reads wrongly).
type pypaimon struct{ paimonWorker }

func (*pypaimon) Name() string { return "pypaimon" }
func (*pypaimon) Applies(c *Case) string {
	if slices.ContainsFunc(c.Columns, func(col Column) bool { return strings.Contains(col.Type, "MULTISET") }) {
		return "pypaimon 2.1.0 does not know MULTISET"
	}
	return ""
}

func (p *pypaimon) Start(ctx context.Context, l *Lab) (err error) {
	p.Worker, err = l.Python(ctx, "pypaimon", "paimon_reader.py", nil)
	return err
}

func (p *pypaimon) Check(ctx context.Context, s *Subject) error {
	if err := p.check(ctx, s); err != nil {
		return err
	}
	t := PaimonTable{Warehouse: s.Remote.Warehouse, Name: s.Table, Options: s.Remote.S3.Options()}
	got, err := p.Read(ctx, t, 0, s.Columns)
	if err == nil {
		err = s.Remote.Final.Compare(got)
	}
	if err != nil {
		return fmt.Errorf("on S3: %w", err)
	}
	return nil
}
