package storage_test

import (
	"testing"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

func TestMem(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Store { return storage.NewMem() })
}
