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

const versityGW = "github.com/versity/versitygw/cmd/versitygw"

// S3 is a real S3 server (versitygw) that keeps its objects as plain files, so that the suite can look at them.
type S3 struct {
	Endpoint, Host, Access, Secret, Region, Bucket string
	Dir                                            string // of the bucket's objects
}

// S3 starts the S3 server when it is first asked for.
func (l *Lab) S3(ctx context.Context) (*S3, error) {
	return l.s3.get(func() (*S3, error) {
		binary, err := l.Cache.Tool(ctx, l.Root, versityGW)
		if err != nil {
			return nil, err
		}
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		root := filepath.Join(l.Data, "s3")
		s := &S3{Host: fmt.Sprintf("127.0.0.1:%d", port), Access: "calve", Secret: "calve-interop",
			Region: "us-east-1", Bucket: "lake", Dir: filepath.Join(root, "lake")}
		s.Endpoint = "http://" + s.Host
		if err := os.MkdirAll(s.Dir, 0o755); err != nil { // a folder is a bucket
			return nil, err
		}
		cmd := exec.Command(binary, "--port", s.Host, "--region", s.Region, "posix", root)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.Access, "ROOT_SECRET_KEY="+s.Secret)
		p, err := l.Start("versitygw", cmd)
		if err != nil {
			return nil, err
		}
		return s, p.WaitReady(ctx, 30*time.Second, probeTCP(s.Host))
	})
}

// Env is how the AWS clients, calve among them, are told of this server.
func (s *S3) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.Access, "AWS_SECRET_ACCESS_KEY=" + s.Secret, "AWS_REGION=" + s.Region,
		"AWS_ENDPOINT_URL=" + s.Endpoint, "AWS_S3_USE_PATH_STYLE=true"}
}

// Options are how Paimon's readers are told of this server.
func (s *S3) Options() map[string]string {
	return map[string]string{"s3.endpoint": s.Endpoint, "s3.access-key": s.Access, "s3.secret-key": s.Secret, "s3.region": s.Region,
		"s3.path-style-access": "true"}
}

// Request is how a reader's request tells of this server.
func (s *S3) Request() map[string]string {
	return map[string]string{"endpoint": s.Endpoint, "host": s.Host, "access": s.Access, "secret": s.Secret,
		"region": s.Region}
}
