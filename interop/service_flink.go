//go:build interop

package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Flink is Flink with Paimon's connector: plain jars and one small program (peers/java/calve/flink), in which each
// statement is a job of a cluster within the process. It is the pair of releases 1.20.3 and 1.3.1.
type Flink struct{ *Worker }

// flinkOpens are the packages of the JDK that Flink's serializers look into (env.java.opts.all of its distribution).
var flinkOpens = []string{"java.lang", "java.lang.reflect", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util",
	"java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch"}

// Flink starts the program when it is first asked for.
func (l *Lab) Flink(ctx context.Context) (*Flink, error) {
	return l.flink.get(func() (*Flink, error) {
		jars, err := l.Cache.Jars(ctx, "flink", "org.apache.flink:flink-clients:1.20.3",
			"org.apache.flink:flink-table-api-java-bridge:1.20.3", "org.apache.flink:flink-table-planner-loader:1.20.3",
			"org.apache.flink:flink-table-runtime:1.20.3", "org.apache.flink:flink-connector-base:1.20.3",
			"org.apache.flink:flink-connector-files:1.20.3", "org.apache.flink:flink-connector-datagen:1.20.3",
			"org.apache.paimon:paimon-flink-1.20:1.3.1", "org.apache.paimon:paimon-s3:1.3.1",
			"org.apache.hadoop:hadoop-client-api:3.3.6", "org.apache.hadoop:hadoop-client-runtime:3.3.6",
			"org.slf4j:slf4j-simple:1.7.36", "com.fasterxml.jackson.core:jackson-databind:2.17.2")
		if err != nil {
			return nil, err
		}
		classes, err := l.Cache.Classes(ctx, "flink", jars, l.Peers("java", "calve", "flink", "*.java"),
			l.Peers("java", "calve", "peer", "Worker.java"))
		if err != nil {
			return nil, err
		}
		// The simple compiler and collector: the jobs are short, and the machine is shared with what they are judged beside.
		args := []string{"-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Duser.timezone=UTC"}
		for _, p := range flinkOpens {
			args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
		}
		args = append(args, "-cp", classes+":"+filepath.Join(jars, "*"), "calve.flink.FlinkPeer")
		w, err := l.StartWorker("flink", func() *exec.Cmd { return exec.Command("java", args...) })
		return &Flink{w}, err
	})
}

// FlinkSQL is one statement with the session it needs.
type FlinkSQL struct {
	Name   string   // of a job that goes on
	Before []string // statements that prepare the session
	SQL    string
	Config map[string]string // Flink's own options
}

// request makes the question to the program. Everything is for the warehouse of a place.
func (s FlinkSQL) request(p *Place) map[string]any {
	catalog := map[string]string{"warehouse": p.Warehouse}
	if p.S3 != nil {
		catalog["s3.endpoint"], catalog["s3.access-key"], catalog["s3.secret-key"] = p.S3.Endpoint, p.S3.Access, p.S3.Secret
		catalog["s3.path.style.access"] = "true"
		// Without these the client asks this server again and again to delete the markers of folders.
		catalog["s3.multiobjectdelete.enable"], catalog["s3.directory.marker.retention"] = "false", "keep"
	}
	return map[string]any{"catalog": catalog, "name": s.Name, "before": s.Before, "sql": s.SQL, "config": s.Config}
}

// Run runs a statement to its end, in batch mode.
func (f *Flink) Run(ctx context.Context, p *Place, sql string) error {
	return f.Ask(ctx, "run", FlinkSQL{SQL: sql}.request(p), nil)
}

// Select reads rows in batch mode.
func (f *Flink) Select(ctx context.Context, p *Place, sql string, columns []Column) (*Rows, error) {
	return f.Rows(ctx, "select", FlinkSQL{SQL: sql}.request(p), columns)
}

// StartJob starts a streaming statement that goes on; Wait waits for its end.
func (f *Flink) StartJob(ctx context.Context, p *Place, s FlinkSQL) error {
	return f.Ask(ctx, "start", s.request(p), nil)
}

// Wait waits for the end of a started job and gives its failure.
func (f *Flink) Wait(ctx context.Context, name string) error {
	return f.Ask(ctx, "wait", map[string]any{"name": name}, nil)
}

// Follow starts a streaming query whose changes go to a file, line by line.
func (f *Flink) Follow(ctx context.Context, p *Place, s FlinkSQL, out string) error {
	request := s.request(p)
	request["out"] = out
	return f.Ask(ctx, "follow", request, nil)
}

// StopJob cancels a job; a job that has failed before gives its failure.
func (f *Flink) StopJob(ctx context.Context, name string) error {
	return f.Ask(ctx, "stop", map[string]any{"name": name}, nil)
}

// countLines counts the whole lines of a file that is being written.
func countLines(path string) (int, error) {
	text, err := os.ReadFile(path)
	return strings.Count(string(text), "\n"), err
}
