//go:build interop

package interop

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// What a saboteur does to a request.
const (
	faultError     = "error"      // an answer of 500 or 503, or a refusal that a client may try again, and nothing was done
	faultLie       = "lie"        // an answer of 500, though it was carried out
	faultSlow      = "slow"       // carried out after a while
	faultDrop      = "drop"       // no answer, nothing was done
	faultLost      = "lost"       // no answer, though it was carried out
	faultLate      = "late"       // no answer, and it is carried out a while later, when its sender has tried again or is dead
	faultCutBody   = "cut-body"   // the connection ends in the middle of the request's body
	faultCutAnswer = "cut-answer" // the connection ends in the middle of the answer's body
)

// saboteur is an S3 endpoint before the real one that fails requests at random, more of them now and then, and most of all
// those that publish. Each process has one of its own, so that a request tells from which one it came.
type saboteur struct {
	Endpoint string
	target   string
	client   *http.Client
	server   *http.Server
	zombies  *zombies // those before one warehouse share it

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	calm   bool // nothing fails any more
	stormy bool
	turn   time.Time         // when the weather changes
	cursed map[string]*curse // requests that fail again and again
	aim    *aim
	always string // the fault of all requests; "": chance decides
	counts map[string]int
}

// rivalMet is counted with the faults: a request found its object written by one whose sender had given up, or was dead.
const rivalMet = "overtaken"

// zombies are requests to write that nobody waits for any more, and that are carried out just before somebody else writes
// the same object: who writes it meets what was not there when it looked.
type zombies struct {
	mu  sync.Mutex
	put map[string]func() // by path
}

// take gives the one of a path, once; nil: there is none.
func (z *zombies) take(path string) func() {
	z.mu.Lock()
	defer z.mu.Unlock()
	put := z.put[path]
	delete(z.put, path)
	return put
}

// later has a request carried out after a while, or when another one of its object comes first.
func (s *saboteur) later(r *http.Request, body []byte, wait time.Duration, meet bool) {
	var once sync.Once
	carry := func() { once.Do(func() { _, _, _ = s.forward(r, body) }) } // nobody waits for the answer
	if meet && r.Method == http.MethodPut {
		s.zombies.mu.Lock()
		s.zombies.put[r.URL.Path] = carry
		s.zombies.mu.Unlock()
		wait += 3 * time.Second
	}
	time.AfterFunc(wait, carry)
}

// curse has the next requests of a name fail alike, so that clients that try again give up.
type curse struct {
	kind string
	left int
}

// aim is the request at which the process that sends it is killed.
type aim struct {
	method, part string // of the path
	skip         int    // so many like it go on
	fate         string // faultDrop, faultLost or faultLate: what becomes of the request
	hit          chan struct{}
	dead         chan struct{} // closed by who kills
}

// maxObject is more than any request or answer of the suite has.
const maxObject = 64 << 20

// startSaboteur puts one before an S3 server.
func startSaboteur(target string, seed uint64) (*saboteur, error) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &saboteur{Endpoint: "http://" + listen.Addr().String(), target: target, zombies: &zombies{put: map[string]func(){}}, rng: rand.New(rand.NewPCG(seed, 31)), cursed: map[string]*curse{}, counts: map[string]int{},
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(listen) }() // until Close
	return s, nil
}

// Close ends the server and all connections.
func (s *saboteur) Close() { _ = s.server.Close() }

// Calm has nothing fail from now on.
func (s *saboteur) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm, s.aim = true, nil
}

// Aim says at which request the process is to be killed; nil: at none.
func (s *saboteur) Aim(a *aim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aim = a
}

// Counts tells how often each fault happened.
func (s *saboteur) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// fault is what is to happen to a request.
type fault struct {
	kind string // "": nothing
	code string // of faultError
	wait time.Duration
	meet bool // of faultLate: it waits for another request of its object
	aim  *aim
}

// choose decides about a request.
func (s *saboteur) choose(r *http.Request) (f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calm {
		return f
	}
	if a := s.aim; a != nil && r.Method == a.method && strings.Contains(r.URL.Path, a.part) {
		if a.skip--; a.skip < 0 {
			s.aim = nil
			return fault{kind: a.fate, wait: s.between(0, 1500*time.Millisecond), meet: s.rng.IntN(3) > 0, aim: a}
		}
	}
	if now := time.Now(); now.After(s.turn) {
		s.stormy = !s.stormy
		s.turn = now.Add(s.between(2*time.Second, 8*time.Second))
		if s.stormy {
			s.turn = now.Add(s.between(300*time.Millisecond, 2*time.Second))
		}
	}
	f.wait = s.between(200*time.Millisecond, 2500*time.Millisecond)
	f.meet = s.rng.IntN(2) == 0
	f.code = faultCodes[s.rng.IntN(len(faultCodes))]
	if f.kind = s.always; f.kind == "" {
		f.kind = s.kind(r)
	}
	if f.kind != "" {
		s.counts[f.kind]++
	}
	return f
}

func (s *saboteur) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)))
}

// kind chooses what becomes of a request; mu is held.
func (s *saboteur) kind(r *http.Request) string {
	name := r.Method + " " + r.URL.Path
	if c := s.cursed[name]; c != nil {
		if c.left--; c.left <= 0 {
			delete(s.cursed, name)
		}
		return c.kind
	}
	chance := 2
	if s.stormy {
		chance = 40
	}
	publishes := r.Method == http.MethodPut && strings.HasPrefix(path.Base(r.URL.Path), "snapshot-")
	if publishes {
		chance += 15
	}
	if s.rng.IntN(100) >= chance {
		return ""
	}
	kinds := []string{faultError, faultError, faultSlow, faultDrop, faultLost, faultLie}
	switch r.Method {
	case http.MethodPut:
		kinds = append(kinds, faultLate, faultCutBody, faultLost)
	case http.MethodDelete:
		kinds = append(kinds, faultLate)
	case http.MethodGet:
		kinds = append(kinds, faultCutAnswer)
	}
	kind := kinds[s.rng.IntN(len(kinds))]
	if publishes && s.rng.IntN(2) == 0 && len(s.cursed) < 1000 {
		s.cursed[name] = &curse{kind, 1 + s.rng.IntN(10)}
	}
	return kind
}

// ServeHTTP is for the HTTP server.
func (s *saboteur) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := s.choose(r)
	if f.kind == faultCutBody {
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2) // what does not come is as good
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxObject))
	if err != nil {
		panic(http.ErrAbortHandler) // the sender is gone, so the server would not do it either
	}
	if r.Method == http.MethodPut {
		if carry := s.zombies.take(r.URL.Path); carry != nil {
			carry()
			s.met()
		}
	}
	if f.aim != nil {
		s.strike(f, r, body)
		panic(http.ErrAbortHandler)
	}
	switch f.kind {
	case faultError:
		answerError(w, f.code)
		return
	case faultDrop:
		panic(http.ErrAbortHandler)
	case faultSlow:
		time.Sleep(f.wait)
	case faultLate:
		s.later(r.Clone(context.Background()), body, f.wait, f.meet)
		panic(http.ErrAbortHandler)
	}
	answer, text, err := s.forward(r, body)
	if err != nil {
		answerError(w, "InternalError")
		return
	}
	switch f.kind {
	case faultLost:
		panic(http.ErrAbortHandler)
	case faultLie:
		answerError(w, "InternalError")
		return
	}
	header := w.Header()
	for k, v := range answer.Header {
		header[k] = v
	}
	w.WriteHeader(answer.StatusCode)
	if f.kind == faultCutAnswer && len(text) > 0 {
		_, _ = w.Write(text[:len(text)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(text) // a client that is gone needs none
}

// strike has the sender of a request killed, before it is carried out, behind it, or never to be carried out.
func (s *saboteur) strike(f fault, r *http.Request, body []byte) {
	r = r.Clone(context.Background())
	if f.kind == faultLost {
		_, _, _ = s.forward(r, body) // the server's answer is for nobody
	}
	close(f.aim.hit)
	<-f.aim.dead
	if f.kind == faultLate {
		s.later(r, body, f.wait, f.meet)
	}
}

// met counts a request that was overtaken by one of the past.
func (s *saboteur) met() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[rivalMet]++
}

// forward has the server carry a request out, whether its sender still lives or not.
func (s *saboteur) forward(r *http.Request, body []byte) (*http.Response, []byte, error) {
	ctx := context.WithoutCancel(r.Context())
	out, err := http.NewRequestWithContext(ctx, r.Method, s.target+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Expect") // the body is at hand
	out.Host = r.Host        // the signature is over it
	resp, err := s.client.Do(out)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxObject))
	return resp, text, err
}

// faultCodes are codes of errors; those of faultStatus have another status than 503.
var faultCodes = []string{"InternalError", "InternalError", "SlowDown", "SlowDown", "ServiceUnavailable", "RequestTimeout", "ExpiredToken", "ConditionalRequestConflict"}

var faultStatus = map[string]int{"InternalError": http.StatusInternalServerError, "RequestTimeout": http.StatusBadRequest,
	"ExpiredToken": http.StatusBadRequest, "ConditionalRequestConflict": http.StatusConflict}

// answerError answers as S3 does when it has trouble.
func answerError(w http.ResponseWriter, code string) {
	status := cmp.Or(faultStatus[code], http.StatusServiceUnavailable)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message></Error>`, code)
}
