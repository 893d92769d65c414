package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/calve-io/calve/storage"
)

// errNoAnswer is what is known of a warehouse that was just asked for the first time.
var errNoAnswer = errors.New("it has been asked")

// awaitWarehouse waits until the warehouse can be worked with. An error says that it never will be, as far as one can tell;
// it is nil when ctx ends.
func (s *Server) awaitWarehouse(ctx context.Context) error {
	if s.opts.Verify == nil {
		return nil
	}
	waited := false
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		within, cancel := context.WithTimeout(ctx, s.patience)
		err := s.opts.Verify(within)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		s.mu.Lock()
		s.away = err
		s.mu.Unlock()
		switch {
		case err == nil && waited:
			s.env.Log.Info("the warehouse answers", "warehouse", s.warehouse.URL(""))
		case err != nil && storage.MayPass(err):
			s.env.Log.Warn("the warehouse does not answer; nothing runs until it does", "error", err, "again_in", wait)
		}
		if err == nil || !storage.MayPass(err) {
			return err
		}
		waited = true
		select {
		case <-s.env.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// there answers for a handler that works on the warehouse as long as nothing runs: it must not be written to yet, and
// reading would wait.
func (s *Server) there(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away := s.problemOfWarehouse(); away != "" {
			w.Header().Set("Retry-After", "5")
			refuse(w, problem{Status: http.StatusServiceUnavailable, What: away, Where: r.URL.Path, Do: "come again; GET /status tells when it is there"})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// problemOfWarehouse says why nothing runs yet; "": it does.
func (s *Server) problemOfWarehouse() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		return ""
	}
	return fmt.Sprintf("the warehouse does not answer, and nothing runs until it does: %v", s.away)
}
