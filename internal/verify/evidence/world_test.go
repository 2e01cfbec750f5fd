package evidence

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// story is a simulated service with its keys and its log. It writes what the real
// service would, unless a test changes that.
type story struct {
	t                          testing.TB
	deploy, service, operator  seal.Signer
	at                         time.Time
	entries                    []record.Entry
	leaves                     [][]byte
	documents                  map[api.Digest][]byte
	revisions                  map[api.Digest]bundle.Revision
	records                    []api.Digest
	recordHead                 api.Digest
	revision                   api.Revision
	revisionDigest             api.Digest
	rule                       uint64
	last                       map[string]uint64
	editEntry                  func(seq uint64, e *record.Entry) // before it is written: who has the service's key can
	editManifest               func(m *record.Manifest)          // before it is signed
	editCatalog                func(docs map[api.Ref]any)        // before it is published
	reach                      func(m *record.Manifest)          // what the agent may reach, before artifacts are pinned
	editResult                 func(r *record.Result)            //
	editStatement              func(st *record.Statement)        //
	workers                    map[string]seal.Signer
	results                    map[string]*record.Result
	manifests                  map[string]*record.Manifest
	manifestDigests, resultsAt map[string]api.Digest
	tsa                        *authority    // nil: the trust file lists none
	places                     []AnchorTrust // of the trust file
	first                      seal.Signer   // of the service
	rotations                  [][]byte
	newKey                     func() seal.Signer
	second                     seal.Signer // operator, if any
	others                     []seal.Key  // further operator keys
	owners                     map[seal.KeyID]api.Principal
	earlier5                   bool                     // before plan.Rules 5: no key has a principal
	operatorSet                *seal.Operators          // in force, once it was replaced; nil: that of the trust file
	changeTaint                func(m *record.Manifest) // of taintedRun
}

func newStory(t testing.TB) *story {
	t.Helper()
	return storyWith(t, func() seal.Signer { return newSigner(t) })
}

// storyWith is newStory with these keys.
func storyWith(t testing.TB, newKey func() seal.Signer) *story {
	t.Helper()
	s := &story{
		t: t, newKey: newKey, deploy: newKey(), service: newKey(), operator: newKey(), at: time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC),
		documents: map[api.Digest][]byte{}, revisions: map[api.Digest]bundle.Revision{}, last: map[string]uint64{}, workers: map[string]seal.Signer{},
		results: map[string]*record.Result{}, manifests: map[string]*record.Manifest{}, manifestDigests: map[string]api.Digest{}, resultsAt: map[string]api.Digest{},
	}
	s.first = s.service
	s.write(record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{Mode: "same-user"}})
	s.publish("local:ann")
	s.consent("local:ann", api.Reversible)
	return s
}

func newSigner(t testing.TB) seal.Signer {
	t.Helper()
	k, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// owned is a key with its owner. The operator is human:bob, the second one human:eve.
func (s *story) owned(k seal.Signer, name string) seal.Key {
	out := seal.KeyOf(k, name)
	switch {
	case s.earlier5:
	case out.ID == s.operator.KeyID():
		out.Principal = "human:bob"
	case s.second != nil && out.ID == s.second.KeyID():
		out.Principal = "human:eve"
	case s.owners[out.ID] != "":
		out.Principal = s.owners[out.ID]
	default:
		_, id, _ := strings.Cut(string(out.ID), ":")
		out.Principal = api.Principal("human:of-" + id)
	}
	return out
}

// heldBy makes a key of p that is in no set of operator keys yet.
func (s *story) heldBy(p api.Principal) seal.Signer {
	k := s.newKey()
	if s.owners == nil {
		s.owners = map[seal.KeyID]api.Principal{}
	}
	s.owners[k.KeyID()] = p
	return k
}

// keyOf makes a further operator key of set 1, of p.
func (s *story) keyOf(p api.Principal) seal.Signer {
	k := s.heldBy(p)
	s.others = append(s.others, s.owned(k, string(p)))
	return k
}

// own returns the first key of who, or makes one. An AI has none: its key is of ci:.
func (s *story) own(who api.Principal) seal.Signer {
	switch {
	case who.SameName("human:bob"):
		return s.operator
	case who.SameName("human:eve"):
		return s.second
	case !who.Person():
		_, name, _ := strings.Cut(string(who), ":")
		who = api.Principal("ci:" + name)
	}
	return s.keyOf(who)
}

func (s *story) trust() Trust {
	operators := seal.RootOf(s.owned(s.operator, "operator"))
	if s.second != nil {
		operators.Keys = append(operators.Keys, s.owned(s.second, "second"))
	}
	operators.Keys = append(operators.Keys, s.others...)
	var stamps []string
	if s.tsa != nil {
		stamps = []string{s.tsa.root()}
	}
	return Trust{
		V: 1, Log: LogTrust{Origin: s.origin(), Keys: []LogKey{logKeyOf(s.first)}}, Deploy: DeployTrust{Root: seal.RootOf(seal.KeyOf(s.deploy, "deploy"))},
		Operators: &operators, Statements: []LogKey{logKeyOf(s.first)}, TSA: stamps, Anchors: s.places,
	}
}

func logKeyOf(k seal.Signer) LogKey { return LogKey{ID: k.KeyID(), Public: k.Public()} }

func (s *story) origin() string { return seal.LogOrigin(s.first.KeyID()) }

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) put(b []byte) api.Digest {
	d := api.DigestOf(b)
	s.documents[d] = b
	return d
}

func (s *story) sign(t seal.PayloadType, v any, k seal.Signer) ([]byte, []byte) {
	doc, err := canon.Marshal(v)
	s.must(err)
	envelope, err := seal.Sign(context.Background(), t, doc, k)
	s.must(err)
	return envelope, doc
}

// rotate puts another key of the service in force.
func (s *story) rotate() {
	next := s.newKey()
	envelope, err := seal.KeyRotation{V: 1, Log: s.origin(), Old: s.service.KeyID(), New: seal.KeyOf(next, ""), Entry: uint64(len(s.leaves)), At: s.at}.Sign(context.Background(), s.service)
	s.must(err)
	s.write(record.Entry{Kind: record.KindKeyRotated, Refs: map[string]api.Digest{record.RefRotation: api.DigestOf(envelope)}, Detail: record.KeyRotation{New: string(next.KeyID()), Old: string(s.service.KeyID()), Use: record.UseService}})
	s.service, s.rotations = next, append(s.rotations, envelope)
}

// write appends an entry as the log does, and returns its number.
func (s *story) write(e record.Entry) uint64 {
	s.t.Helper()
	seq := uint64(len(s.entries))
	e.At = s.at
	s.at = s.at.Add(time.Second)
	if e.Decision == "" {
		e.Decision = e.Kind.Decided()
	}
	e.Prev = record.Prev{}
	if e.Dispatch != "" {
		e.Prev.Dispatch = s.last["d "+string(e.Dispatch)]
		s.last["d "+string(e.Dispatch)] = seq + 1
	}
	if e.Run != "" {
		e.Prev.Run = s.last["r "+e.Run]
		s.last["r "+e.Run] = seq + 1
	}
	if e.Kind.Rules() || e.Kind.Admits() {
		e.Prev.Rule = s.rule
	}
	if e.Kind.Rules() {
		s.rule = seq + 1
	}
	if s.editEntry != nil {
		s.editEntry(seq, &e)
	}
	leaf, err := e.Encode()
	s.must(err)
	s.entries, s.leaves = append(s.entries, e), append(s.leaves, leaf)
	return seq
}

// publish makes a catalog revision with grants for who only.
func (s *story) publish(who ...api.Principal) {
	docs := map[api.Ref]any{
		"target/local":     api.Target{Name: "local", Mode: api.Guarded, Level: "direct"},
		"role/transform":   api.Role{Name: "transform"},
		"subagent/code":    api.Subagent{Name: "code", Agent: "exec", Role: "transform", Tier: api.Reversible, Target: "local"},
		"subagent/other":   api.Subagent{Name: "other", Agent: "exec", Role: "transform", Tier: api.Observe, Target: "local"},
		"env/plain":        api.Env{Name: "plain", Values: map[string]string{"A": "b"}},
		"source/app":       api.Source{Name: "app", Repo: "/srv/app"},
		"capability/tools": api.Capability{Name: "tools", Files: []api.File{}},
	}
	for i, p := range who {
		n := api.Name(fmt.Sprintf("g%d", i))
		docs[api.RefTo(api.KindGrant, n)] = api.Grant{
			Name: n, Principal: p, Subagents: []api.Name{"code"}, Targets: []api.Name{"local"}, Envs: []api.Name{"plain"}, Sources: []api.Name{"app"}, Capabilities: []api.Name{"tools"}, Ceiling: api.Reversible,
		}
	}
	if s.editCatalog != nil {
		s.editCatalog(docs)
	}
	rev := api.Revision{V: 1, Number: s.revision.Number + 1, Previous: s.revisionDigest, CreatedAt: s.at, Author: "ann", Artifacts: map[api.Ref]api.Entry{}}
	for ref, v := range docs {
		b, err := canon.Marshal(v)
		s.must(err)
		rev.Artifacts[ref] = api.Entry{Digest: s.put(b)}
	}
	envelope, doc := s.sign(seal.Revision, rev, s.deploy)
	s.revision, s.revisionDigest = rev, api.DigestOf(doc)
	s.revisions[s.revisionDigest] = bundle.Revision{Digest: s.revisionDigest, Envelopes: []api.Digest{s.put(envelope)}}
	s.write(record.Entry{
		Kind: record.KindCatalogRevision, Refs: map[string]api.Digest{record.RefRevision: s.revisionDigest},
		Detail: record.RevisionSeen{Author: rev.Author, Keys: []string{string(s.deploy.KeyID())}, Number: int64(rev.Number), Threshold: 1}, //nolint:gosec // G115: small
	})
}

func (s *story) decide(rec api.OperatorRecord) {
	rec.V, rec.Service, rec.Number, rec.Previous, rec.At = 1, string(s.first.KeyID()), uint64(len(s.records)+1), s.recordHead, s.at
	envelope, doc := s.sign(seal.Operator, rec, s.operator)
	s.records, s.recordHead = append(s.records, s.put(envelope)), api.DigestOf(doc)
	s.write(record.Entry{
		Kind: record.KindOperatorRecorded, Principal: "local:op", Refs: map[string]api.Digest{record.RefRecord: s.recordHead},
		Detail: record.DecisionOf(&rec, []string{string(s.operator.KeyID())}),
	})
}

func (s *story) consent(p api.Principal, t api.Tier) {
	s.decide(api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: p, Ceiling: &t})
}

// work is a dispatch of a story.
type work struct {
	id       api.DispatchID
	run      api.RunID
	task     api.TaskID
	fence    uint64
	attempt  int // of the dispatch
	input    string
	needs    []record.Need
	itemFrom api.DispatchID
	answer   string         // that it resumes with
	option   int64          // likewise
	of       api.DispatchID // whose result it has
}

func (w *work) key() string { return fmt.Sprintf("%s/%d", w.id, w.attempt) }

// admit accepts a dispatch, or answers it.
func (s *story) admit(w *work) {
	if w.attempt == 0 {
		w.attempt = 1
	}
	if w.input == "" {
		w.input = "{}"
	}
	input := api.DigestOf([]byte(w.input))
	m := record.Manifest{
		V: 1, ID: w.id, Attempt: w.attempt, Principal: "local:ann", Policies: []string{"grant:g0"}, Revision: s.revision.Number, RevisionDigest: s.revisionDigest,
		Subagent: "code", Agent: "exec", Role: "transform", Tier: api.Reversible, Ceiling: api.Reversible, Target: "local", Level: "direct",
		Capabilities: []api.Name{"tools"}, Envs: []api.Name{"plain"}, Source: &api.PinnedSource{Name: "app", Commit: strings.Repeat("a1", 20)},
		Limits: api.DefaultLimits(), Egress: []string{}, Input: input, Run: w.run, Task: w.task, Fence: w.fence, Needs: w.needs, ItemFrom: w.itemFrom,
		NotBefore: s.at, Expires: s.at.Add(5 * time.Minute), Nonce: strings.Repeat("0", 32),
	}
	if s.reach != nil {
		s.reach(&m)
	}
	for _, ref := range m.Refs() {
		m.Artifacts = append(m.Artifacts, record.Pin{Ref: ref, Digest: s.revision.Artifacts[ref].Digest})
	}
	tier := api.Reversible
	e := record.Entry{
		Kind: record.KindDispatchAccepted, Principal: "local:ann", Action: "dispatch", Resource: "code", Policies: m.Policies, Run: string(w.run), Task: string(w.task),
		Dispatch: w.id, Attempt: w.attempt, Role: "transform", Tier: &tier, Refs: map[string]api.Digest{record.RefInput: input},
		Detail: record.DispatchRequest{Subagent: "code", Target: "local", Commit: m.Source.Commit, Source: "app", Envs: []string{"plain"}, Capabilities: []string{"tools"}, Revision: int64(m.Revision)}, //nolint:gosec // G115: small
	}
	if w.attempt > 1 {
		before := s.manifests[fmt.Sprintf("%s/%d", w.id, w.attempt-1)]
		fence := m.Fence
		m = *before
		sum := s.results[fmt.Sprintf("%s/%d", w.id, w.attempt-1)].Summary
		m.Attempt, m.Fence, m.Nonce = w.attempt, fence, strings.Repeat("1", 32)
		m.Resume = &record.Resume{Attempt: w.attempt - 1, Answer: api.DigestOf([]byte(w.answer)), Patch: sum.Patch.Digest}
		if sum.Session != nil {
			m.Resume.Session = sum.Session.Digest
		}
		e.Kind, e.Action, e.Resource, e.Policies = record.KindDispatchAnswered, "dispatch.answer", string(w.id), []string{"owner"}
		e.Detail = record.AnswerRequest{Attempt: int64(w.attempt - 1), Option: w.option}
		e.Refs = map[string]api.Digest{record.RefQuestion: sum.Question.Digest, record.RefAnswer: m.Resume.Answer}
	}
	if s.editManifest != nil {
		s.editManifest(&m)
	}
	if w.of != "" {
		key, err := record.ReuseKey(&m)
		s.must(err)
		e.Kind, e.Detail = record.KindTaskReused, record.TaskReuse{Key: string(key), Of: string(w.of)}
	}
	envelope, _ := s.sign(seal.Manifest, m, s.service)
	e.Refs[record.RefManifest] = s.put(envelope)
	s.manifests[w.key()], s.manifestDigests[w.key()] = &m, e.Refs[record.RefManifest]
	s.write(e)
}

func (s *story) about(kind record.Kind, w *work, d record.Detail) record.Entry {
	tier := api.Reversible
	return record.Entry{
		Kind: kind, Resource: "code", Run: string(w.run), Task: string(w.task), Dispatch: w.id, Attempt: w.attempt, Role: "transform", Tier: &tier, Detail: d,
		Refs: map[string]api.Digest{record.RefManifest: s.manifestDigests[w.key()]},
	}
}

func (s *story) start(w *work) {
	k := s.newKey()
	s.workers[w.key()] = k
	s.write(s.about(record.KindDispatchStarted, w, record.DispatchStart{WorkerKey: base64.StdEncoding.EncodeToString(k.Public())}))
}

// finish ends an attempt with a result; lose without one.
func (s *story) finish(w *work, outcome api.Event, reason api.Reason) {
	m := s.manifests[w.key()]
	patch := api.Artifact{Size: 3, Digest: api.DigestOf([]byte("patch of " + w.key()))}
	r := record.Result{
		V: 1, ID: w.id, Attempt: w.attempt, Fence: m.Fence, Manifest: s.manifestDigests[w.key()], Outcome: outcome, Reason: reason, StartedAt: s.at, EndedAt: s.at,
		Summary: api.ResultSummary{Captured: true, Patch: &patch, Files: []api.FileChange{{Path: "a", Change: "added"}}, Outputs: []api.Artifact{{Path: "out", Size: 1, Digest: api.DigestOf([]byte("out of " + w.key()))}}},
	}
	if outcome == api.EventNeedsInput {
		r.Summary.Question = &api.Artifact{Size: 1, Digest: api.DigestOf([]byte("question of " + w.key()))}
	}
	var err error
	r.Summary.Refusals, err = record.RefusalsOf(s.refused(w))
	s.must(err)
	if s.editResult != nil {
		s.editResult(&r)
	}
	envelope, _ := s.sign(seal.Result, r, s.workers[w.key()])
	kind := map[api.Event]record.Kind{
		api.EventFinished: record.KindDispatchFinished, api.EventNeedsInput: record.KindDispatchNeedsInput, api.EventFailed: record.KindDispatchFailed, api.EventCancelled: record.KindDispatchCancelled,
	}[outcome]
	d := record.DispatchEnd{Files: 1, Reason: string(reason)}
	if v := r.Summary.Verify; v != nil {
		d.Verify, d.Changed = record.VerifyWord(v), int64(len(v.Changed))
	}
	if outcome == api.EventCancelled {
		d.By = s.canceller(w)
	}
	e := s.about(kind, w, d)
	e.Refs[record.RefResult], e.Refs[record.RefPatch] = s.put(envelope), r.Summary.Patch.Digest
	if q := r.Summary.Question; q != nil {
		e.Refs[record.RefQuestion] = q.Digest
	}
	if d := s.callsOf(w); d != nil {
		e.Refs[record.RefCalls] = d.Record.Digest
	}
	s.results[w.key()], s.resultsAt[w.key()] = &r, e.Refs[record.RefResult]
	s.write(e)
	if outcome != api.EventNeedsInput {
		s.attest(w, outcome, reason, d.By)
	}
}

// hostOf is where the request with number n goes.
func hostOf(n int64) string { return fmt.Sprintf("h%d.example:443", n) }

// refuse says that requests of an attempt were refused.
func (s *story) refuse(w *work, numbers ...int64) {
	for _, n := range numbers {
		e := s.about(record.KindEgressRefused, w, record.EgressRefusal{Form: "connect", Host: hostOf(n), Number: n, Reason: "not in the egress list"})
		e.Refs = nil
		s.write(e)
	}
}

// refused are the refused requests of an attempt in the log.
func (s *story) refused(w *work) (list []record.EgressRefusal) {
	for i := range s.entries {
		if d, ok := s.entries[i].Detail.(record.EgressRefusal); ok && s.entries[i].Dispatch == w.id && s.entries[i].Attempt == w.attempt {
			list = append(list, d)
		}
	}
	return list
}

// whyCancelled is the reason of every request to cancel a dispatch.
const whyCancelled = "no longer needed"

// canceller is who requested first to cancel a dispatch. If nobody did, local:ann
// does now.
func (s *story) canceller(w *work) string {
	for i := range s.entries {
		e := &s.entries[i]
		if d, ok := e.Detail.(record.StopEngaged); ok && (api.Stop{Scope: api.StopScope(d.Scope), Name: d.Name}).Covers(s.manifests[w.key()].StopSubject()) {
			return string(e.Principal)
		}
		switch {
		case e.Dispatch != w.id:
		case e.Kind == record.KindDispatchAborted:
			return string(api.Service)
		case e.Kind == record.KindCancelRequested:
			return string(e.Principal)
		}
	}
	s.request(w, "local:ann", "owner")
	return "local:ann"
}

// request has a caller cancel a dispatch.
func (s *story) request(w *work, who api.Principal, policy string) {
	e := s.beside(record.KindCancelRequested, w, record.CancelRequest{State: string(s.stateOf(w)), Why: whyCancelled})
	e.Principal, e.Policies = who, []string{policy}
	s.write(e)
}

// recovered says that a restarted service found a dispatch.
func (s *story) recovered(w *work, worker string) {
	e := s.about(record.KindDispatchRecovered, w, record.DispatchRecovery{State: string(s.stateOf(w)), Worker: worker})
	e.Refs = nil
	s.write(e)
}

// beside returns an entry about a dispatch of the kinds that do not name its run, or
// that only its task has.
func (s *story) beside(kind record.Kind, w *work, d record.Detail) record.Entry {
	e := s.about(kind, w, d)
	e.Run, e.Task, e.Refs = "", "", nil
	action := map[record.Kind]string{record.KindDispatchPinned: "dispatch.pin", record.KindDispatchUnpinned: "dispatch.pin", record.KindCancelRequested: "dispatch.cancel"}[kind]
	if kind.Decided() != record.NoDecided {
		e.Principal, e.Action, e.Resource = "local:ann", action, string(w.id)
	}
	if kind.Decided() == record.Allow {
		e.Policies = []string{"owner"}
	}
	return e
}

// abort has the service cancel a dispatch.
func (s *story) abort(w *work, why string) {
	s.write(s.beside(record.KindDispatchAborted, w, record.CancelRequest{State: string(s.stateOf(w)), Why: why}))
}

func (s *story) stateOf(w *work) (state api.Event) {
	for i := range s.entries {
		if e := &s.entries[i]; e.Dispatch == w.id {
			state, _ = record.NextDispatch(state, e.Kind)
		}
	}
	return state
}

func (s *story) lose(w *work, kind record.Kind, d record.DispatchEnd) {
	s.write(s.about(kind, w, d))
	s.attest(w, record.EventOf(kind), api.Reason(d.Reason), d.By)
}

// earlier are the attempts of a dispatch before this one.
func (s *story) earlier(w *work) (list []api.Dispatch) {
	for n := 1; n < w.attempt; n++ {
		key := fmt.Sprintf("%s/%d", w.id, n)
		list = append(list, api.Dispatch{ID: w.id, Attempt: n, Manifest: s.manifestDigests[key], Result: s.resultsAt[key]})
	}
	return list
}

func (s *story) attest(w *work, outcome api.Event, reason api.Reason, by string) {
	end := s.at
	d := api.Dispatch{ID: w.id, Attempt: w.attempt, State: outcome, Reason: reason, Manifest: s.manifestDigests[w.key()], Result: s.resultsAt[w.key()], EndedAt: &end, Mode: "same-user", CancelBy: api.Actor(by)}
	if r := s.results[w.key()]; r != nil {
		d.Outcome = &r.Summary
	}
	d.Calls = s.callsOf(w)
	st, err := record.NewStatement(record.ServiceIdentity{ID: string(s.first.KeyID()), Version: "1"}, &d, s.earlier(w), s.manifests[w.key()])
	s.must(err)
	if s.editStatement != nil {
		s.editStatement(&st)
	}
	doc, err := st.Encode()
	s.must(err)
	envelope, err := seal.Sign(context.Background(), seal.Statement, doc, s.service)
	s.must(err)
	e := s.about(record.KindDispatchAttested, w, record.DispatchAttested{Key: string(s.service.KeyID()), Subjects: int64(len(st.Subject))})
	e.Run, e.Task = "", ""
	e.Refs[record.RefStatement] = s.put(envelope)
	if d.Result != "" {
		e.Refs[record.RefResult] = d.Result
	}
	s.write(e)
}

// whole writes one dispatch from its first entry to its last.
func (s *story) whole(id api.DispatchID) *work {
	w := &work{id: id}
	s.admit(w)
	s.start(w)
	s.finish(w, api.EventFinished, "")
	return w
}

// submit makes a run of a plan.
func (s *story) submit(doc string, retryOf api.RunID, taken int64) *plan.Plan {
	rules := int64(plan.Rules)
	if s.earlier5 {
		rules = 4
	}
	p, problems := plan.Parse([]byte(doc))
	if len(problems) > 0 {
		s.t.Fatal(problems)
	}
	s.write(record.Entry{
		Kind: record.KindRunSubmitted, Principal: "local:ann", Action: "run.submit", Resource: "local:ann", Policies: []string{"self"}, Run: string(p.ID),
		Refs: map[string]api.Digest{record.RefPlan: s.put(p.Canonical())}, Detail: record.RunRequest{Queue: string(p.Queue), Tasks: int64(len(p.Tasks)), RetryOf: string(retryOf), Taken: taken, Rules: rules, Revision: int64(s.revision.Number)}, //nolint:gosec // G115: small
	})
	return p
}

func (s *story) step(kind record.Kind, w *work, attempt int, d record.Detail) {
	s.write(record.Entry{Kind: kind, Resource: "code", Run: string(w.run), Task: string(w.task), Dispatch: w.id, Attempt: attempt, Detail: d})
}

// fire starts an attempt of a task and its dispatch.
func (s *story) fire(w *work, attempt int) {
	s.step(record.KindTaskStarted, w, attempt, record.TaskStart{Fence: int64(w.fence)}) //nolint:gosec // G115: small
	s.admit(w)
	s.start(w)
}

func (s *story) settle(run api.RunID, d record.RunEnd) {
	s.write(record.Entry{Kind: record.KindRunSettled, Run: string(run), Refs: s.planOf(run), Detail: d})
}

// planOf is the ref to the plan of a run.
func (s *story) planOf(run api.RunID) map[string]api.Digest {
	for i := range s.entries {
		if e := &s.entries[i]; e.Kind == record.KindRunSubmitted && e.Run == string(run) {
			return e.Refs
		}
	}
	return nil
}

// hashes are the leaves of the tree of the log.
func (s *story) hashes() []logproof.Hash {
	out := make([]logproof.Hash, len(s.leaves))
	for i, l := range s.leaves {
		out[i] = logproof.LeafHash(l)
	}
	return out
}

// largestPower is the largest power of two below n, which is more than 1.
func largestPower(n uint64) uint64 { return 1 << (bits.Len64(n-1) - 1) }

func rootOf(t testing.TB, leaves []logproof.Hash) logproof.Hash {
	r := logproof.NewRange()
	for _, h := range leaves {
		if err := r.Add(h); err != nil {
			t.Fatal(err)
		}
	}
	root, err := r.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func (s *story) signCheckpoint(k seal.Signer, size int) []byte {
	cp := logproof.Checkpoint{Origin: s.origin(), Size: uint64(size), Root: rootOf(s.t, s.hashes()[:size])} //nolint:gosec // G115: small
	b, err := logproof.Sign(context.Background(), cp, k)
	s.must(err)
	return b
}

// treeProof computes a proof from all hashes: of inclusion, or of consistency.
func path(leaves []logproof.Hash, index uint64) []logproof.Hash {
	var walk func(lo, hi uint64) (logproof.Hash, []logproof.Hash)
	root := func(lo, hi uint64) logproof.Hash {
		r := logproof.NewRange()
		for _, h := range leaves[lo:hi] {
			_ = r.Add(h)
		}
		h, _ := r.Root()
		return h
	}
	walk = func(lo, hi uint64) (logproof.Hash, []logproof.Hash) {
		if hi-lo == 1 {
			return leaves[lo], nil
		}
		mid := lo + largestPower(hi-lo)
		if index < mid {
			_, p := walk(lo, mid)
			return logproof.Hash{}, append(p, root(mid, hi))
		}
		_, p := walk(mid, hi)
		return logproof.Hash{}, append(p, root(lo, mid))
	}
	_, p := walk(0, uint64(len(leaves)))
	return p
}

// consistency is RFC 6962, section 2.1.2.
func consistency(t testing.TB, leaves []logproof.Hash, from, to int) []logproof.Hash {
	var sub func(m int, d []logproof.Hash, whole bool) []logproof.Hash
	sub = func(m int, d []logproof.Hash, whole bool) []logproof.Hash {
		if m == len(d) {
			if whole {
				return nil
			}
			return []logproof.Hash{rootOf(t, d)}
		}
		k := int(largestPower(uint64(len(d)))) //nolint:gosec // G115: small
		if m <= k {
			return append(sub(m, d[:k], whole), rootOf(t, d[k:]))
		}
		return append(sub(m-k, d[k:], false), rootOf(t, d[:k]))
	}
	if from == 0 {
		return nil
	}
	return sub(from, leaves[:to], true)
}

// bundle exports a case: all entries that it concerns.
func (s *story) bundle(c bundle.Case) *bundle.Bundle {
	s.t.Helper()
	b := &bundle.Bundle{Case: c, Documents: map[api.Digest][]byte{}}
	size := len(s.leaves)
	b.Case.V, b.Case.Checkpoint = 1, s.signCheckpoint(s.service, size)
	b.Case.Anchored, b.Case.Rotations, b.Case.Records, b.Case.Content = []bundle.Anchored{}, append([][]byte{}, s.rotations...), []api.Digest{}, []bundle.Content{}
	runs := map[string]bool{string(c.Run): c.Run != ""}
	for _, e := range slices.Backward(s.entries) {
		if ask, ok := e.Detail.(record.RunRequest); ok && runs[e.Run] && ask.RetryOf != "" {
			runs[ask.RetryOf] = true
		}
	}
	mine := map[api.DispatchID]bool{c.Dispatch: c.Dispatch != ""}
	for _, e := range s.entries {
		if runs[e.Run] {
			mine[e.Dispatch] = e.Dispatch != ""
		}
	}
	for _, e := range slices.Backward(s.entries) {
		if d, ok := e.Detail.(record.TaskReuse); ok && d.Of != "" && mine[e.Dispatch] {
			mine[api.DispatchID(d.Of)] = true
		}
	}
	mineOrRun := func(e *record.Entry) bool { return runs[e.Run] || mine[e.Dispatch] }
	last := -1 // entry that is under the rules
	for i := range s.entries {
		if mineOrRun(&s.entries[i]) && s.entries[i].UnderRules() {
			last = i
		}
	}
	var seqs []uint64
	keep := func(d api.Digest) {
		if doc, ok := s.documents[d]; ok {
			b.Documents[d] = doc
		}
	}
	wanted := map[api.Digest]bool{} // revisions
	for i, e := range s.entries {
		if !mineOrRun(&e) && (!e.Kind.Rules() || i > last) {
			continue
		}
		seqs = append(seqs, uint64(i))                                                 //nolint:gosec // G115: an index
		b.Entries = append(b.Entries, bundle.Entry{Seq: uint64(i), Leaf: s.leaves[i]}) //nolint:gosec // G115: an index
		wanted[e.Refs[record.RefRevision]] = true
		for name, d := range e.Refs {
			if name != record.RefPatch && name != record.RefRecord {
				keep(d)
			}
		}
	}
	records := 0
	for _, e := range s.entries[:last+1] {
		if e.Kind == record.KindOperatorRecorded {
			records++
		}
	}
	b.Case.Records = append([]api.Digest{}, s.records[:min(records, len(s.records))]...)
	for _, d := range b.Case.Records {
		keep(d)
	}
	for key, m := range s.manifests {
		id, _, _ := strings.Cut(key, "/")
		if !mine[api.DispatchID(id)] {
			continue
		}
		wanted[m.RevisionDigest] = true
		for _, p := range m.Artifacts {
			keep(p.Digest)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(s.revisions)) {
		if !wanted[d] {
			continue
		}
		r := s.revisions[d]
		b.Case.Revisions = append(b.Case.Revisions, r)
		keep(r.Envelopes[0])
		payload, err := seal.Payload(s.documents[r.Envelopes[0]], seal.Revision)
		s.must(err)
		var doc api.Revision
		s.must(canon.DecodeExact(payload, &doc))
		for ref, a := range doc.Artifacts {
			if kind, _, _ := ref.Split(); kind == api.KindGrant || kind == api.KindTarget || kind == api.KindSchedule {
				keep(a.Digest)
			}
		}
	}
	leaves := s.hashes()
	var err error
	b.Proof, err = bundle.Prove(seqs, b.Case.Sizes, uint64(size), func(i uint64) ([]logproof.Hash, error) { return path(leaves, i), nil }) //nolint:gosec // G115: small
	s.must(err)
	return b
}

// anchored adds an earlier checkpoint with its proof.
func (s *story) anchored(b *bundle.Bundle, size int) []byte {
	raw := s.signCheckpoint(s.service, size)
	b.Case.Anchored = append(b.Case.Anchored, bundle.Anchored{Checkpoint: raw, Proof: bundle.Hashes(consistency(s.t, s.hashes(), size, len(s.leaves)))})
	return raw
}

// file writes a bundle and reads it again.
func file(t testing.TB, b *bundle.Bundle) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := bundle.Write(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func reread(t testing.TB, b *bundle.Bundle) *bundle.Bundle {
	t.Helper()
	again, err := bundle.Read(bytes.NewReader(file(t, b)), bundle.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return again
}
