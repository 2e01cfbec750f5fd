package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the service; workers that run are taken up by the next one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := t.connThere()
			defer c.Close()
			socket, err := c.Find(cmd.Context())
			if err != nil {
				return err
			}
			was, err := os.Lstat(socket)
			if err != nil {
				return err
			}
			if err := c.Operator().Stop(cmd.Context()); err != nil {
				return unstoppable(cmd.Context(), c, err)
			}
			if err := awaitGone(cmd.Context(), c.Socket(), was); err != nil {
				return err
			}
			fmt.Fprintf(t.Stderr, "the service at %s has stopped\n", c.Socket())
			return nil
		},
	}
}

// unstoppable adds how to end a service that takes no request any more, since
// it cannot write down that it was asked to.
func unstoppable(ctx context.Context, c *client.Conn, err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != api.CodeAuditUnavailable {
		return err
	}
	s, statusErr := c.Operator().Status(ctx)
	if statusErr != nil {
		return err
	}
	return e.WithHint("check the disk of the state directory, end the service with: kill %d, then: bailiwick up", s.PID)
}

// stopTime is how long a service may take to end.
const stopTime = 30 * time.Second

// awaitGone returns when the service has removed its socket, which is the last
// thing that it does. One that is there again is that of the next service,
// which a command that follows a dispatch may have started.
func awaitGone(ctx context.Context, socket string, was fs.FileInfo) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := os.Lstat(socket)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!os.SameFile(was, now) || !was.ModTime().Equal(now.ModTime())) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return api.Errorf(api.CodeNotFinished, "the service was asked to stop and still has %s after %s", socket, stopTime).WithHint("see its messages in service.log of the state directory")
		}
	}
}

func (t *tree) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say how the service is", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := t.connThere()
			defer c.Close()
			s, err := c.Operator().Status(cmd.Context())
			if err != nil {
				return err
			}
			if t.output != "text" {
				return t.printJSON(s)
			}
			t.printStatus(s)
			if !s.Ready {
				return errSilent{1}
			}
			return nil
		},
	}
}

func (t *tree) printStatus(s api.ServiceStatus) {
	ready := "ready"
	if !s.Ready {
		ready = "NOT READY: " + s.NotReady
	}
	t.row("service", "%s, process %d since %s (version %s)", ready, s.PID, s.StartedAt.Format(timeFormat), s.Version)
	if s.OneShot != nil {
		t.row("lasts", "%s", lastsText(*s.OneShot))
	}
	if len(s.Stops) > 0 {
		t.row("STOPPED", "%s; see: bailiwick stop list", strings.Join(s.Stops, ", "))
	}
	t.row("mode", "%s", modeText(s.Mode))
	catalog := "none applied yet: bailiwick init, then bailiwick catalog apply"
	if s.Revision > 0 {
		catalog = fmt.Sprintf("revision %d %s", s.Revision, s.RevisionID.Short())
	}
	if s.CatalogError != "" {
		catalog = "REFUSED: " + s.CatalogError
	}
	t.row("catalog", "%s", catalog)
	if len(s.DeployKeys) > 0 {
		t.row("trust root", "%s: %d of %d deploy keys must sign", s.TrustRoot, s.SignThreshold, len(s.DeployKeys))
	}
	t.row("log", "%s", logText(s))
	for _, a := range s.Anchors {
		t.row("anchor", "%s", anchorText(a))
	}
	var counts []string
	for _, state := range slices.Sorted(maps.Keys(s.Dispatches)) {
		counts = append(counts, fmt.Sprintf("%d %s", s.Dispatches[state], state))
	}
	if counts == nil {
		counts = []string{"none"}
	}
	t.row("dispatches", "%s", strings.Join(counts, ", "))
	t.printRuns(s.Orchestrator)
	t.row("isolation", "%s", strings.Join(s.Isolation, "\n"))
	t.printDisk(s.Disk, s.DiskError)
	t.row("socket", "%s", s.Socket)
	if s.Metrics != "" {
		t.row("metrics", "%s", s.Metrics)
	}
	if s.Tracing != "" {
		t.row("tracing", "to %s", s.Tracing)
	}
	if s.ConfigFile != "" {
		t.row("config", "%s", s.ConfigFile)
	}
	t.row("state", "%s", s.StateDir)
}

// logText says how much of the log is covered by a signed checkpoint.
func logText(s api.ServiceStatus) string {
	text := fmt.Sprintf("%d entries", s.LogEntries)
	if s.Log == nil {
		return text
	}
	if at := s.Log.CheckpointAt; at != nil {
		text += fmt.Sprintf(", checkpoint over %d of %s", s.Log.Checkpoint, at.Format(timeFormat))
	}
	if s.Log.LagSeconds >= 1 {
		text += fmt.Sprintf(", %.0f s behind", s.Log.LagSeconds)
	}
	if s.Log.Error != "" {
		text += "\nTREE NOT KEPT: " + s.Log.Error
	}
	return text
}

// anchorText says how far an anchor is.
func anchorText(a api.AnchorStatus) string {
	text := fmt.Sprintf("%s (%s %s): ", a.Name, a.Kind, a.Place)
	if a.At == nil {
		text += "nothing yet"
	} else {
		text += fmt.Sprintf("%d entries at %s", a.Entries, a.At.Format(timeFormat))
	}
	if a.Behind > 0 {
		text += fmt.Sprintf(", %d behind", a.Behind)
	}
	if a.Error != "" {
		text += "\nDOES NOT TAKE ANY"
		if a.FailingSince != nil {
			text += " since " + a.FailingSince.Format(timeFormat)
		}
		text += ": " + a.Error
	}
	return text
}

// printRuns says how runs are, and how full their queues.
func (t *tree) printRuns(s *api.OrchestratorStatus) {
	switch {
	case s == nil:
		t.row("runs", "no orchestrator; to have one: bailiwick up --orchestrator")
		return
	case s.Error != "":
		t.row("runs", "STAND STILL until the service is restarted: %s", s.Error)
		return
	}
	counts := []string{fmt.Sprintf("%d open", s.OpenRuns)}
	for _, state := range api.TaskStates() {
		if n := s.Tasks[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d tasks %s", n, state))
		}
	}
	t.row("runs", "%s", strings.Join(counts, ", "))
	var queues []string
	for _, q := range s.Queues {
		text := fmt.Sprintf("%s: %d of %d running, %d ready", q.Name, q.Running, q.Slots, q.Ready)
		if q.PausedBy != "" {
			text += ", PAUSED by " + string(q.PausedBy)
		}
		queues = append(queues, text)
	}
	t.row("queues", "%s", strings.Join(queues, "\n"))
}

func lastsText(o api.OneShot) string {
	idle := time.Duration(o.IdleSeconds * float64(time.Second))
	if o.EndsAt == nil {
		return fmt.Sprintf("one-shot: ends when no request and no worker has been there for %s; to keep it: bailiwick up", idle)
	}
	return fmt.Sprintf("one-shot: ends at %s unless something comes before; to keep it: bailiwick up", o.EndsAt.Format(timeFormat))
}

func modeText(mode string) string {
	if mode == "same-user" {
		return "same-user: no protection is claimed against a program that runs as this account outside a jail"
	}
	return mode
}

const timeFormat = "2006-01-02 15:04:05 MST"

// row prints a label and a value; the lines of a longer value stand below
// each other.
func (t *tree) row(label, format string, args ...any) {
	value := plain(fmt.Sprintf(format, args...))
	fmt.Fprintf(t.Stdout, "%-11s %s\n", label, strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", 12)))
}

// quoted marks what of a text from outside does not stand behind the label of
// its row, so that it cannot look like a further row.
func quoted(s string) string { return strings.ReplaceAll(s, "\n", "\n"+agentMarker) }

func (t *tree) printJSON(v any) error {
	enc := json.NewEncoder(t.Stdout)
	enc.SetEscapeHTML(false)
	if t.output == "json" {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

func (t *tree) canCommand() *cobra.Command {
	var req api.CanRequest
	var target, source string
	var envs, capabilities []string
	cmd := &cobra.Command{
		Use: "can PRINCIPAL dispatch SUBAGENT", Short: "Say whether policy would allow a dispatch, and why", Args: cobra.ExactArgs(3),
		Example: "  bailiwick can agent:claude dispatch code-edit --target local --source service",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if args[1] != "dispatch" {
				return api.Errorf(api.CodeInvalid, "action %q: the action that can be asked about is dispatch", args[1])
			}
			var p parser
			req.Principal, req.Subagent = p.principal(args[0]), p.name("subagent", args[2])
			req.Target, req.Source = p.name("target", target), p.name("source", source)
			req.Envs, req.Capabilities = p.names("env", envs), p.names("capability", capabilities)
			if p.err != nil {
				return p.err
			}
			c := t.conn()
			defer c.Close()
			answer, err := c.Runtime().Can(cmd.Context(), req)
			if err != nil {
				return err
			}
			return t.printCan(req, answer)
		},
	}
	f := cmd.Flags()
	f.StringVar(&target, "target", "", "where it would run (default: the subagent's own target)")
	f.StringVar(&source, "source", "", "the source that it would start from")
	f.StringArrayVar(&envs, "env", nil, "an env that it would get; may be repeated")
	f.StringArrayVar(&capabilities, "capability", nil, "an extra capability; may be repeated")
	return cmd
}

func (t *tree) printCan(req api.CanRequest, a api.CanAnswer) error {
	switch {
	case t.output != "text":
		if err := t.printJSON(a); err != nil {
			return err
		}
	case a.Allowed:
		fmt.Fprintf(t.Stdout, "yes: %s may dispatch %s, by %s (catalog revision %d)\n", req.Principal, req.Subagent, strings.Join(a.Policies, ", "), a.Revision)
	default:
		by := ""
		if len(a.Policies) > 0 {
			by = ", by " + strings.Join(a.Policies, ", ")
		}
		fmt.Fprintf(t.Stdout, "no: %s may not dispatch %s%s (catalog revision %d)\n", req.Principal, req.Subagent, by, a.Revision)
		for _, r := range a.Reasons {
			fmt.Fprintf(t.Stdout, "  %s\n", plain(r))
		}
	}
	if !a.Allowed {
		return errSilent{api.Table()[api.CodeDenied].Exit}
	}
	return nil
}
