package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// s3Store keeps objects in an S3 bucket, through gocloud.dev/blob. Costs, in requests when nothing goes wrong:
//
//	Open         1 GET of the last 64 KiB, which reads near the end are then served from; an empty object 1 HEAD more
//	File.ReadAt  1 ranged GET; none if the range lies in the last 64 KiB
//	ReadAll      1 GET
//	Upload       1 PUT below 8 MiB, else 1 PUT for each 8 MiB and 2 POST
//	PutIfAbsent  1 PUT;  Put 1 PUT;  Delete 1 DELETE
//	List         1 GET for each 1,000 children;  Walk 1 GET for each 1,000 objects below
//
// Keys are sent as they are. s3blob would escape some ("a../b"), and other engines would not find those objects;
// therefore the hooks that set the key of a request, and the client itself where s3blob has none.
//
// Uploads of a process that was killed may leave parts that cost money and that no listing shows. A lifecycle rule of
// the bucket (AbortIncompleteMultipartUpload) removes them.
type s3Store struct {
	bucket *blob.Bucket
	client *s3.Client
	name   string // of the bucket
	prefix string // "" or without trailing slash
}

// s3Attempts is how often the client tries a request, unless AWS_MAX_ATTEMPTS or a profile says otherwise. The waits
// between grow from at most 1/8 s to at most 8 s: a lost packet should not hold up a commit for a second, and a busy
// store needs patience.
const s3Attempts = 8

// s3Connections is how many idle connections are kept for the next request.
const s3Connections = 64

func newS3(ctx context.Context, bucket, prefix string, opts Options) (*s3Store, error) {
	cfg, err := s3Config(ctx, opts)
	if err != nil {
		return nil, err
	}
	region := cfg.Region
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if opts.Endpoint != "" {
			o.BaseEndpoint = aws.String(strings.TrimRight(opts.Endpoint, "/"))
		}
		custom := o.BaseEndpoint != nil // also from AWS_ENDPOINT_URL_S3
		o.UsePathStyle = custom
		if opts.PathStyle != nil {
			o.UsePathStyle = *opts.PathStyle
		}
		if custom && o.Region == "" {
			o.Region = "us-east-1" // what S3 servers that have no regions expect in a signature
		}
		region = o.Region
		o.DisableLogOutputChecksumValidationSkipped = true
		o.APIOptions = append(o.APIOptions, noteDoubt)
	})
	if region == "" {
		return nil, errors.New("the region is missing: set AWS_REGION or ?region=, or an endpoint for a server that is not AWS")
	}
	b, err := s3blob.OpenBucket(ctx, client, bucket, &s3blob.Options{RequestChecksumCalculation: cfg.RequestChecksumCalculation})
	if err != nil {
		return nil, err
	}
	return &s3Store{bucket: b, client: client, name: bucket, prefix: prefix}, nil
}

func s3Config(ctx context.Context, opts Options) (aws.Config, error) {
	if opts.Endpoint != "" {
		u, err := url.Parse(opts.Endpoint)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return aws.Config{}, fmt.Errorf("endpoint %q: give it as http://host:port or https://host:port", opts.Endpoint)
		}
	}
	if (opts.AccessKey == "") != (opts.SecretKey == "") {
		return aws.Config{}, errors.New("access key and secret key go together: one of them is missing")
	}
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns = 2 * s3Connections
		t.MaxIdleConnsPerHost = s3Connections
	})
	load := []func(*config.LoadOptions) error{config.WithHTTPClient(transport)}
	if opts.Region != "" {
		load = append(load, config.WithRegion(opts.Region))
	}
	if opts.AccessKey != "" {
		keys := credentials.NewStaticCredentialsProvider(opts.AccessKey, opts.SecretKey, opts.SessionToken)
		load = append(load, config.WithCredentialsProvider(keys))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	attempts := cfg.RetryMaxAttempts
	if attempts <= 0 {
		attempts = s3Attempts
	}
	jitter := retry.NewExponentialJitterBackoff(128 * time.Second) // doubles from at most 2 s
	cfg.Retryer = func() aws.Retryer {
		standard := retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = attempts
			o.Backoff = retry.BackoffDelayerFunc(func(attempt int, err error) (time.Duration, error) {
				d, err := jitter.BackoffDelay(attempt, err)
				return d / 16, err
			})
			// The default limiter refuses retries to everyone once many requests fail, as losers of races do.
			o.RateLimiter = ratelimit.None
		})
		// AWS answers so when conditional writes of one key meet; nothing was written.
		return retry.AddWithErrorCodes(standard, "ConditionalRequestConflict")
	}
	return cfg, nil
}

// probeName is an object that is there after the first start.
const probeName = "calve/conditional-put"

// probe finds out whether the server refuses a conditional put of a name that is taken. It costs one request, and
// two more the first time.
func (s *s3Store) probe(ctx context.Context) error {
	text := []byte("calve writes this object once, to see whether the store refuses to write it again.\n")
	for range 2 {
		err := s.PutIfAbsent(ctx, probeName, text)
		if errors.Is(err, ErrExists) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("trying a conditional put: %w", err)
		}
	}
	return fmt.Errorf("%w: it overwrites objects in spite of If-None-Match: *, so two writers could lose each other's commits; use a server that honours it", ErrUnsafe)
}

func (s *s3Store) key(name string) string { return join(s.prefix, name) }

// URL implements Store.
func (s *s3Store) URL(name string) string { return "s3://" + join(s.name, s.key(name)) }

// Delete implements Store.
func (s *s3Store) Delete(ctx context.Context, name string) error {
	if err := checkName("delete", name); err != nil {
		return err
	}
	ctx, doubt := withDoubt(ctx)
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.name, Key: aws.String(s.key(name))})
	if err != nil && apiCode(err) != "NoSuchKey" {
		return s.failWrite("delete", name, err, doubt)
	}
	return nil
}

// List implements Store. S3 lists "a-b" before the folder "a", so all children are gathered before the first is
// yielded.
func (s *s3Store) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var infos []Info
		for info, err := range s.list(ctx, dir, "/") {
			if err != nil {
				yield(Info{}, err)
				return
			}
			infos = append(infos, info)
		}
		sortByName(infos)
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Walk implements Walker.
func (s *s3Store) Walk(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return s.list(ctx, dir, "")
}

// list yields what is below a folder in the server's order, as far as calve could have named it: Hadoop's markers of
// empty folders ("dir/") and other odd keys are left out.
func (s *s3Store) list(ctx context.Context, dir, delimiter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := checkDir("list", dir); err != nil {
			yield(Info{}, err)
			return
		}
		prefix := s.key(dir)
		if prefix != "" {
			prefix += "/"
		}
		it := s.bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: delimiter, BeforeList: func(as func(any) bool) error {
			var in *s3.ListObjectsV2Input
			if !as(&in) {
				return errDriver
			}
			in.Prefix = &prefix
			return nil
		}})
		for {
			obj, err := it.Next(ctx)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Info{}, s.fail("list", dir, err))
				return
			}
			info := s.info(obj)
			if checkName("list", info.Name) == nil && !yield(info, nil) {
				return
			}
		}
	}
}

// info gives the raw key of a listed object or folder its name in the store.
func (s *s3Store) info(obj *blob.ListObject) Info {
	key := obj.Key
	var object types.Object
	var folder types.CommonPrefix
	switch {
	case obj.IsDir && obj.As(&folder):
		key = strings.TrimSuffix(aws.ToString(folder.Prefix), "/")
	case obj.As(&object):
		key = aws.ToString(object.Key)
	}
	if s.prefix != "" {
		key = strings.TrimPrefix(key, s.prefix+"/")
	}
	if obj.IsDir {
		return Info{Name: key, Dir: true}
	}
	return Info{Name: key, Size: obj.Size, ModTime: obj.ModTime}
}

// errDriver would mean that gocloud.dev no longer hands out the request of the AWS client.
var errDriver = errors.New("the S3 driver hides its request; this build of calve does not fit its gocloud.dev")

// fail gives an error of a reading request its place, and ErrNotFound where that is meant.
func (s *s3Store) fail(op, name string, err error) error {
	if code := apiCode(err); code == "NoSuchKey" || code == "NotFound" {
		return fmt.Errorf("%s %s: %w", op, s.URL(name), ErrNotFound)
	}
	return fmt.Errorf("%s %s: %w", op, s.URL(name), plain(err))
}

// failWrite gives an error of a writing request its place, and says whether the request may have had its effect: only
// an answer that refuses it (4xx) rules that out, if no earlier try of it is in doubt.
func (s *s3Store) failWrite(op, name string, err error, doubt *atomic.Bool) error {
	if refuses(err) && doubt.Load() {
		return fmt.Errorf("%s %s: %w: an earlier try got no answer: %w", op, s.URL(name), ErrUnknown, plain(err))
	}
	if refuses(err) {
		return fmt.Errorf("%s %s: %w", op, s.URL(name), plain(err))
	}
	return fmt.Errorf("%s %s: %w: %w", op, s.URL(name), ErrUnknown, plain(err))
}

// refuses reports that an answer says that a request was not carried out.
func refuses(err error) bool {
	status := httpStatus(err)
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
}

// doubtKey is the key of a context's *atomic.Bool that tells whether one of the client's tries of a request got no
// certain answer. An answer to a later try says nothing about an earlier one, which may be on its way still.
type doubtKey struct{}

// withDoubt gives a context whose requests note their doubt.
func withDoubt(ctx context.Context) (context.Context, *atomic.Bool) {
	doubt := new(atomic.Bool)
	return context.WithValue(ctx, doubtKey{}, doubt), doubt
}

// noteDoubt has the client note it.
func noteDoubt(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("calveDoubt",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			out, meta, err := next.HandleFinalize(ctx, in)
			if doubt, ok := ctx.Value(doubtKey{}).(*atomic.Bool); ok && err != nil && !refuses(err) {
				doubt.Store(true)
			}
			return out, meta, err
		}), "Retry", middleware.After)
}

// httpStatus is the status of the answer an error came from, 0 if there was none.
func httpStatus(err error) int {
	if re, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return re.HTTPStatusCode()
	}
	return 0
}

// apiCode is the S3 error code of the answer an error came from, "" if there was none.
func apiCode(err error) string {
	if ae, ok := errors.AsType[smithy.APIError](err); ok {
		return ae.ErrorCode()
	}
	return ""
}

// plain takes off the layers around the client's own error, which repeat the key.
func plain(err error) error {
	if oe, ok := errors.AsType[*smithy.OperationError](err); ok {
		return oe
	}
	return err
}

// contentType tells browsers and gateways what they serve.
func contentType(name string) string {
	if path.Ext(name) == ".json" {
		return "application/json"
	}
	return "application/octet-stream"
}
