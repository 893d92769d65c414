// Package registry asks a schema registry for the schemas that records were written with, by the REST interface of
// Confluent's registry, which Apicurio, Karapace and Redpanda have too.
package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/calve-io/calve/ingest/decode"
)

// Settings say where a registry is and who asks it.
type Settings struct {
	URLs []string // asked in this order, until one answers; a path is kept
	// User and Password are for basic authentication, Token is a bearer token. At most one of both.
	User, Password string
	Token          string
	TLS            *tls.Config   // nil: the authorities that the machine trusts
	Timeout        time.Duration // of one request; default 10 s
}

// Client asks a registry and remembers what cannot change: the schema of an id. It may be used by several goroutines.
type Client struct {
	sr        *sr.Client
	transport *http.Transport

	mu       sync.Mutex
	byID     map[int]decode.WriterSchema
	versions map[version]sr.SubjectSchema
}

// version names a schema that others refer to.
type version struct {
	subject string
	number  int
}

// Bounds on what a registry may answer.
const (
	maxAnswer = 16 << 20
	maxFiles  = 1000 // that a schema refers to
)

// New checks the settings; it does not connect.
func New(s Settings) (*Client, error) {
	if len(s.URLs) == 0 {
		return nil, errors.New("schema registry: no URL")
	}
	if s.Token != "" && s.User != "" {
		return nil, errors.New("schema registry: give a user or a token, not both")
	}
	for _, u := range s.URLs {
		p, err := url.Parse(u)
		if err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" {
			return nil, fmt.Errorf("schema registry: %q is no URL; use http://host:port or https://host:port", bare(u))
		}
		if p.User != nil {
			return nil, errors.New("schema registry: give user and password as settings, not in the URL")
		}
	}
	if s.Timeout <= 0 {
		s.Timeout = 10 * time.Second
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if s.TLS != nil {
		transport.TLSClientConfig = s.TLS
	}
	opts := []sr.ClientOpt{sr.URLs(s.URLs...), sr.UserAgent("calve"), sr.HTTPClient(&http.Client{Timeout: s.Timeout, Transport: bounded{transport}})}
	switch {
	case s.Token != "":
		opts = append(opts, sr.BearerToken(s.Token))
	case s.User != "":
		opts = append(opts, sr.BasicAuth(s.User, s.Password))
	}
	c, err := sr.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	return &Client{sr: c, transport: transport, byID: map[int]decode.WriterSchema{}, versions: map[version]sr.SubjectSchema{}}, nil
}

// bare leaves out what should be a URL where it may have a secret.
func bare(u string) string {
	if strings.ContainsAny(u, "@?#") {
		return "…"
	}
	return u
}

// Close gives its connections up.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// bounded ends answers that are too long; the client reads them whole.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = body{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

type body struct {
	io.Reader
	io.Closer
}

// Schema gives the schema of an id, with those that it refers to. An error that matches decode.ErrNoSchema says that the
// registry answered and does not know it; any other that it did not answer as it should, so that it may later.
func (c *Client) Schema(ctx context.Context, id int) (decode.WriterSchema, error) {
	c.mu.Lock()
	w, ok := c.byID[id]
	c.mu.Unlock()
	if ok {
		return w, nil
	}
	s, err := c.sr.SchemaByID(ctx, id)
	if err != nil {
		return w, failed(err, fmt.Sprintf("schema id %d", id))
	}
	if w, err = c.whole(ctx, s); err != nil {
		return w, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[id] = w
	return w, nil
}

// Latest gives the newest schema of a subject, such as "orders-value" for the values of the topic orders. Errors as Schema's.
func (c *Client) Latest(ctx context.Context, subject string) (decode.WriterSchema, error) {
	s, err := c.sr.SchemaByVersion(ctx, subject, -1)
	if err != nil {
		return decode.WriterSchema{}, failed(err, fmt.Sprintf("subject %q", subject))
	}
	return c.whole(ctx, s.Schema)
}

// failed tells an unknown schema from other failures.
func failed(err error, what string) error {
	var resp *sr.ResponseError
	if errors.As(err, &resp) && resp.StatusCode == http.StatusNotFound && resp.ErrorCode/100 == 404 {
		return fmt.Errorf("%w: %s: %s", decode.ErrNoSchema, what, resp.Message)
	}
	if resp != nil {
		return fmt.Errorf("schema registry: %s: status %d: %w", what, resp.StatusCode, err)
	}
	return fmt.Errorf("schema registry: %s: %w", what, err)
}

// whole fetches what a schema refers to.
func (c *Client) whole(ctx context.Context, s sr.Schema) (decode.WriterSchema, error) {
	w := decode.WriterSchema{Kind: decode.SchemaKind(s.Type.String()), Text: s.Schema}
	seen := map[string]bool{}
	var follow func(refs []sr.SchemaReference, depth int) error
	follow = func(refs []sr.SchemaReference, depth int) error {
		for _, r := range refs {
			if seen[r.Name] {
				continue
			}
			seen[r.Name] = true
			if len(seen) > maxFiles || depth > 100 {
				return fmt.Errorf("%w: it refers to more than %d others", decode.ErrNoSchema, maxFiles)
			}
			x, err := c.version(ctx, version{r.Subject, r.Version})
			if err != nil {
				return err
			}
			if err := follow(x.References, depth+1); err != nil {
				return err
			}
			w.References = append(w.References, decode.SchemaFile{Name: r.Name, Text: x.Schema.Schema})
		}
		return nil
	}
	return w, follow(s.References, 0)
}

func (c *Client) version(ctx context.Context, v version) (sr.SubjectSchema, error) {
	c.mu.Lock()
	s, ok := c.versions[v]
	c.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := c.sr.SchemaByVersion(ctx, v.subject, v.number)
	if err != nil {
		return s, failed(err, fmt.Sprintf("subject %q version %d", v.subject, v.number))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions[v] = s
	return s, nil
}
