package mcpserve

import (
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The nine tools (R-B2). Their names, order and descriptions are all in this file,
// and the golden files in testdata/tools show every change that an AI can see.
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

// newTools returns the tools in the order of Names.
func (s *Server) newTools() ([]tool, error) {
	var b builder
	add(&b, toolInfo{
		name: toolDispatch, title: "Dispatch a subagent",
		description: `Start one execution of a subagent in its own jail and return its dispatchId. ` +
			`Use a name from bailiwick_subagents_list; its entry lists the targets, sources, env and extra capabilities that you may name, and the schema of input. ` +
			`Without wait, the call returns at once; with wait, it returns when the dispatch ends or after that many seconds, whichever comes first. ` +
			`To keep waiting, repeat the call with the same arguments, the returned dispatchId and wait: this does not start a second dispatch. Do not poll bailiwick_dispatch_describe. ` +
			`To answer a dispatch in state needs_input, pass resume and answer, and optionally wait, and nothing else.`,
		hints: hints{destructive: true, openWorld: true},
	}, s.dispatch)
	add(&b, toolInfo{
		name: toolDescribe, title: "Describe a dispatch",
		description: `Show one of your dispatches. include selects what to show: summary (the record: state, outcome, changed files, outputs, verify report), ` +
			`patch (the diff), outputs (the files that it produced), logs, or question (the open question in state needs_input). ` +
			`Long content comes in pages: pass next as cursor to get the following page. States: accepted, started, finished, needs_input, failed, cancelled.`,
		hints: hints{readOnly: true},
	}, s.describe)
	add(&b, toolInfo{
		name: toolCancel, title: "Cancel a dispatch",
		description: `Cancel one of your dispatches. Returns its state after the request; the worker exits within seconds. Results captured by then are kept and marked partial.`,
		hints:       hints{destructive: true, idempotent: true},
	}, s.cancel)
	add(&b, toolInfo{
		name: toolCapabilities, title: "List capabilities",
		description: `List the capabilities that you may add to a dispatch. Returns metadata only. Humans define capabilities; you cannot.`,
		hints:       hints{readOnly: true},
	}, s.capabilities)
	add(&b, toolInfo{
		name: toolSubagents, title: "List subagents",
		description: `List the subagents that you may dispatch, each with its input and output schema and the targets, sources, env and extra capabilities that you may name. Call this first. Returns metadata only. Humans define subagents; you cannot.`,
		hints:       hints{readOnly: true},
	}, s.subagents)
	add(&b, toolInfo{
		name: toolEnvs, title: "List envs",
		description: `List the sets of environment variables (envs) that you may name in a dispatch. Returns metadata, never values. Humans define envs; you cannot.`,
		hints:       hints{readOnly: true},
	}, s.envs)
	add(&b, toolInfo{
		name: toolSubmit, title: "Submit a plan",
		description: `Submit a plan to the orchestrator. Each task dispatches a subagent from bailiwick_subagents_list, after the tasks that it depends on, under its locks, and retries as the task says. ` +
			`A task may grow into one for each item of a list (for_each), have its patch checked and fixed (gate), or wait for reviewers (quorum) or people (approval). ` +
			`Returns the run, which continues whether or not you watch it, or every problem of the plan with its path: fix them all, then submit again. The whole plan is refused if you may not dispatch one of its tasks. ` +
			`Repeating a plan with the same runId, or the same id in the plan, does not start a second run: the answer has existing. ` +
			`If the service has no orchestrator, the code is not_configured: use bailiwick_dispatch.`,
		hints: hints{destructive: true, openWorld: true},
	}, s.submit)
	add(&b, toolInfo{
		name: toolStatus, title: "Status of a run",
		description: `Show the state of one of your runs and its tasks in the order of the plan, each with state, reason and dispatchId (for bailiwick_dispatch_describe). Tasks come in pages: pass next as after. ` +
			`approvals lists the tasks and tool calls that wait for people: only a human can approve, so tell one and wait. ` +
			`Run states: running, waiting, paused, done, failed, cancelled. Task states: pending, ready, running, waiting, growing, done, failed, skipped, cancelled, denied.`,
		hints: hints{readOnly: true},
	}, s.status)
	add(&b, toolInfo{
		name: toolWatch, title: "Watch a run",
		description: `Return the events of one of your runs after the cursor, waiting up to timeoutSeconds for the first. Repeat the call with next as after until done is true.`,
		hints:       hints{readOnly: true},
	}, s.watch)
	return b.tools, errors.Join(b.errs...)
}

// hints are the annotations of a tool. They only inform clients: the service
// decides.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

func (h hints) annotations(title string) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{
		Title: title, ReadOnlyHint: h.readOnly, DestructiveHint: &h.destructive,
		IdempotentHint: h.idempotent || h.readOnly, OpenWorldHint: &h.openWorld,
	}
}
