package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// The flights: a file of a package in the npm registry, and what it must be.
const (
	flightsPackage = "vega-datasets@3.2.1"
	flightsFile    = "package/data/flights-3m.parquet"
	flightsSum     = "dbeb920c90f59b6ccaff823dcc3d08f25a97fa1ce128d93f40be4e931f5900b0"
	flightsMax     = 32 << 20
)

// fetchFlights puts the flights into the file name, unless it is there.
func fetchFlights(ctx context.Context, name string) error {
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	data, err := packed(ctx, filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("fetch the flights (or name the file with -flights): %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != flightsSum {
		return fmt.Errorf("%s of %s is not the file it was: SHA-256 is %x", flightsFile, flightsPackage, sum)
	}
	if err := os.WriteFile(name+".part", data, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}

// packed gives the file's bytes out of the package, which is fetched into a folder below dir.
func packed(ctx context.Context, dir string) (_ []byte, err error) {
	tmp, err := os.MkdirTemp(dir, "npm-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	npm := exec.CommandContext(ctx, "npm", "pack", "--silent", flightsPackage)
	npm.Dir = tmp
	if out, err := npm.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm pack %s: %w: %s", flightsPackage, err, out)
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("npm pack %s left %d archives: %w", flightsPackage, len(files), err)
	}
	archive, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err != nil {
			return nil, fmt.Errorf("%s in %s: %w", flightsFile, flightsPackage, err)
		}
		if h.Name == flightsFile {
			return io.ReadAll(io.LimitReader(t, flightsMax))
		}
	}
}
