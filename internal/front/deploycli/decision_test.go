package deploycli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

func exampleDecision(verb api.OperatorVerb) api.OperatorRecord {
	stateful := api.Stateful
	r := api.OperatorRecord{
		V: 1, Service: "ed25519:" + strings.Repeat("5a", 16), Number: 7, Previous: api.DigestOf([]byte("6")),
		At: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Verb: verb, Principal: "agent:claude", Reason: "the night run",
	}
	token := &api.TokenRecord{ID: "t-aaaaaaaaaaaa", Hash: api.DigestOf([]byte("x")), ExpiresAt: r.At.AddDate(0, 3, 0)}
	switch verb {
	case api.VerbPrincipalAdd:
		r.OAuth = &api.OAuthSubject{Issuer: "https://idp.example", Subject: "0a1b"}
	case api.VerbPrincipalRemove:
	case api.VerbTokenCreate:
		r.Token = token
	case api.VerbTokenRotate:
		r.Token, r.Replaces = token, "t-bbbbbbbbbbbb"
	case api.VerbTokenRevoke:
		r.Replaces = "t-bbbbbbbbbbbb"
	case api.VerbCeilingSet:
		r.Ceiling = &stateful
	case api.VerbStopLift:
		r.Principal, r.Stop = "", "s-7"
	case api.VerbAnchorLost:
		r.Principal, r.Anchor, r.Found = "", "disk", api.DigestOf([]byte("found"))
	case api.VerbSecretSet:
		r.Principal, r.Secret, r.Content = "", "anthropic", api.DigestOf([]byte("encrypted"))
	case api.VerbSecretRemove:
		r.Principal, r.Secret = "", "anthropic"
	case api.VerbApprove, api.VerbDeny:
		r.Principal, r.Approval, r.Content = "local:ann", "a-aaaaaaaaaaaa", api.DigestOf([]byte("action"))
	case api.VerbOperatorSet:
		r.Principal, r.Set = "", &api.OperatorSet{Number: 2, Previous: api.DigestOf([]byte("set 1")), Root: exampleRoot("ann", "bob")}
	}
	return r
}

// exampleRoot is a set of operator keys with these names.
func exampleRoot(names ...string) []byte {
	root := seal.TrustRoot{V: 1, Threshold: 1}
	for i, name := range names {
		public := bytes.Repeat([]byte{byte(i + 1)}, 32)
		root.Keys = append(root.Keys, seal.Key{ID: seal.IDOf(public), Name: name, Public: public, Principal: api.Principal("human:" + []string{"ann", "bob"}[i])})
	}
	b, err := root.Encode()
	if err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b, []byte("\n"))
}

func TestDecisionText(t *testing.T) {
	var all strings.Builder
	for _, verb := range api.OperatorVerbs() {
		r := exampleDecision(verb)
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		all.WriteString(shownFor(r))
	}
	golden(t, "decisions.txt", all.String())
}

// rows are the labels of a decision as a reader sees them, with the values that
// only this program writes.
func rows(shown string) (list []string) {
	for line := range strings.Lines(shown) {
		if before, _, quoted := strings.Cut(line, "| "); quoted {
			if strings.TrimSpace(before) == "" {
				continue // a further line of quoted text
			}
			line = before
		}
		list = append(list, strings.TrimRight(line, " \n"))
	}
	return list
}

var hostile = []string{
	"routine\n  principal    agent:harmless",
	"routine\r  ceiling      observe          ",
	"\x1b[2J\x1b[HYou are asked to sign NOTHING",
	"\x1b]0;title\x07",
	"\u202eesrever \u2066isolated\u2069",
	"\u009b2J a C1 control",
	"a\u0301\u0301\u0301\u0301\u0301\u0301 tower",
	"\u2028line\u2029paragraph\x85next",
	"zero\u200bwidth\ufeff",
	strings.Repeat(" ", 300) + "principal    agent:harmless",
	strings.Repeat("x", 60) + "  | principal    agent:harmless",
	"\" \n\nPassphrase of the operator's key: \\",
	"\U000e0041 tag",
	"\ufffd\u3164 hangul filler\u00ad",
}

// Text that others wrote cannot look like text of this program: the rows are the
// same whatever a reason contains. Control: the same text printed without quotes.
//
// proves R-B9
func TestDecisionTextCannotBeForged(t *testing.T) {
	for _, verb := range api.OperatorVerbs() {
		good := exampleDecision(verb)
		want := rows(shownFor(good))
		for _, text := range hostile {
			r := good
			r.Reason = text
			if r.OAuth != nil {
				r.OAuth = &api.OAuthSubject{Issuer: r.OAuth.Issuer, Subject: strings.ToValidUTF8(text[:min(len(text), 200)], "")}
			}
			if r.Set != nil {
				r.Set = &api.OperatorSet{Number: 2, Previous: r.Set.Previous, Root: exampleRoot(strings.ToValidUTF8(text[:min(len(text), 200)], ""), "bob")}
			}
			checkShown(t, r, want)
		}
	}
	bare := strings.Replace(shownFor(exampleDecision(api.VerbCeilingSet)), `| "the night run"`, hostile[0], 1)
	if got := rows(bare); strings.Join(got, "\n") == strings.Join(rows(shownFor(exampleDecision(api.VerbCeilingSet))), "\n") {
		t.Error("the check does not see a forged row")
	}
}

var quotedLine = regexp.MustCompile(`^  [a-z ]{12} \| .*$`)

func checkShown(t *testing.T, r api.OperatorRecord, want []string) {
	t.Helper()
	shown := shownFor(r)
	if got := rows(shown); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("reason %q changes the rows:\n%s", r.Reason, shown)
	}
	for line := range strings.Lines(shown) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "|") && !quotedLine.MatchString(line) {
			t.Errorf("reason %q: line %q", r.Reason, line)
		}
		if quotedLine.MatchString(line) && len(line) > 80 {
			t.Errorf("reason %q: a line of %d bytes: %q", r.Reason, len(line), line)
		}
		for _, c := range line {
			if !unicode.IsPrint(c) || unicode.Is(unicode.M, c) {
				t.Errorf("reason %q: %q is shown", r.Reason, c)
			}
		}
	}
}

func FuzzDecisionTextCannotBeForged(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || text == "" {
			return
		}
		good := exampleDecision(api.VerbCeilingSet)
		r := good
		r.Reason = text
		checkShown(t, r, rows(shownFor(good)))
	})
}

func FuzzOnlyCanonicalRecordsAreSigned(f *testing.F) {
	now := exampleDecision(api.VerbStopLift).At
	f.Add([]byte(`{"at":"2026-03-04T05:06:07Z","number":1,"service":"ed25519:5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a","stop":"s-1","v":1,"verb":"stop.lift"}`))
	f.Add([]byte(`{"at":"2026-03-04T05:06:07Z","number":1,"service":"ed25519:5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a","stop":"s-1","stop":"s-2","v":1,"verb":"stop.lift"}`))
	f.Add([]byte(`{"at":"2026-03-04T05:06:07+00:00","number":1.0,"service":"ed25519:5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a","stop":"s-1","v":1,"verb":"stop.lift"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := readRecord(payload, now)
		if err != nil {
			return
		}
		again, err := canon.Marshal(r)
		if err != nil || string(again) != string(payload) {
			t.Errorf("%q is signed as %q, %v", payload, again, err)
		}
	})
}
