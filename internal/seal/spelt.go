package seal

import (
	"bytes"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// spelt reads an envelope that is spelt as Sign spells it, with no text that is
// escaped: what evidence is full of, and most of its bytes. Such bytes are
// exactly what the envelope is encoded to again. It says no to everything else,
// which canon.DecodeExact reads, or says why not.
func spelt(b []byte) (dsse.Envelope, bool) {
	r := &template{rest: b}
	env := dsse.Envelope{Signatures: []dsse.Signature{}}
	r.fixed(`{"payload":"`)
	env.Payload = r.text()
	r.fixed(`,"payloadType":"`)
	env.PayloadType = r.text()
	r.fixed(`,"signatures":[`)
	for !r.wrong && !bytes.HasPrefix(r.rest, []byte("]")) {
		if len(env.Signatures) > 0 {
			r.fixed(`,`)
		}
		var s dsse.Signature
		r.fixed(`{"keyid":"`)
		s.KeyID = r.text()
		r.fixed(`,"sig":"`)
		s.Sig = r.text()
		r.fixed(`}`)
		env.Signatures = append(env.Signatures, s)
	}
	r.fixed(`]}`)
	return env, !r.wrong && len(r.rest) == 0
}

// template takes a text apart that has one form.
type template struct {
	rest  []byte
	wrong bool
}

func (r *template) fixed(s string) {
	rest, ok := bytes.CutPrefix(r.rest, []byte(s))
	r.rest, r.wrong = rest, r.wrong || !ok
}

// text takes a string up to its end; what begins it was taken.
func (r *template) text() string {
	for i, c := range r.rest {
		switch {
		case c == '"':
			s := string(r.rest[:i])
			r.rest = r.rest[i+1:]
			return s
		case c < 0x20 || c > 0x7e || c == '\\':
			r.wrong = true
			return ""
		}
	}
	r.wrong = true
	return ""
}
