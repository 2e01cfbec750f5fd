package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Names of resources in statements. An output's name is OutputPrefix and its
// path, a need's InputPrefix and its name, that of a catalog artifact its ref.
const (
	ResourcePatch    = "patch"
	ResourceResult   = "result"   // the signed result
	ResourceManifest = "manifest" // the signed manifest
	ResourceRevision = "revision" // of the catalog
	ResourceInput    = "input"
	ResourceSource   = "source"
	ResourceAnswer   = "resume/answer"
	ResourceResumed  = "resume/patch"
	ResourceSession  = "resume/session"
	OutputPrefix     = "outputs/"
	InputPrefix      = "inputs/"
	resourceNetwork  = "network"
	resourceCalls    = "calls" // the record of the last attempt's tool calls
	resourceLog      = "log/"  // and the offset of a part
)

// ServiceIdentity names the service that makes a statement.
type ServiceIdentity struct {
	ID      string // of its first key
	Version string
}

// BuilderPrefix begins the SLSA builder id of a service.
const BuilderPrefix = "https://bailiwick.dev/service/"

// builder is the SLSA builder id of s.
func (s ServiceIdentity) builder() string { return BuilderPrefix + s.ID }

func invocation(builder string, id api.DispatchID, attempt int) string {
	return builder + "/dispatch/" + string(id) + "/" + strconv.Itoa(attempt)
}

// NewStatement returns the statement about an ended dispatch, from its record,
// its earlier attempts and the manifest of its last attempt.
func NewStatement(s ServiceIdentity, d *api.Dispatch, earlier []api.Dispatch, m *Manifest) (Statement, error) {
	if m.ID != d.ID || m.Attempt != d.Attempt {
		return Statement{}, fmt.Errorf("statement: manifest is of dispatch %s attempt %d, record of dispatch %s attempt %d", m.ID, m.Attempt, d.ID, d.Attempt)
	}
	if d.EndedAt == nil {
		return Statement{}, fmt.Errorf("statement: dispatch %s has not ended", d.ID)
	}
	end := d.EndedAt.UTC()
	st := Statement{
		Type: StatementType, PredicateType: PredicateType, Subject: subjects(d.Outcome, d.Result, d.Manifest),
		Predicate: Provenance{
			BuildDefinition: definition(m, d.Manifest),
			RunDetails: RunDetails{
				Builder:    Builder{ID: s.builder(), Version: map[string]string{"bailiwick": s.Version}},
				Metadata:   RunMetadata{InvocationID: invocation(s.builder(), d.ID, d.Attempt), FinishedOn: end},
				Byproducts: byproducts(d),
			},
			Dispatch: outcome(d, earlier),
		},
	}
	if d.StartedAt != nil {
		began := d.StartedAt.UTC()
		st.Predicate.RunDetails.Metadata.StartedOn = &began
	}
	return st, st.check()
}

// subjects are the patch and the outputs; without either the result, and without
// a result the manifest.
func subjects(sum *api.ResultSummary, result, manifest api.Digest) []Resource {
	var list []Resource
	if sum != nil {
		if sum.Patch != nil {
			list = append(list, resource(ResourcePatch, sum.Patch.Digest))
		}
		for _, o := range sum.Outputs {
			list = append(list, resource(OutputPrefix+o.Path, o.Digest))
		}
	}
	switch {
	case len(list) > 0:
		return list
	case result != "":
		return []Resource{resource(ResourceResult, result)}
	}
	return []Resource{resource(ResourceManifest, manifest)}
}

// definition is the part of a statement that follows from the manifest alone.
func definition(m *Manifest, manifest api.Digest) BuildDefinition {
	return BuildDefinition{
		BuildType: BuildType,
		ExternalParameters: ExternalParameters{
			Principal: m.Principal, Subagent: m.Subagent, Target: m.Target, Envs: m.Envs, Capabilities: m.Capabilities, Source: m.Source, Run: m.Run, Task: m.Task,
		},
		InternalParameters: InternalParameters{
			Revision: m.Revision, Policies: slices.Concat([]string{}, m.Policies), Agent: m.Agent, Model: m.Model, Endpoint: m.Endpoint, Role: m.Role, Tier: m.Tier, Ceiling: m.Ceiling,
			Level: m.Level, Limits: m.Limits, Egress: slices.Concat([]string{}, m.Egress), Fence: m.Fence,
		},
		ResolvedDependencies: dependencies(m, manifest),
	}
}

// dependencies are everything that decided what ran.
func dependencies(m *Manifest, manifest api.Digest) []Resource {
	list := []Resource{resource(ResourceManifest, manifest), resource(ResourceRevision, m.RevisionDigest)}
	for _, p := range m.Artifacts {
		list = append(list, resource(string(p.Ref), p.Digest))
	}
	list = append(list, resource(ResourceInput, m.Input))
	if m.Source != nil {
		list = append(list, Resource{Name: ResourceSource, URI: "bailiwick:source/" + string(m.Source.Name), Digest: map[string]string{"gitCommit": m.Source.Commit}})
	}
	if m.Resume != nil {
		list = append(list, resource(ResourceAnswer, m.Resume.Answer))
		if m.Resume.Patch != "" {
			list = append(list, resource(ResourceResumed, m.Resume.Patch))
		}
		if m.Resume.Session != "" {
			list = append(list, resource(ResourceSession, m.Resume.Session))
		}
	}
	for _, n := range m.Needs {
		r := resource(InputPrefix+n.Place(), n.Digest)
		r.Annotations = map[string]string{"task": string(n.Task), "dispatch": string(n.Dispatch), "kind": n.Kind}
		if n.Path != "" {
			r.Annotations["path"] = n.Path
		}
		list = append(list, r)
	}
	return list
}

// byproducts are the result, the question, what the agent program left, the log and the
// record of tool calls.
func byproducts(d *api.Dispatch) []Resource {
	var list []Resource
	if d.Result != "" {
		list = append(list, resource(ResourceResult, d.Result))
	}
	if d.Outcome != nil {
		for _, c := range []struct {
			name string
			of   *api.Artifact
		}{{"question", d.Outcome.Question}, {"transcript", d.Outcome.Transcript}, {resourceNetwork, d.Outcome.Network}, {"session", d.Outcome.Session}} {
			if c.of != nil {
				list = append(list, resource(c.name, c.of.Digest))
			}
		}
		for _, p := range d.Outcome.Log {
			list = append(list, resource(resourceLog+strconv.FormatInt(p.Offset, 10), p.Digest))
		}
	}
	if d.Calls != nil && d.Calls.Record != nil {
		list = append(list, resource(resourceCalls, d.Calls.Record.Digest))
	}
	return list
}

func outcome(d *api.Dispatch, earlier []api.Dispatch) DispatchOutcome {
	o := DispatchOutcome{ID: d.ID, Attempt: d.Attempt, Outcome: d.State, Reason: d.Reason, CancelledBy: d.CancelBy, Mode: d.Mode}
	if sum := d.Outcome; sum != nil {
		o.Partial, o.Reported = sum.Partial, reportedBy(sum)
	}
	for i := range earlier {
		if e := &earlier[i]; e.Attempt < d.Attempt {
			o.Earlier = append(o.Earlier, EarlierAttempt{Attempt: e.Attempt, Manifest: e.Manifest, Result: e.Result})
		}
	}
	return o
}

// reportedBy is what a statement repeats of a result.
func reportedBy(sum *api.ResultSummary) Reported {
	if sum == nil {
		return Reported{}
	}
	var changed []string
	if sum.Verify != nil {
		changed = sum.Verify.Changed
	}
	return Reported{
		Verify: VerifyWord(sum.Verify), Changed: changed, Isolation: sum.Isolation.Level, Layers: sum.Isolation.Layers,
		Program: sum.Agent, Usage: sum.Usage.Model, Refused: sum.Refusals,
	}
}

func resource(name string, d api.Digest) Resource {
	return Resource{Name: name, Digest: map[string]string{"sha256": d.Hex()}}
}

// ran refuses a statement whose byproducts or isolation differ from the result,
// or which names another invocation.
func (s *Statement) ran(m *Manifest, sum *api.ResultSummary, digest, calls api.Digest) error {
	d, o := &s.Predicate.RunDetails, &s.Predicate.Dispatch
	of := &api.Dispatch{Result: digest, Outcome: sum}
	if calls != "" {
		of.Calls = &api.ToolCalls{Record: &api.Artifact{Digest: calls}}
	}
	got, want := d.Byproducts, byproducts(of)
	if sum == nil { // the log and the network record of a worker that left no result may be stored
		got = slices.DeleteFunc(slices.Clone(got), func(r Resource) bool { return r.Name == resourceNetwork || strings.HasPrefix(r.Name, resourceLog) })
	}
	switch {
	case len(got)+len(want) > 0 && !sameEncoding(got, want):
		return fmt.Errorf("statement: names a different result of dispatch %s, or other byproducts", m.ID)
	case !sameEncoding(o.Reported, reportedBy(sum)):
		return fmt.Errorf("statement: dispatch %s: isolation, verify, program, usage or refused differ from its result", m.ID)
	case d.Metadata.InvocationID != invocation(d.Builder.ID, m.ID, m.Attempt):
		return fmt.Errorf("statement: of another invocation than dispatch %s attempt %d of its builder", m.ID, m.Attempt)
	}
	return nil
}

// Binds refuses s unless it is the statement about the attempt with this signed
// manifest and result, and this record of tool calls. Without one, its digest is empty,
// and result is nil.
// Whatever only the record knows, such as who cancelled and when it ended, must
// be compared with the log's entries.
func (s *Statement) Binds(m *Manifest, manifest api.Digest, result *Result, digest, calls api.Digest) error {
	p, o := &s.Predicate, &s.Predicate.Dispatch
	if o.ID != m.ID || o.Attempt != m.Attempt {
		return fmt.Errorf("statement: of dispatch %s attempt %d, want dispatch %s attempt %d", o.ID, o.Attempt, m.ID, m.Attempt)
	}
	if !sameEncoding(p.BuildDefinition, definition(m, manifest)) {
		return fmt.Errorf("statement: build definition does not match the manifest of dispatch %s", m.ID)
	}
	var sum *api.ResultSummary
	if result != nil {
		sum = &result.Summary
	}
	if !sameEncoding(s.Subject, subjects(sum, digest, manifest)) {
		return fmt.Errorf("statement: subjects do not match the result of dispatch %s", m.ID)
	}
	if err := s.ran(m, sum, digest, calls); err != nil {
		return err
	}
	switch {
	case result == nil:
		return nil
	case o.Outcome == api.EventFinished && result.Outcome != api.EventFinished:
		return fmt.Errorf("statement: dispatch %s finished, but its result says %s", m.ID, result.Outcome)
	case o.Partial != sum.Partial:
		return fmt.Errorf("statement: dispatch %s: partial is %v, but its result says %v", m.ID, o.Partial, sum.Partial)
	}
	return nil
}
