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

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

func (t *tree) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "start", Short: "Run the service in the background", Args: cobra.NoArgs,
		Long: `Run the service in the background, and return when it answers.

With --idle it is a one-shot service, which ends when no request and no worker
has been there for so long. One that runs already is as good, and its socket
is printed. Without --idle the service lasts; a one-shot one that runs already
is made to last, and another lasting one is an error.

With --orchestrator, or the section orchestrator in the configuration, the
service runs plans. One that runs already without is ended for that, and
another is started with its settings; workers go on meanwhile. With
--orchestrator one that runs plans already is as good.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.start(cmd.Context()) },
	}
	t.idleFlag(cmd)
	t.runsFlag(cmd)
	return cmd
}

func (t *tree) runsFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.orchestrator, "orchestrator", false, "run plans, too (default: as the configuration says)")
}

func (t *tree) idleFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&t.idle, "idle", 0, "end when no request and no worker has been there for so long (default: last)")
}

// startTries is how many services that end while they are being asked to last
// are an error.
const startTries = 8

// start returns when a service answers, or says why none does.
func (t *tree) start(ctx context.Context) error {
	if t.idle < 0 {
		return api.Errorf(api.CodeInvalid, "--idle %s: want a positive time", t.idle)
	}
	if err := t.checkRuns(); err != nil {
		return err
	}
	if err := t.ownState(); err != nil {
		return err
	}
	for try := 1; ; try++ {
		said, pid, err := t.launch()
		switch {
		case err != nil:
			return err
		case t.idle > 0:
			_, err := fmt.Fprintln(t.Stdout, said.Listening+said.Answers) // one of them
			return err
		case said.Listening != "":
			fmt.Fprintf(t.Stderr, "the service runs as process %d, listening on %s; its messages are in %s\n", pid, said.Listening, t.logPath())
			return nil
		}
		err = t.keep(ctx, said.Answers)
		if api.CodeOf(err) != api.CodeUnavailable || try == startTries {
			return err
		}
	}
}

// keep makes the one-shot service at socket one that lasts. The error is
// service_unavailable when it has ended, and then its place is free.
func (t *tree) keep(ctx context.Context, socket string) error {
	conn := client.New(client.Config{Socket: socket, UIDs: []int{t.UID}})
	defer conn.Close()
	s, err := conn.Operator().Status(ctx)
	if err != nil {
		return err
	}
	set, err := t.settings()
	if err != nil {
		return err
	}
	other := t.socket != "" && t.socket != s.Socket || t.config != "" && t.config != s.ConfigFile
	switch {
	case s.Orchestrator == nil && t.wantsRuns(set) && !other:
		return t.replace(ctx, conn, s)
	case s.Orchestrator != nil && t.orchestrator && !other:
		fmt.Fprintf(t.Stderr, "the service that runs as process %d, listening on %s, runs plans already\n", s.PID, s.Socket)
		return nil
	case s.OneShot == nil:
		return api.Errorf(api.CodeConflict, "the service did not start:\n%w", &store.OwnedError{Dir: t.Dirs.Store(), PID: s.PID}).WithHint("it answers at %s; see: bailiwick status", socket)
	case other || t.config != "":
		return api.Errorf(api.CodeConflict, "the service did not start:\na one-shot service runs as process %d, listening on %s", s.PID, s.Socket).
			WithHint("to begin one with other settings, first: bailiwick down")
	}
	if err := conn.Operator().Stay(ctx); err != nil {
		return err
	}
	fmt.Fprintf(t.Stderr, "the one-shot service that runs as process %d, listening on %s, lasts from now on; its messages are in %s\n", s.PID, s.Socket, t.logPath())
	return nil
}

// replace ends a service that runs no plans, so that one with its settings that
// does can take its place. The error is service_unavailable when it has ended.
func (t *tree) replace(ctx context.Context, conn *client.Conn, s api.ServiceStatus) error {
	t.socket = s.Socket
	if s.ConfigFile != t.Dirs.ServiceConfig() {
		t.config = s.ConfigFile
	}
	if err := conn.Operator().Stop(ctx); err != nil {
		return err
	}
	if err := awaitEnd(ctx, t.Dirs.Address()); err != nil {
		return err
	}
	return api.Errorf(api.CodeUnavailable, "the service that ran no plans, process %d, has ended", s.PID)
}

// endTries is how often stopTime passes before a service that does not end is
// an error.
const endTries = 6

// awaitEnd returns when the service has done the last thing that it does.
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
	return api.Errorf(api.CodeNotFinished, "the service was asked to stop and has not ended: %w", err).WithHint("see its messages in service.log of the state directory")
}

func (t *tree) logPath() string { return filepath.Join(t.Dirs.State, "service.log") }

// launch starts a service and returns the first that it says.
func (t *tree) launch() (said word, pid int, err error) {
	log, err := os.OpenFile(t.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // G304: our own state
	if err != nil {
		return said, 0, err
	}
	defer log.Close() //nolint:errcheck // the service has its own copy
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return said, 0, err
	}
	cmd := exec.Command(t.Self, t.serveArgs()...) //nolint:gosec,noctx // G204: this program; it outlives the command
	cmd.Env, cmd.Stderr, cmd.Dir = t.Env, log, "/"
	// A session of its own: no terminal and no signal to this group reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return said, 0, err
	}
	if err := cmd.Start(); err != nil {
		return said, 0, err
	}
	// The end of its output without a word is its end.
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	switch {
	case err != nil:
		return said, 0, errors.Join(t.whyNot(from), ignoreExit(cmd.Wait()))
	case said.Failed != nil:
		failed := *said.Failed
		failed.Message = "the service did not start:\n" + failed.Message
		return said, 0, errors.Join(&failed, ignoreExit(cmd.Wait()))
	case said.Answers != "":
		return said, 0, cmd.Wait()
	}
	pid = cmd.Process.Pid
	return said, pid, cmd.Process.Release()
}

func (t *tree) serveArgs() []string {
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
		return nil // what it said says more
	}
	return err
}

// whyNot is what a service that ended without a word printed.
func (t *tree) whyNot(from int64) error {
	f, err := os.Open(t.logPath())
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	said, err := io.ReadAll(io.NewSectionReader(f, from, 64<<10))
	if err != nil {
		return err
	}
	return api.Errorf(api.CodeUnavailable, "the service did not start:\n%s", strings.TrimSpace(string(said)))
}
