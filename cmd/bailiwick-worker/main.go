// Command bailiwick-worker supervises one dispatch. bailiwickd starts it with
// the directory of the attempt and the digest of its manifest, with the socket to
// listen on as descriptor 3, the values of its secrets as descriptor 4, and what records
// that it began as descriptor 5.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
	"github.com/bailiwick-dev/bailiwick/internal/worker/supervisor"
)

func main() {
	jail.Main() // the worker is also the first process of its jail
	if err := run(); err != nil {
		usererror.Print(os.Stderr, "bailiwick-worker", "text", err, func(s string) string { return s })
		os.Exit(1)
	}
}

func run() error {
	flags := flag.NewFlagSet("bailiwick-worker", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("attempt", "", "directory of the attempt")
	scratch := flags.String("scratch", "", "directory that no other account writes; empty: that of the attempt")
	manifest := flags.String("manifest", "", "digest of its signed manifest")
	probe := flags.Bool("probe", false, "print which isolation layers a jail of this process has")
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		return usererror.OfFlag(err, "bailiwickd --help; it starts this program")
	}
	if *version {
		_, err := fmt.Printf("bailiwick-worker version %s\n", api.Version())
		return err
	}
	if *probe {
		doc, err := canon.Marshal(jail.Probe(context.Background()))
		if err == nil {
			_, err = os.Stdout.Write(doc)
		}
		return err
	}
	if *dir == "" || *manifest == "" || flags.NArg() > 0 {
		return errors.New("bailiwickd starts this program; do not run it by hand")
	}
	// Child processes must not inherit them.
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	syscall.CloseOnExec(5)
	secrets, err := readSecrets(os.NewFile(4, "secrets"))
	if err != nil {
		return fmt.Errorf("descriptor 4 has no secrets: its launcher was killed before it recorded this process: %w", err)
	}
	listener, err := net.FileListener(os.NewFile(3, "control"))
	if err != nil {
		return fmt.Errorf("descriptor 3 is not the socket of the attempt: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return supervisor.Run(context.Background(), supervisor.Config{
		Dir: *dir, Scratch: *scratch, Manifest: api.Digest(*manifest), Began: os.NewFile(5, "started"), Tool: filepath.Join(filepath.Dir(self), "bailiwick-tool"), Dirs: api.DirsFrom(os.Getenv, os.Getuid()), Listener: listener, Secrets: secrets, Certificates: os.Getenv("SSL_CERT_FILE"), Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// readSecrets reads what the launcher writes once it has recorded this process, and
// closes the pipe. Before that the process has no effect.
func readSecrets(pipe *os.File) (secrets record.Secrets, err error) {
	doc, err := io.ReadAll(io.LimitReader(pipe, record.MaxSecrets))
	if err == nil {
		err = canon.Decode(doc, &secrets)
	}
	clear(doc)
	return secrets, errors.Join(err, pipe.Close())
}
