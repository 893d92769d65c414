//go:build interop

package storage_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

const (
	gatewayAccess = "calve-test"
	gatewaySecret = "calve-test-secret"
	gatewayBucket = "warehouse"
)

// startGateway runs versitygw over a folder of its own on a free loopback port and returns a client of it, which has
// made the bucket.
func startGateway(t *testing.T) (endpoint string, client *s3.Client) {
	t.Helper()
	binary := os.Getenv("CALVE_VERSITYGW")
	if binary == "" {
		t.Fatal("CALVE_VERSITYGW is not set. It names the versitygw program; from the project's folder build it with\n" +
			"  go build -C interop/tools -o ../../.cache/bin/versitygw github.com/versity/versitygw/cmd/versitygw\n" +
			"and set CALVE_VERSITYGW to the absolute path of .cache/bin/versitygw")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	logFile, err := os.Create(t.TempDir() + "/versitygw.log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--port", address, "--quiet", "posix", t.TempDir())
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+gatewayAccess, "ROOT_SECRET_KEY="+gatewaySecret)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting versitygw: %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		logFile.Close()
	})
	client = s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + address), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(gatewayAccess, gatewaySecret, ""),
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(gatewayBucket)})
		if err == nil {
			return "http://" + address, client
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(logFile.Name())
			t.Fatalf("versitygw does not answer at %s: %v\n%s", address, err, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// clearAWS takes away what the machine's own AWS settings would add.
func clearAWS(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		if key, _, _ := strings.Cut(kv, "="); strings.HasPrefix(key, "AWS_") {
			t.Setenv(key, "") // restored afterwards
			os.Unsetenv(key)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func gatewayOptions(endpoint string) storage.Options {
	return storage.Options{Endpoint: endpoint, AccessKey: gatewayAccess, SecretKey: gatewaySecret}
}

// TestS3Gateway runs the conformance suite against a real S3 server.
func TestS3Gateway(t *testing.T) {
	clearAWS(t)
	endpoint, client := startGateway(t)
	n := 0
	storagetest.Run(t, func(t *testing.T) storage.Store {
		n++
		prefix := fmt.Sprintf("run/%d", n)
		s, err := storage.OpenURL(t.Context(), "s3://"+gatewayBucket+"/"+prefix, gatewayOptions(endpoint))
		if err != nil {
			t.Fatal(err)
		}
		// The suite wants an empty store, and the probe leaves an object.
		if err := s.Delete(t.Context(), "calve/conditional-put"); err != nil {
			t.Fatal(err)
		}
		return s
	})
	uploads, err := client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: aws.String(gatewayBucket)})
	if err != nil {
		t.Fatal(err)
	}
	if len(uploads.Uploads) != 0 {
		t.Errorf("%d multipart uploads are left unfinished, the first of %s", len(uploads.Uploads), aws.ToString(uploads.Uploads[0].Key))
	}
}

// TestS3GatewaySettings opens the same bucket by every way of saying how.
func TestS3GatewaySettings(t *testing.T) {
	clearAWS(t)
	endpoint, _ := startGateway(t)
	ctx := t.Context()
	base := "s3://" + gatewayBucket + "/settings"
	query := base + "?endpoint=" + endpoint + "&region=us-east-1&path_style=true&access_key=" + gatewayAccess + "&secret_key=" + gatewaySecret
	s, err := storage.OpenURL(ctx, query, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(ctx, "x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if got := s.URL("x"); got != base+"/x" {
		t.Errorf("URL is %q, want %q", got, base+"/x")
	}

	ro := gatewayOptions(endpoint)
	ro.ReadOnly = true
	r, err := storage.OpenURL(ctx, "s3a://"+gatewayBucket+"/settings/", ro)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := storage.ReadAll(ctx, r, "x", 10); err != nil || string(got) != "1" {
		t.Errorf("read-only: %q, %v", got, err)
	}
	if err := r.Put(ctx, "x", nil); !errors.Is(err, storage.ErrReadOnly) {
		t.Errorf("a put into a read-only store: %v", err)
	}

	_, err = storage.OpenURL(ctx, base, storage.Options{Endpoint: endpoint, AccessKey: gatewayAccess, SecretKey: "wrong"})
	if err == nil || strings.Contains(err.Error(), "wrong") || !strings.Contains(err.Error(), "SignatureDoesNotMatch") {
		t.Errorf("a wrong secret: %v", err)
	}
	_, err = storage.OpenURL(ctx, "s3://no-such-bucket/x", gatewayOptions(endpoint))
	if err == nil || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("a missing bucket: %v", err)
	}

	t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
	t.Setenv("AWS_ACCESS_KEY_ID", gatewayAccess)
	t.Setenv("AWS_SECRET_ACCESS_KEY", gatewaySecret)
	e, err := storage.OpenURL(ctx, base, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := storage.ReadAll(ctx, e, "x", 10); err != nil || string(got) != "1" {
		t.Errorf("by the environment: %q, %v", got, err)
	}
}

// TestS3GatewayClients lets writers with clients of their own, as of several machines, race for names.
func TestS3GatewayClients(t *testing.T) {
	clearAWS(t)
	endpoint, _ := startGateway(t)
	const clients, rounds = 16, 25
	var stores []storage.Store
	for range clients {
		s, err := storage.OpenURL(t.Context(), "s3://"+gatewayBucket+"/race", gatewayOptions(endpoint))
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	for round := range rounds {
		name := fmt.Sprintf("snapshot/snapshot-%d", round)
		var winners atomic.Int64
		errs := make(chan error, clients)
		for c, s := range stores {
			go func() {
				won, err := storage.PutOnce(context.WithoutCancel(t.Context()), s, name, fmt.Appendf(nil, "client %d", c))
				if won {
					winners.Add(1)
				}
				errs <- err
			}()
		}
		for range stores {
			if err := <-errs; err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if winners.Load() != 1 {
			t.Fatalf("round %d: %d winners", round, winners.Load())
		}
	}
}
