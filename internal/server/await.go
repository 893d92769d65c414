package server

import (
	"context"
	"errors"
	"fmt"
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
	s.mu.Lock()
	s.away = errNoAnswer
	s.mu.Unlock()
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

// problemOfWarehouse says why nothing runs yet; "": it does.
func (s *Server) problemOfWarehouse() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		return ""
	}
	return fmt.Sprintf("the warehouse does not answer, and nothing runs until it does: %v", s.away)
}
