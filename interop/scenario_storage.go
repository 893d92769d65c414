//go:build interop

package interop

import "context"

func init() { RegisterScenario(Scenario{Name: "storage", Run: judgeStorage}) }

// judgeStorage runs the storage seam's conformance suite against the real S3 server.
func judgeStorage(ctx context.Context, l *Lab, report *Report) {
	report.Check("storage", "s3", func() error {
		binary, err := l.Cache.Tool(ctx, l.Root, versityGW)
		if err != nil {
			return err
		}
		return run(ctx, l.Root, []string{"CALVE_VERSITYGW=" + binary}, "go", "test", "-tags", "interop", "-count=1",
			"-run", "^TestS3Gateway", "./storage")
	})
}
