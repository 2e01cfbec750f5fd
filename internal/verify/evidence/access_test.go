package evidence

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// withModel gives subagent code a model, and its env and target hosts and secrets.
func withModel(docs map[api.Ref]any) {
	maps.Copy(docs, map[api.Ref]any{
		"subagent/code": api.Subagent{Name: "code", Agent: "exec", Model: "claude/large", Role: "transform", Tier: api.Reversible, Target: "local", Limits: api.Limits{Tokens: 1000}},
		"model/claude": api.Model{
			Name: "claude", API: api.AnthropicMessages, Endpoint: "https://api.example", Credential: &api.Credential{Header: "x-api-key", Secret: "key"},
			Levels: map[api.Name]string{"small": "haiku", "large": "opus"},
		},
		"secret/key":   api.Secret{Name: "key", Ref: "file:key"},
		"secret/npm":   api.Secret{Name: "npm", Ref: "env:NPM"},
		"secret/other": api.Secret{Name: "other", Ref: "env:OTHER"},
		"env/plain":    api.Env{Name: "plain", Egress: []string{"b.example:443"}, Secrets: map[string]api.SecretUse{"NPM_TOKEN": {Secret: "npm", Brokered: &api.Brokered{Hosts: []string{"c.example:443"}, Header: "authorization"}}}},
		"target/local": api.Target{Name: "local", Mode: api.Guarded, Level: "direct", Egress: []string{"a.example:443"}},
	})
}

// reaching is what a dispatch of withModel may reach.
func reaching(m *record.Manifest) {
	m.Limits.Tokens = 1000
	m.Model, m.Endpoint = "claude/large", &api.ModelUse{Name: "claude", Level: "large", ID: "opus"}
	m.Drain = record.DrainTime
	m.Egress = []string{"a.example:443", "b.example:443", "c.example:443"}
	m.Secrets = []api.SecretRef{{Name: "key", Use: api.SecretModel, Ref: "file:key"}, {Name: "npm", Use: api.SecretBrokered, Env: "plain", Var: "NPM_TOKEN", Ref: "env:NPM"}}
}

// models are dispatches with a model, whose agents made requests that were refused.
func models(s *story) []bundle.Case {
	s.editCatalog, s.reach = withModel, reaching
	s.publish("local:ann")
	s.editResult = func(r *record.Result) {
		content := func(what string) *api.Artifact {
			return &api.Artifact{Size: 1, Digest: api.DigestOf([]byte(what + string(r.ID)))}
		}
		r.Summary.Transcript, r.Summary.Network, r.Summary.Session = content("transcript"), content("network"), content("session")
		r.Summary.Agent = &api.AgentReport{Adapter: "claude-code", Version: "2.1.0"}
		r.Summary.Usage.Model = &api.ModelUsage{Tokens: api.Tokens{Input: 10, Output: 5}, Requests: 2, Turns: 1, Cost: 7, Currency: "usd"}
	}
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	s.refuse(w, 2, 1)
	s.finish(w, api.EventNeedsInput, "")
	next := &work{id: w.id, attempt: 2, answer: "yes"}
	s.admit(next)
	s.start(next)
	s.refuse(next, 1)
	s.finish(next, api.EventFinished, "")
	return []bundle.Case{{Dispatch: w.id}}
}

// A report names the model, what was used of it and how much was refused. A bundle with
// a secret has its reference.
func TestAReportNamesTheModel(t *testing.T) {
	s := newStory(t)
	b := s.bundle(models(s)[0])
	r := Verify(b, s.trust(), Options{})
	if r.Failed() || !strings.Contains(r.Text(), "model opus, 2 requests, 15 tokens; 1 request refused;") {
		t.Errorf("%s", r.Text())
	}
	if doc := string(b.Documents[s.revision.Artifacts["secret/npm"].Digest]); doc != `{"name":"npm","ref":"env:NPM"}` {
		t.Errorf("the secret in the bundle: %s", doc)
	}
}

// A manifest that gives a dispatch another model, more hosts or another secret than
// the signed catalog revision is refused, also where the service's key signed it.
// Control: the manifest of the catalog is accepted.
//
// proves R-A7, R-S3, R-C3
func TestWhatAnAgentMayReachFollowsFromTheCatalog(t *testing.T) {
	for name, change := range map[string]func(m *record.Manifest){
		"as it is":      func(*record.Manifest) {},
		"another level": func(m *record.Manifest) { m.Endpoint = &api.ModelUse{Name: "claude", Level: "small", ID: "haiku"} },
		"another id":    func(m *record.Manifest) { m.Endpoint = &api.ModelUse{Name: "claude", Level: "large", ID: "costly"} },
		"no model":      func(m *record.Manifest) { m.Endpoint = nil },
		"one host more": func(m *record.Manifest) { m.Egress = append(m.Egress, "d.example:443") },
		"another port":  func(m *record.Manifest) { m.Egress = []string{"a.example:443", "b.example:22", "c.example:443"} },
		"one host less": func(m *record.Manifest) { m.Egress = m.Egress[1:] },
		"a secret more": func(m *record.Manifest) {
			m.Secrets = append(m.Secrets, api.SecretRef{Name: "other", Use: api.SecretExposed, Ref: "env:OTHER", Env: "plain", Var: "X"})
		},
		"no secret":       func(m *record.Manifest) { m.Secrets = nil },
		"exposed":         func(m *record.Manifest) { m.Secrets[1].Use = api.SecretExposed },
		"another ref":     func(m *record.Manifest) { m.Secrets[1].Ref = "env:OTHER" },
		"no token limit":  func(m *record.Manifest) { m.Limits.Tokens = 0 },
		"more tokens":     func(m *record.Manifest) { m.Limits.Tokens = 2000 },
		"fewer tokens":    func(m *record.Manifest) { m.Limits.Tokens = 10 },
		"another env var": func(m *record.Manifest) { m.Secrets[1].Var = "PATH" },
	} {
		s := newStory(t)
		s.editCatalog = withModel
		s.reach = func(m *record.Manifest) {
			reaching(m)
			change(m)
		}
		s.publish("local:ann")
		w := s.whole("d-01")
		r := Verify(s.bundle(bundle.Case{Dispatch: w.id}), s.trust(), Options{})
		if honest := name == "as it is" || name == "fewer tokens"; r.Failed() == honest || !honest && r.Row(report.RowProvenance).Status != report.Fail {
			t.Errorf("%s: refused %v\n%s", name, r.Failed(), r.Text())
		}
	}
}

// The log has exactly the refused requests that the worker signed: none can be left
// out, added or changed, also by who has the service's key. Controls: the honest log
// is accepted in any order, and of a worker that left no result they are claimed.
//
// proves R-S3, R-A7
func TestRefusedRequestsAreThoseThatTheWorkerSigned(t *testing.T) {
	many := make([]int64, record.MaxRefusals)
	for i := range many {
		many[i] = int64(i + 1)
	}
	edit := func(from, to record.EgressRefusal) func(*story) {
		return func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if d, ok := e.Detail.(record.EgressRefusal); ok && d.Number == from.Number {
					if to.Form == "" {
						to.Form = d.Form
					}
					if to.Host == "" {
						to.Host = d.Host
					}
					if to.Reason == "" {
						to.Reason = d.Reason
					}
					e.Detail = to
				}
			}
		}
	}
	first := record.EgressRefusal{Number: 1}
	for name, c := range map[string]struct {
		signed, logged []int64
		lie            func(*story)
		why            string
	}{
		"all":              {[]int64{1, 2, 9}, []int64{9, 1, 2}, nil, ""},
		"none":             {nil, nil, nil, ""},
		"the most":         {many, many, nil, ""},
		"one left out":     {[]int64{1, 2, 9}, []int64{1, 9}, nil, "the log has 2 of them"},
		"all left out":     {[]int64{1, 2}, nil, nil, "the log has 0 of them"},
		"one more":         {[]int64{1}, []int64{1, 2}, nil, "the log has 2 of them"},
		"one twice":        {[]int64{1, 2}, []int64{1, 1}, nil, "an entry already"},
		"without a number": {[]int64{1}, []int64{0}, nil, "has no number"},
		"another number":   {[]int64{1, 2}, []int64{1, 3}, nil, "not those that the worker signed"},
		"more than most":   {many, append(slices.Clone(many), 5000), nil, "more than 1000"},
		"another host":     {[]int64{1, 2}, []int64{1, 2}, edit(first, record.EgressRefusal{Number: 1, Host: "innocent.example:443"}), "not those that the worker signed"},
		"another reason":   {[]int64{1, 2}, []int64{1, 2}, edit(first, record.EgressRefusal{Number: 1, Reason: "closed"}), "not those that the worker signed"},
		"another form":     {[]int64{1, 2}, []int64{1, 2}, edit(first, record.EgressRefusal{Number: 1, Form: "model"}), "not those that the worker signed"},
	} {
		s := newStory(t)
		w := &work{id: "d-01"}
		s.admit(w)
		s.start(w)
		var list []record.EgressRefusal
		for _, n := range c.signed {
			list = append(list, record.EgressRefusal{Form: "connect", Host: hostOf(n), Number: n, Reason: "not in the egress list"})
		}
		if c.lie != nil {
			c.lie(s)
		}
		s.refuse(w, c.logged...)
		s.editResult = func(r *record.Result) {
			var err error
			r.Summary.Refusals, err = record.RefusalsOf(list)
			s.must(err)
		}
		s.finish(w, api.EventFinished, "")
		r := Verify(s.bundle(bundle.Case{Dispatch: w.id}), s.trust(), Options{})
		if r.Failed() != (c.why != "") || c.why != "" && !strings.Contains(r.Text(), c.why) {
			t.Errorf("%s: refused %v, want %q\n%s", name, r.Failed(), c.why, r.Text())
		}
	}
	s := newStory(t)
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	s.refuse(w, 4)
	s.lose(w, record.KindDispatchFailed, record.DispatchEnd{Reason: "lost"})
	if r := Verify(s.bundle(bundle.Case{Dispatch: w.id}), s.trust(), Options{}); r.Failed() {
		t.Errorf("an attempt without a result:\n%s", r.Text())
	}
}

// A refused request is of a running attempt: the log refuses it before the start,
// after the end and of another attempt.
func TestRefusedRequestsAreOfARunningAttempt(t *testing.T) {
	for name, write := range map[string]func(s *story, w *work){
		"while it runs":    func(s *story, w *work) { s.admit(w); s.start(w); s.refuse(w, 1); s.finish(w, api.EventFinished, "") },
		"before its start": func(s *story, w *work) { s.admit(w); s.refuse(w, 1); s.start(w); s.finish(w, api.EventFinished, "") },
		"after its end":    func(s *story, w *work) { s.admit(w); s.start(w); s.finish(w, api.EventFinished, ""); s.refuse(w, 1) },
		"of another attempt": func(s *story, w *work) {
			s.admit(w)
			s.start(w)
			w2 := *w
			w2.attempt = 2
			s.refuse(&w2, 1)
			s.finish(w, api.EventFinished, "")
		},
	} {
		s := newStory(t)
		w := &work{id: "d-01", attempt: 1}
		write(s, w)
		r := Verify(s.bundle(bundle.Case{Dispatch: w.id}), s.trust(), Options{})
		if honest := name == "while it runs"; r.Failed() == honest || !honest && !strings.Contains(r.Text(), "egress.refused") {
			t.Errorf("%s: refused %v\n%s", name, r.Failed(), r.Text())
		}
	}
}

// The session that an attempt resumes, the usage, program and model of a statement, and
// the content beside an attempt are those of the signed results and the manifest, also
// for who has the service's key. Control: the same without a lie is accepted.
//
// proves R-A7, R-D6
func TestWhatAnAgentLeftIsWhatItsWorkerSigned(t *testing.T) {
	resumed := func(change func(r *record.Resume)) func(*story, *bundle.Bundle) {
		return func(s *story, _ *bundle.Bundle) {
			s.editManifest = func(m *record.Manifest) {
				if m.Resume != nil {
					change(m.Resume)
				}
			}
		}
	}
	stated := func(change func(p *record.Provenance)) func(*story, *bundle.Bundle) {
		return func(s *story, _ *bundle.Bundle) {
			s.editStatement = func(st *record.Statement) { change(&st.Predicate) }
		}
	}
	other := api.DigestOf([]byte("another"))
	content := func(d api.Digest) func(*story, *bundle.Bundle) {
		return func(_ *story, b *bundle.Bundle) {
			if b != nil {
				b.Content = []bundle.Content{{Digest: d, Size: 1}}
				b.Case.Content = b.Content
			}
		}
	}
	for name, c := range map[string]struct {
		lie func(s *story, b *bundle.Bundle) // before the story, without a bundle, and to its bundle
		row report.RowName
	}{
		"as it is":        {func(*story, *bundle.Bundle) {}, ""},
		"with content":    {content(api.DigestOf([]byte("networkd-01"))), ""},
		"another network": {content(other), report.RowProvenance},
		"another session": {resumed(func(r *record.Resume) { r.Session = other }), report.RowProvenance},
		"no session":      {resumed(func(r *record.Resume) { r.Session = "" }), report.RowProvenance},
		"stated: another id": {stated(func(p *record.Provenance) {
			p.BuildDefinition.InternalParameters.Endpoint = &api.ModelUse{Name: "claude", Level: "large", ID: "costly"}
		}), report.RowResult},
		"stated: no model":     {stated(func(p *record.Provenance) { p.BuildDefinition.InternalParameters.Endpoint = nil }), report.RowResult},
		"stated: one host":     {stated(func(p *record.Provenance) { p.BuildDefinition.InternalParameters.Egress = []string{"a.example:443"} }), report.RowResult},
		"stated: less usage":   {stated(func(p *record.Provenance) { p.Dispatch.Usage = &api.ModelUsage{Currency: "usd"} }), report.RowResult},
		"stated: no refusals":  {stated(func(p *record.Provenance) { p.Dispatch.Refused = nil }), report.RowResult},
		"stated: program":      {stated(func(p *record.Provenance) { p.Dispatch.Program = &api.AgentReport{Adapter: "codex", Version: "1"} }), report.RowResult},
		"stated: no byproduct": {stated(func(p *record.Provenance) { p.RunDetails.Byproducts = p.RunDetails.Byproducts[:1] }), report.RowResult},
	} {
		s := newStory(t)
		c.lie(s, nil)
		b := s.bundle(models(s)[0])
		c.lie(s, b)
		r := Verify(b, s.trust(), Options{})
		for _, row := range r.Rows {
			if (row.Status == report.Fail) != (row.Row == c.row) {
				t.Errorf("%s: %s is %s: %s", name, row.Row, row.Status, row.Why)
			}
		}
	}
}
