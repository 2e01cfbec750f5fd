// Scriptmodel serves a scripted model on a loopback port for scripts/demo-agent. It
// is no part of the product.
//
//	scriptmodel -key FILE -url FILE COMMAND
//
// It requires the key in FILE in any header, writes its URL to the other FILE, and
// answers every agent that calls with: run COMMAND in your shell, then say its output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "scriptmodel:", err)
		os.Exit(1)
	}
}

func run() error {
	keyFile := flag.String("key", "", "file with the key that requests must have")
	urlFile := flag.String("url", "", "file to write the URL to")
	flag.Parse()
	if *keyFile == "" || *urlFile == "" || flag.NArg() != 1 {
		return errors.New("usage: scriptmodel -key FILE -url FILE COMMAND")
	}
	key, err := os.ReadFile(*keyFile)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(*urlFile+".new", fmt.Appendf(nil, "http://%s\n", l.Addr()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(*urlFile+".new", *urlFile); err != nil { // nobody reads half of it
		return err
	}
	s := &scriptmodel.Server{
		Key:    strings.TrimSpace(string(key)),
		Script: scriptmodel.Steps(scriptmodel.Shell(flag.Arg(0)), scriptmodel.Echo()),
	}
	return http.Serve(l, s) //nolint:gosec // loopback, for the length of a demo
}
