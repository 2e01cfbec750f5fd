package evidence

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// bomb is evidence that is cheap to make and was expensive to verify. The one who
// makes it has the keys of the service, the operators and the catalog.
type bomb struct {
	b     *bundle.Bundle
	trust Trust
}

// bombs are makers by name; n grows the bundle.
func bombs() map[string]func(t testing.TB, n int) bomb {
	return map[string]func(t testing.TB, n int) bomb{
		"revisions that share a large grant":       sharedGrant,
		"revisions that name one envelope":         oneEnvelope,
		"grants of one principal":                  manyGrants,
		"stops in force":                           manyStops,
		"stops that are lifted":                    liftedStops,
		"cancelled dispatches and stops":           cancelledDispatches,
		"cancelled tasks":                          cancelledTasks,
		"ceilings":                                 manyCeilings,
		"one manifest of many dispatches":          oneManifest,
		"one manifest of many attempts":            oneManifestOfAttempts,
		"one result of many dispatches":            oneResult,
		"one statement of many dispatches":         oneStatement,
		"one plan of many runs":                    onePlan,
		"fan-in of a large result":                 fanIn,
		"skips of a task with many dependencies":   manySkips,
		"attempts of a task with a large input":    largeInput,
		"capabilities of plan and manifest":        manyCapabilities,
		"envelopes with 64 signatures":             manySignatures,
		"checkpoints":                              manyCheckpoints,
		"objects without members":                  denseDocument,
		"objects without members, in the case":     denseCase,
		"members of one byte":                      smallMembers,
		"a document that is not in canonical form": looseDocument,
	}
}

func (s *story) bomb(c bundle.Case) bomb { return bomb{s.bundle(c), s.trust()} }

// publishDocs makes a catalog revision of these documents.
func (s *story) publishDocs(docs map[api.Ref][]byte) {
	rev := api.Revision{V: 1, Number: s.revision.Number + 1, Previous: s.revisionDigest, CreatedAt: s.at, Author: "ann", Artifacts: map[api.Ref]api.Entry{}}
	for ref, b := range docs {
		rev.Artifacts[ref] = api.Entry{Digest: s.put(b)}
	}
	envelope, doc := s.sign(seal.Revision, rev, s.deploy)
	s.revision, s.revisionDigest = rev, api.DigestOf(doc)
	s.revisions[s.revisionDigest] = bundle.Revision{Digest: s.revisionDigest, Envelopes: []api.Digest{s.put(envelope)}}
	s.write(record.Entry{
		Kind: record.KindCatalogRevision, Refs: map[string]api.Digest{record.RefRevision: s.revisionDigest},
		Detail: record.RevisionSeen{Number: int64(rev.Number), Threshold: 1}, //nolint:gosec // G115: small
	})
}

func (s *story) canonical(v any) []byte {
	b, err := canon.Marshal(v)
	s.must(err)
	return b
}

func names(prefix string, n int) []api.Name {
	out := make([]api.Name, n)
	for i := range out {
		out[i] = api.Name(fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// base are the documents of publish for local:ann.
func (s *story) base() map[api.Ref][]byte {
	docs := map[api.Ref][]byte{}
	for ref, e := range s.revision.Artifacts {
		docs[ref] = s.documents[e.Digest]
	}
	return docs
}

// ask submits a run without saying more about it.
func (s *story) ask(run string) {
	s.write(record.Entry{
		Kind: record.KindRunSubmitted, Principal: "local:ann", Action: "run.submit", Resource: "local:ann", Policies: []string{"self"}, Run: run,
		Detail: record.RunRequest{Queue: "default", Tasks: 1, Revision: int64(s.revision.Number)}, //nolint:gosec // G115: small
	})
}

func sharedGrant(t testing.TB, n int) bomb {
	s := newStory(t)
	docs := s.base()
	docs["grant/big"] = s.canonical(api.Grant{Name: "big", Principal: "local:ann", Subagents: names("s", 300*n), Targets: []api.Name{}, Envs: []api.Name{}, Sources: []api.Name{}, Capabilities: []api.Name{}})
	for i := range n {
		docs[api.Ref(fmt.Sprintf("env/e%d", i))] = s.canonical(api.Env{Name: api.Name(fmt.Sprintf("e%d", i))})
		s.publishDocs(docs)
		delete(docs, api.Ref(fmt.Sprintf("env/e%d", i)))
		s.ask("r1")
		s.at = s.at.Add(time.Hour)
	}
	return s.bomb(bundle.Case{Run: "r1"})
}

func oneEnvelope(t testing.TB, n int) bomb {
	s := newStory(t)
	docs := s.base()
	for i := range 20 * n {
		docs[api.Ref(fmt.Sprintf("env/e%d", i))] = s.documents[s.revision.Artifacts["env/plain"].Digest]
	}
	s.publishDocs(docs)
	s.ask("r1")
	x := s.bomb(bundle.Case{Run: "r1"})
	big := s.revisions[s.revisionDigest].Envelopes[0]
	x.b.Case.Revisions = nil
	for i := range n {
		x.b.Case.Revisions = append(x.b.Case.Revisions, bundle.Revision{Digest: api.DigestOf(fmt.Append(nil, i)), Envelopes: slices.Repeat([]api.Digest{big}, seal.MaxSignatures)})
	}
	slices.SortFunc(x.b.Case.Revisions, func(a, b bundle.Revision) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	return x
}

// manyGrants makes every dispatch a different request.
func manyGrants(t testing.TB, n int) bomb {
	s := newStory(t)
	docs := s.base()
	for i := range 4 * n {
		name := api.Name(fmt.Sprintf("h%d", i))
		docs[api.RefTo(api.KindGrant, name)] = s.canonical(api.Grant{
			Name: name, Principal: "local:ann", Subagents: []api.Name{"code"}, Targets: []api.Name{"local"}, Envs: []api.Name{"plain"}, Sources: []api.Name{"app"}, Capabilities: []api.Name{"tools"}, Ceiling: api.Reversible,
		})
	}
	s.publishDocs(docs)
	s.editManifest = func(m *record.Manifest) { m.Envs = []api.Name{api.Name("x" + string(m.ID))} }
	for i := range n {
		s.admit(&work{id: api.DispatchID(fmt.Sprintf("d-%05d", i))})
	}
	return s.bomb(bundle.Case{Dispatch: "d-00000"}).whole(s)
}

// whole puts every entry and document of the log into the bundle.
func (x bomb) whole(s *story) bomb {
	x.b.Entries = nil
	for i, leaf := range s.leaves {
		x.b.Entries = append(x.b.Entries, bundle.Entry{Seq: uint64(i), Leaf: leaf}) //nolint:gosec // G115: an index
	}
	x.b.Proof = nil
	maps.Copy(x.b.Documents, s.documents)
	return x
}

func (s *story) stop(id string, scope api.StopScope, name string) {
	s.write(record.Entry{Kind: record.KindStopEngaged, Principal: "local:op", Action: "stop.engage", Policies: []string{"operator"}, Detail: record.StopEngaged{Stop: id, Scope: string(scope), Name: name}})
}

func manyStops(t testing.TB, n int) bomb {
	s := newStory(t)
	for i := range 4 * n {
		s.stop(fmt.Sprintf("s-%d", i+1), api.StopDispatch, fmt.Sprintf("other-%d", i))
	}
	for i := range n {
		s.admit(&work{id: api.DispatchID(fmt.Sprintf("d-%05d", i))})
	}
	return s.bomb(bundle.Case{Dispatch: "d-00000"}).whole(s)
}

func liftedStops(t testing.TB, n int) bomb {
	s := newStory(t)
	for i := range 2 * n {
		s.stop(fmt.Sprintf("s-%d", i+1), api.StopDispatch, fmt.Sprintf("other-%d", i))
	}
	for i := range 2 * n {
		s.decide(api.OperatorRecord{Verb: api.VerbStopLift, Stop: fmt.Sprintf("s-%d", i+1)})
	}
	s.ask("r1")
	return s.bomb(bundle.Case{Run: "r1"})
}

func cancelledDispatches(t testing.TB, n int) bomb {
	s := newStory(t)
	for i := range 4 * n {
		s.stop(fmt.Sprintf("s-%d", i+1), api.StopDispatch, fmt.Sprintf("other-%d", i))
	}
	for i := range n {
		w := &work{id: api.DispatchID(fmt.Sprintf("d-%05d", i))}
		s.admit(w)
		s.write(s.about(record.KindDispatchCancelled, w, record.DispatchEnd{By: "local:ann"}))
	}
	return s.bomb(bundle.Case{Dispatch: "d-00000"}).whole(s)
}

func cancelledTasks(t testing.TB, n int) bomb {
	s := newStory(t)
	var doc strings.Builder
	doc.WriteString(`{"id":"r1","source":{"name":"app"},"tasks":[`)
	for i := range min(20*n, api.MaxPlanTasks) {
		if i > 0 {
			doc.WriteByte(',')
		}
		fmt.Fprintf(&doc, `{"id":"t%d","subagent":"code"}`, i)
	}
	doc.WriteString("]}")
	s.submit(doc.String(), "", 0)
	for i := range min(20*n, api.MaxPlanTasks) {
		s.step(record.KindTaskCancelled, &work{run: "r1", task: api.TaskID(fmt.Sprintf("t%d", i))}, 0, record.TaskStep{By: "local:ann"})
	}
	return s.bomb(bundle.Case{Run: "r1"})
}

func manyCeilings(t testing.TB, n int) bomb {
	s := newStory(t)
	for i := range 2 * n {
		s.consent(api.Principal(fmt.Sprintf("local:p%d", i)), api.Reversible)
	}
	s.ask("r1")
	return s.bomb(bundle.Case{Run: "r1"})
}

// bulky gives a manifest many needs and pins.
func bulky(n int) func(m *record.Manifest) {
	return func(m *record.Manifest) {
		for i := range 10 * n {
			m.Artifacts = append(m.Artifacts, record.Pin{Ref: api.Ref(fmt.Sprintf("env/e%d", i)), Digest: m.Input})
			m.Envs = append(m.Envs, api.Name(fmt.Sprintf("e%d", i)))
		}
	}
}

func oneManifest(t testing.TB, n int) bomb {
	s := newStory(t)
	s.editManifest = bulky(n)
	s.admit(&work{id: "d-00"})
	first := s.entries[len(s.entries)-1]
	for i := range 4 * n {
		e := first
		e.Dispatch = api.DispatchID(fmt.Sprintf("e-%05d", i))
		s.write(e)
	}
	return s.bomb(bundle.Case{Dispatch: "d-00"}).whole(s)
}

// asking ends an attempt with a question, without a result.
func (s *story) asking(id api.DispatchID, attempt int, manifest api.Digest) {
	w := &work{id: id, attempt: attempt}
	s.manifestDigests[w.key()] = manifest
	s.start(w)
	s.write(s.about(record.KindDispatchNeedsInput, w, record.DispatchEnd{}))
}

func oneManifestOfAttempts(t testing.TB, n int) bomb {
	s := newStory(t)
	s.editManifest = bulky(n)
	s.admit(&work{id: "d-00"})
	manifest := s.manifestDigests["d-00/1"]
	for i := range 2 * n {
		s.asking("d-00", i+1, manifest)
		s.write(record.Entry{
			Kind: record.KindDispatchAnswered, Principal: "local:ann", Action: "dispatch.answer", Resource: "d-00", Policies: []string{"owner"}, Dispatch: "d-00", Attempt: i + 2,
			Refs: map[string]api.Digest{record.RefManifest: manifest, record.RefAnswer: api.DigestOf([]byte("a"))}, Detail: record.AnswerRequest{Attempt: int64(i + 1)},
		})
	}
	return s.bomb(bundle.Case{Dispatch: "d-00"}).whole(s)
}

// outputs gives a result many outputs.
func outputs(n int) func(r *record.Result) {
	return func(r *record.Result) {
		for i := range n {
			r.Summary.Outputs = append(r.Summary.Outputs, api.Artifact{Path: fmt.Sprintf("out/%d", i), Size: 1, Digest: r.Manifest})
		}
	}
}

func oneResult(t testing.TB, n int) bomb {
	s := newStory(t)
	s.editResult = outputs(20 * n)
	s.whole("d-00")
	s.editResult = nil
	result, key := s.resultsAt["d-00/1"], s.workers["d-00/1"]
	for i := range n {
		w := &work{id: api.DispatchID(fmt.Sprintf("e-%05d", i))}
		s.admit(w)
		s.write(s.about(record.KindDispatchStarted, w, record.DispatchStart{WorkerKey: base64.StdEncoding.EncodeToString(key.Public())}))
		e := s.about(record.KindDispatchFinished, w, record.DispatchEnd{Files: 1})
		e.Refs[record.RefResult] = result
		s.write(e)
	}
	return s.bomb(bundle.Case{Dispatch: "d-00"}).whole(s)
}

func oneStatement(t testing.TB, n int) bomb {
	s := newStory(t)
	s.editResult = outputs(20 * n)
	s.whole("d-00")
	s.editResult = nil
	attested := s.entries[len(s.entries)-1]
	for i := range n {
		w := &work{id: api.DispatchID(fmt.Sprintf("e-%05d", i))}
		s.admit(w)
		s.write(s.about(record.KindDispatchFailed, w, record.DispatchEnd{Reason: "lost"}))
		e := attested
		e.Dispatch = w.id
		s.write(e)
	}
	return s.bomb(bundle.Case{Dispatch: "d-00"}).whole(s)
}

func onePlan(t testing.TB, n int) bomb {
	s := newStory(t)
	var doc strings.Builder
	doc.WriteString(`{"id":"r0","source":{"name":"app"},"tasks":[`)
	for i := range min(20*n, api.MaxPlanTasks) {
		if i > 0 {
			doc.WriteByte(',')
		}
		fmt.Fprintf(&doc, `{"id":"t%d","subagent":"code"}`, i)
	}
	doc.WriteString("]}")
	s.submit(doc.String(), "", 0)
	first := s.entries[len(s.entries)-1]
	for i := range min(2*n, maxRetries) {
		e := first
		e.Run = fmt.Sprintf("r%d", i+1)
		e.Detail = record.RunRequest{Queue: "default", Tasks: 1, RetryOf: fmt.Sprintf("r%d", i), Rules: plan.OldestRules, Revision: 1}
		s.write(e)
	}
	return s.bomb(bundle.Case{Run: api.RunID(fmt.Sprintf("r%d", min(2*n, maxRetries)))})
}

func fanIn(t testing.TB, n int) bomb {
	s := newStory(t)
	s.editResult = outputs(20 * n)
	s.whole("d-00")
	s.editResult = nil
	s.editManifest = func(m *record.Manifest) {
		m.Run, m.Task, m.Fence = "r9", "t", 1
		for i := range api.MaxTaskNeeds {
			m.Needs = append(m.Needs, record.Need{Name: api.Name(fmt.Sprintf("n%d", i)), Task: "t", Dispatch: "d-00", Kind: record.NeedOutput, Path: "out/missing", Digest: m.Input, Size: 1})
		}
	}
	for i := range n {
		s.admit(&work{id: api.DispatchID(fmt.Sprintf("e-%05d", i)), run: "r9", task: "t", fence: 1})
	}
	return s.bomb(bundle.Case{Dispatch: "d-00"}).whole(s)
}

func manySkips(t testing.TB, n int) bomb {
	s := newStory(t)
	var doc strings.Builder
	tasks := min(100*n, api.MaxPlanTasks-1)
	doc.WriteString(`{"id":"r1","source":{"name":"app"},"tasks":[`)
	for i := range tasks {
		fmt.Fprintf(&doc, `{"id":"t%d","subagent":"code"},`, i)
	}
	doc.WriteString(`{"id":"last","subagent":"code","depends_on":[`)
	for i := range tasks - 1 {
		if i > 0 {
			doc.WriteByte(',')
		}
		fmt.Fprintf(&doc, `"t%d"`, i+1)
	}
	doc.WriteString("]}]}")
	s.submit(doc.String(), "", 0)
	first := &work{id: "t-00", run: "r1", task: "t0", fence: 1}
	s.fire(first, 1)
	s.finish(first, api.EventFailed, "agent")
	s.step(record.KindTaskFailed, first, 1, record.TaskStep{Reason: "agent"})
	for range 20 * n {
		s.step(record.KindTaskSkipped, &work{run: "r1", task: "last"}, 0, record.TaskStep{Cause: "t0"})
	}
	return s.bomb(bundle.Case{Run: "r1"})
}

func largeInput(t testing.TB, n int) bomb {
	s := newStory(t)
	s.submit(fmt.Sprintf(`{"id":"r1","source":{"name":"app"},"tasks":[{"id":"a","subagent":"code","input":{"x":"%s"}}]}`, strings.Repeat("x", 2000*n)), "", 0)
	for i := range n {
		s.admit(&work{id: api.DispatchID(fmt.Sprintf("d-%05d", i)), run: "r1", task: "a", fence: 1})
	}
	return s.bomb(bundle.Case{Run: "r1"})
}

func manyCapabilities(t testing.TB, n int) bomb {
	s := newStory(t)
	docs := s.base()
	own := names("own", 100*n)
	docs["subagent/code"] = s.canonical(api.Subagent{Name: "code", Agent: "exec", Role: "transform", Tier: api.Reversible, Target: "local", Capabilities: own})
	s.publishDocs(docs)
	s.editManifest = func(m *record.Manifest) { m.Capabilities = names("other", 100*n) }
	s.admit(&work{id: "d-00"})
	return s.bomb(bundle.Case{Dispatch: "d-00"}).whole(s)
}

func manySignatures(t testing.TB, n int) bomb {
	s := newStory(t)
	signers := slices.Repeat([]seal.Signer{s.operator}, seal.MaxSignatures)
	for i := range n {
		tier := api.Reversible
		rec := api.OperatorRecord{V: 1, Service: string(s.service.KeyID()), Number: uint64(len(s.records) + 1), Previous: s.recordHead, At: s.at, Verb: api.VerbCeilingSet, Principal: api.Principal(fmt.Sprintf("local:p%d", i)), Ceiling: &tier} //nolint:gosec // G115: small
		doc := s.canonical(rec)
		envelope, err := seal.Sign(context.Background(), seal.Operator, doc, signers...)
		s.must(err)
		s.records, s.recordHead = append(s.records, s.put(envelope)), api.DigestOf(doc)
		s.write(record.Entry{
			Kind: record.KindOperatorRecorded, Principal: "local:op", Refs: map[string]api.Digest{record.RefRecord: s.recordHead},
			Detail: record.OperatorDecision{Number: int64(rec.Number), Verb: string(rec.Verb)}, //nolint:gosec // G115: small
		})
	}
	s.ask("r1")
	return s.bomb(bundle.Case{Run: "r1"})
}

func manyCheckpoints(t testing.TB, n int) bomb {
	s := newStory(t)
	s.whole("d-00")
	x := s.bomb(bundle.Case{Dispatch: "d-00"})
	last := s.service
	for i := range min(n, 200) {
		next := newSigner(t)
		x.b.Case.Rotations = append(x.b.Case.Rotations, rotate(t, s.origin(), last, next, uint64(100+i))) //nolint:gosec // G115: small
		last = next
	}
	for range min(10*n, 1000) {
		x.b.Case.Anchored = append(x.b.Case.Anchored, bundle.Anchored{Checkpoint: x.b.Case.Checkpoint, Proof: []byte{}, Name: "x", Kind: "file", Receipt: []byte("{}")})
	}
	return x
}

// signed puts an envelope of this payload where the manifest of d-0 belongs.
func (s *story) signedManifest(payload []byte) bomb {
	envelope, err := seal.Sign(context.Background(), seal.Manifest, payload, s.service)
	s.must(err)
	d := s.put(envelope)
	s.editEntry = func(_ uint64, e *record.Entry) {
		if e.Refs[record.RefManifest] != "" {
			e.Refs[record.RefManifest] = d
		}
	}
	s.admit(&work{id: "d-00"})
	return s.bomb(bundle.Case{Dispatch: "d-00"})
}

func denseDocument(t testing.TB, n int) bomb {
	return newStory(t).signedManifest([]byte(`{"needs":[` + strings.Repeat("{},", 10000*n) + `{}]}`))
}

func denseCase(t testing.TB, n int) bomb {
	s := newStory(t)
	s.whole("d-00")
	x := s.bomb(bundle.Case{Dispatch: "d-00"})
	x.b.Case.Revisions = slices.Repeat([]bundle.Revision{{}}, 10*n)
	return x
}

func smallMembers(t testing.TB, n int) bomb {
	s := newStory(t)
	s.whole("d-00")
	x := s.bomb(bundle.Case{Dispatch: "d-00"})
	for i := range 50 * n {
		doc := fmt.Append(nil, i)
		x.b.Documents[api.DigestOf(doc)] = doc
	}
	return x
}

func looseDocument(t testing.TB, n int) bomb {
	return newStory(t).signedManifest([]byte(`{"needs":[` + strings.Repeat(`{"name": "x"},`, 1000*n) + `{}]}`))
}
