package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/calve-io/calve/internal/config"
)

// guard lets requests through that have one of the tokens. Tokens are kept as their hashes only, and never told.
type guard struct{ hashes [][sha256.Size]byte }

// maxTokenFile bounds a file of tokens.
const maxTokenFile = 1 << 20

// newGuard reads the tokens that a configuration names.
func newGuard(c config.HTTP) (*guard, error) {
	g := &guard{}
	if c.TokenEnv != "" {
		token := strings.TrimSpace(os.Getenv(c.TokenEnv))
		if token == "" {
			return nil, fmt.Errorf("key \"http.token-env\": the environment variable %s is empty or not set", c.TokenEnv)
		}
		g.hashes = append(g.hashes, sha256.Sum256([]byte(token)))
	}
	if c.TokenFile == "" {
		return g, nil
	}
	info, err := os.Stat(c.TokenFile)
	if err == nil && info.Size() > maxTokenFile {
		err = fmt.Errorf("the file has %d bytes, at most %d", info.Size(), maxTokenFile)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(c.TokenFile)
	}
	if err != nil {
		return nil, fmt.Errorf("key \"http.token-file\": %w", err)
	}
	n := len(g.hashes)
	for line := range bytes.Lines(data) {
		if token := bytes.TrimSpace(line); len(token) > 0 {
			g.hashes = append(g.hashes, sha256.Sum256(token))
		}
	}
	if len(g.hashes) == n {
		return nil, fmt.Errorf("key \"http.token-file\": there is no token in %s; write one a line", c.TokenFile)
	}
	return g, nil
}

// wrap puts the guard before a handler. Without tokens only connections to a loopback address are let through.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(g.hashes) == 0 {
			if !loopback(r) {
				refuse(w, problem{Status: http.StatusForbidden, What: "this server has no token, so it answers on loopback addresses only", Where: r.URL.Path,
					Do: "set http.token-env or http.token-file in its configuration"})
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
		ok := 0
		for i := range g.hashes {
			ok |= subtle.ConstantTimeCompare(sum[:], g.hashes[i][:])
		}
		if ok != 1 || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", `Bearer realm="calve"`)
			refuse(w, problem{Status: http.StatusUnauthorized, What: "no token, or not one that is known", Where: r.URL.Path, Do: "send the header Authorization: Bearer TOKEN"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether a request came in on a loopback address and asks for one: a web page can have a browser on this
// machine send others, by a name that resolves here or from its own site.
func loopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	ip := net.ParseIP(host)
	local := strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
	return ok && addr.IP.IsLoopback() && local && r.Header.Get("Sec-Fetch-Site") != "cross-site"
}

// problem is what a client is told of a mistake: what is wrong, where, and what to do.
type problem struct {
	Status int            `json:"-"`
	What   string         `json:"what"`
	Where  string         `json:"where"`
	Do     string         `json:"do,omitempty"`
	More   map[string]any `json:"details,omitempty"`
}

// refuse answers with a problem, as {"error":{…}}.
func refuse(w http.ResponseWriter, p problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.json()) // whoever asked may be gone
}

// json is the body of the answer, a line.
func (p problem) json() []byte {
	b, err := json.Marshal(map[string]problem{"error": p})
	if err != nil {
		b = []byte(`{"error":{"what":"an error that cannot be told"}}`)
	}
	return append(b, '\n')
}

// errGone: the client has gone or does not take what is written.
var errGone = errors.New("the client is gone")
