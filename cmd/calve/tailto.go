package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/internal/changes"
	"github.com/calve-io/calve/internal/kafkaout"
	"github.com/calve-io/calve/reader"
)

// tailTo writes the stream into a topic.
func (a *app) tailTo(ctx context.Context, r *reader.Reader, name string, t *tailFlags) error {
	cfg, err := parseTopic(t.to, name)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	if t.spec.Share.Of > 1 {
		cfg.ID = t.spec.Share.Consumer(cfg.ID)
	}
	if t.format == changes.JSON && t.spec.OnGap == reader.Rescan {
		return errors.New("--on-gap rescan: rows and tombstones cannot tell which keys are gone; use --format debezium")
	}
	cfg.Format, cfg.Source = t.format, sourceOf(name)
	log, err := a.logger()
	if err != nil {
		return err
	}
	return kafkaout.Run(ctx, r, t.spec, cfg, kafkaout.Env{After: time.After, Log: log})
}

// parseTopic reads kafka://BROKER,BROKER/TOPIC?id=NAME&tls=true&sasl=MECHANISM&user=NAME&password-env=VARIABLE.
func parseTopic(text, table string) (kafkaout.Config, error) {
	var cfg kafkaout.Config
	rest, ok := strings.CutPrefix(text, "kafka://")
	rest, query, _ := strings.Cut(rest, "?")
	brokers, topic, _ := strings.Cut(rest, "/")
	if !ok || brokers == "" || topic == "" || strings.ContainsAny(topic, "/@") || strings.Contains(brokers, "@") {
		return cfg, errors.New("use kafka://BROKER,BROKER/TOPIC, such as kafka://localhost:9092/orders; credentials are given as ?sasl=…&user=…&password-env=VARIABLE")
	}
	cfg.Brokers, cfg.Topic, cfg.ID = strings.Split(brokers, ","), topic, "calve-tail-"+table+"-"+topic
	values, err := url.ParseQuery(query)
	if err != nil {
		return cfg, fmt.Errorf("what follows the topic: %w", err)
	}
	for key, v := range values {
		switch value := v[0]; key {
		case "id":
			cfg.ID = value
		case "tls":
			on, err := strconv.ParseBool(value)
			if err != nil {
				return cfg, fmt.Errorf("tls=%q: use true or false", value)
			}
			if on {
				cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			}
		case "begin":
			if cfg.Begin, err = strconv.ParseBool(value); err != nil {
				return cfg, fmt.Errorf("begin=%q: use true or false", value)
			}
		case "max-message-bytes":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 1 {
				return cfg, fmt.Errorf("max-message-bytes=%q: use a number of bytes", value)
			}
			cfg.MaxBytes = int32(n)
		case "sasl":
			cfg.SASL.Mechanism = value
		case "user":
			cfg.SASL.User = value
		case "password-env":
			if cfg.SASL.Password = os.Getenv(value); cfg.SASL.Password == "" {
				return cfg, fmt.Errorf("password-env: the environment variable %s is empty or not set", value)
			}
		default:
			return cfg, fmt.Errorf("%q is unknown; after the topic there may be id, tls, sasl, user, password-env, begin and max-message-bytes", key)
		}
	}
	if cfg.SASL != (ingest.SASL{}) && (cfg.SASL.Mechanism == "" || cfg.SASL.User == "" || cfg.SASL.Password == "") {
		return cfg, errors.New("sasl, user and password-env belong together")
	}
	return cfg, nil
}
