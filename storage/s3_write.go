package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"gocloud.dev/blob"
)

// An upload of s3Part bytes or more is sent in parts of that size, s3Uploads at a time. It keeps up to
// s3Uploads+2 parts in memory. 10,000 parts, S3's limit, make 78 GiB.
const (
	s3Part    = 8 << 20
	s3Uploads = 2
)

// s3CleanupTime bounds how long an ended upload waits for the server to drop the parts it has.
const s3CleanupTime = 10 * time.Second

// upload sends what r yields, as one request below threshold bytes and in parts from there.
func (s *s3Store) upload(ctx context.Context, name string, r io.Reader, ifAbsent bool, threshold int64) error {
	key := s.key(name)
	return s.bucket.Upload(ctx, key, r, &blob.WriterOptions{
		ContentType:    contentType(name),
		BufferSize:     s3Part,
		MaxConcurrency: s3Uploads,
		IfNotExist:     ifAbsent,
		BeforeWrite: func(as func(any) bool) error {
			var in *transfermanager.UploadObjectInput
			var tm *transfermanager.Client
			if !as(&in) || !as(&tm) {
				return errDriver
			}
			in.Key = &key
			checksum := s.client.Options().RequestChecksumCalculation
			*tm = *transfermanager.New(s.client, func(o *transfermanager.Options) {
				o.RequestChecksumCalculation = checksum
				o.PartSizeBytes = s3Part
				o.Concurrency = s3Uploads
				o.MultipartUploadThreshold = threshold
				o.FailTimeout = s3CleanupTime // the parts go also when ctx has ended
			})
			return nil
		},
	})
}

// PutIfAbsent implements Store by a PUT with If-None-Match: *.
func (s *s3Store) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	const op = "put if absent"
	err := s.putWhole(ctx, op, name, data, true)
	if code := apiCode(err); code == "PreconditionFailed" || (err != nil && httpStatus(err) == http.StatusPreconditionFailed) {
		return fmt.Errorf("%s %s: %w", op, s.URL(name), ErrExists)
	}
	return err
}

// Put implements Store.
func (s *s3Store) Put(ctx context.Context, name string, data []byte) error {
	return s.putWhole(ctx, "put", name, data, false)
}

// putWhole sends an object as one request whatever its size.
func (s *s3Store) putWhole(ctx context.Context, op, name string, data []byte, ifAbsent bool) error {
	if err := s.begin(ctx, op, name); err != nil {
		return err
	}
	ctx, doubt := withDoubt(ctx)
	if err := s.upload(ctx, name, bytes.NewReader(data), ifAbsent, int64(len(data))+1); err != nil {
		return s.failWrite(op, name, err, doubt)
	}
	return nil
}

func (s *s3Store) begin(ctx context.Context, op, name string) error {
	if err := checkName(op, name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, s.URL(name), err)
	}
	return nil
}

// errAborted makes a running upload end.
var errAborted = errors.New("upload aborted")

// Create implements Store. Nothing is sent before 8 MiB are written or Commit is called.
func (s *s3Store) Create(ctx context.Context, name string) (Upload, error) {
	if err := s.begin(ctx, "create", name); err != nil {
		return nil, err
	}
	pr, pw := io.Pipe()
	u := &s3Upload{ctx: ctx, s: s, name: name, pw: pw, done: make(chan struct{})}
	var noted context.Context
	noted, u.doubt = withDoubt(ctx)
	go func() {
		defer close(u.done)
		u.err = s.upload(noted, name, pr, false, s3Part)
		if u.err != nil {
			pr.CloseWithError(u.err) // so that Write does not wait for a reader that is gone
		}
	}()
	// A context that ends must end a Write or an upload that waits for more bytes, not complete it.
	u.stop = context.AfterFunc(ctx, func() { pw.CloseWithError(context.Cause(ctx)) })
	return u, nil
}

// s3Upload is a pipe into a running upload.
type s3Upload struct {
	ctx   context.Context
	s     *s3Store
	name  string
	pw    *io.PipeWriter
	stop  func() bool
	ended bool
	done  chan struct{} // closed when the upload is over; err is set then
	err   error
	doubt *atomic.Bool
}

func (u *s3Upload) Write(p []byte) (int, error) {
	if u.ended {
		return 0, fmt.Errorf("write %s: %w", u.s.URL(u.name), fs.ErrClosed)
	}
	if err := u.ctx.Err(); err != nil {
		return 0, fmt.Errorf("write %s: %w", u.s.URL(u.name), err)
	}
	n, err := u.pw.Write(p)
	if err != nil {
		return n, fmt.Errorf("write %s: %w", u.s.URL(u.name), plain(err))
	}
	return n, nil
}

// Commit implements Upload.
func (u *s3Upload) Commit() error {
	const op = "commit"
	if u.ended {
		return fmt.Errorf("%s %s: %w", op, u.s.URL(u.name), fs.ErrClosed)
	}
	if err := u.ctx.Err(); err != nil {
		u.Abort()
		return fmt.Errorf("%s %s: %w", op, u.s.URL(u.name), err)
	}
	u.ended = true
	u.pw.Close()
	<-u.done
	u.stop()
	if u.err != nil {
		return u.s.failWrite(op, u.name, u.err, u.doubt)
	}
	return nil
}

// Abort implements Upload: the upload's reader fails, so it drops the parts it has sent.
func (u *s3Upload) Abort() {
	if u.ended {
		return
	}
	u.ended = true
	u.pw.CloseWithError(errAborted)
	<-u.done
	u.stop()
}
