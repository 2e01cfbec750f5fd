package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/readiness"
)

// serviceTimeout bounds doctor's question to the running service.
const serviceTimeout = 10 * time.Second

// serviceChecks are doctor's checks of the running service, and its status; nil
// when none answers.
func (t *doctor) serviceChecks(ctx context.Context) ([]check, *api.ServiceStatus) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	conn := client.New(client.Config{Socket: t.socket, Dirs: t.Dirs, UIDs: t.UIDs})
	defer conn.Close()
	s, err := conn.Operator().Status(ctx)
	if err != nil {
		out := []check{t.absentService(conn.Socket(), err)}
		if t.Dirs.System() {
			out = append(out, check{name: "service layers", advice: true, found: "not tried: the launcher tries a jail, and the service compares anchors, while a service answers", fix: "run: " + api.StartService(t.Dirs.Mode)})
		}
		return out, nil
	}
	c := check{name: "service", ok: s.Ready}
	c.found = fmt.Sprintf("ready, process %d, version %s, up %s since %s, listening on %s",
		s.PID, s.Version, console.Duration(t.Now().Sub(s.StartedAt)), t.Time(s.StartedAt), s.Socket)
	if !s.Ready {
		c.found, c.fix = strings.Replace(c.found, "ready", "NOT READY", 1)+"\n"+s.NotReady, "see: bailiwick status"
	}
	out := []check{c}
	if set, err := t.settings(); err == nil {
		if differs := t.differences(&s, set); len(differs) > 0 {
			out = append(out, check{name: "service differs", advice: true, found: strings.Join(differs, "\n"), fix: "to apply this: " + api.RestartService(s.Mode) + "; running workers continue"})
		}
	}
	out = append(out, runningCatalog(&s), runningRuns(&s), runningDisk(&s))
	out = append(out, runningAnchors(&s, t.readsState())...)
	out = append(out, runningLayers(&s)...)
	out = append(out, runningNotify(&s)...)
	out = append(out, secretCheck(ctx, conn)...)
	out = append(out, t.agentChecks(ctx, conn)...)
	if len(s.Stops) > 0 {
		out = append(out, check{name: "stops", advice: true, found: "in force: " + strings.Join(s.Stops, ", "), fix: "see: bailiwick stop list"})
	}
	return out, &s
}

// absentService says why no service answers.
func (t *doctor) absentService(socket string, err error) check {
	c := check{name: "service", advice: true}
	pid := t.owner()
	switch {
	case pid > 0:
		c.advice = false
		c.found, c.fix = fmt.Sprintf("process %d serves the state directory and does not answer at %s: %v", pid, socket, err), fmt.Sprintf("see %s; or end it with: kill %d", t.logPath(), pid)
	case t.Dirs.System() && client.NoService(err):
		c.advice, c.found, c.fix = false, "not running", "run: "+api.StartService(t.Dirs.Mode)+"; see: journalctl -u bailiwick.service"
	case !client.NoService(err):
		c.found = err.Error()
		if e, ok := errors.AsType[*api.Error](err); ok {
			c.fix = e.Hint
		}
	default:
		c.ok, c.found = true, "not running; commands start one when they need it, and bailiwick up one that keeps running"
		switch st, err := os.Lstat(socket); {
		case err != nil:
		case st.Mode().Type() == fs.ModeSocket:
			c.found += fmt.Sprintf("\n%s is left from a service that was killed; the next one replaces it", socket)
		default:
			c.ok, c.advice, c.found, c.fix = false, false, socket+" is no socket: a service cannot listen there", "remove it, or name another path with --socket"
		}
	}
	return c
}

// owner returns the process that has the state open, or 0. It takes no lock, which
// a service that is just starting would see.
func (t *doctor) owner() int {
	f, err := os.Open(filepath.Join(t.Dirs.Store(), "lock"))
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // only read
	pid, err := durable.Owner(f)
	if err != nil || pid <= 0 {
		return 0
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || strings.TrimSuffix(filepath.Base(program), " (deleted)") != filepath.Base(t.Self) {
		return 0 // gone, and its number may be another's
	}
	return pid
}

// runningLayers are what isolates an attempt: in mode system what the launcher tried, as a worker has it.
func runningLayers(s *api.ServiceStatus) (out []check) {
	if len(s.Isolation) > 0 {
		out = append(out, check{name: "service layers", ok: true, found: strings.Join(s.Isolation, "\n")})
	}
	for _, lack := range s.IsolationLacks {
		out = append(out, check{name: "layer", found: lack, advice: len(s.Isolation) > 0, fix: "see the log of the launcher: journalctl -u bailiwick-launch.service"})
	}
	if s.LauncherRefused != "" {
		out = append(out, check{
			name: "service launcher", found: "REFUSED " + s.LauncherRefused, invalid: true,
			fix: "put back what was changed in " + filepath.Dir(s.TrustRoot) + ", the catalog or the state; a message means what the section about the launcher in docs/operations-system.md says; see: journalctl -u bailiwick-launch.service",
		})
	}
	return out
}

func runningCatalog(s *api.ServiceStatus) check {
	c := check{name: "service catalog", ok: true, found: fmt.Sprintf("revision %d %s", s.Revision, s.RevisionID.Short())}
	switch {
	case s.CatalogError != "":
		c = check{name: c.name, found: "REFUSED: " + s.CatalogError, fix: "see: bailiwick catalog verify", invalid: true}
	case s.Revision == 0:
		c = check{name: c.name, advice: true, found: "none applied yet"}
	}
	return c
}

// readyChecks are doctor's lines about what this account lacks for a dispatch.
func (t *doctor) readyChecks(ctx context.Context) (out []check) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	conn := client.New(client.Config{Socket: t.socket, Dirs: t.Dirs, UIDs: t.UIDs})
	defer conn.Close()
	l, err := readiness.Of(ctx, readiness.Config{Dirs: t.Dirs, Conn: conn})
	if err != nil {
		return nil // reported by serviceChecks
	}
	for _, n := range l.Missing() {
		if n.Name != "service" { // commands start one
			out = append(out, check{name: "lacks " + n.Name, advice: n.Name != "trust root", found: n.Detail, fix: "run: " + n.Run})
		}
	}
	return out
}

func runningRuns(s *api.ServiceStatus) check {
	c := check{name: "service runs", ok: true, found: "no orchestrator and no open run"}
	switch {
	case s.UndrivenRuns > 0:
		c = check{name: c.name, advice: true, found: "no orchestrator: nothing continues " + record.Plural(s.UndrivenRuns, "open run"), fix: "start one with: " + api.StartRuns(s.Mode)}
	case s.Orchestrator != nil && s.Orchestrator.Error != "":
		c = check{name: c.name, found: "the orchestrator has stopped: " + s.Orchestrator.Error, fix: "restart the service: " + api.RestartRuns(s.Mode)}
	case s.Orchestrator != nil:
		c.found = fmt.Sprintf("orchestrator on, %s", record.Plural(s.Orchestrator.OpenRuns, "open run"))
	}
	return c
}

// runningAnchors are the anchors that the service has not compared, or that are lost. With
// their own checks, remembered ones are among the anchors of this configuration.
func runningAnchors(s *api.ServiceStatus, checked bool) (out []check) {
	for _, a := range s.Anchors {
		c := check{name: "service anchor", advice: true, found: fmt.Sprintf("%s: %s", a.Name, a.Error)}
		switch {
		case a.Lost:
			c.fix = "configure another anchor, with another name and place"
		case a.Remembered && checked:
			continue
		case a.Remembered:
			c.found = fmt.Sprintf("%s: remembered, NOT COMPARED: %s", a.Name, a.Error)
			c.fix = "make it reachable: the next start compares it, and then forgets it"
		case !a.Compared:
			c.found = fmt.Sprintf("%s: NOT COMPARED with the log since the service started: %s", a.Name, a.Error)
			c.fix = "make it reachable: the service compares it before it sends anything"
		default:
			continue
		}
		out = append(out, c)
	}
	return out
}

func runningDisk(s *api.ServiceStatus) check {
	c := check{name: "service disk", ok: true}
	switch d := s.Disk; {
	case s.DiskError != "":
		c.ok, c.advice, c.found = false, true, "cannot be measured: "+s.DiskError
	case d == nil:
		c.found = "being measured"
	default:
		used := d.Checkouts + d.Content + d.Evidence + d.Unreferenced + d.Database + d.Attempts
		c.found = fmt.Sprintf("%s used, %s free", console.Bytes(used), console.Bytes(d.Free))
	}
	return c
}
