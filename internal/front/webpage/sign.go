package webpage

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// SignHost is the name of the signing page, which is the relying party of its passkeys.
// It is a name of its own: any port of localhost could ask for assertions of localhost.
const SignHost = "sign.bailiwick.localhost"

// signer is the signing page beside the page: another name and port, the same codes.
type signer struct {
	site      *site
	address   httpguard.Address
	listeners []net.Listener
}

// listenSign makes the signing page listen. Without an address it returns nil.
func (s *site) listenSign(ctx context.Context) (*signer, error) {
	if s.SignAddress == "" {
		return nil, nil //nolint:nilnil // there is no signing page
	}
	address, err := httpguard.ParseAddress("--sign-addr", s.SignAddress)
	if err == nil && !address.Loopback() {
		err = fmt.Errorf("--sign-addr %s: the page is served on this machine only: use 127.0.0.1, ::1 or localhost", s.SignAddress)
	}
	if err == nil {
		err = address.Resolve(ctx, s.lookup)
	}
	if err != nil {
		return nil, err
	}
	sign, err := newSite(s.Config)
	if err != nil {
		return nil, err
	}
	listeners, err := address.Listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("--sign-addr %s: %w", s.SignAddress, err)
	}
	host := net.JoinHostPort(SignHost, strconv.Itoa(int(address.Port)))
	if sign.hosts, err = httpguard.NewHostList([]string{host}); err != nil {
		return nil, err
	}
	sign.logins, sign.url, sign.signs = s.logins, "http://"+host+"/", true
	sign.mux = http.NewServeMux()
	pages := signPages{sign.source(), "/", SignHost}
	sign.handle(append(append(sign.sessionRoutes(), route{pattern: "GET /enrol", page: pages.enrol}), pages.routes()...))
	s.sign = sign.url
	return &signer{site: sign, address: address, listeners: listeners}, nil
}

// signPages signs decisions, at a page of its own or below a path of the page of a team. It
// submits votes and hands assertions to the service, which alone verifies them.
type signPages struct {
	source

	at   string // path below which it is, with a slash at its end
	rpID string // of the passkeys that sign here
}

func (s signPages) routes() []route {
	list := s.at + "{$}"
	if s.at != "/" {
		list = strings.TrimSuffix(s.at, "/")
	}
	return []route{
		{pattern: "GET " + list, page: s.pendingList},
		{pattern: "GET " + s.at + "{id}", page: s.pending},
		{pattern: "POST " + s.at + "votes", data: s.postVote},
		{pattern: "POST " + s.at + "{id}", data: s.postAssertion},
	}
}

// pendingList shows what waits for signatures, and what may be submitted.
func (s signPages) pendingList(r *http.Request) (*view, error) {
	list := operatorPart(r.Context(), s.operator(r.Context()).PendingDecisions)
	found, err := s.runtime(r.Context()).Approvals(r.Context(), false)
	if err != nil {
		return nil, err
	}
	var open []api.ApprovalView
	for i := range found {
		if found[i].WhyNot == "" {
			open = append(open, found[i])
		}
	}
	return &view{"signlist", "Sign", struct {
		Pending   part[[]api.PendingDecision]
		Approvals []api.ApprovalView
	}{list, open}}, nil
}

func (s signPages) enrol(*http.Request) (*view, error) {
	return &view{"enrol", "Enrol a passkey", struct{ RPID string }{SignHost}}, nil
}

// pendingView is a pending decision as the page shows it. The script computes the challenge
// again, from the payload that it shows.
type pendingView struct {
	api.PendingDecision
	Payload, Challenge string
	Hex                string // of the challenge
	Mine               []passkeyView
	Open               bool
}

type passkeyView struct{ Name, Credential string }

// pending shows exactly what is signed.
func (s signPages) pending(r *http.Request) (*view, error) {
	id, err := pendingID(r)
	if err != nil {
		return nil, err
	}
	l, err := s.operator(r.Context()).PendingDecision(r.Context(), id)
	if err != nil {
		return nil, err
	}
	v := pendingView{
		PendingDecision: l, Payload: string(l.Payload), Challenge: base64.RawURLEncoding.EncodeToString(l.Challenge), Hex: hex.EncodeToString(l.Challenge), Open: l.State == api.PendingOpen,
	}
	for _, k := range l.Passkeys {
		if k.RPID == s.rpID {
			v.Mine = append(v.Mine, passkeyView{Name: k.Name, Credential: base64.RawURLEncoding.EncodeToString(k.Credential)})
		}
	}
	return &view{"pending", "Sign " + string(id), v}, nil
}

func pendingID(r *http.Request) (id api.PendingID, err error) {
	if err := id.UnmarshalText([]byte(r.PathValue("id"))); err != nil {
		return id, api.Errorf(api.CodeNotFound, "the page has no such path")
	}
	return id, nil
}

// postVote submits a vote of this account about what the page showed, and leads to it.
// Only a signature casts it.
func (s signPages) postVote(w http.ResponseWriter, r *http.Request) error {
	verb := api.OperatorVerb(r.PostFormValue("verb"))
	var id api.ApprovalID
	err := id.UnmarshalText([]byte(r.PostFormValue("approval")))
	if err == nil && verb != api.VerbApprove && verb != api.VerbDeny {
		err = errors.New("verb: want approval.approve or approval.deny")
	}
	digest, err2 := api.ParseDigest(r.PostFormValue("action"))
	if err = errors.Join(err, err2); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	who, err := s.runtime(r.Context()).Who(r.Context())
	var l api.PendingDecision
	if err == nil {
		l, err = s.operator(r.Context()).SubmitDecision(r.Context(), api.PendingRequest{Record: api.OperatorRecord{Verb: verb, Principal: who.Principal, Approval: id, Content: digest}})
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, s.at+string(l.ID), http.StatusSeeOther) //nolint:gosec // G710: an id of the service
	return nil
}

// postAssertion hands an assertion to the service, which alone verifies it.
func (s signPages) postAssertion(w http.ResponseWriter, r *http.Request) error {
	id, err := pendingID(r)
	var by api.Assertion
	if err == nil {
		err = readAssertion(r, &by)
	}
	var l api.PendingDecision
	if err == nil {
		l, err = s.operator(r.Context()).SignPending(r.Context(), id, api.PendingSignature{Assertion: &by})
	}
	answer := struct {
		State   api.PendingState `json:"state,omitempty"`
		Problem string           `json:"problem,omitempty"`
	}{State: l.State}
	status := http.StatusOK
	if err != nil {
		status, answer.Problem = http.StatusConflict, Visible(err.Error())
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the browser has left
	return nil
}

// readAssertion reads the body of a request strictly.
func readAssertion(r *http.Request, by *api.Assertion) error {
	if r.Header.Get("Content-Type") != "application/json" {
		return api.Errorf(api.CodeInvalid, "want an assertion in JSON")
	}
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = canon.Decode(b, by)
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "assertion: %w", err)
	}
	return nil
}
