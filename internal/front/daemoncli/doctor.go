package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// check is one line of doctor.
type check struct {
	name   string
	ok     bool
	found  string
	fix    string // when not ok
	advice bool   // a note when not ok, not a failure
	// invalid says that what was checked exists but is wrong.
	invalid bool
}

// state is the word for what the check found.
func (c *check) state() string {
	switch {
	case c.ok:
		return "ok"
	case c.advice:
		return "note"
	case c.invalid:
		return "INVALID"
	}
	return "MISSING"
}

// doctorReport is the answer of doctor.
type doctorReport struct {
	OK       bool               `json:"ok"` // no check is missing or invalid
	Version  string             `json:"version"`
	Places   []place            `json:"places"`
	Checks   []checkLine        `json:"checks"`
	Service  *api.ServiceStatus `json:"service,omitempty"` // absent when none is running
	Problems int                `json:"problems"`          // checks that are missing or invalid
}

type place struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Source string `json:"source,omitempty"` // what sets it
}

type checkLine struct {
	Name  string `json:"name"`
	State string `json:"state"` // ok, note, missing or invalid
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`
}

// doctor checks this machine and the service.
type doctor struct{ *tree }

func (t *doctor) command(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error { return t.run(ctx) })
	t.outputFlag(v)
}

func (t *doctor) run(ctx context.Context) error {
	d := t.Dirs
	r := doctorReport{Version: t.Version, Places: []place{
		{"data", d.Data, "$XDG_DATA_HOME/bailiwick"},
		{"config", d.Config, "$XDG_CONFIG_HOME/bailiwick"},
		{"state", d.State, "$XDG_STATE_HOME/bailiwick"},
		{"sockets", strings.Join(d.Sockets(), ", "), ""},
	}}
	var checks []check
	if d.System() {
		r.Places, checks = systemPlaces(d), t.systemChecks(ctx)
	} else {
		checks = t.installationChecks(ctx)
	}
	checks = append(checks, t.toolChecks(ctx)...)
	var running []check
	running, r.Service = t.serviceChecks(ctx)
	checks = append(checks, running...)
	checks = append(checks, t.readyChecks(ctx)...)
	if !d.System() {
		checks = append(checks, t.modeCheck()...)
	}
	checks = append(checks, t.keyChecks(ctx)...)
	for i := range checks {
		c := &checks[i]
		line := checkLine{Name: c.name, State: strings.ToLower(c.state()), Found: c.found}
		if !c.ok {
			line.Fix = c.fix
			if !c.advice {
				r.Problems++
			}
		}
		r.Checks = append(r.Checks, line)
	}
	r.OK = r.Problems == 0
	if err := t.Emit(r, "", func() { t.printDoctor(&r) }); err != nil {
		return err
	}
	if !r.OK {
		return console.Exit{Status: 1}
	}
	return nil
}

// installationChecks are doctor's checks of an installation in mode same-user.
func (t *doctor) installationChecks(ctx context.Context) []check {
	checks := jailChecks(jail.Probe(ctx))
	checks = append(checks, t.gitCheck(ctx), t.programCheck(), t.stateCheck(), t.dataCheck(), t.configCheck(), t.trustCheck())
	checks = append(checks, metricsCheck(t.settings())...)
	checks = append(checks, runsCheck(t.settings())...)
	checks = append(checks, t.issuerCheck(ctx)...)
	checks = append(checks, t.serverCheck()...)
	checks = append(checks, t.pageCheck()...)
	checks = append(checks, t.anchorChecks(ctx)...)
	return append(checks, t.notifyChecks(t.settings())...)
}

func (t *doctor) printDoctor(r *doctorReport) {
	for _, p := range r.Places {
		source := ""
		if p.Source != "" {
			source = "  (" + p.Source + ")"
		}
		fmt.Fprintf(t.Stdout, "        %-18s %s\n", p.Name, console.Line(p.Path+source))
	}
	for _, c := range r.Checks {
		word := c.State
		if word != "ok" && word != "note" {
			word = strings.ToUpper(word)
		}
		fmt.Fprintf(t.Stdout, "%-7s %-18s %s\n", word, c.Name, strings.ReplaceAll(console.Plain(c.Found), "\n", "\n"+strings.Repeat(" ", 27)))
		if c.Fix != "" {
			fmt.Fprintf(t.Stdout, "%-7s %-18s   %s\n", "", "", console.Plain(c.Fix))
		}
	}
}

func jailChecks(r jail.Report) []check {
	var out []check
	for _, l := range r.Layers {
		name, found := l.Name, l.Detail
		if l.Active && found == "" {
			kind := ""
			if name, kind, _ = strings.Cut(l.Name, ": "); kind != "" {
				kind = " (" + kind + ")"
			}
			found = "isolation layer: active in a trial jail" + kind
		}
		out = append(out, check{name: name, ok: l.Active, found: found, fix: l.Fix, advice: r.Full})
	}
	return out
}

// active lists the isolation layers that this machine supports, one line each.
func active(r jail.Report) []string {
	var out []string
	for _, l := range r.Layers {
		if l.Active {
			out = append(out, strings.TrimSuffix(l.Name+": "+l.Detail, ": "))
		}
	}
	return out
}

// missing lists the isolation layers that this machine lacks.
func missing(r jail.Report) []string {
	var out []string
	for _, l := range r.Layers {
		if !l.Active {
			out = append(out, fmt.Sprintf("  %s: %s; %s", l.Name, l.Detail, l.Fix))
		}
	}
	return out
}

func (t *doctor) gitCheck(ctx context.Context) check {
	found, _, _, err := gitexec.Version(ctx)
	if err != nil {
		return check{name: "git", found: err.Error(), fix: "install git 2.39 or later"}
	}
	return check{name: "git", ok: true, found: found}
}

func (t *doctor) programCheck() check {
	for _, name := range []string{"bailiwick-worker", "bailiwick-tool", "bailiwick-fetch", "bailiwick-toolhost"} {
		if _, err := os.Stat(t.program(name)); err != nil {
			return check{name: "worker", found: err.Error(), fix: "put " + name + " into the folder of bailiwickd"}
		}
	}
	return check{name: "worker", ok: true, found: t.program("bailiwick-worker")}
}

func (t *doctor) trustCheck() check {
	root, err := seal.LoadDeployKeys(t.Dirs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return check{name: "trust root", found: err.Error(), advice: true} // readyChecks says what to do
	case err != nil:
		return check{name: "trust root", found: err.Error(), fix: "nothing is dispatched until it is good", invalid: true}
	}
	return check{name: "trust root", ok: true, found: fmt.Sprintf("%s: %d of %s must sign", t.Dirs.TrustRoot(), root.Threshold, record.Plural(len(root.Keys), "deploy key"))}
}

// modeCheck lists what an agent with a shell as this account could change.
func (t *doctor) modeCheck() []check {
	out := []check{{name: "mode", ok: true, found: t.mode() + ": service, catalog and callers share this account; any program of this account outside a jail can change all of it"}}
	for _, reach := range []struct{ name, path string }{{"trust root file", t.Dirs.TrustRoot()}, {"catalog", t.Dirs.Catalog()}, {"state", t.Dirs.State}} {
		if _, err := os.Stat(reach.path); err == nil {
			out = append(out, check{name: reach.name, advice: true, found: reach.path + " is writable by every program of this account"})
		}
	}
	return out
}

// keyChecks are about the keys of this account.
func (t *doctor) keyChecks(ctx context.Context) (out []check) {
	if _, err := os.Stat(t.Dirs.DeployKey()); err == nil {
		out = append(out, keyCheck(ctx, "deploy key", t.Dirs.DeployKey(), "can sign a catalog", "create one with a passphrase: bailiwick key create"))
	}
	return append(out, t.reachChecks(ctx)...)
}

// keyCheck reports whether a key is encrypted, and if not, what its power gives to
// every program that can read it.
func keyCheck(ctx context.Context, name, path, power, fix string) check {
	c := check{name: name, advice: true}
	_, err := seal.OpenSigner(ctx, path, nil)
	switch {
	case errors.Is(err, seal.ErrPassphrase):
		c.ok, c.found = true, path+" needs its passphrase"
	case err != nil:
		c.found = err.Error()
	default:
		c.found, c.fix = path+" is not encrypted: every program of this account "+power, fix
	}
	return c
}
