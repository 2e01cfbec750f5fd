package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// grants gives others everything that the world's account is granted.
func (w *world) grants(principals ...string) {
	w.t.Helper()
	path := w.path("project/bailiwick.yaml")
	b, err := os.ReadFile(path)
	must(w.t, err)
	own := string(b[strings.LastIndex(string(b), "  - {principal:"):])
	for _, p := range principals {
		b = append(b, strings.Replace(own, w.me(), p, 1)...)
	}
	w.write("project/bailiwick.yaml", string(b), 0o644)
	w.must("catalog", "apply", "-f", path)
}

// runtime returns a client that authenticates with a token.
func (w *world) runtime(token string, ceiling *api.Tier) client.Runtime {
	w.t.Helper()
	c := client.New(client.Config{Socket: w.path("run/bailiwick/api.sock"), UIDs: []int{w.serviceUID()}})
	w.t.Cleanup(c.Close)
	s, err := c.Exchange(w.t.Context(), token)
	must(w.t, err)
	return c.Runtime().With(s.Handle, ceiling)
}

// token creates a token for a new principal.
func (w *world) token(principal string) (text string, id api.TokenID) {
	w.t.Helper()
	w.must("principal", "add", principal)
	file := w.path("home", strings.ReplaceAll(principal, ":", "-")+".token")
	var made struct {
		ID api.TokenID `json:"id"`
	}
	decode(w.t, w.must("token", "create", principal, "--out", file, "-o", "json"), &made)
	b, err := os.ReadFile(file)
	must(w.t, err)
	return strings.TrimSpace(string(b)), made.ID
}

// A client may use its grants only up to the ceiling an operator consented to,
// at first observe. A session can only lower that, and a change by an operator
// applies to the next request.
//
// takeover both modes, AI client: no widen
//
// proves R-T5, R-T4
func TestConsentBoundsAClient(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "edit", script: "echo two >> a.txt"}, subagent{name: "look", script: "true", tier: "observe"})
		w.grants("agent:claude", "agent:codex")
		w.up()
		token, id := w.token("agent:claude")
		claude := w.runtime(token, nil)
		ask := api.DispatchRequest{Subagent: "edit", Source: &api.SourceRequest{Name: "repo"}}
		denied := func(when string, r client.Runtime, words ...string) {
			t.Helper()
			_, err := r.Dispatch(t.Context(), ask)
			if api.CodeOf(err) != api.CodeDenied {
				t.Errorf("%s: %v, want a denial", when, err)
				return
			}
			for _, word := range append(words, "log entry: #") {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %v lacks %q", when, err, word)
				}
			}
		}
		allowed := func(when string, r client.Runtime) {
			t.Helper()
			d, err := r.Dispatch(t.Context(), ask)
			if err != nil {
				t.Errorf("%s: %v", when, err)
				return
			}
			if d, err = r.Describe(t.Context(), d.ID, 30*time.Second); err != nil || d.State != api.EventFinished || d.Principal != "agent:claude" {
				t.Errorf("%s: %+v, %v", when, d, err)
			}
		}

		// Without consent it may observe, and the denial says how to change
		// that.
		denied("at first", claude, "the ceiling of agent:claude is observe", "bailiwick ceiling set agent:claude reversible")
		if d, err := claude.Dispatch(t.Context(), api.DispatchRequest{Subagent: "look"}); err != nil || d.Principal != "agent:claude" {
			t.Errorf("observing: %+v, %v", d, err)
		}
		w.refused(3, []string{"ceiling set agent:claude reversible"}, "can", "agent:claude", "dispatch", "edit", "--source", "repo")
		w.must("can", w.me(), "dispatch", "edit", "--source", "repo") // can checks the named principal, and this one has consent
		if out := w.must("audit", "list", "--kind", "dispatch.denied"); !strings.Contains(out, `agent:claude requested edit`) || !strings.Contains(out, `denied by policy "consent"`) {
			t.Errorf("the log says %q", out)
		}

		w.consent("agent:claude", "irreversible")
		allowed("with consent", claude)
		w.must("can", "agent:claude", "dispatch", "edit", "--source", "repo")
		w.refused(3, nil, "can", "agent:codex", "dispatch", "edit", "--source", "repo") // a consent applies to no other principal

		// A session can only lower its ceiling.
		observe, irreversible := api.Observe, api.Irreversible
		denied("a session that declared observe", claude.With("", &observe), "declared the ceiling observe")
		denied("one that then declares more", claude.With("", &observe).With("", &irreversible), "declared the ceiling observe")
		allowed("one that declared the highest", claude.With("", &irreversible))
		w.consent("agent:claude", "observe")
		denied("taken back", claude, "the ceiling of agent:claude is observe")
		denied("taken back, whatever it declares", claude.With("", &irreversible), "the ceiling of agent:claude is observe")

		// Everything but the handle survives a restart.
		w.consent("agent:claude", "reversible")
		w.must("down")
		w.must("up")
		if _, err := claude.Who(t.Context()); api.CodeOf(err) != api.CodeUnauthenticated || !strings.Contains(err.Error(), "present the token again") {
			t.Errorf("a handle from before the restart: %v", err)
		}
		again := w.runtime(token, nil)
		allowed("after a restart", again)

		// A revoked token ends its sessions.
		w.must("token", "revoke", string(id))
		if _, err := again.Dispatch(t.Context(), ask); api.CodeOf(err) != api.CodeUnauthenticated {
			t.Errorf("after the token was revoked: %v", err)
		}
		if out := w.must("audit", "list", "--kind", "auth.refused"); strings.Contains(out, token) || !strings.Contains(out, string(id)) {
			t.Errorf("the log says %q", out)
		}
	})
}

// An answer starts an attempt, so it is bound like any dispatch: by the
// operator's consent at that moment and by the ceiling that the answering
// session declared.
//
// proves R-T5
func TestConsentAndSessionBoundAnAnswer(t *testing.T) {
	t.Parallel()
	w := asking(t, 0)
	d := w.awaitQuestion("asks")
	c := w.conn()
	observe := api.Observe
	answer := api.AnswerRequest{Attempt: 1, Option: 2}
	if _, err := c.Runtime().With("", &observe).Answer(t.Context(), d.ID, answer); api.CodeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "declared the ceiling observe") {
		t.Errorf("by a session that declared observe: %v", err)
	}
	w.consent(w.me(), "observe")
	if _, err := c.Runtime().Answer(t.Context(), d.ID, answer); api.CodeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "the ceiling of "+w.me()+" is observe") {
		t.Errorf("without consent: %v", err)
	}
	w.consent(w.me(), "reversible")
	if d, err := c.Runtime().Answer(t.Context(), d.ID, answer); err != nil || d.Attempt != 2 {
		t.Errorf("positive control: %+v, %v", d, err)
	}
	w.awaitEnd(string(d.ID))
}

// A decision needs a signature by an operator's key. Neither the service's
// account nor the deploy key suffices.
//
// takeover both modes, one deploy key: no approve
//
// proves R-B9, R-T5
func TestOnlyTheOperatorKeyDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.catalog(subagent{name: "look", script: "true", tier: "observe"})
	w.up()
	submitRecord := func(keyFile string, kind seal.PayloadType) (int, api.Error) {
		t.Helper()
		var head api.OperatorHead
		_, b := w.call(http.MethodGet, "/v1/operator/records/head", "", nil)
		must(t, json.Unmarshal(b, &head))
		tier := api.Irreversible
		rec := api.OperatorRecord{
			V: 1, Service: head.Service, Number: head.Number + 1, Previous: head.Digest, At: time.Now().UTC(), Verb: api.VerbCeilingSet, Principal: api.Principal(w.me()), Ceiling: &tier,
		}
		var key seal.Signer
		st, err := os.Stat(keyFile)
		must(t, err)
		asUser(int(st.Sys().(*syscall.Stat_t).Uid), func() { key, err = seal.OpenSigner(t.Context(), keyFile, nil) })
		must(t, err)
		envelope, err := seal.Sign(t.Context(), kind, mustMarshal(t, rec), key)
		must(t, err)
		status, b := w.call(http.MethodPost, "/v1/operator/records", "application/json", strings.NewReader(`{"envelope":"`+base64.StdEncoding.EncodeToString(envelope)+`"}`))
		var e api.Error
		_ = json.Unmarshal(b, &e) // a receipt has other members
		return status, e
	}
	deploy, operator := w.path("config/bailiwick/deploy.key"), w.path("config/bailiwick/operator.key")
	service := w.path("state/bailiwick/service.key")
	for name, c := range map[string]struct {
		key  string
		kind seal.PayloadType
	}{
		"the deploy key":        {deploy, seal.Operator},
		"the service's own key": {service, seal.Operator},
		"the operator's key for a different document type": {operator, seal.Revision},
	} {
		status, e := submitRecord(c.key, c.kind)
		if status != http.StatusUnprocessableEntity || e.Code != api.CodeIntegrity || e.AuditEntry == nil {
			t.Errorf("%s: %d %+v", name, status, e)
		}
		if out := w.must("principal", "show", w.me()); strings.Contains(out, "irreversible") {
			t.Errorf("%s changed a decision: %s", name, out)
		}
	}
	if status, e := submitRecord(operator, seal.Operator); status != http.StatusOK {
		t.Errorf("positive control: %d %+v", status, e)
	}
	if out := w.must("principal", "show", w.me()); !strings.Contains(out, "irreversible") {
		t.Errorf("positive control: %s", out)
	}
}

// Removing or replacing the operator's key in operators.json cannot make a
// service forget earlier decisions: it refuses to start.
//
// takeover both modes, database: no widen
//
// proves R-B9
func TestServiceRefusesUnverifiableDecisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.catalog(subagent{name: "look", script: "true", tier: "observe"})
	root := w.path("data/bailiwick/operators.json")
	good, err := os.ReadFile(root)
	must(t, err)
	deploy, err := os.ReadFile(filepath.Join(filepath.Dir(root), "trust.json"))
	must(t, err)
	gone := "operator records: record 1: this installation has no operator key"
	if w.on != nil {
		gone = "/etc/bailiwick/operators.json: no such file"
	}
	for name, c := range map[string]struct {
		content []byte
		words   string
	}{
		"gone":                   {nil, gone},
		"the deploy key instead": {deploy, "operator records: record 1"},
		"not JSON":               {[]byte("{"), "trust root"},
	} {
		must(t, os.Remove(root))
		if c.content != nil {
			w.write("data/bailiwick/operators.json", string(c.content), 0o644)
		}
		if d := w.try("up"); d.status == 0 || !strings.Contains(d.stderr, c.words) {
			t.Errorf("%s: %s", name, d)
			w.must("down")
		}
		w.write("data/bailiwick/operators.json", string(good), 0o644)
	}
	w.up()
	if out := w.must("principal", "show", w.me()); !strings.Contains(out, "reversible") {
		t.Errorf("positive control: %s", out)
	}
}

// A service killed while it records a decision has either recorded it or not,
// the log agrees, and the next decision succeeds.
//
// proves R-T5, R-A2, R-O6
func TestDecisionsSurviveKills(t *testing.T) {
	for at, want := range map[failpoint.Name]api.Tier{failpoint.DecideCommit: api.Reversible, failpoint.DecideCommitted: api.Observe} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			k := newTrial(t, 0, 11)
			k.up(func() {})
			state := func() (tier api.Tier, number uint64) {
				t.Helper()
				var info api.PrincipalInfo
				var head api.OperatorHead
				must(t, k.insist(http.MethodGet, "/v1/operator/principals/"+k.me(), nil, &info))
				must(t, k.insist(http.MethodGet, "/v1/operator/records/head", nil, &head))
				return info.Ceiling, head.Number
			}
			tier, before := state()
			if tier != api.Reversible || before == 0 {
				t.Fatalf("positive control: %s by %d records", tier, before)
			}
			k.arm(string(at) + " 1 kill")
			if d := k.try("ceiling", "set", k.me(), "observe"); d.status == 0 {
				t.Errorf("the service was not killed: %s", d)
			}
			<-k.current().ended
			k.arm()
			k.up(func() {})
			tier, number := state()
			if made := number - before; tier != want || made != uint64(len(k.entries("--kind", "operator.recorded")))-before || (made == 1) != (want == api.Observe) {
				t.Errorf("after the kill it is %s by %d records, before %d", tier, number, before)
			}
			k.must("ceiling", "set", k.me(), "irreversible")
			if tier, after := state(); tier != api.Irreversible || after != number+1 {
				t.Errorf("after the next decision it is %s by %d records", tier, after)
			}
		})
	}
}

// Revoking a token ends its open requests: a followed log shows nothing more,
// and a waiting request fails.
//
// proves R-T4
func TestRevocationEndsOpenRequests(t *testing.T) {
	t.Parallel()
	w := newGated(t, 0, "reversible")
	w.grants("agent:ann")
	w.up()
	text, id := w.token("agent:ann")
	w.must("ceiling", "set", "agent:ann", "reversible")
	w.must("token", "create", "agent:ann", "--out", w.path("other.token"))
	lost, kept := w.runtime(text, nil), w.runtime(strings.TrimSpace(w.read("other.token")), nil)
	d, err := lost.Dispatch(t.Context(), api.DispatchRequest{Subagent: "edit", Target: "local", Source: &api.SourceRequest{Name: "repo"}})
	must(t, err)

	type seen struct {
		chunks int
		err    error
	}
	follow := func(r client.Runtime, begun chan<- struct{}) <-chan seen {
		end := make(chan seen, 1)
		go func() {
			var s seen
			s.err = r.Follow(t.Context(), d.ID, client.LogFrom{}, func(c api.Chunk) error {
				if s.chunks++; s.chunks == 1 {
					close(begun)
				}
				return nil
			})
			end <- s
		}()
		return end
	}
	a, b := make(chan struct{}), make(chan struct{})
	followed, control := follow(lost, a), follow(kept, b)
	waited := make(chan error, 1)
	go func() {
		_, err := lost.Describe(t.Context(), d.ID, 50*time.Second)
		waited <- err
	}()
	<-a
	<-b
	w.must("token", "revoke", string(id))
	w.openGate()
	if s := <-control; s.err != nil || s.chunks < 2 {
		t.Errorf("positive control: %+v", s)
	}
	if s := <-followed; s.err == nil || s.chunks != 1 {
		t.Errorf("after the token was revoked: %+v", s)
	}
	if err := <-waited; api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("the waiting request succeeded: %v", err)
	}
}
