//go:build interop

package interop

import "context"

func init() { RegisterJudge(&pyIceberg{}) }

// pyIceberg is Iceberg's Python library, on the local folder, by REST, and by REST with files on S3.
type pyIceberg struct{ icebergWorker }

func (*pyIceberg) Name() string           { return "pyiceberg" }
func (*pyIceberg) Applies(c *Case) string { return c.Refusal }

func (p *pyIceberg) Start(ctx context.Context, l *Lab) (err error) {
	p.routes = []Route{Directory, RESTLocal, RESTS3}
	p.Worker, err = l.Python(ctx, "pyiceberg", "pyiceberg_reader.py", nil)
	return err
}

func (p *pyIceberg) Check(ctx context.Context, s *Subject) error { return checkIceberg(ctx, p, s) }
