package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/schema"
)

// NewRegistry gives a client of the configured schema registry; nil if there is none.
func NewRegistry(c config.Registry) (*registry.Client, error) {
	if len(c.URLs) == 0 {
		return nil, nil
	}
	password, token, err := c.Secrets()
	if err != nil {
		return nil, err
	}
	set := registry.Settings{URLs: c.URLs, User: c.User, Password: password, Token: token}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("key \"registry.ca\": %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("key \"registry.ca\": %s has no certificate in PEM", c.CA)
		}
		set.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return registry.New(set)
}

// registeredColumns gives the columns of the newest schema that the registry has for the pipeline's topic.
func (p *pipeline) registeredColumns(ctx context.Context) ([]schema.Column, error) {
	subject := p.cfg.Kafka.Topic + "-value"
	w, err := p.registry.Latest(ctx, subject)
	if err != nil {
		return nil, fmt.Errorf("columns of the table %s from subject %q: %w", p.cfg.Table, subject, err)
	}
	var cols []schema.Column
	switch decode.Format(p.cfg.Format.Type) {
	case decode.Protobuf:
		cols, err = decode.ColumnsOfProtobuf(w, p.cfg.Create.Message)
	case decode.FramedJSON:
		cols, err = decode.ColumnsOfJSONSchema(w)
	case decode.DebeziumAvro:
		cols, err = decode.ColumnsOfAvro(w, "after")
	default:
		cols, err = decode.ColumnsOfAvro(w, "")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: subject %q: %w; give create.columns", errSetup, subject, err)
	}
	return cols, nil
}
