package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// agentMount is where a jail has the program that bailiwick agent install put on this
// machine.
const agentMount = jail.MountsDir + "/agent"

// program is an agent program of an adapter.
type program struct {
	argv   []string
	mounts []jail.Mount // empty: it is on the PATH of the jail
}

// prepareLaunch decides how the agent is started, with what it holds instead of
// secrets.
func (a *attempt) prepareLaunch(input []byte) (err error) {
	p := &a.plan
	if p.adapter, err = agent.For(a.manifest.Agent); err != nil {
		return fail(api.ReasonSetup, "%w", err)
	}
	secrets, err := a.reach.open(&a.manifest, &p.access, a.cfg.Secrets)
	if err != nil {
		return err
	}
	a.summary.redact = secrets
	start := agent.Start{Subagent: p.subagent, Input: input, Egress: a.manifest.Egress, Tools: fmt.Sprintf("http://127.0.0.1:%d/mcp", jail.ListenPort)}
	if e := a.manifest.Endpoint; e != nil {
		start.Model = &agent.Model{
			ModelUse: *e, API: p.access.Model.API, Key: a.reach.key,
			URL: fmt.Sprintf("http://127.0.0.1:%d/model/%s", jail.ListenPort, e.Name),
		}
	}
	resume, err := a.loadResume(&start)
	if err != nil {
		return err
	}
	if p.launch, err = p.adapter.Launch(start); err != nil {
		return fail(api.ReasonSetup, "%w", err)
	}
	p.launch.Inputs = append(p.launch.Inputs, resume...)
	return a.findProgram()
}

// findProgram finds the installed program of an adapter. One that is not installed may
// be on the PATH of the jail.
func (a *attempt) findProgram() error {
	name := a.plan.adapter.Program
	if name == "" {
		a.program.argv = a.plan.launch.Args
		return nil
	}
	dir, stamp, err := agent.Installed(a.cfg.Dirs.Agents(), a.manifest.Agent)
	switch {
	case errors.Is(err, agent.ErrNotInstalled):
		a.program.argv = []string{name}
		a.summary.Agent = &api.AgentReport{Adapter: a.manifest.Agent}
	case err != nil:
		return fail(api.ReasonSetup, "agent %s: %w: install it again with: %s", a.manifest.Agent, err, installCommand(a.manifest.Agent))
	default:
		a.program = program{stamp.In(agentMount), []jail.Mount{{Host: dir, Jail: agentMount}}}
		a.summary.Agent = &api.AgentReport{Adapter: a.manifest.Agent, Version: stamp.Version, Integrity: stamp.Integrity}
	}
	a.program.argv = append(a.program.argv, a.plan.launch.Args...)
	return nil
}

func installCommand(agent string) string { return "bailiwick agent install " + agent }

// checkProgram finds out the version of a program on the PATH of the jail.
func (a *attempt) checkProgram(ctx context.Context, j *jail.Jail) error {
	if a.plan.adapter.Program == "" || len(a.program.mounts) > 0 {
		return nil
	}
	return a.summary.step("agent version", func() error {
		out := &cuttext.Head{Most: 4 << 10}
		cmd := a.command([]string{a.plan.adapter.Program, "--version"}, nil)
		cmd.Stdout = out
		exit, err := j.Run(ctx, cmd)
		a.summary.count(exit)
		if context.Cause(ctx) != nil {
			return judge(ctx, api.ReasonSetup, "the agent's --version", exit, err)
		}
		if err != nil {
			return fail(api.ReasonSetup, "agent %s is neither in %s nor on the PATH of target %q: install it with: %s",
				a.manifest.Agent, filepath.Join(a.cfg.Dirs.Agents(), a.manifest.Agent), a.manifest.Target, installCommand(a.manifest.Agent))
		}
		if err := judge(ctx, api.ReasonSetup, "the agent's --version", exit, nil); err != nil {
			return err
		}
		v, err := agent.ParseVersion(out.Text())
		if err != nil {
			return fail(api.ReasonSetup, "agent %s on the PATH of target %q: %w", a.manifest.Agent, a.manifest.Target, err)
		}
		a.summary.Agent.Version = v
		return nil
	})
}

// turnTime is how long an agent program may take to end its turn after it asked a
// question. Another agent is stopped at once.
const turnTime = 15 * time.Second

// runAsking runs the agent, and stops it when it asks a question and keeps running.
func (a *attempt) runAsking(ctx context.Context, j *jail.Jail) error {
	asking, ask := context.WithCancelCause(ctx)
	defer ask(nil)
	cmd := a.command(a.program.argv, a.plan.launch.Stdin)
	patience := time.Duration(0)
	if a.plan.adapter.Program != "" {
		patience = turnTime
		t, err := newTranscript(a.cfg.Dir, a.summary.redact, a.plan.adapter, a.out)
		if err != nil {
			return err
		}
		a.transcript, cmd.Stdout = t, t
	}
	stop := a.asked.watch(j, patience, func() { ask(errAsked) })
	exit, err := j.Run(asking, cmd)
	stop()
	a.summary.count(exit)
	a.summary.ExitCode = &exit.Code
	err = judge(asking, api.ReasonAgent, "the agent", exit, err)
	return a.explainAgent(err, a.transcript.end())
}

// explainAgent adds to the failure of an agent what it said itself, and what became of
// its last request to its model. An agent that says that it failed has, whatever its
// exit status. One that ran out of time may have asked a model that never answered.
func (a *attempt) explainAgent(err error, report agent.Report) error {
	a.report = report
	a.summary.Text = a.summary.redact.Text(report.Text)
	var f *failure
	switch {
	case err == nil && report.Error != "":
		f = &failure{api.ReasonAgent, errors.New("the agent failed")}
	case err == nil && a.plan.subagent.RequireModel && a.reach.usage().Turns == 0:
		f = &failure{api.ReasonAgent, fmt.Errorf("%s, which subagent %q requires", withoutModel(a.reach.usage().Requests), a.manifest.Subagent)}
	case !errors.As(err, &f) || f.reason != api.ReasonAgent && f.reason != api.ReasonTimeout:
		return err
	}
	why := []string{f.Error()}
	if report.Error != "" && f.reason == api.ReasonAgent {
		why = append(why, report.Error)
	}
	if fault := a.reach.modelFault(); fault != "" {
		why = append(why, fault)
	}
	return &failure{f.reason, errors.New(strings.Join(why, ": "))}
}

// withoutModel says that the model gave no answer with success to so many requests.
func withoutModel(requests int64) string {
	if requests == 0 {
		return "the agent made no request to its model"
	}
	return "the agent ended without a successful answer of its model to " + record.Plural(requests, "request")
}

// loadResume gives the agent the answer to the question of the attempt before, and its
// own session where that attempt left one. It returns further files for inputs/.
func (a *attempt) loadResume(start *agent.Start) ([]agent.File, error) {
	from := a.manifest.Resume
	if from == nil {
		return nil, nil
	}
	b, err := readPinned(a.cfg.Dir, record.WorkResume, "answer", from.Answer, maxResume)
	if err != nil {
		return nil, err
	}
	start.Answer = &record.ResumeInput{}
	if err := canon.Decode(b, start.Answer); err != nil {
		return nil, fail(api.ReasonIntegrity, "answer: %w", err)
	}
	if from.Session != "" && a.plan.adapter.Program != "" {
		archive, err := readPinned(a.cfg.Dir, record.WorkSession, "session", from.Session, maxSession)
		if err != nil {
			return nil, err
		}
		// The agent could write to it. Without it, the agent gets question and answer with
		// its task.
		if start.Session, err = a.plan.adapter.ParseSession(archive); err != nil {
			a.summary.leaveOut("session", fmt.Errorf("not restored: %w", err))
		}
	}
	return []agent.File{{Path: api.ResumeFile, Content: b}}, nil
}

// readPinned reads a file of the worker's directory whose digest the manifest has.
func readPinned(dir, name, what string, want api.Digest, most int64) ([]byte, error) {
	b, err := blob.ReadBounded(filepath.Join(dir, name), most)
	if err != nil {
		return nil, fail(api.ReasonIntegrity, "%w", err)
	}
	if got := api.DigestOf(b); got != want {
		return nil, fail(api.ReasonIntegrity, "%s: digest %s, the manifest says %s", what, got.Short(), want.Short())
	}
	return b, nil
}
