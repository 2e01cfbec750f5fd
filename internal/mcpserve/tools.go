package mcpserve

import (
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The nine tools (R-B2). Nothing else adds one: the names, their order and what
// is said of them are here, and the golden files of testdata/tools show every
// change of what an AI sees.
const (
	toolDispatch     = "bailiwick_dispatch"
	toolDescribe     = "bailiwick_dispatch_describe"
	toolCancel       = "bailiwick_dispatch_cancel"
	toolCapabilities = "bailiwick_capabilities_list"
	toolSubagents    = "bailiwick_subagents_list"
	toolEnvs         = "bailiwick_envs_list"
	toolSubmit       = "bailiwick_orchestrator_submit"
	toolStatus       = "bailiwick_orchestrator_status"
	toolWatch        = "bailiwick_orchestrator_watch"
)

// Names lists the tools in their order.
func Names() []string {
	return []string{toolDispatch, toolDescribe, toolCancel, toolCapabilities, toolSubagents, toolEnvs, toolSubmit, toolStatus, toolWatch}
}

// nine makes the tools.
func (s *Server) nine() ([]tool, error) {
	var b builder
	add(&b, about{
		name: toolDispatch, title: "Dispatch a subagent",
		description: `Start one execution of a subagent that humans defined, in a jail of its own, and return its dispatchId. ` +
			`Names are those of bailiwick_subagents_list; its entry says which targets, sources, env and extra capabilities you may name and what the input must look like. ` +
			`Without wait it returns at once; with wait it returns when the work has ended or the seconds are over, whichever is first. ` +
			`The same call again with the same dispatchId does not start it twice: to go on waiting, call again with the dispatchId that was returned, the same arguments and wait. Do not poll bailiwick_dispatch_describe. ` +
			`To answer a dispatch whose state is needs_input, give resume and answer and nothing else but wait.`,
		hints: hints{destructive: true, openWorld: true},
	}, s.dispatch)
	add(&b, about{
		name: toolDescribe, title: "Describe a dispatch",
		description: `Show one of your dispatches. include chooses what: summary (the record: state, outcome, changed files, outputs, verify report), ` +
			`patch (the diff), outputs (the files that it brought back), logs, or question (what it asks when its state is needs_input). ` +
			`Long content comes in pages: pass cursor from the answer to get the next one. States: accepted, started, finished, needs_input, failed, cancelled.`,
		hints: hints{readOnly: true},
	}, s.describe)
	add(&b, about{
		name: toolCancel, title: "Cancel a dispatch",
		description: `Ask for the end of one of your dispatches. It returns the state after the request; the worker is gone a few seconds later. What it had done by then is kept, marked partial.`,
		hints:       hints{destructive: true, idempotent: true},
	}, s.cancel)
	add(&b, about{
		name: toolCapabilities, title: "List capabilities",
		description: `List the capabilities that you may name as extras of a dispatch. Metadata only. Humans define them.`,
		hints:       hints{readOnly: true},
	}, s.capabilities)
	add(&b, about{
		name: toolSubagents, title: "List subagents",
		description: `List the subagents that you may dispatch, with the schema of their input and the targets, sources, env and extra capabilities that you may name with each. Metadata only. Humans define them.`,
		hints:       hints{readOnly: true},
	}, s.subagents)
	add(&b, about{
		name: toolEnvs, title: "List envs",
		description: `List the sets of environment variables that you may name in a dispatch. Never their values. Humans define them.`,
		hints:       hints{readOnly: true},
	}, s.envs)
	add(&b, about{
		name: toolSubmit, title: "Submit a plan",
		description: `Hand a plan to the orchestrator, which runs its tasks: each is a dispatch of a subagent of bailiwick_subagents_list, after those that it depends on, under its locks, tried again as it says. ` +
			`It returns the run, which goes on whether or not you watch it, or every mistake of the plan with its path: mend them all and submit again. Any task that you may not dispatch refuses the whole plan. ` +
			`The same plan again with the same runId, or the same id in the plan, is not run twice. ` +
			`A service that runs without an orchestrator answers not_configured: use bailiwick_dispatch.`,
		hints: hints{destructive: true, openWorld: true},
	}, s.submit)
	add(&b, about{
		name: toolStatus, title: "Status of a run",
		description: `Show how one of your runs stands, and its tasks in the order of the plan, each with state, reason and dispatchId, which bailiwick_dispatch_describe reads. Tasks come in pages: pass next as after. ` +
			`Runs are running, waiting, paused, done, failed, cancelled; tasks are pending, ready, running, waiting, done, failed, skipped, cancelled, denied. ` +
			`A service that runs without an orchestrator answers not_configured.`,
		hints: hints{readOnly: true},
	}, s.status)
	add(&b, about{
		name: toolWatch, title: "Watch a run",
		description: `Return what happened in one of your runs behind the cursor after, waiting up to timeoutSeconds for something to happen. Call it again with next as after until done is true. A service that runs without an orchestrator answers not_configured.`,
		hints:       hints{readOnly: true},
	}, s.watch)
	return b.tools, errors.Join(b.errs...)
}

// hints are what a tool says of itself. Nobody is bound by them: whatever they
// say, the service decides.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

func (h hints) annotations(title string) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{
		Title: title, ReadOnlyHint: h.readOnly, DestructiveHint: &h.destructive,
		IdempotentHint: h.idempotent || h.readOnly, OpenWorldHint: &h.openWorld,
	}
}
