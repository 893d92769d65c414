//go:build interop

package interop

import (
	"context"
	"path/filepath"
)

func init() { RegisterJudge(&spark{}) }

// spark is Spark 3.5 with the Iceberg runtime: as a Hadoop catalog on the local folder, and by REST.
type spark struct{ icebergWorker }

func (*spark) Name() string           { return "spark" }
func (*spark) Applies(c *Case) string { return c.Refusal }

func (p *spark) Start(ctx context.Context, l *Lab) error {
	jars, err := l.Cache.Jars(ctx, "spark", "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.1")
	if err != nil {
		return err
	}
	p.routes = []Route{Directory, RESTLocal}
	p.types = map[string]string{"bigint": "long", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
	jar := filepath.Join(jars, "iceberg-spark-runtime-3.5_2.12-1.10.1.jar")
	p.Worker, err = l.Python(ctx, "spark", "spark_reader.py", []string{"SPARK_LOCAL_IP=127.0.0.1"}, jar, filepath.Join(l.Scratch, "spark"))
	if err != nil {
		return err
	}
	return p.Ask(ctx, "warm", map[string]any{}, nil)
}

func (p *spark) Check(ctx context.Context, s *Subject) error { return checkIceberg(ctx, p, s) }
