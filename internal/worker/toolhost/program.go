package toolhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/worker/broker"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mcpclient"
)

const (
	startTime = 60 * time.Second // for the jail
	closeTime = 2 * time.Second  // for a server to exit once its input has ended
	killTime  = 2 * time.Second  // from SIGTERM to SIGKILL
	caFile    = ".bailiwick/ca.pem"
)

// running is a program in its jail.
type running struct {
	exited chan struct{}
	stop   context.CancelFunc // kills it
	exit   jail.Exit          // once exited is closed
	err    error              // likewise
}

// program starts the server in its jail.
func (h *host) program(ctx context.Context) (*mcpclient.Program, error) {
	theirs, in := io.Pipe()
	out, their := io.Pipe()
	r, err := h.run(ctx, h.start.Server.Stdio.Command, theirs, their)
	if err != nil {
		return nil, err
	}
	go func() {
		<-r.exited
		_, _ = their.Close(), theirs.Close()
	}()
	return &mcpclient.Program{In: in, Out: out, Exited: r.exited, Close: func() (string, error) {
		_ = in.Close()
		go func() { _, _ = io.Copy(io.Discard, out) }() // so that it does not block on what it still writes
		timer := time.AfterFunc(closeTime, r.stop)
		<-r.exited
		timer.Stop()
		said, _ := h.says.said()
		return said, r.err
	}}, nil
}

// run starts a jail with what it reaches, and runs a command in it. The jail outlives ctx,
// which bounds its start.
func (h *host) run(ctx context.Context, command api.Command, in io.Reader, out io.Writer) (*running, error) {
	s := h.start.Server.Host()
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
	starting, started := context.WithTimeout(ctx, startTime)
	defer started()
	j, err := jail.Start(starting, spec)
	if err != nil {
		return nil, fmt.Errorf("the server could not be started: %w", err)
	}
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop, err := h.connect(living, j)
	if err != nil {
		cancel()
		return nil, errors.Join(err, j.Close())
	}
	r := &running{exited: make(chan struct{}), stop: cancel}
	h.busy.Go(func() {
		defer close(r.exited)
		defer cancel()
		r.exit, r.err = j.Run(living, jail.Command{Argv: command, Env: h.environment(network), Stdin: in, Stdout: out, Stderr: h.says.server(), Grace: killTime})
		if len(r.exit.Hit) > 0 {
			h.says.own("the server reached a limit of its jail: " + strings.Join(r.exit.Hit, ", "))
		}
		if r.err != nil && living.Err() == nil {
			h.says.own("the server could not be run: " + r.err.Error())
		}
		stop()
		if err := j.Close(); err != nil {
			h.says.own("its jail could not be removed: " + err.Error())
		}
	})
	return r, nil
}

func limitsOf(l api.Limits) jail.Limits {
	l = l.Or(api.DefaultLimits())
	return jail.Limits{Memory: int64(l.Memory), Disk: int64(l.Disk), FileSize: int64(l.FileSize), Processes: l.Processes, Files: l.Files, CPU: l.CPU}
}

// environment is the whole environment of the server. What humans set comes last.
func (h *host) environment(network map[string]string) []string {
	s := h.start.Server.Host()
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
