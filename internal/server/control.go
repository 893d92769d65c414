package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// resumePipeline answers POST /v1/pipelines/NAME/resume, and …/reset: the pipeline goes on, the latter from the beginning
// of its source if that is another one or was cut. The answer is the pipeline's status.
func (s *Server) resumePipeline(reset bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		p := s.pipeline(name)
		if p == nil {
			refuse(w, problem{Status: http.StatusNotFound, What: fmt.Sprintf("there is no pipeline %q in this process", name), Where: r.URL.Path, Do: "GET /status names them"})
			return
		}
		if st := p.status(); st.State == Elsewhere {
			refuse(w, problem{Status: http.StatusConflict, What: "another process owns the pipeline's table: " + st.Owner, Where: r.URL.Path, Do: "ask that one"})
			return
		}
		if err := p.resume(reset); err != nil {
			refuse(w, problem{Status: http.StatusConflict, What: err.Error(), Where: r.URL.Path, Do: "nothing: only what has failed is to be resumed"})
			if !errors.Is(err, errBusy) {
				s.env.Log.Error("cannot resume", "pipeline", name, "error", err)
			}
			return
		}
		s.env.Log.Info("resumed by a client", "pipeline", name, "reset", reset)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.status()) // the client is gone
	}
}

// pipeline gives the pipeline of this name, nil if there is none.
func (s *Server) pipeline(name string) *pipeline {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// all gives the pipelines of the moment.
func (s *Server) all() []*pipeline {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pipelines[:len(s.pipelines):len(s.pipelines)]
}
