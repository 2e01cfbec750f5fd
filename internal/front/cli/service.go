package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/readiness"
)

// serviceVerbs are the verbs about the service itself.
type serviceVerbs struct{ *tree }

// downReport is the answer of down.
type downReport struct {
	Stopped      bool       `json:"stopped"` // false: no service was running
	Socket       string     `json:"socket"`
	PID          int        `json:"pid,omitempty"`
	StartedAt    *time.Time `json:"startedAt,omitempty"`
	Version      string     `json:"version,omitempty"`
	Running      int        `json:"running"`  // dispatches that run and are adopted by the next service
	OpenRuns     int        `json:"openRuns"` // runs that continue with the next service that has an orchestrator
	Orchestrator bool       `json:"orchestrator"`
}

func (t *serviceVerbs) downCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		c := t.connect(false)
		defer c.Close()
		r, err := t.down(ctx, c)
		if err != nil {
			return err
		}
		return t.Emit(r, r.Socket, func() { t.printDown(&r) })
	})
}

// down stops the running service, if there is one.
func (t *serviceVerbs) down(ctx context.Context, c *client.Conn) (downReport, error) {
	socket, err := c.Find(ctx)
	if client.NoService(err) {
		return downReport{Socket: c.Socket()}, nil
	}
	if err != nil {
		return downReport{}, err
	}
	r := downReport{Stopped: true, Socket: socket}
	var was fs.FileInfo
	if c.Server() == "" {
		if was, err = os.Lstat(socket); err != nil {
			return r, err
		}
	}
	// A service that cannot say how it is can be stopped all the same.
	if s, err := c.Operator().Status(ctx); err == nil {
		r.PID, r.StartedAt, r.Version, r.OpenRuns, r.Orchestrator = s.PID, &s.StartedAt, s.Version, s.UndrivenRuns, s.Orchestrator != nil
		r.Running = s.Dispatches[string(api.EventAccepted)] + s.Dispatches[string(api.EventStarted)]
		if s.Orchestrator != nil {
			r.OpenRuns = s.Orchestrator.OpenRuns
		}
	}
	if err := c.Operator().Stop(ctx); err != nil {
		return r, killHint(ctx, c, err)
	}
	if c.Server() != "" {
		return r, nil // nothing here tells when it has exited
	}
	err = awaitStopped(ctx, socket, was)
	if api.CodeOf(err) == api.CodeNotFinished {
		if _, found := c.Find(ctx); client.NoService(found) {
			return r, nil // it has exited, and could not remove its socket
		}
	}
	return r, err
}

func (t *serviceVerbs) printDown(r *downReport) {
	if !r.Stopped {
		t.Row("service", "not running: nothing listens on %s", r.Socket)
		return
	}
	since := ""
	if r.StartedAt != nil {
		since = fmt.Sprintf(": process %d, which ran since %s", r.PID, t.Time(*r.StartedAt))
	}
	t.Row("service", "stopped%s", since)
	t.Row("socket", "%s", r.Socket)
	if r.Running > 0 {
		t.Row("running", "%s; the next service adopts it and records its end", record.Plural(r.Running, "dispatch"))
	}
	if r.OpenRuns > 0 {
		t.Row("runs", "%s until the next: %s", stopText(r.OpenRuns), api.StartRuns(t.Dirs.Mode))
	}
}

// stopText says that open runs stand still.
func stopText(n int) string {
	if n == 1 {
		return "1 open run starts no further task"
	}
	return fmt.Sprintf("%d open runs start no further task", n)
}

// killHint says how to stop a service that refuses the request because it cannot
// log it.
func killHint(ctx context.Context, c *client.Conn, err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != api.CodeAuditUnavailable {
		return err
	}
	s, statusErr := c.Operator().Status(ctx)
	if statusErr != nil {
		return err
	}
	if s.Mode == api.ModeSystem {
		return e.WithHint("check the disk of the state directory, then: %s", api.RestartService(s.Mode))
	}
	return e.WithHint("check the disk of the state directory, end the service with: kill %d, then: %s", s.PID, api.StartService(s.Mode))
}

// stopTimeout is how long a service may take to stop.
const stopTimeout = 30 * time.Second

// awaitStopped returns when the service has removed its socket, which is the last
// thing that it does. A new socket at that path belongs to the next service, which
// a command that follows a dispatch may have started.
func awaitStopped(ctx context.Context, socket string, was fs.FileInfo) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
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
			return api.Errorf(api.CodeNotFinished, "the service accepted the stop and still has %s after %s", socket, stopTimeout).WithHint("see its messages in service.log of the state directory")
		}
	}
}

// statusAnswer is the answer of status.
type statusAnswer struct {
	api.ServiceStatus
	Missing []readiness.Need `json:"missing,omitempty"` // what the caller lacks for a dispatch
}

func (t *serviceVerbs) statusCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		c := t.connect(false)
		defer c.Close()
		s, err := c.Operator().Status(ctx)
		if err != nil {
			return err
		}
		a := statusAnswer{ServiceStatus: s}
		if l, err := t.readinessOf(ctx, c, false); err == nil { // a broken service cannot say
			a.Missing = l.Missing()
		}
		if err := t.Emit(a, "", func() { t.printStatus(s, a.Missing) }); err != nil {
			return err
		}
		if !s.Ready {
			return console.Exit{Status: 1}
		}
		return nil
	})
}

func (t *serviceVerbs) printStatus(s api.ServiceStatus, missing []readiness.Need) {
	ready := "ready"
	if !s.Ready {
		ready = "NOT READY"
	}
	t.Row("service", "%s, process %d since %s (version %s)", ready, s.PID, t.Time(s.StartedAt), s.Version)
	if s.Version != t.Version {
		t.Row("DIFFERS", "the service is version %s, this program %s; restart it: %s", s.Version, t.Version, api.RestartService(s.Mode))
	}
	if s.CatalogError != "" {
		// The row about the catalog has the error and its hint.
		s.NotReady = strings.ReplaceAll(s.NotReady, "catalog: "+s.CatalogError, "catalog: refused, see below")
	}
	t.OptionalRow("NOT READY", "%s", s.NotReady)
	if s.OneShot != nil {
		t.Row("lifetime", "%s", t.lifetimeText(*s.OneShot))
	}
	if len(s.Stops) > 0 {
		t.Row("STOPPED", "%s; see: bailiwick stop list", strings.Join(s.Stops, ", "))
	}
	t.Row("mode", "%s", modeText(s.Mode))
	if s.StateError != "" {
		t.Row("state", "%s\nCANNOT BE READ, so catalog, log, dispatches and runs are not shown", s.StateDir)
		t.printIsolation(s)
		t.Row("socket", "%s", s.Socket)
		return
	}
	for _, n := range missing {
		if s.CatalogError == "" || n.Name != "catalog" { // which has its own row below
			t.Row("MISSING", "%s: %s\nrun: %s", n.Name, n.Detail, n.Run)
		}
	}
	catalog := "none applied yet"
	if s.Revision > 0 {
		catalog = fmt.Sprintf("revision %d %s", s.Revision, s.RevisionID.Short())
	}
	if s.CatalogError != "" {
		catalog = "REFUSED: " + s.CatalogError + "\nrun: bailiwick catalog verify"
	}
	t.Row("catalog", "%s", catalog)
	if len(s.DeployKeys) > 0 {
		t.Row("trust root", "%s: %d of %s must sign", s.TrustRoot, s.SignThreshold, record.Plural(len(s.DeployKeys), "deploy key"))
	}
	t.Row("log", "%s", t.logText(s))
	for _, a := range s.Anchors {
		t.Row("anchor", "%s", t.anchorText(a))
	}
	for i := range s.Notify {
		t.Row("notify", "%s", t.notifyText(&s.Notify[i]))
	}
	var counts []string
	for _, state := range slices.Sorted(maps.Keys(s.Dispatches)) {
		counts = append(counts, fmt.Sprintf("%d %s", s.Dispatches[state], state))
	}
	t.Row("dispatches", "%s", console.Joined(counts, ", ", "none"))
	t.printRuns(s.Mode, s.Orchestrator, s.UndrivenRuns)
	t.printIsolation(s)
	t.printDisk(s.Disk, s.DiskError)
	t.Row("socket", "%s", s.Socket)
	t.OptionalRow("metrics", "%s", s.Metrics)
	t.OptionalRow("tracing", "to %s", s.Tracing)
	t.OptionalRow("config", "%s", s.ConfigFile)
	t.Row("state", "%s", s.StateDir)
}

// logText says how many entries the log has and how many the newest checkpoint covers.
func (t *serviceVerbs) logText(s api.ServiceStatus) string {
	text := record.Plural(s.LogEntries, "entry")
	if s.Log == nil {
		return text
	}
	if at := s.Log.CheckpointAt; at != nil {
		text += fmt.Sprintf(", checkpoint over %d of %s", s.Log.Checkpoint, t.Time(*at))
	}
	if s.Log.LagSeconds >= 1 {
		text += fmt.Sprintf(", %.0f s behind", s.Log.LagSeconds)
	}
	if s.Log.Error != "" {
		text += "\nTREE NOT UPDATED: " + s.Log.Error
	}
	if s.Log.RepairedAt != nil {
		text += fmt.Sprintf("\nTREE WAS CHANGED ON DISK, noticed and rebuilt at %s: %s; find out who writes to the state directory, then: bailiwick audit verify --log", t.Time(*s.Log.RepairedAt), s.Log.Damage)
	}
	return text
}

// anchorText says which checkpoint an anchor has.
func (t *serviceVerbs) anchorText(a api.AnchorStatus) string {
	text := fmt.Sprintf("%s (%s %s): ", a.Name, a.Kind, a.Place)
	if a.Remembered {
		return text + "remembered, NOT COMPARED: " + a.Error + "\nno longer configured; the next start compares it"
	}
	if a.At == nil {
		text += "no checkpoint yet"
	} else {
		text += fmt.Sprintf("%s at %s", record.Plural(a.Entries, "entry"), t.Time(*a.At))
	}
	if a.Behind > 0 {
		text += fmt.Sprintf(", %d behind", a.Behind)
	}
	if !a.Compared {
		text += "\nNOT COMPARED with the log since the service started"
	}
	if a.Error != "" {
		word := "FAILING"
		if a.Lost {
			word = "LOST"
		}
		text += "\n" + word
		if a.FailingSince != nil {
			text += " since " + t.Time(*a.FailingSince)
		}
		text += ": " + a.Error
	}
	return text
}

// notifyText says what a receiver of notifications got, and why not more.
func (t *serviceVerbs) notifyText(r *api.NotifyStatus) string {
	text := fmt.Sprintf("%s (%s %s): %d delivered", r.Name, r.Kind, r.Place, r.Delivered)
	if r.Pending > 0 {
		text += fmt.Sprintf(", %d pending", r.Pending)
	}
	if r.Dropped > 0 {
		text += fmt.Sprintf(", %d EXPIRED undelivered", r.Dropped)
	}
	if r.Error != "" {
		text += fmt.Sprintf("\nFAILING since %s: %s", t.Time(*r.FailingSince), r.Error)
	}
	return text
}

// printRuns prints the number of runs and tasks, and how full the queues are.
func (t *serviceVerbs) printRuns(mode string, s *api.OrchestratorStatus, undriven int) {
	switch {
	case s == nil && undriven > 0:
		t.Row("STALLED", "nothing continues %s: the service has no orchestrator; start one with: %s", record.Plural(undriven, "open run"), api.StartRuns(mode))
		return
	case s == nil:
		t.Row("runs", "no orchestrator; start one with: %s", api.StartRuns(mode))
		return
	case s.Error != "":
		t.Row("runs", "STOPPED until the service is restarted: %s", s.Error)
		return
	}
	counts := []string{fmt.Sprintf("%d open", s.OpenRuns)}
	for _, state := range api.TaskStates() {
		if n := s.Tasks[state]; n > 0 {
			counts = append(counts, record.Plural(n, "task")+" "+string(state))
		}
	}
	t.Row("runs", "%s", strings.Join(counts, ", "))
	var queues []string
	for _, q := range s.Queues {
		text := fmt.Sprintf("%s: %d of %d running, %d ready", q.Name, q.Running, q.Slots, q.Ready)
		if q.PausedBy != "" {
			text += ", PAUSED by " + string(q.PausedBy)
		}
		queues = append(queues, text)
	}
	t.Row("queues", "%s", strings.Join(queues, "\n"))
}

func (t *serviceVerbs) lifetimeText(o api.OneShot) string {
	idle := time.Duration(o.IdleSeconds * float64(time.Second))
	if o.EndsAt == nil {
		return fmt.Sprintf("one-shot: shuts down after %s without a request or a worker; keep it running with: %s", idle, api.StartService(api.ModeSameUser))
	}
	return fmt.Sprintf("one-shot: shuts down at %s unless a request comes before; keep it running with: %s", t.Time(*o.EndsAt), api.StartService(api.ModeSameUser))
}

func modeText(mode string) string {
	if mode == "same-user" {
		return "same-user: no protection is claimed against a program that runs as this account outside a jail"
	}
	return mode
}

// printIsolation prints what isolates an attempt, and what it lacks.
func (t *serviceVerbs) printIsolation(s api.ServiceStatus) {
	t.Row("isolation", "%s", strings.Join(s.Isolation, "\n"))
	if len(s.IsolationLacks) > 0 {
		t.Row("LACKS", "%s", strings.Join(s.IsolationLacks, "\n"))
	}
	if s.LauncherRefused != "" {
		t.Row("launcher", "REFUSED %s", s.LauncherRefused)
	}
}
