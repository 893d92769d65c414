package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
)

// s3Tail is how much of an object's end Open brings along: all of a manifest, or the footer and page index of an
// ordinary data file.
const s3Tail = 64 << 10

// bodyAttempts is how often a body that breaks off is asked for again; the client retries requests, not bodies.
const bodyAttempts = 4

// s3File is an open object. Its reads ask for the version that Open saw.
type s3File struct {
	ctx     context.Context
	s       *s3Store
	name    string
	size    int64
	etag    string
	tailOff int64
	tail    []byte // the object from tailOff to its end; may be nil
	bring   int64  // bytes of the end that open asks for
	closed  atomic.Bool
}

// Open implements Store.
func (s *s3Store) Open(ctx context.Context, name string) (File, error) {
	return s.OpenTail(ctx, name, s3Tail)
}

// mostTail bounds what comes with an object that is opened.
const mostTail = 8 << 20

// OpenTail implements TailOpener.
func (s *s3Store) OpenTail(ctx context.Context, name string, tail int64) (File, error) {
	const op = "open"
	if err := checkName(op, name); err != nil {
		return nil, err
	}
	f := &s3File{ctx: ctx, s: s, name: name, bring: min(max(tail, s3Tail), mostTail)}
	var err error
	for range bodyAttempts {
		var broken bool
		if broken, err = f.open(); !broken || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, s.fail(op, name, err)
	}
	return f, nil
}

// open reads the object's end and with it its size. broken says that the body broke off.
func (f *s3File) open() (broken bool, err error) {
	r, out, err := f.s.get(f.ctx, f.name, fmt.Sprintf("bytes=-%d", f.bring), "")
	if httpStatus(err) == http.StatusRequestedRangeNotSatisfiable {
		return false, f.head() // an empty object has no last bytes
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	f.etag = aws.ToString(out.ETag)
	n := aws.ToInt64(out.ContentLength)
	first, size, ok := contentRange(aws.ToString(out.ContentRange))
	if !ok {
		first, size = 0, n // a server that ignores ranges sends everything
	}
	f.size = size
	if n > f.bring || first+n != size {
		return false, nil
	}
	tail := make([]byte, n)
	if _, err := io.ReadFull(r, tail); err != nil {
		return true, err
	}
	f.tailOff, f.tail = first, tail
	return false, nil
}

func (f *s3File) head() error {
	out, err := f.s.client.HeadObject(f.ctx, &s3.HeadObjectInput{Bucket: &f.s.name, Key: aws.String(f.s.key(f.name))})
	if err != nil {
		return err
	}
	f.size, f.etag = aws.ToInt64(out.ContentLength), aws.ToString(out.ETag)
	return nil
}

// contentRange parses "bytes first-last/size".
func contentRange(s string) (first, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, total, ok2 := strings.Cut(s, "/")
	from, _, ok3 := strings.Cut(span, "-")
	first, err := strconv.ParseInt(from, 10, 64)
	size, err2 := strconv.ParseInt(total, 10, 64)
	return first, size, ok && ok2 && ok3 && err == nil && err2 == nil && first >= 0 && first <= size
}

// get starts a GET of an object, or of a range of it, or of a version of it.
func (s *s3Store) get(ctx context.Context, name, byteRange, etag string) (*blob.Reader, *s3.GetObjectOutput, error) {
	key := s.key(name)
	r, err := s.bucket.NewRangeReader(ctx, key, 0, -1, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
		var in *s3.GetObjectInput
		if !as(&in) {
			return errDriver
		}
		in.Key = &key
		if byteRange != "" {
			in.Range = &byteRange
		}
		if etag != "" {
			in.IfMatch = &etag
		}
		return nil
	}})
	if err != nil {
		return nil, nil, err
	}
	var out s3.GetObjectOutput
	if !r.As(&out) {
		r.Close()
		return nil, nil, errDriver
	}
	return r, &out, nil
}

// ReadAll implements AllReader with one GET.
func (s *s3Store) ReadAll(ctx context.Context, name string, limit int64) (data []byte, err error) {
	const op = "read"
	if err := checkName(op, name); err != nil {
		return nil, err
	}
	for range bodyAttempts {
		var broken bool
		data, broken, err = s.readAll(ctx, name, limit)
		if err == nil || errors.Is(err, ErrTooLarge) {
			return data, err
		}
		if !broken || ctx.Err() != nil {
			break
		}
	}
	return nil, s.fail(op, name, err)
}

func (s *s3Store) readAll(ctx context.Context, name string, limit int64) (data []byte, broken bool, err error) {
	r, _, err := s.get(ctx, name, "", "")
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	if r.Size() > limit {
		return nil, false, tooLarge(s.URL(name), r.Size(), limit)
	}
	data = make([]byte, r.Size())
	_, err = io.ReadFull(r, data)
	return data, err != nil, err
}

func (f *s3File) Size() int64 { return f.size }

func (f *s3File) Close() error {
	if f.closed.Swap(true) {
		return fmt.Errorf("close %s: %w", f.s.URL(f.name), fs.ErrClosed)
	}
	return nil
}

func (f *s3File) ReadAt(p []byte, off int64) (int, error) {
	err := f.ctx.Err()
	switch {
	case f.closed.Load():
		err = fs.ErrClosed
	case err == nil && off < 0:
		err = errNegative
	}
	if err != nil {
		return 0, fmt.Errorf("read %s at %d: %w", f.s.URL(f.name), off, err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= f.size {
		return 0, io.EOF
	}
	var eof error
	if rest := f.size - off; int64(len(p)) > rest {
		p, eof = p[:rest], io.EOF
	}
	n, err := f.fill(p, off)
	if err != nil {
		return n, err
	}
	return n, eof
}

// fill reads a range that lies within the object: what the tail holds from there, the rest by one GET.
func (f *s3File) fill(p []byte, off int64) (int, error) {
	remote := len(p)
	if f.tail != nil {
		remote = int(min(max(f.tailOff-off, 0), int64(len(p))))
	}
	n := 0
	var err error
	for attempt := 0; n < remote && attempt < bodyAttempts; attempt++ {
		var got int
		var broken bool
		got, broken, err = f.fetch(p[n:remote], off+int64(n))
		n += got
		if err != nil && (!broken || f.ctx.Err() != nil) {
			break
		}
	}
	if n < remote {
		if httpStatus(err) == http.StatusPreconditionFailed {
			return n, fmt.Errorf("read %s at %d: it was replaced while it was open", f.s.URL(f.name), off)
		}
		return n, f.s.fail(fmt.Sprintf("read at %d", off), f.name, err)
	}
	if n < len(p) {
		n += copy(p[n:], f.tail[off+int64(n)-f.tailOff:])
	}
	return n, nil
}

// fetch gets a range by one GET. broken says that the body broke off.
func (f *s3File) fetch(p []byte, off int64) (n int, broken bool, err error) {
	r, out, err := f.s.get(f.ctx, f.name, fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1), f.etag)
	if err != nil {
		return 0, false, err
	}
	defer r.Close()
	if first, size, ok := contentRange(aws.ToString(out.ContentRange)); !ok || first != off || size != f.size {
		return 0, false, fmt.Errorf("the server answered bytes %d to %d of %d with %q",
			off, off+int64(len(p))-1, f.size, aws.ToString(out.ContentRange))
	}
	n, err = io.ReadFull(r, p)
	return n, err != nil, err
}
