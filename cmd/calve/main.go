// Command calve lands streams in a lakehouse: snow in, icebergs out.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	err := a.command().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if errors.Is(err, errMissing) {
		os.Exit(2)
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintf(os.Stderr, "calve: %v\n", err)
	}
	os.Exit(1)
}
