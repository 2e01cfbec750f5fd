package toolhost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/worker/broker"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// Config configures Run.
type Config struct {
	In           io.Reader // a record.ToolStart, files, and what the server reads
	Out          io.Writer // gets what the server writes
	Err          io.Writer // see record.ToolStart
	Certificates string    // file of those that the service trusts instead of the system's; "" for none
	Now          func() time.Time
}

const (
	startTime = 60 * time.Second // for the jail
	closeTime = 2 * time.Second  // for a server to exit once its input has ended
	killTime  = 2 * time.Second  // from SIGTERM to SIGKILL
	caFile    = ".bailiwick/ca.pem"
)

// host is one server with its jail.
type host struct {
	cfg   Config
	start record.ToolStart
	files []jail.File
	in    *bufio.Reader
	says  *speaker
}

// Run runs the server that In names, until it exits or In ends, and returns its exit
// status.
func Run(ctx context.Context, cfg Config) (int, error) {
	h := &host{cfg: cfg, in: bufio.NewReaderSize(cfg.In, 64<<10)}
	if err := h.read(); err != nil {
		return 0, fmt.Errorf("read the server: %w", err)
	}
	h.says = newSpeaker(cfg.Err, redact.New(slices.Collect(maps.Values(h.start.Secrets))), cfg.Now)
	defer h.says.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exit, err := h.run(ctx, cancel)
	if len(exit.Hit) > 0 {
		h.says.own("the server reached a limit of its jail: " + strings.Join(exit.Hit, ", "))
	}
	switch {
	case err != nil && ctx.Err() == nil:
		h.says.own(err.Error())
		return record.ToolHostFailed, nil
	case exit.Signal != 0:
		return 128 + int(exit.Signal), nil
	}
	return exit.Code, nil
}

// read reads the document and the files that follow it.
func (h *host) read() error {
	line, err := readLine(h.in, record.MaxToolStart)
	if err != nil {
		return err
	}
	defer clear(line)
	if err := canon.Decode(line, &h.start); err != nil {
		return err
	}
	left := int64(catalog.MaxBundle)
	for _, f := range h.start.Files {
		if left -= f.Size; f.Size < 0 || left < 0 {
			return fmt.Errorf("its files have more than %d bytes", int64(catalog.MaxBundle))
		}
		content := make([]byte, f.Size)
		if _, err := io.ReadFull(h.in, content); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if got := api.DigestOf(content); got != f.Digest {
			return fmt.Errorf("%s: digest %s, its capability says %s", f.Path, got.Short(), f.Digest.Short())
		}
		h.files = append(h.files, jail.File{Path: f.Path, Mode: os.FileMode(f.Mode & 0o777), Content: content})
	}
	return nil
}

func readLine(r *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > most:
			return nil, fmt.Errorf("a line of more than %d bytes", most)
		}
	}
}

// run starts the jail and what it reaches, and runs the server in it.
func (h *host) run(ctx context.Context, cancel context.CancelFunc) (exit jail.Exit, err error) {
	s := h.start.Host
	spec := jail.Spec{ReadOnly: s.ReadOnly, Files: h.files, Listen: len(s.Egress) > 0, Ports: slices.Sorted(maps.Keys(s.Connect)), Limits: limitsOf(s.Limits)}
	network := map[string]string{}
	if len(s.Egress) > 0 {
		network = broker.ProxyVariables(jail.ListenPort)
		if bundle := broker.Bundle(h.cfg.Certificates, nil); bundle != nil {
			spec.Home = append(spec.Home, jail.File{Path: caFile, Mode: 0o644, Content: bundle})
			for _, name := range broker.BundleVariables() {
				network[name] = jail.HomeDir + "/" + caFile
			}
		}
	}
	starting, started := context.WithTimeout(ctx, startTime) // meanwhile nobody sees the end of In
	defer started()
	j, err := jail.Start(starting, spec)
	if err != nil {
		return jail.Exit{}, fmt.Errorf("the server could not be started: %w", err)
	}
	h.files = nil // it has its own copy
	defer func() { err = errors.Join(err, j.Close()) }()
	stop, err := h.connect(ctx, j)
	if err != nil {
		return jail.Exit{}, err
	}
	defer stop()
	in := &input{from: h.in, ended: func() { time.AfterFunc(closeTime, cancel) }}
	cmd := jail.Command{Argv: h.start.Command, Env: h.environment(network), Stdin: in, Stdout: h.cfg.Out, Stderr: h.says.server(), Grace: killTime}
	if h.start.Input != nil {
		cmd.Stdin = bytes.NewReader(h.start.Input)
		go func() { _, _ = io.Copy(io.Discard, h.in); cancel() }()
	}
	exit, err = j.Run(ctx, cmd)
	if err != nil {
		err = fmt.Errorf("the server could not be run: %w", err)
	}
	return exit, err
}

func limitsOf(l api.Limits) jail.Limits {
	l = l.Or(api.DefaultLimits())
	return jail.Limits{Memory: int64(l.Memory), Disk: int64(l.Disk), FileSize: int64(l.FileSize), Processes: l.Processes, Files: l.Files, CPU: l.CPU}
}

// environment is the whole environment of the server. What humans set comes last.
func (h *host) environment(network map[string]string) []string {
	s := h.start.Host
	path := append(slices.Clone(s.Path), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
	all := map[string]string{"PATH": strings.Join(path, ":"), "HOME": jail.HomeDir, "USER": "agent", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
	maps.Copy(all, network)
	maps.Copy(all, s.Env)
	for name, secret := range s.Secrets {
		all[name] = h.start.Secrets[secret]
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return out
}

// input passes on what the server reads. It reads to the end even after the server has
// closed its side, so that the end of the starter is seen.
type input struct {
	from  *bufio.Reader
	ended func()
}

func (in *input) Read(p []byte) (int, error) { return in.from.Read(p) }

// WriteTo implements io.WriterTo, which io.Copy prefers.
func (in *input) WriteTo(w io.Writer) (n int64, err error) {
	defer in.ended()
	for {
		if _, err := in.from.Peek(1); err != nil {
			return n, nil //nolint:nilerr // the starter is gone
		}
		part, _ := in.from.Peek(in.from.Buffered())
		if err == nil {
			_, err = w.Write(part)
		}
		n += int64(len(part))
		_, _ = in.from.Discard(len(part))
	}
}
