package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

// webauthnProgram asks go-webauthn, which make setup builds.
var webauthnProgram = toolProgram("webauthn-0.18.2")

// oracleQuestion is what the oracle reads.
type oracleQuestion struct {
	Credential, SPKI, Challenge                      []byte
	RPID                                             string
	Origins                                          []string
	Synced                                           bool
	Count                                            uint32
	By, AuthenticatorData, ClientDataJSON, Signature []byte

	name     string
	stricter bool
	ours     error
}

func question(name string, m softkey.Made, message []byte) oracleQuestion {
	challenge := sha256.Sum256(message)
	raw, err := canon.Marshal(m.Assertion)
	if err == nil {
		err = m.Key.Verify(message, raw)
	}
	c, a := m.Key.Passkey, m.Assertion
	return oracleQuestion{
		Credential: c.ID, SPKI: m.SPKI, Challenge: challenge[:], RPID: c.RPID, Origins: c.Origins, Synced: c.Synced,
		By: a.Credential, AuthenticatorData: a.AuthenticatorData, ClientDataJSON: a.ClientDataJSON, Signature: a.Signature,
		name: name, ours: err, stricter: m.Stricter,
	}
}

// go-webauthn, another implementation, agrees on every assertion, honest or not, and on
// every flipped bit. Where Bailiwick is stricter than the standard, the oracle accepts.
// proves R-B9
func TestTheOracleAgrees(t *testing.T) {
	t.Parallel()
	message := []byte("what is signed")
	var questions []oracleQuestion
	for _, ed := range []bool{false, true} {
		for _, c := range softkey.Cases() {
			if c.ES256 && ed {
				continue
			}
			m, err := c.Make(ed, message)
			if err != nil {
				t.Fatal(err)
			}
			questions = append(questions, question(c.Name, m, message))
		}
		m, err := softkey.Cases()[0].Make(ed, message)
		if err != nil {
			t.Fatal(err)
		}
		for name, part := range map[string]func(*seal.Assertion) *[]byte{
			"authenticator data": func(a *seal.Assertion) *[]byte { return &a.AuthenticatorData },
			"client data":        func(a *seal.Assertion) *[]byte { return &a.ClientDataJSON },
			"credential":         func(a *seal.Assertion) *[]byte { return &a.Credential },
			"signature":          func(a *seal.Assertion) *[]byte { return &a.Signature },
		} {
			for i := range 8 * len(*part(&m.Assertion)) {
				flipped := m
				bits := slices.Clone(*part(&m.Assertion))
				bits[i/8] ^= 1 << (i % 8)
				*part(&flipped.Assertion) = bits
				questions = append(questions, question(fmt.Sprintf("bit %d of the %s", i, name), flipped, message))
			}
		}
	}
	accepted, stricter := 0, 0
	for i, a := range askOracle(t, questions) {
		q := questions[i]
		switch {
		case a.Accepted && q.ours == nil:
			accepted++
		case q.stricter && a.Accepted:
			stricter++
		case q.stricter || a.Accepted || q.ours == nil:
			t.Errorf("%s: go-webauthn accepts: %v (%s); Bailiwick: %v; stricter: %v", q.name, a.Accepted, a.Reason, q.ours, q.stricter)
		}
	}
	if accepted < 10 || stricter < 5 || len(questions) < 3000 {
		t.Errorf("of %d assertions %d were accepted, and %d by the oracle only", len(questions), accepted, stricter)
	}
	t.Logf("%d assertions: both accept %d, the oracle alone %d, both refuse the others", len(questions), accepted, stricter)
}

// The oracle warns of a copied authenticator exactly where a counter is an alarm.
func TestTheOracleAgreesAboutCounters(t *testing.T) {
	t.Parallel()
	message := []byte("what is signed")
	counts := []uint32{0, 1, 2, 7, 1 << 31, 1<<32 - 1}
	var questions []oracleQuestion
	for _, last := range counts {
		for _, next := range counts {
			c := softkey.Case{Lie: func(a *softkey.Authenticator) { a.Count, a.Stuck = next, true }}
			m, err := c.Make(false, message)
			if err != nil {
				t.Fatal(err)
			}
			q := question(fmt.Sprintf("%d after %d", next, last), m, message)
			counter := seal.SignCounter{m.Key.ID: last}
			q.Count, q.ours = last, counter.Check(map[seal.KeyID]uint32{m.Key.ID: next})
			questions = append(questions, q)
		}
	}
	for i, a := range askOracle(t, questions) {
		if q := questions[i]; !a.Accepted || a.Cloned != (q.ours != nil) {
			t.Errorf("%s: go-webauthn warns: %v; Bailiwick: %v", q.name, a.Cloned, q.ours)
		}
	}
}

func askOracle(t *testing.T, questions []oracleQuestion) (answers []struct {
	Accepted, Cloned bool
	Reason           string
},
) {
	t.Helper()
	program, err := webauthnProgram()
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &said
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &answers)
	}
	if err != nil || len(answers) != len(questions) {
		t.Fatalf("%v: %d answers to %d questions: %s", err, len(answers), len(questions), said.Bytes())
	}
	return answers
}
