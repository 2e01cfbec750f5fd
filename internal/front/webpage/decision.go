package webpage

import (
	"encoding/hex"
	"net/http"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// decisionView is a decision as the page shows it.
type decisionView struct {
	api.Decision
	Signed       string // as it was signed
	Hex          string // of the challenge
	Before, Next uint64 // 0: none
	Keys         []signatureView
}

// signatureView is a signature, with what a passkey returned.
type signatureView struct {
	Key, Name                                string
	Passkey                                  bool
	ClientData, AuthenticatorData, Signature string
}

// decision shows a decision of the operators that is in force, with who signed exactly
// what.
func (s logPages) decision(r *http.Request) (*view, error) {
	n, err := pathNumber(r, "number", "decision", 1)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	d, err := s.operator(ctx).Decision(ctx, n)
	if err != nil {
		return nil, err
	}
	head, err := s.operator(ctx).Head(ctx)
	if err != nil {
		return nil, err
	}
	v := decisionView{Decision: d, Signed: string(d.Payload), Hex: hex.EncodeToString(d.Challenge), Before: n - 1}
	if n < head.Number {
		v.Next = n + 1
	}
	for _, k := range d.Signatures {
		shown := signatureView{Key: k.Key, Name: k.Name}
		if a := k.Assertion; a != nil {
			shown.Passkey, shown.ClientData = true, string(a.ClientDataJSON)
			shown.AuthenticatorData, shown.Signature = hex.EncodeToString(a.AuthenticatorData), hex.EncodeToString(a.Signature)
		}
		v.Keys = append(v.Keys, shown)
	}
	return &view{"decision", "Decision " + strconv.FormatUint(n, 10), v}, nil
}
