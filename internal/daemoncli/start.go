package daemoncli

import (
	"bufio"
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
)

func (t *tree) startCommand() *cobra.Command {
	return &cobra.Command{
		Use: "start", Short: "Run the service in the background", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return t.start() },
	}
}

// start returns when the service answers, or says why it does not.
func (t *tree) start() error {
	if err := os.MkdirAll(t.Dirs.State, 0o700); err != nil {
		return err
	}
	logPath := filepath.Join(t.Dirs.State, "service.log")
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // G304: our own state
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the service has its own copy
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	args := []string{"serve"}
	if t.socket != "" {
		args = append(args, "--socket", t.socket)
	}
	if t.config != "" {
		args = append(args, "--config", t.config)
	}
	cmd := exec.Command(t.Self, args...) //nolint:gosec,noctx // G204: this program; it outlives the command
	cmd.Env, cmd.Stderr, cmd.Dir = t.Env, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// The service says where it listens, and the end of its output without
	// that is the end of the service.
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return errors.Join(t.whyNot(logPath, from), ignoreExit(cmd.Wait()))
	}
	fmt.Fprintf(t.Stderr, "the service runs as process %d, %s; its messages are in %s\n", cmd.Process.Pid, strings.TrimSpace(line), logPath)
	return cmd.Process.Release()
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil // what it printed says more
	}
	return err
}

// whyNot is what a service that did not come up had to say.
func (t *tree) whyNot(path string, from int64) error {
	f, err := os.Open(path) //nolint:gosec // G304: our own state
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
