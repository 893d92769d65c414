//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// catalogPath is where calve's server has its Iceberg REST catalog.
const catalogPath = "/iceberg"

// Place is a warehouse that cases are played in: a local folder, or a bucket of the S3 server.
type Place struct {
	*Calve
	Name string // "local" or "s3"
	Dir  string // the warehouse's files, also of S3
	S3   *S3    // nil for local
	lab  *Lab

	catalog string // address of a REST catalog that is not calve's
}

// Local is the warehouse on the local disk.
func (l *Lab) Local() *Place {
	dir := filepath.Join(l.Data, "warehouse")
	return &Place{Calve: &Calve{lab: l, Warehouse: "file://" + dir}, Name: "local", Dir: dir, lab: l}
}

// Remote is the warehouse on the S3 server.
func (l *Lab) Remote(ctx context.Context) (*Place, error) {
	s3, err := l.S3(ctx)
	if err != nil {
		return nil, err
	}
	c := &Calve{lab: l, Warehouse: "s3://" + s3.Bucket + "/warehouse", env: s3.Env()}
	return &Place{Calve: c, Name: "s3", Dir: filepath.Join(s3.Dir, "warehouse"), S3: s3, lab: l}, nil
}

// Catalog starts calve's own REST catalog on this warehouse when it is first asked for and gives its address.
func (p *Place) Catalog(ctx context.Context) (string, error) {
	if p.catalog != "" {
		return p.catalog, nil
	}
	i := 0
	if p.S3 != nil {
		i = 1
	}
	return p.lab.catalogs[i].get(func() (string, error) {
		port, err := FreePort()
		if err != nil {
			return "", err
		}
		listen := fmt.Sprintf("127.0.0.1:%d", port)
		config := fmt.Sprintf("warehouse: %s\nlisten: %s\npipelines: []\n", p.Warehouse, listen)
		if p.S3 != nil {
			config += fmt.Sprintf("s3: {endpoint: %q, region: %q, access-key: %q, secret-key: %q, path-style: true}\n",
				p.S3.Endpoint, p.S3.Region, p.S3.Access, p.S3.Secret)
		}
		file := filepath.Join(p.lab.Data, "catalog-"+p.Name+".yaml")
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			return "", err
		}
		process, err := p.lab.Start("catalog-"+p.Name, exec.Command(p.lab.Binary, "serve", "-c", file))
		if err != nil {
			return "", err
		}
		uri := "http://" + listen + catalogPath
		return uri, process.WaitReady(ctx, 30*time.Second, probeHTTP(uri+"/v1/config", nil))
	})
}
