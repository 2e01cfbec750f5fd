package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxInvitations bounds the invitations, one for a principal.
const maxInvitations = 256

// invitationSchema stores who is invited. A row says nothing that operators have not to sign
// before it counts, so changing one gives no key to anybody.
const invitationSchema = `
CREATE TABLE operator_invitation (
	principal  TEXT PRIMARY KEY,
	code       TEXT UNIQUE,      -- SHA-256 of the code in the link, in hexadecimal; NULL once it is used
	expires    INTEGER NOT NULL, -- in seconds since 1970
	invitation TEXT NOT NULL     -- JSON
) STRICT;
`

// Invitations keeps the links with which people enrol passkeys on devices of their own. A
// code is kept as its hash, is used once and expires; a restart of the service ends none.
// What it leads to is a public key that waits: only a set of operator keys, which the
// operators sign, puts it in force.
type Invitations struct {
	registry *Registry
	origin   string // of the page that enrols; empty: none is configured
}

// invitation is an invitation as it is stored.
type invitation struct {
	api.Invitation
	Synced bool       `json:"synced,omitempty"`
	Keyed  bool       `json:"keyed,omitempty"` // the inviter had an operator key: it ends with the last one of theirs
	ID     seal.KeyID `json:"id,omitempty"`    // of the passkey that was enrolled
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
	in := invitation{Invitation: api.Invitation{
		Principal: req.Principal, By: by, At: now, Expires: now.Add(api.InvitationTime), State: api.InvitationOpen, Origin: i.origin,
	}, Synced: req.Synced, Keyed: i.registry.HasKey(by)}
	if err := i.registry.cfg.Store.Update(ctx, func(tx *store.Tx) error {
		if _, err := tx.Exec("DELETE FROM operator_invitation WHERE expires <= ? OR principal = ?", now.Unix(), string(in.Principal)); err != nil {
			return err
		}
		var open int
		if err := tx.Get("SELECT count(*) FROM operator_invitation", nil, &open); err != nil {
			return err
		}
		if open >= maxInvitations {
			return api.Errorf(api.CodeConflict, "%d invitations are open, which is the limit", maxInvitations).WithHint("wait until some expire; see: bailiwick operators invitations")
		}
		return in.put(tx, hashOf(code))
	}); err != nil {
		return api.Invitation{}, err
	}
	out := in.Invitation
	out.Link = i.origin + api.EnrolPath + "#" + code
	return out, nil
}

// put stores an invitation. code is the hash of its code; nil: it is used.
func (in *invitation) put(tx *store.Tx, code any) error {
	text, err := json.Marshal(in)
	if err == nil {
		_, err = tx.Exec("INSERT OR REPLACE INTO operator_invitation(principal, code, expires, invitation) VALUES (?, ?, ?, ?)", string(in.Principal), code, in.Expires.Unix(), string(text))
	}
	return err
}

// List lists the invitations, sorted by principal.
func (i *Invitations) List(ctx context.Context) ([]api.Invitation, error) {
	operators, err := i.registry.signers(ctx)
	if err != nil {
		return nil, err
	}
	root, list := operators.Root(), []api.Invitation{}
	err = i.registry.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT invitation FROM operator_invitation WHERE expires > ? ORDER BY principal", store.Args{i.registry.cfg.Now().Unix()}, func(scan store.Scan) error {
			in, err := scanInvitation(scan)
			switch {
			case err != nil:
				return err
			case !i.stands(in):
				return nil
			case in.ID != "" && root.Has(in.ID):
				in.State = api.InvitationAdmitted
			}
			list = append(list, in.Invitation)
			return nil
		})
	})
	return list, err
}

func scanInvitation(scan store.Scan) (in invitation, err error) {
	var text string
	if err = scan(&text); err == nil {
		err = json.Unmarshal([]byte(text), &in)
	}
	return in, err
}

// stands reports whether an invitation counts: for the page that is configured, and until
// its inviter is no longer an operator.
func (i *Invitations) stands(in invitation) bool {
	return in.Origin == i.origin && (!in.Keyed || i.registry.HasKey(in.By))
}

// Enrol returns what the invitation of a code is for. With an enrolment it uses the code
// up and keeps the passkey, which signs nothing until the operators admit it. It must be
// for the page of the team, verify its user and answer the challenge of the code. Of two
// devices that enrol at once with one code, one succeeds.
func (i *Invitations) Enrol(ctx context.Context, req api.EnrolRequest) (answer api.EnrolAnswer, err error) {
	if req.Enrolment == nil {
		err = i.registry.cfg.Store.Read(ctx, func(v *store.View) (err error) {
			answer, _, err = i.open(v, req.Code)
			return err
		})
		return answer, err
	}
	err = i.registry.cfg.Store.Update(ctx, func(tx *store.Tx) error {
		var in invitation
		if answer, in, err = i.open(tx, req.Code); err != nil {
			return err
		}
		if err := in.enrol(seal.Enrolment(*req.Enrolment), [sha256.Size]byte(answer.Challenge), answer.RPID); err != nil {
			return err
		}
		in.Expires = i.registry.cfg.Now().UTC().Truncate(time.Second).Add(api.InvitationTime)
		answer.Expires, answer.Fingerprint = in.Expires, api.Fingerprint(string(in.ID))
		return in.put(tx, nil)
	})
	if err != nil {
		return api.EnrolAnswer{}, err
	}
	return answer, nil
}

// open returns the open invitation of a code.
func (i *Invitations) open(v store.Reader, code string) (answer api.EnrolAnswer, in invitation, err error) {
	// By its hash, so the time of the comparison tells nothing of the code.
	err = v.Each("SELECT invitation FROM operator_invitation WHERE code = ? AND expires > ?", store.Args{hashOf(code), i.registry.cfg.Now().Unix()}, func(scan store.Scan) (err error) {
		in, err = scanInvitation(scan)
		return err
	})
	if err != nil {
		return answer, in, err
	}
	if in.State != api.InvitationOpen || !i.stands(in) {
		return answer, in, api.Errorf(api.CodeUnauthenticated, "the link is not valid: it was used, replaced or expired after %s, or its inviter is no longer an operator", api.InvitationTime).
			WithHint("if you did not use it, tell an operator; they send another one: bailiwick operators invite PRINCIPAL")
	}
	challenge := enrolChallenge(code)
	return api.EnrolAnswer{Principal: in.Principal, Expires: in.Expires, RPID: hostOf(in.Origin), Challenge: challenge[:]}, in, nil
}

// enrol verifies a passkey and keeps it in the invitation.
func (in *invitation) enrol(e seal.Enrolment, challenge [sha256.Size]byte, rpID string) error {
	err := e.Answers(challenge, in.Origin, rpID)
	var k seal.Key
	if err == nil {
		k, err = e.Key(in.Synced && e.Copied())
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err).WithHint("use an authenticator that fits, with the same link; synced passkeys need an invitation with --synced")
	}
	in.Key, err = canon.Marshal(k)
	in.ID, in.State = k.ID, api.InvitationEnrolled
	return err
}

func hashOf(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
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
