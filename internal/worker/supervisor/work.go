package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/mountinfo"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

const (
	// startTime bounds the start of a jail, which may copy a checkout.
	startTime = 5 * time.Minute
	// captureTime bounds the capture, which has its own time, so that the work of
	// an agent that ran out of time is captured too.
	captureTime = 5 * time.Minute
)

// timeout is the cause of a context that ended with the time of the agent or of verify.
type timeout struct{ limit time.Duration } // of the agent

func (t timeout) Error() string { return fmt.Sprintf("timeout of %s exceeded", t.limit) }

// work runs the agent and captures its work, also after it failed.
func (a *attempt) work(ctx context.Context) (err error) {
	if err := a.summary.step("workspace", func() error { return a.prepare(ctx) }); err != nil {
		return err
	}
	ws := a.workspace
	failpoint.Hit(failpoint.WorkerWorkspace, a.cfg.Dir)
	log, err := newBoundedLog(a.cfg.Dir, int64(a.manifest.Limits.Log), a.control.logged)
	if err != nil {
		return err
	}
	a.log, a.out = log, newSharedLog(a.summary.redact, log)
	defer a.closeLog()

	if err := a.openBroker(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.reach.close(ctx, &a.summary)) }()
	a.reach.setEnvironment(&a.manifest, &a.plan, a.cfg.Certificates)
	a.env = a.reach.env

	var j *jail.Jail
	if err := a.summary.step("jail", func() (err error) {
		tool, err := a.toolMount()
		if err != nil {
			return err
		}
		spec := jail.Spec{Lower: ws.under(ws.lower), Home: a.reach.home(a.plan.launch), Mounts: slices.Concat(a.program.mounts, tool), Listen: true}
		if j, err = a.startJail(ctx, spec); err == nil {
			ws.limitCapture(j)
		}
		return err
	}); err != nil {
		return err
	}
	defer closeJail(j)
	failpoint.Hit(failpoint.WorkerJailed, a.cfg.Dir)
	iso := j.Isolation()
	a.summary.Isolation = api.Isolation{Level: iso.Level, Layers: iso.Layers, Limits: iso.Limits}

	a.reach.serve(ctx, j, a.cfg.Logger)
	agentErr := a.runAgent(a.agent, ws, j)
	a.tools.end()
	a.summary.Partial = agentErr != nil
	capturing, stop := context.WithTimeout(context.WithoutCancel(ctx), captureTime)
	defer stop()
	tree, err := a.harvest(capturing, ws, j)
	if err == nil {
		agentErr = a.takeQuestion(j, agentErr)
		a.summary.Partial = agentErr != nil
	} else if errors.Is(agentErr, errAsked) {
		agentErr = nil // without its work so far it could not resume
	}
	a.keepReport(j, errors.Is(agentErr, errAsked))
	closeJail(j)
	a.reach.drain(ctx, agentErr, a.cfg.Now)
	if agentErr != nil {
		return agentErr
	}
	if err == nil {
		err = a.summary.checkOutput(a.plan.subagent)
	}
	if err != nil {
		a.summary.Partial = true
		return err
	}
	return a.verifyPatch(ctx, ws, tree)
}

func (a *attempt) closeLog() {
	if a.out.flush() {
		a.summary.redacted("log")
	}
	a.summary.LogBytes, a.summary.Log = a.log.close()
	for _, p := range a.summary.Log {
		a.summary.LogKept += p.Size
	}
}

// closeJail closes a jail, once or twice. A jail that cannot be closed ends with
// this process, which owns it.
func closeJail(j *jail.Jail) { _ = j.Close() }

// startJail starts a jail with what every jail of the dispatch has.
func (a *attempt) startJail(ctx context.Context, spec jail.Spec) (*jail.Jail, error) {
	if err := a.plan.checkReadOnly(a.cfg.Dirs); err != nil {
		return nil, err
	}
	starting, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	l := a.manifest.Limits
	failpoint.Hit(failpoint.WorkerJail, a.cfg.Dir)
	spec.Lower, spec.ReadOnly = append([]string{overlayDir(a.cfg.Scratch)}, spec.Lower...), a.plan.target.ReadOnly
	spec.Limits = jail.Limits{
		Memory: int64(l.Memory), Disk: int64(l.Disk), FileSize: int64(l.FileSize),
		Processes: l.Processes, Files: l.Files, CPU: l.CPU,
	}
	j, err := jail.Start(starting, spec)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fail(api.ReasonSetup, "jail: %w", err)
	}
	if got := j.Isolation().Level; got != a.manifest.Level {
		return nil, errors.Join(fail(api.ReasonSetup, "jail: level %s is active, the manifest requires %s", got, a.manifest.Level), j.Close())
	}
	return j, nil
}

// checkReadOnly refuses to show a private place of this machine, whatever humans
// signed elsewhere.
func (p *plan) checkReadOnly(dirs api.Dirs) error {
	if len(p.target.ReadOnly) == 0 {
		return nil
	}
	mounts, err := mountinfo.Read()
	if err != nil {
		return fail(api.ReasonSetup, "mounts of this machine: %w", err)
	}
	places, err := os.ReadFile(dirs.Private())
	if err != nil {
		return fail(api.ReasonSetup, "private places of the service: %w", err)
	}
	private := api.Private{Dirs: dirs, Also: strings.Split(string(places), "\n"), Resolve: filepath.EvalSymlinks, Names: mounts.Names}
	for i, dir := range p.target.ReadOnly {
		if err := private.CheckReadOnly(dir); err != nil {
			return fail(api.ReasonSetup, "target %q: readOnly[%d]: %w", p.target.Name, i, err)
		}
	}
	return nil
}

func timeoutOf(m *record.Manifest) error { return timeout{time.Duration(m.Limits.Timeout)} }

// runAgent runs setup scripts, checks requirements and runs the agent, all within
// the agent's timeout.
func (a *attempt) runAgent(ctx context.Context, ws *workspace, j *jail.Jail) error {
	timed, stop := context.WithTimeoutCause(ctx, time.Duration(a.manifest.Limits.Timeout), timeoutOf(&a.manifest))
	defer stop()
	if err := a.setup(timed, j); err != nil {
		return err
	}
	if err := a.checkProgram(timed, j); err != nil {
		return err
	}
	if err := a.summary.step("baseline", func() (err error) {
		ws.baseline, err = ws.repo.Snapshot(timed, j.Workspace(), ws.tree, ws.config)
		return explain(timed, api.ReasonSetup, err)
	}); err != nil {
		return err
	}
	return a.summary.step("agent", func() error {
		failpoint.Hit(failpoint.WorkerAgent, a.cfg.Dir)
		err := a.runAsking(timed, j)
		failpoint.Hit(failpoint.WorkerAgentEnded, a.cfg.Dir)
		return err
	})
}

// setup runs the setup scripts of the capabilities in order, then checks what
// the capabilities require.
func (a *attempt) setup(ctx context.Context, j *jail.Jail) error {
	for _, c := range a.plan.capabilities {
		if c.Setup == "" {
			continue
		}
		if err := a.summary.step("setup "+string(c.Name), func() error {
			exit, err := j.Run(ctx, a.command([]string{"./" + setupPath(c.Name)}, nil))
			a.summary.count(exit)
			return judge(ctx, api.ReasonSetup, fmt.Sprintf("setup script of capability %q", c.Name), exit, err)
		}); err != nil {
			return err
		}
	}
	for _, c := range a.plan.capabilities {
		for _, r := range c.Requires {
			if err := a.require(ctx, j, c.Name, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// setsUp reports whether a capability has a setup script.
func (p *plan) setsUp() bool {
	return slices.ContainsFunc(p.capabilities, func(c api.Capability) bool { return c.Setup != "" })
}

func (a *attempt) require(ctx context.Context, j *jail.Jail, capability api.Name, r api.Requirement) error {
	if r.Git != "" && a.manifest.Source == nil {
		return fail(api.ReasonContext, "capability %q requires a git worktree, but the dispatch has no source", capability)
	}
	if r.Exec == "" {
		return nil
	}
	exit, err := j.Run(ctx, a.command([]string{"/bin/sh", "-c", `command -v -- "$1" >/dev/null`, "sh", r.Exec}, nil))
	if err == nil && exit.Code != 0 && context.Cause(ctx) == nil {
		return fail(api.ReasonContext, "capability %q requires the program %q, which is not on the PATH of target %q", capability, r.Exec, a.manifest.Target)
	}
	return judge(ctx, api.ReasonContext, "the check for "+r.Exec, exit, err)
}

// command is a program in the jail with the environment of this dispatch and
// nothing inherited (R-D9).
func (a *attempt) command(argv []string, stdin []byte) jail.Command {
	return jail.Command{
		Argv: argv, Env: a.env, Dir: jail.WorkspaceDir,
		Stdin: bytes.NewReader(stdin), Stdout: a.out, Stderr: a.out, Grace: record.AgentGrace,
	}
}

// explain returns why ctx ended rather than err, which is only a consequence.
func explain(ctx context.Context, reason api.Reason, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.As(cause, new(timeout)):
		return fail(api.ReasonTimeout, "%w", cause)
	case cause != nil:
		return cause
	case err == nil:
		return nil
	}
	if _, ok := errors.AsType[*failure](err); ok {
		return err // with a more precise reason
	}
	return fail(reason, "%w", err)
}

// judge returns why a process failed, or nil.
func judge(ctx context.Context, reason api.Reason, what string, exit jail.Exit, err error) error {
	ok := err == nil && exit.Code == 0 && exit.Signal == 0
	if ok && context.Cause(ctx) == nil {
		return nil
	}
	how := fmt.Errorf("%s failed: exit status %d", what, exit.Code)
	switch {
	case err != nil:
		how = fmt.Errorf("%s: %w", what, err)
	case exit.Signal != 0:
		how = fmt.Errorf("%s was killed by signal %d (%s)", what, exit.Signal, exit.Signal)
	}
	hit := exit.Hit
	if exit.Signal == syscall.SIGXFSZ || exit.Code == 128+int(syscall.SIGXFSZ) { // itself, or a child of a shell
		hit = append(hit, "file size")
	}
	if len(hit) > 0 && context.Cause(ctx) == nil {
		why := ""
		if exit.Why != "" {
			why = ": " + exit.Why
		}
		return fail(api.ReasonLimit, "%w after reaching its limit of %s%s", how, strings.Join(hit, " and "), why)
	}
	return explain(ctx, reason, how)
}

// verifyPatch runs the verify command on base and patch in a fresh jail (R-D10).
func (a *attempt) verifyPatch(ctx context.Context, ws *workspace, tree string) error {
	v := a.plan.subagent.Verify
	if v == nil {
		return nil
	}
	return a.summary.step("check", func() error {
		lower, err := ws.layTree(ctx, tree, checkDir)
		if err != nil {
			return explain(ctx, api.ReasonVerify, fmt.Errorf("base and patch: %w", err))
		}
		changed, err := ws.changedChecks(ctx, a.changed, tree, v)
		if err != nil {
			return explain(ctx, api.ReasonVerify, fmt.Errorf("files of the patch that verify runs: %w", err))
		}
		j, err := a.startJail(ctx, jail.Spec{Lower: ws.under(lower), Home: a.reach.files, Listen: wantsReach(&a.manifest) && a.plan.setsUp()})
		if err != nil {
			return err
		}
		defer closeJail(j)
		a.reach.serve(ctx, j, a.cfg.Logger)
		failpoint.Hit(failpoint.WorkerCheck, a.cfg.Dir)
		return a.runVerify(ctx, j, *v, changed)
	})
}

// runVerify runs the setup scripts and the command of v, which have its time together.
// changed are the files of the patch that it runs.
func (a *attempt) runVerify(ctx context.Context, j *jail.Jail, v api.Verify, changed []string) error {
	report := &api.VerifyReport{ReportOnly: v.ReportOnly, ExitCode: -1, Changed: changed}
	a.summary.Verify = report
	if a.out.flush() {
		a.summary.redacted("log")
	}
	a.log.beginVerify()
	left, from := time.Duration(v.Time()), a.cfg.Now()
	timed, stop := context.WithTimeoutCause(ctx, left, timeoutOf(&a.manifest))
	err := a.setup(timed, j)
	stop()
	if err != nil {
		report.Message = bounded(err.Error())
		return verifyFailed(ctx, v, err)
	}
	left -= max(0, a.cfg.Now().Sub(from))
	// Setup scripts reach what they reach in the agent's jail. The command judges what an
	// agent wrote: it has no network and none of the secrets. Answers that the scripts left
	// outstanding take nothing of its time.
	if err := a.reach.close(ctx, &a.summary); err != nil {
		return err
	}
	timed, stop = context.WithTimeoutCause(ctx, left, timeoutOf(&a.manifest))
	defer stop()
	a.env, from = a.plan.env, a.cfg.Now()
	exit, err := j.Run(timed, a.command(v.Command, nil))
	a.summary.count(exit)
	report.Seconds, report.ExitCode = a.cfg.Now().Sub(from).Seconds(), exit.Code
	if err := judge(timed, api.ReasonVerify, "the verify command", exit, err); err != nil {
		if errors.As(context.Cause(timed), new(timeout)) {
			err = fmt.Errorf("the verify command exceeded its timeout of %s", time.Duration(v.Time()))
		}
		report.Message = bounded(err.Error())
		return verifyFailed(ctx, v, err)
	}
	report.Passed = true
	return nil
}

// verifyFailed returns the failure of a dispatch whose verify command did not pass.
func verifyFailed(ctx context.Context, v api.Verify, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if v.ReportOnly {
		return nil
	}
	return fail(api.ReasonVerify, "%w", err)
}
