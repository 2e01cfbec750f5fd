package ballot

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// hall is a chain with the keys of its people.
type hall struct {
	t        *testing.T
	chain    *Chain
	ann, bob seal.Signer
	service  seal.KeyID
}

func key(t *testing.T) seal.Signer {
	t.Helper()
	k, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rootOf(threshold int, keys map[api.Principal]seal.Signer) seal.TrustRoot {
	r := seal.TrustRoot{V: 1, Threshold: threshold}
	for p, k := range keys {
		of := seal.KeyOf(k, "key")
		of.Principal = p
		r.Keys = append(r.Keys, of)
	}
	return r
}

func newHall(t *testing.T) *hall {
	t.Helper()
	h := &hall{t: t, ann: key(t), bob: key(t), service: key(t).KeyID()}
	var err error
	if h.chain, err = New(h.service, rootOf(1, map[api.Principal]seal.Signer{"local:ann": h.ann, "human:bob": h.bob})); err != nil {
		t.Fatal(err)
	}
	h.must(h.ann, api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: "human:bob"})
	return h
}

// sign signs a record as the next one.
func (h *hall) sign(by seal.Signer, r api.OperatorRecord) []byte {
	h.t.Helper()
	r.V, r.At = 1, time.Unix(1_700_000_000, 0).UTC()
	if r.Number == 0 {
		r.Number, r.Previous = h.chain.Number()+1, h.chain.Digest()
	}
	if r.Service == "" {
		r.Service = string(h.service)
	}
	payload, err := canon.Marshal(r)
	if err != nil {
		h.t.Fatal(err)
	}
	envelope, err := seal.Sign(h.t.Context(), seal.Operator, payload, by)
	if err != nil {
		h.t.Fatal(err)
	}
	return envelope
}

func (h *hall) must(by seal.Signer, r api.OperatorRecord) {
	h.t.Helper()
	if _, err := h.chain.Add(h.sign(by, r)); err != nil {
		h.t.Fatal(err)
	}
}

const request = api.ApprovalID("a-aaaaaaaaaaaa")

func digest() api.Digest { return api.DigestOf([]byte("action")) }

func vote(p api.Principal) api.OperatorRecord {
	return api.OperatorRecord{Verb: api.VerbApprove, Principal: p, Approval: request, Content: digest()}
}

func (h *hall) votes() int { return len(h.chain.Votes(request, digest())) }

// A vote counts only as its voter signed it, at its place in the chain. The control is
// the same vote unchanged.
//
// takeover both modes, one operator key: no replay
//
// proves R-B9, R-P1
func TestOnlyTheNextSignedRecordCounts(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		make func(h *hall) []byte
	}{
		"control":              {"", func(h *hall) []byte { return h.sign(h.bob, vote("human:bob")) }},
		"by the key of Ann":    {"belongs to local:ann", func(h *hall) []byte { return h.sign(h.ann, vote("human:bob")) }},
		"by a foreign key":     {"not in the trust root", func(h *hall) []byte { return h.sign(key(h.t), vote("human:bob")) }},
		"of an unknown person": {"belongs to human:bob", func(h *hall) []byte { return h.sign(h.bob, vote("human:eve")) }},
		"of another service": {"is for service", func(h *hall) []byte {
			v := vote("human:bob")
			v.Service = string(key(h.t).KeyID())
			return h.sign(h.bob, v)
		}},
		"at another place": {"does not follow", func(h *hall) []byte {
			v := vote("human:bob")
			v.Number, v.Previous = 3, h.chain.Digest()
			return h.sign(h.bob, v)
		}},
		"after another record": {"does not follow", func(h *hall) []byte {
			v := vote("human:bob")
			v.Number, v.Previous = 2, digest()
			return h.sign(h.bob, v)
		}},
		"no envelope": {"", func(*hall) []byte { return []byte("{}") }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall(t)
			_, err := h.chain.Add(c.make(h))
			if name == "control" {
				if err != nil || h.votes() != 1 || h.chain.Number() != 2 {
					t.Errorf("%v, %d votes", err, h.votes())
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || h.votes() != 0 || h.chain.Number() != 1 {
				t.Errorf("%v, want %q; %d votes in %d records", err, c.want, h.votes(), h.chain.Number())
			}
			h.must(h.bob, vote("human:bob")) // the chain is as it was
		})
	}
}

// Votes end with the person, and a retired key signs nothing more. The control is the vote
// before.
//
// proves R-P1
func TestVotesEndWithTheirPersonAndKey(t *testing.T) {
	h := newHall(t)
	h.must(h.bob, vote("human:bob"))
	if h.votes() != 1 {
		t.Fatal("control: the vote does not count")
	}
	if _, err := h.chain.Add(h.sign(h.bob, vote("human:bob"))); err == nil || !strings.Contains(err.Error(), "voted about approval") {
		t.Errorf("a second vote: %v", err)
	}
	next, err := canon.Marshal(rootOf(1, map[api.Principal]seal.Signer{"local:ann": h.ann}))
	if err != nil {
		t.Fatal(err)
	}
	h.must(h.ann, api.OperatorRecord{Verb: api.VerbOperatorSet, Set: &api.OperatorSet{Number: 2, Previous: h.chain.Operators().Digest(), Root: next}})
	other := vote("human:bob")
	other.Approval = "a-bbbbbbbbbbbb"
	if _, err := h.chain.Add(h.sign(h.bob, other)); err == nil || !strings.Contains(err.Error(), "is retired since set 2") {
		t.Errorf("a retired key: %v", err)
	}
	if h.votes() != 1 {
		t.Error("what a key signed while it was in force does not count")
	}
	h.must(h.ann, api.OperatorRecord{Verb: api.VerbPrincipalRemove, Principal: "human:bob"})
	if h.votes() != 0 {
		t.Error("the vote of a removed person counts")
	}
}

// FuzzAdd adds arbitrary bytes to a chain.
func FuzzAdd(f *testing.F) {
	f.Add([]byte(`{"payload":"","payloadType":"","signatures":[]}`))
	f.Fuzz(func(t *testing.T, envelope []byte) {
		h := newHall(t)
		if _, err := h.chain.Add(envelope); err == nil || h.chain.Number() != 1 {
			t.Errorf("%q is a record", envelope)
		}
	})
}
