package storage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/aws/smithy-go"
)

// Options says how OpenURL opens a store. The zero value is right for a local disk and for AWS itself.
//
// What is not given here or in the URL's query comes from where the AWS tools take it: AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_MAX_ATTEMPTS,
// AWS_REQUEST_CHECKSUM_CALCULATION, the shared configuration files, and the machine's role.
type Options struct {
	// Endpoint is the S3 server to use instead of AWS, as http://host:port or https://host:port.
	Endpoint string
	// Region is the bucket's region. With an endpoint it may be left out.
	Region string
	// AccessKey and SecretKey are the credentials, SessionToken comes with temporary ones.
	AccessKey, SecretKey, SessionToken string
	// PathStyle puts the bucket into the path (http://host/bucket/key) rather than into the host name. Nil means
	// yes with an endpoint and no with AWS.
	PathStyle *bool
	// ReadOnly opens a store whose writes all fail with ErrReadOnly, without trying whether conditional puts work:
	// for users who have no permission to write.
	ReadOnly bool
	// Unverified opens a store without trying that either; nothing must be written before Verify has.
	Unverified bool
}

// queryKeys are the parameters that an s3:// URL may carry.
var queryKeys = []string{"access_key", "endpoint", "path_style", "region", "secret_key", "session_token"}

// OpenURL opens the store at a URL:
//
//	/data/warehouse, data/warehouse, file:///data/warehouse   a local folder; the path is taken literally
//	s3://bucket/prefix?endpoint=http://127.0.0.1:9000          an S3 bucket; s3a:// means the same
//	mem://                                                    a new, empty store in memory
//
// Parameters of an s3:// URL are endpoint, region, access_key, secret_key, session_token and path_style; they go
// before Options, and Options before the AWS environment. They are no part of what Store.URL gives, nor of errors.
//
// Opening S3 tries once whether the server honours conditional puts (the object calve/conditional-put below the
// prefix stays there) and fails with ErrUnsafe if it does not: two writers could overwrite each other's commits.
func OpenURL(ctx context.Context, rawURL string, opts Options) (Store, error) {
	s, err := openURL(ctx, rawURL, opts)
	if err != nil {
		return nil, err
	}
	if opts.ReadOnly {
		return &readOnly{s}, nil
	}
	return s, nil
}

func openURL(ctx context.Context, rawURL string, opts Options) (Store, error) {
	scheme, rest, hasScheme := strings.Cut(rawURL, "://")
	if !hasScheme {
		if path, ok := strings.CutPrefix(rawURL, "file:"); ok {
			return localStore(path)
		}
		return localStore(rawURL)
	}
	switch strings.ToLower(scheme) {
	case "file":
		path := strings.TrimPrefix(rest, "localhost")
		if !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("open %s: a file URL needs an absolute path: file:///%s, or give the path alone", rawURL, rest)
		}
		return localStore(path)
	case "mem":
		if rest != "" && rest != "/" {
			return nil, fmt.Errorf("open %s: a store in memory has no name: use mem://", rawURL)
		}
		return NewMem(), nil
	case "s3", "s3a":
		return openS3URL(ctx, rest, opts)
	}
	return nil, fmt.Errorf("open %s: unknown kind of store %q: use a path, file://, s3:// or mem://", withoutQuery(rawURL), scheme)
}

// localStore returns a nil interface, not a nil *Local in one, with an error.
func localStore(path string) (Store, error) {
	l, err := NewLocal(path)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openS3URL opens what follows s3://. The key is taken literally, as Hadoop and Iceberg do, not percent-decoded.
func openS3URL(ctx context.Context, rest string, opts Options) (Store, error) {
	location, query, _ := strings.Cut(rest, "?")
	bucket, prefix, _ := strings.Cut(location, "/")
	prefix = strings.TrimRight(prefix, "/")
	shown := "s3://" + location
	if bucket == "" {
		return nil, fmt.Errorf("open %s: the bucket is missing: s3://bucket/prefix", shown)
	}
	if err := checkDir("open "+shown, prefix); err != nil {
		return nil, err
	}
	if err := opts.query(query); err != nil {
		return nil, fmt.Errorf("open %s: %w", shown, err)
	}
	s, err := newS3(ctx, bucket, prefix, opts)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", shown, err)
	}
	if !opts.ReadOnly && !opts.Unverified {
		if err := Verify(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Verify tries whether a store that was opened with Options.Unverified answers, and honours conditional puts: ErrUnsafe if not.
func Verify(ctx context.Context, store Store) error {
	s, ok := store.(*s3Store)
	if !ok {
		return nil
	}
	if err := s.probe(ctx); err != nil {
		return fmt.Errorf("open %s: %w", s.URL(""), err)
	}
	return nil
}

// MayPass reports whether an error of a store may pass by itself: it gave no answer, or one that says that it cannot at the
// moment. What it refuses (credentials, permissions, a bucket that is not there) needs a person, and so do certificates, or
// credentials that are nowhere to be found.
func MayPass(err error) bool {
	if err == nil || errors.Is(err, ErrUnsafe) {
		return false
	}
	if status := httpStatus(err); status != 0 {
		return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	}
	if oe, ok := errors.AsType[*smithy.OperationError](err); ok {
		if inner, ok := errors.AsType[*smithy.OperationError](oe.Err); ok && inner.ServiceID == "ec2imds" {
			return false // the last place where credentials are looked for
		}
	}
	if _, bad := errors.AsType[*tls.CertificateVerificationError](err); bad {
		return false
	}
	_, connection := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	_, cut := errors.AsType[textproto.ProtocolError](err) // an answer that ends within its headers
	return connection || name || cut || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// query overrides options by the parameters of a URL.
func (o *Options) query(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		// The text would repeat the parameter, which may be a secret.
		return fmt.Errorf("the part after the question mark is not a URL query (key=value&key=value, percent-encoded)")
	}
	for key, vals := range values {
		v := vals[len(vals)-1]
		switch key {
		case "endpoint":
			o.Endpoint = v
		case "region":
			o.Region = v
		case "access_key":
			o.AccessKey = v
		case "secret_key":
			o.SecretKey = v
		case "session_token":
			o.SessionToken = v
		case "path_style":
			b, err := strconv.ParseBool(v)
			if err != nil {
				return fmt.Errorf("parameter path_style is %q: use true or false", v)
			}
			o.PathStyle = &b
		default:
			return fmt.Errorf("unknown parameter %q: use %s", key, strings.Join(queryKeys, ", "))
		}
	}
	return nil
}

// withoutQuery takes off what may hold secrets.
func withoutQuery(rawURL string) string {
	before, _, _ := strings.Cut(rawURL, "?")
	return before
}

// readOnly is a store that refuses to write.
type readOnly struct{ s Store }

func (r *readOnly) refuse(op, name string) error {
	return fmt.Errorf("%s %s: %w", op, r.s.URL(name), ErrReadOnly)
}

func (r *readOnly) Open(ctx context.Context, name string) (File, error) { return r.s.Open(ctx, name) }

// OpenTail implements TailOpener.
func (r *readOnly) OpenTail(ctx context.Context, name string, tail int64) (File, error) {
	return OpenTail(ctx, r.s, name, tail)
}

func (r *readOnly) Create(_ context.Context, name string) (Upload, error) {
	return nil, r.refuse("create", name)
}

func (r *readOnly) PutIfAbsent(_ context.Context, name string, _ []byte) error {
	return r.refuse("put if absent", name)
}

func (r *readOnly) Put(_ context.Context, name string, _ []byte) error { return r.refuse("put", name) }

func (r *readOnly) Delete(_ context.Context, name string) error { return r.refuse("delete", name) }

func (r *readOnly) URL(name string) string { return r.s.URL(name) }

func (r *readOnly) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return r.s.List(ctx, dir)
}

// Walk implements Walker.
func (r *readOnly) Walk(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return Walk(ctx, r.s, dir)
}

// ReadAll implements AllReader.
func (r *readOnly) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	return ReadAll(ctx, r.s, name, limit)
}
