package daemoncli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/readiness"
)

// upOutcome is what up did.
type upOutcome string

const (
	upStarted  upOutcome = "started"
	upReplaced upOutcome = "replaced" // a one-shot service, or one without an orchestrator
	upKept     upOutcome = "kept"     // a one-shot service, which no longer shuts down when idle
	upRunning  upOutcome = "running"  // nothing: the service was running
)

// upReport is the answer of up.
type upReport struct {
	Outcome      upOutcome `json:"outcome"`
	PID          int       `json:"pid"`
	Version      string    `json:"version"`
	StartedAt    time.Time `json:"startedAt"`
	Socket       string    `json:"socket"`
	ConfigFile   string    `json:"configFile,omitempty"`
	LogFile      string    `json:"logFile"`
	Orchestrator bool      `json:"orchestrator"`
	NotReady     string    `json:"notReady,omitempty"`
	UndrivenRuns int       `json:"undrivenRuns,omitempty"` // open runs that nothing continues
	Differs      []string  `json:"differs,omitempty"`      // where the service differs from the flags, the configuration and this program
	Next         string    `json:"next"`                   // a command
}

// reportUp prints what runs at socket, and what to do next.
func (t *starter) reportUp(ctx context.Context, outcome upOutcome, socket string) error {
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
	r := upReport{
		Outcome: outcome, PID: s.PID, Version: s.Version, StartedAt: s.StartedAt, Socket: s.Socket, ConfigFile: s.ConfigFile, LogFile: t.logPath(),
		Orchestrator: s.Orchestrator != nil, NotReady: s.NotReady, UndrivenRuns: s.UndrivenRuns, Differs: t.differences(&s, set), Next: t.next(ctx, conn, &s),
	}
	return t.Emit(r, r.Socket, func() { t.printUp(&r) })
}

func (t *starter) printUp(r *upReport) {
	done := map[upOutcome]string{
		upStarted: "started", upReplaced: "started in place of the previous one", upKept: "was one-shot and now runs until it is stopped",
		upRunning: "already running",
	}[r.Outcome]
	t.Row("service", "%s: process %d since %s, version %s", done, r.PID, t.Time(r.StartedAt), r.Version)
	t.Row("socket", "%s", r.Socket)
	t.Row("log", "%s", r.LogFile)
	t.OptionalRow("config", "%s", r.ConfigFile)
	runs := "orchestrator on"
	if !r.Orchestrator {
		runs = "no orchestrator; plans need: " + api.StartRuns(api.ModeSameUser)
	}
	t.Row("runs", "%s", runs)
	if r.UndrivenRuns > 0 {
		t.Row("STALLED", "%s", undrivenText(r.UndrivenRuns))
	}
	t.OptionalRow("NOT READY", "%s", r.NotReady)
	if len(r.Differs) > 0 {
		t.Row("DIFFERS", "%s\nit was not restarted; to apply this: bailiwick down, then repeat the command", strings.Join(r.Differs, "\n"))
	}
	t.Row("next", "%s", r.Next)
}

// undrivenText says that nothing continues n open runs, and what does.
func undrivenText(n int) string {
	return fmt.Sprintf("nothing continues %s: the service has no orchestrator; start one with: %s", record.Plural(n, "open run"), api.StartRuns(api.ModeSameUser))
}

// differences lists where a running service differs from what the flags and the
// configuration ask for, and from this program.
func (t *tree) differences(s *api.ServiceStatus, set settings) (list []string) {
	add := func(differs bool, format string, args ...any) {
		if differs {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	file := func(path string) string {
		if path == "" {
			return "no configuration file"
		}
		return path
	}
	add(t.socket != "" && t.socket != s.Socket, "socket: it listens on %s, not on %s", s.Socket, t.socket)
	switch {
	case t.config != "" && t.config != s.ConfigFile:
		add(true, "configuration: it was started with %s, not with %s", file(s.ConfigFile), t.config)
	case set.File == s.ConfigFile:
		add(s.ConfigDigest != "" && set.Digest != s.ConfigDigest, "configuration: %s has changed since the service started", file(set.File))
	case t.config == "" && (s.ConfigFile == "" || s.ConfigFile == t.Dirs.ServiceConfig()):
		add(true, "configuration: it was started with %s; now it would be %s", file(s.ConfigFile), file(set.File))
	}
	add(s.Version != t.Version, "version: the service is %s, this program %s", s.Version, t.Version)
	return list
}

// next is the command that a user needs next.
func (t *starter) next(ctx context.Context, conn *client.Conn, s *api.ServiceStatus) string {
	if s.UndrivenRuns > 0 {
		return api.StartRuns(api.ModeSameUser)
	}
	l, err := readiness.Of(ctx, readiness.Config{Dirs: t.Dirs, Conn: conn})
	if err != nil || l.Next == "" {
		return "bailiwick can" // which says what is wrong
	}
	return l.Next
}
