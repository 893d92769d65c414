//go:build interop

// Command chaos kills calve again and again while it ingests: `go run -tags interop ./interop/chaos -h`.
package main

import (
	"os"

	"github.com/calve-io/calve/interop"
)

func main() {
	os.Exit(interop.ChaosMain(os.Args[1:], os.Stdout, os.Stderr))
}
