package storage_test

import (
	"testing"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

func newLocal(t *testing.T) *storage.Local {
	t.Helper()
	l, err := storage.NewLocal(t.TempDir() + "/warehouse")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocal(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store { return newLocal(t) })
}
