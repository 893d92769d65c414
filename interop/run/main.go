//go:build interop

// Command run runs calve's interop suite: `go run -tags interop ./interop/run -h`.
package main

import (
	"os"

	"github.com/calve-io/calve/interop"
)

func main() {
	os.Exit(interop.Main(os.Args[1:], os.Stdout, os.Stderr))
}
