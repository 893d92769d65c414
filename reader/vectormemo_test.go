package reader

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/storage"
)

// TestVectorsAreReadSideBySide: who reads a deletion vector keeps nobody from reading another, and each is read once.
func TestVectorsAreReadSideBySide(t *testing.T) {
	local, err := storage.NewLocal(filepath.Join(goldenDir, "golden.db", "pk_deletion_vectors"))
	if err != nil {
		t.Fatal(err)
	}
	plain := Open(local, testEnv())
	snap, err := plain.meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := plain.viewOf(t.Context(), Query{}, snap)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := plain.vectors(t.Context(), v, snap)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]vectorAt{}
	for _, m := range dead {
		for name, place := range m {
			at[name], at[name+" again"] = place, place // of one vector two names: they are read apart
		}
	}
	if len(at) < 2 {
		t.Fatal("no vectors")
	}
	arrived := make(chan struct{}, len(at)*3)
	release := make(chan struct{})
	r := Open(storage.WithFaults(local, func(op storage.Op) error {
		if op.Kind == storage.OpOpen && strings.Contains(op.Name, "index") {
			arrived <- struct{}{}
			<-release
		}
		return nil
	}), testEnv())
	of := (&vectorMemo{r: r, m: map[string]*vectorSlot{}}).of(at)
	var g errgroup.Group
	for name := range at {
		for range 3 {
			g.Go(func() error {
				v, err := of(t.Context(), name)
				if err == nil && v == nil {
					err = errors.New("no vector")
				}
				return err
			})
		}
	}
	for range len(at) {
		select {
		case <-arrived:
		case <-time.After(20 * time.Second):
			t.Error("one waits for another")
		}
	}
	close(release)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(arrived) > 0 {
		t.Errorf("%d vectors were read again", len(arrived))
	}
}
