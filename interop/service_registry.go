//go:build interop

package interop

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// Registry is a schema registry that speaks Confluent's interface: Apicurio's.
type Registry struct {
	URL     string
	process *Process
}

const apicurio = "io.apicurio:apicurio-registry-app:2.6.13.Final"

// Registry starts one that is empty and keeps schemas in memory. It is to be stopped by who asked for it.
func (l *Lab) Registry(ctx context.Context) (*Registry, error) {
	dir, err := l.Cache.Flat(ctx, "registry", apicurio, "all")
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*-runner.jar"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("%d programs came with %s (%w)", len(found), apicurio, err)
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	p, err := l.Start("registry", exec.Command("java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		fmt.Sprintf("-Dquarkus.http.port=%d", port), "-Dquarkus.http.host=127.0.0.1", "-jar", found[0]))
	if err != nil {
		return nil, err
	}
	r := &Registry{URL: fmt.Sprintf("http://127.0.0.1:%d/apis/ccompat/v7", port), process: p}
	return r, p.WaitReady(ctx, 3*time.Minute, probeHTTP(r.URL+"/subjects", nil))
}

// Stop ends it.
func (r *Registry) Stop() {
	_ = r.process.Stop(10 * time.Second) // a JVM tells by its status that a signal ended it
}
