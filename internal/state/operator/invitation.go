package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// maxInvitations bounds the invitations, one for a principal.
const maxInvitations = 256

// Invitations holds the links with which people enrol passkeys on devices of their own, in
// memory: a restart ends them. A code is kept as its hash, is used once and expires. What
// it leads to is a public key that waits: only a set of operator keys, which the operators
// sign, puts it in force.
type Invitations struct {
	registry *Registry
	origin   string // of the page that enrols; empty: none is configured

	mu   sync.Mutex
	sent map[api.Principal]*invitation // guarded by mu
}

// invitation is an invitation with the hash of its code.
type invitation struct {
	api.Invitation
	code   [sha256.Size]byte // zero once it is used
	synced bool
	key    seal.KeyID // of the passkey that was enrolled
}

// Add invites a person. An earlier invitation of that person ends.
func (i *Invitations) Add(ctx context.Context, by api.Principal, req api.InvitationRequest) (api.Invitation, error) {
	operators, err := i.registry.signers(ctx)
	switch p := req.Principal; {
	case err != nil:
		return api.Invitation{}, err
	case i.origin == "":
		return api.Invitation{}, api.Errorf(api.CodeNotConfigured, "invitation: the service has no page on an address of the team").WithHint("set web.origin in service.yaml, and restart the service")
	case !p.Person():
		return api.Invitation{}, api.Errorf(api.CodeInvalid, "invitation: %s is not a person: want human:NAME or local:NAME", p)
	case !operators.Assigned():
		return api.Invitation{}, api.Errorf(api.CodeConflict, "invitation: the operator keys have no principals").WithHint("say once whose each key is: bailiwick operators assign KEY=PRINCIPAL ...; see: bailiwick operators list")
	case !local(p):
		if err := i.registry.current.Load().known(p); err != nil {
			return api.Invitation{}, err
		}
	}
	code, now := rand.Text(), i.registry.cfg.Now().UTC().Truncate(time.Second)
	in := &invitation{Invitation: api.Invitation{
		Principal: req.Principal, By: by, At: now, Expires: now.Add(api.InvitationTime), State: api.InvitationOpen, Origin: i.origin,
	}, code: sha256.Sum256([]byte(code)), synced: req.Synced}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep()
	if _, again := i.sent[req.Principal]; !again && len(i.sent) >= maxInvitations {
		return api.Invitation{}, api.Errorf(api.CodeConflict, "%d invitations are open, which is the limit", maxInvitations).WithHint("wait until some expire; see: bailiwick operators invitations")
	}
	i.sent[req.Principal] = in
	out := in.Invitation
	out.Link = i.origin + api.EnrolPath + "#" + code
	return out, nil
}

// sweep forgets what expired. The caller holds mu.
func (i *Invitations) sweep() {
	now := i.registry.cfg.Now()
	maps.DeleteFunc(i.sent, func(_ api.Principal, in *invitation) bool { return !now.Before(in.Expires) })
}

// List lists the invitations, sorted by principal.
func (i *Invitations) List(ctx context.Context) ([]api.Invitation, error) {
	operators, err := i.registry.signers(ctx)
	if err != nil {
		return nil, err
	}
	root := operators.Root()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep()
	list := []api.Invitation{}
	for _, in := range i.sent {
		out := in.Invitation
		if in.key != "" && root.Has(in.key) {
			out.State = api.InvitationAdmitted
		}
		list = append(list, out)
	}
	slices.SortFunc(list, func(a, b api.Invitation) int { return strings.Compare(string(a.Principal), string(b.Principal)) })
	return list, nil
}

// Enrol returns what the invitation of a code is for. With an enrolment it uses the code
// up and keeps the passkey, which signs nothing until the operators admit it. It must be
// for the page of the team, verify its user and answer the challenge of the code.
func (i *Invitations) Enrol(req api.EnrolRequest) (api.EnrolAnswer, error) {
	hash := sha256.Sum256([]byte(req.Code))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep()
	var in *invitation
	for _, sent := range i.sent {
		if sent.code == hash { // of a hash, so the time of the comparison tells nothing of the code
			in = sent
		}
	}
	if in == nil || in.State != api.InvitationOpen {
		return api.EnrolAnswer{}, api.Errorf(api.CodeUnauthenticated, "the link is not valid: it was used, replaced or expired after %s, or the service was restarted", api.InvitationTime).
			WithHint("if you did not use it, tell an operator; they send another one: bailiwick operators invite PRINCIPAL")
	}
	challenge := enrolChallenge(req.Code)
	answer := api.EnrolAnswer{Principal: in.Principal, Expires: in.Expires, RPID: hostOf(i.origin), Challenge: challenge[:]}
	if req.Enrolment == nil {
		return answer, nil
	}
	e := seal.Enrolment(*req.Enrolment)
	err := e.Answers(challenge, i.origin, answer.RPID)
	var k seal.Key
	if err == nil {
		k, err = e.Key(in.synced && e.Copied())
	}
	if err != nil {
		return api.EnrolAnswer{}, api.Errorf(api.CodeInvalid, "%w", err).WithHint("use an authenticator that fits, with the same link; synced passkeys need an invitation with --synced")
	}
	text, err := canon.Marshal(k)
	if err != nil {
		return api.EnrolAnswer{}, err
	}
	in.code, in.key, in.Key, in.State = [sha256.Size]byte{}, k.ID, text, api.InvitationEnrolled
	in.Expires = i.registry.cfg.Now().UTC().Truncate(time.Second).Add(api.InvitationTime)
	answer.Expires, answer.Fingerprint = in.Expires, api.Fingerprint(string(k.ID))
	return answer, nil
}

// enrolChallenge returns what a browser is asked to enrol with: client data that was made
// for another link does not fit.
func enrolChallenge(code string) [sha256.Size]byte {
	return sha256.Sum256([]byte("bailiwick enrolment\n" + code))
}

// hostOf returns the relying party of a page: the host of its origin.
func hostOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
