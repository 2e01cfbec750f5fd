package daemoncli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// starter starts a service in the background.
type starter struct{ *tree }

func (t *starter) startCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error { return t.start(ctx) })
	v.Flag(&t.idle, "idle")
	v.Flag(&t.orchestrator, "orchestrator")
	t.outputFlag(v)
}

// startTries bounds how often start retries after a one-shot service has shut
// down before it could be kept.
const startTries = 8

// start returns when a service answers, or the reason why none does.
func (t *starter) start(ctx context.Context) error {
	if t.Dirs.System() {
		return errUnitServes()
	}
	if t.idle < 0 {
		return api.Errorf(api.CodeInvalid, "--idle %s: want a positive duration", t.idle)
	}
	if err := t.checkRuns(); err != nil {
		return err
	}
	if err := t.ownState(); err != nil {
		return err
	}
	if t.idle == 0 {
		release, err := t.joiner().succeed(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	outcome := upStarted
	for try := 1; ; try++ {
		first, err := t.launch()
		switch {
		case err != nil:
			return err
		case t.idle > 0:
			_, err := fmt.Fprintln(t.Stdout, first.Listening+first.Answers) // one of them
			return err
		case first.Listening != "":
			return t.reportUp(ctx, outcome, first.Listening)
		}
		kept, err := t.keep(ctx, first.Answers)
		switch {
		case err == nil:
			return t.reportUp(ctx, kept, first.Answers)
		case api.CodeOf(err) != api.CodeUnavailable || try == startTries:
			return err
		}
		outcome = kept
	}
}

// keep turns the running service at socket into the one that up is asked for,
// unless that would stop a service that was started on purpose. The error
// is service_unavailable if it has shut down, so that another can start.
func (t *starter) keep(ctx context.Context, socket string) (outcome upOutcome, err error) {
	conn := client.New(client.Config{Socket: socket, UIDs: []int{t.UID}})
	defer conn.Close()
	s, err := conn.Operator().Status(ctx)
	if err != nil {
		return upStarted, err
	}
	set, err := t.settings()
	if err != nil {
		return upStarted, err
	}
	differs := t.differences(&s, set)
	explicit := t.socket != "" && t.socket != s.Socket || t.config != "" && t.config != s.ConfigFile
	switch {
	case s.Orchestrator == nil && t.wantsRuns(set) && !explicit:
		t.socket = s.Socket
		if s.ConfigFile != t.Dirs.ServiceConfig() {
			t.config = s.ConfigFile
		}
		return upReplaced, t.stopForSuccessor(ctx, conn, s)
	case s.OneShot != nil && (len(differs) > 0 || t.givesSecrets(set)):
		return upReplaced, t.stopForSuccessor(ctx, conn, s)
	case s.Orchestrator == nil && t.orchestrator:
		return upRunning, api.Errorf(api.CodeConflict, "the service that runs as process %d has no orchestrator, and other settings:\n%s", s.PID, strings.Join(differs, "\n")).
			WithHint("to run plans with its settings: %s; with yours: bailiwick down, then repeat the command", api.StartRuns(api.ModeSameUser))
	case s.OneShot != nil:
		return upKept, conn.Operator().Stay(ctx)
	}
	return upRunning, nil
}

// givesSecrets reports whether secrets come from the environment of this command, which
// a one-shot service does not have.
func (t *starter) givesSecrets(set settings) bool {
	_, credentials := t.Lookup("CREDENTIALS_DIRECTORY")
	return credentials || len(set.Secrets.Env) > 0
}

// stopForSuccessor stops a service, so that another can start on its state. It
// always returns an error, service_unavailable after the service has stopped.
func (t *starter) stopForSuccessor(ctx context.Context, conn *client.Conn, s api.ServiceStatus) error {
	if err := conn.Operator().Stop(ctx); err != nil {
		return err
	}
	if err := awaitEnd(ctx, t.Dirs.Address()); err != nil {
		return err
	}
	return api.Errorf(api.CodeUnavailable, "the service that ran as process %d has stopped", s.PID)
}

// endTries is how often awaitEnd waits for stopTimeout.
const endTries = 6

// awaitEnd returns when the service has exited.
func awaitEnd(ctx context.Context, path string) (err error) {
	for range endTries {
		var a *address
		if a, err = claimAddress(ctx, path); err == nil {
			return a.f.Close()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return api.Errorf(api.CodeNotFinished, "the service is still running after a stop request: %w", err).WithHint("see service.log in the state directory")
}

func (t *tree) logPath() string { return filepath.Join(t.Dirs.State, "service.log") }

// launch starts a service process and returns its first report.
func (t *starter) launch() (r report, err error) {
	log, err := os.OpenFile(t.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // G304: in the state directory
	if err != nil {
		return r, api.Errorf(api.CodeUnavailable, "log of the service: %w", err).WithHint("make %s a file that this account can write", t.logPath())
	}
	defer log.Close() //nolint:errcheck // the service has its own copy
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return r, err
	}
	cmd := exec.Command(t.Self, t.serveArgs()...) //nolint:gosec,noctx // G204: this program; it outlives the command
	cmd.Env, cmd.Stderr, cmd.Dir = t.Env, log, "/"
	// In a session of its own, no signal of this terminal or process group reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	// EOF without a report means that it has exited.
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	switch {
	case err != nil:
		return r, errors.Join(t.startError(from), ignoreExit(cmd.Wait()))
	case r.Failed != nil:
		failed := *r.Failed
		failed.Message = "the service did not start:\n" + failed.Message
		return r, errors.Join(&failed, ignoreExit(cmd.Wait()))
	case r.Answers != "":
		return r, cmd.Wait()
	}
	return r, cmd.Process.Release()
}

func (t *starter) serveArgs() []string {
	args := []string{"serve", "--join"}
	if t.idle > 0 {
		args = append(args, "--idle", t.idle.String())
	}
	if t.orchestrator {
		args = append(args, "--orchestrator")
	}
	if t.socket != "" {
		args = append(args, "--socket", t.socket)
	}
	if t.config != "" {
		args = append(args, "--config", t.config)
	}
	return args
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil // its own message says more
	}
	return err
}

// startError returns what a service printed before it exited without a report.
func (t *starter) startError(from int64) error {
	f, err := os.Open(t.logPath())
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	output, err := io.ReadAll(io.NewSectionReader(f, from, 64<<10))
	if err != nil {
		return err
	}
	return api.Errorf(api.CodeUnavailable, "the service did not start:\n%s", strings.TrimSpace(string(output)))
}
