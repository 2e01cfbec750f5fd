package statement

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// Names of resources that every reader may look for. An output is OutputPrefix
// and its path, a need InputPrefix and its name, an artifact of the catalog its
// ref.
const (
	NamePatch    = "patch"
	NameResult   = "result"   // the signed result
	NameManifest = "manifest" // the signed manifest
	NameRevision = "revision" // of the catalog
	NameInput    = "input"
	NameSource   = "source"
	NameAnswer   = "resume/answer"
	NameResumed  = "resume/patch"
	OutputPrefix = "outputs/"
	InputPrefix  = "inputs/"
)

// Service is whose statement it is.
type Service struct {
	ID      string // of the key that it had first
	Version string
}

// builder is the service as SLSA names builders.
func (s Service) builder() string { return "https://bailiwick.dev/service/" + s.ID }

// Of returns the statement about a dispatch that has come to its end: its
// record with the earlier attempts, and the manifest of its last attempt.
func Of(s Service, d *api.Dispatch, earlier []api.Dispatch, m *record.Manifest) (Statement, error) {
	if m.ID != d.ID || m.Attempt != d.Attempt {
		return Statement{}, fmt.Errorf("statement: the manifest is of dispatch %s attempt %d, the record of %s attempt %d", m.ID, m.Attempt, d.ID, d.Attempt)
	}
	if d.EndedAt == nil {
		return Statement{}, fmt.Errorf("statement: dispatch %s has not ended", d.ID)
	}
	end := d.EndedAt.UTC()
	st := Statement{
		Type: Type, PredicateType: PredicateType, Subject: Subjects(d.Outcome, d.Result, d.Manifest),
		Predicate: Provenance{
			BuildDefinition: Definition(m, d.Manifest),
			RunDetails: RunDetails{
				Builder:    Builder{ID: s.builder(), Version: map[string]string{"bailiwick": s.Version}},
				Metadata:   Metadata{InvocationID: s.builder() + "/dispatch/" + string(d.ID) + "/" + strconv.Itoa(d.Attempt), FinishedOn: end},
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

// Subjects are what a statement is about: the patch and the outputs. A dispatch
// that left neither is stated by its result, and one without that by its
// manifest.
func Subjects(sum *api.ResultSummary, result, manifest api.Digest) []Resource {
	var list []Resource
	if sum != nil {
		if sum.Patch != nil {
			list = append(list, resource(NamePatch, sum.Patch.Digest))
		}
		for _, o := range sum.Outputs {
			list = append(list, resource(OutputPrefix+o.Path, o.Digest))
		}
	}
	switch {
	case len(list) > 0:
		return list
	case result != "":
		return []Resource{resource(NameResult, result)}
	}
	return []Resource{resource(NameManifest, manifest)}
}

// Definition is the part of a statement that follows from the manifest alone.
func Definition(m *record.Manifest, manifest api.Digest) BuildDefinition {
	return BuildDefinition{
		BuildType: BuildType,
		ExternalParameters: External{
			Principal: m.Principal, Subagent: m.Subagent, Target: m.Target, Envs: m.Envs, Capabilities: m.Capabilities, Source: m.Source, Run: m.Run, Task: m.Task,
		},
		InternalParameters: Internal{
			Revision: m.Revision, Policies: slices.Concat([]string{}, m.Policies), Agent: m.Agent, Model: m.Model, Role: m.Role, Tier: m.Tier, Ceiling: m.Ceiling,
			Level: m.Level, Limits: m.Limits, Egress: slices.Concat([]string{}, m.Egress), Fence: m.Fence,
		},
		ResolvedDependencies: dependencies(m, manifest),
	}
}

// dependencies are everything that decided what ran.
func dependencies(m *record.Manifest, manifest api.Digest) []Resource {
	list := []Resource{resource(NameManifest, manifest), resource(NameRevision, m.RevisionDigest)}
	for _, p := range m.Artifacts {
		list = append(list, resource(string(p.Ref), p.Digest))
	}
	list = append(list, resource(NameInput, m.Input))
	if m.Source != nil {
		list = append(list, Resource{Name: NameSource, URI: "bailiwick:source/" + string(m.Source.Name), Digest: map[string]string{"gitCommit": m.Source.Commit}})
	}
	if m.Resume != nil {
		list = append(list, resource(NameAnswer, m.Resume.Answer))
		if m.Resume.Patch != "" {
			list = append(list, resource(NameResumed, m.Resume.Patch))
		}
	}
	for _, n := range m.Needs {
		r := resource(InputPrefix+string(n.Name), n.Digest)
		r.Annotations = map[string]string{"task": string(n.Task), "dispatch": string(n.Dispatch), "kind": n.Kind}
		if n.Path != "" {
			r.Annotations["path"] = n.Path
		}
		list = append(list, r)
	}
	return list
}

// byproducts are what else the attempt left.
func byproducts(d *api.Dispatch) []Resource {
	var list []Resource
	if d.Result != "" {
		list = append(list, resource(NameResult, d.Result))
	}
	if d.Outcome != nil {
		if d.Outcome.Question != nil {
			list = append(list, resource("question", d.Outcome.Question.Digest))
		}
		for _, p := range d.Outcome.Log {
			list = append(list, resource("log/"+strconv.FormatInt(p.Offset, 10), p.Digest))
		}
	}
	return list
}

func outcome(d *api.Dispatch, earlier []api.Dispatch) Outcome {
	o := Outcome{ID: d.ID, Attempt: d.Attempt, Outcome: d.State, Reason: d.Reason, CancelledBy: d.CancelBy, Mode: d.Mode}
	if sum := d.Outcome; sum != nil {
		o.Partial, o.Isolation, o.Layers, o.Verify = sum.Partial, sum.Isolation.Level, sum.Isolation.Layers, record.VerifyWord(sum.Verify)
	}
	for i := range earlier {
		if e := &earlier[i]; e.Attempt < d.Attempt {
			o.Earlier = append(o.Earlier, Earlier{Attempt: e.Attempt, Manifest: e.Manifest, Result: e.Result})
		}
	}
	return o
}

func resource(name string, d api.Digest) Resource {
	return Resource{Name: name, Digest: map[string]string{"sha256": d.Hex()}}
}

// Binds says why s is not the statement of the attempt whose signed manifest
// and result are given; nil: it is. Result is nil, and its digest empty, where
// the worker left none. What only the record knows, such as who cancelled and
// when it ended, is for the log's entries to confirm.
func (s *Statement) Binds(m *record.Manifest, manifest api.Digest, result *record.Result, digest api.Digest) error {
	p, o := &s.Predicate, &s.Predicate.Dispatch
	if o.ID != m.ID || o.Attempt != m.Attempt {
		return fmt.Errorf("statement: of dispatch %s attempt %d, not of %s attempt %d", o.ID, o.Attempt, m.ID, m.Attempt)
	}
	if !same(p.BuildDefinition, Definition(m, manifest)) {
		return fmt.Errorf("statement: what it says was to be done is not what the manifest of dispatch %s says", m.ID)
	}
	var sum *api.ResultSummary
	if result != nil {
		sum = &result.Summary
	}
	if !same(s.Subject, Subjects(sum, digest, manifest)) {
		return fmt.Errorf("statement: its subjects are not what the result of dispatch %s says", m.ID)
	}
	at := slices.IndexFunc(p.RunDetails.Byproducts, func(r Resource) bool { return r.Name == NameResult })
	switch {
	case at < 0 && digest != "", at >= 0 && !same(p.RunDetails.Byproducts[at], resource(NameResult, digest)):
		return fmt.Errorf("statement: names another result of dispatch %s", m.ID)
	case result == nil:
		return nil
	case o.Outcome == api.EventFinished && result.Outcome != api.EventFinished:
		return fmt.Errorf("statement: dispatch %s finished, and its result says %s", m.ID, result.Outcome)
	case o.Partial != sum.Partial:
		return fmt.Errorf("statement: dispatch %s: partial %v, and its result says %v", m.ID, o.Partial, sum.Partial)
	}
	return nil
}
