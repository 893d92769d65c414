package server

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/internal/config"
)

// hubs are the connections to the Kafka clusters, one for each set of brokers and credentials.
type hubs struct {
	env engine.Env
	mu  sync.Mutex
	all map[hubKey]*ingest.Hub
}

type hubKey struct {
	brokers string
	tls     bool
	sasl    config.SASL
	secret  string // of today: another one makes another connection
}

func newHubs(env engine.Env) *hubs { return &hubs{env: env, all: map[hubKey]*ingest.Hub{}} }

// get gives the hub of a pipeline's brokers. It is shared; close closes all.
func (h *hubs) get(k config.Kafka) (*ingest.Hub, error) {
	secret, err := k.SASL.Secret()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSetup, err)
	}
	brokers := slices.Sorted(slices.Values(k.Brokers))
	key := hubKey{strings.Join(brokers, ","), k.TLS, k.SASL, secret}
	h.mu.Lock()
	defer h.mu.Unlock()
	if hub := h.all[key]; hub != nil {
		return hub, nil
	}
	cfg := ingest.HubConfig{Brokers: brokers, SASL: ingest.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.User, Password: secret}}
	if k.TLS {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	hub, err := ingest.NewHub(cfg, h.env)
	if err != nil {
		return nil, err
	}
	h.all[key] = hub
	return hub, nil
}

// close ends all connections; no pipeline runs any more.
func (h *hubs) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hub := range h.all {
		hub.Close()
	}
	clear(h.all)
}
