package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/storage"
)

// TestProbe: what cannot be worked with is named, with the reason; nothing is left behind, and no secret is told.
func TestProbe(t *testing.T) {
	l := newLab(t, "a", "b.c", "b-c")
	t.Setenv("CALVE_TEST_PASSWORD", "hush hush")
	broken := l.section("lost", "a", appendTable, "")
	broken = strings.Replace(broken, l.ListenAddrs()[0], "127.0.0.1:1", 1)
	secret := strings.Replace(l.section("secret", "a", appendTable), "topic: a", "topic: a, sasl: {mechanism: PLAIN, user: u, password-env: CALVE_TEST_PASSWORD}", 1)
	secret = strings.Replace(secret, l.ListenAddrs()[0], "127.0.0.1:2", 1)
	cfg := l.config(l.section("good", "a", appendTable), l.section("gone", "nothing", appendTable), l.section("tableless", "a"), broken, secret,
		l.family("lake", "raw.{topic}", `topic-pattern: ".*"`, appendTable))
	probe := func(wh storage.Store, cfg *config.Config) map[string]Finding {
		s, err := New(cfg, wh, Options{}, hastyEnv())
		if err != nil {
			t.Fatal(err)
		}
		s.patience = 500 * time.Millisecond
		out := map[string]Finding{}
		for _, f := range s.Probe(t.Context()) {
			if strings.Contains(f.What+f.Detail, "hush") {
				t.Errorf("tells a secret: %+v", f)
			}
			out[f.What] = f
		}
		return out
	}
	found := probe(l.mem, cfg)
	for what, want := range map[string]string{
		"warehouse mem:///": "conditional puts hold", "address 127.0.0.1:0": "free", "brokers " + l.ListenAddrs()[0]: "answer; 3 topics",
		"pipeline good": "topic a is there; table shop.good will be created", "pipeline lake": "3 topics match, 2 of them are fine",
	} {
		if f := found[what]; !f.OK || !strings.Contains(f.Detail, want) {
			t.Errorf("%s: %+v, want %s", what, f, want)
		}
	}
	for what, want := range map[string]string{"pipeline gone": `topic "nothing"`, "pipeline tableless": "calve create", "brokers 127.0.0.1:1": "topics of [127.0.0.1:1]"} {
		if f := found[what]; f.What == "" || f.OK || !strings.Contains(f.Detail, want) {
			t.Errorf("%s: %+v, want %s", what, f, want)
		}
	}
	if f := found["pipeline lake:b.c"]; f.OK || !strings.Contains(f.Detail, "make the same table raw.b_c") {
		t.Errorf("names that collide: %+v", f)
	}
	for info, err := range storage.Walk(t.Context(), l.mem, "") {
		t.Errorf("%s is left behind (%v)", info.Name, err)
	}
	full := storage.WithFaults(l.mem, func(op storage.Op) error { return errors.New("the disk is full") })
	if f := probe(full, l.config())["warehouse mem:///"]; f.OK || !strings.Contains(f.Detail, "the disk is full") {
		t.Errorf("%+v", f)
	}
}
