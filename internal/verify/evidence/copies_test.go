package evidence

import (
	"bytes"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// verified runs bailiwick-verify with copies: an argument "NAME=|CONTENT" or
// "|CONTENT" becomes a file.
func (s *story) verified(b *bundle.Bundle, args ...string) (int, string) {
	s.t.Helper()
	trust, err := s.trust().Encode()
	s.must(err)
	files := map[string][]byte{"bundle": file(s.t, b), "trust": trust}
	args = append([]string{"bundle", "--trust", "trust"}, args...)
	for i := range args {
		if name, raw, ok := strings.Cut(args[i], "|"); ok {
			path := "copy" + string(rune('a'+i))
			files[path], args[i] = []byte(raw), name+path
		}
	}
	var out, wrong bytes.Buffer
	code := Command(args, &out, &wrong, Files{Now: func() time.Time { return s.at }, Open: func(name string) (io.ReadCloser, error) {
		b, ok := files[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return io.NopCloser(bytes.NewReader(b)), nil
	}})
	return code, out.String() + wrong.String()
}

// idle writes entries that belong to nothing.
func (s *story) idle(n int) {
	for range n {
		s.write(record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{Mode: "same-user"}})
	}
}

// line is a checkpoint as a line of a file anchor.
func (s *story) line(signed []byte) string {
	b, err := receipt.Line(signed)
	s.must(err)
	return string(b)
}

// ages are checkpoints from before and after each change of a story, whose sizes the
// bundle proves if sizes is set.
type ages struct {
	before, within, covering, equal, newer []byte
	b                                      *bundle.Bundle
}

// grow writes a dispatch between idle entries, and signs a checkpoint at each age.
// sizes says whether the bundle proves the sizes of the anchors.
func (s *story) grow(sizes bool) (a ages) {
	sign := func() []byte { return s.signCheckpoint(s.service, len(s.leaves)) }
	s.idle(2)
	a.before = sign()
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	a.within = sign()
	s.finish(w, api.EventFinished, "")
	a.covering = sign()
	s.idle(2)
	a.equal = sign()
	c := bundle.Case{Dispatch: "d-01"}
	for _, signed := range [][]byte{a.before, a.within, a.covering} {
		if cp, err := logproof.Peek(signed); err == nil && sizes {
			c.Sizes = append(c.Sizes, cp.Size)
		}
	}
	a.b = s.bundle(c)
	s.idle(3)
	a.newer = sign()
	return a
}

// Every form of a copy that the documents describe is compared, from before the
// subject, within it, after it and after the export. A copy that covers the subject
// earns what its place is worth; an older one passes and earns nothing; a newer one
// alone is compared in evidence that was exported with it.
//
// proves R-A6, R-A7
func TestEveryFormOfACopyIsCompared(t *testing.T) {
	s := newStory(t)
	s.places = []AnchorTrust{{Name: "disk", Kind: receipt.File, Place: "/mnt/a"}, {Name: "history", Kind: receipt.Git, Place: "/srv/a.git#b"}, {Name: "worm", Kind: receipt.S3, Place: "https://s3.example/b/"}}
	a := s.grow(true)
	forms := map[string]func(signed []byte) string{
		"the note itself":                       func(n []byte) string { return string(n) },
		"the note with another line feed":       func(n []byte) string { return string(n) + "\n" }, // tail -1 FILE | jq -r .
		"the note without the last line feed":   func(n []byte) string { return strings.TrimSuffix(string(n), "\n") },
		"the note with the line ends of others": func(n []byte) string { return strings.ReplaceAll(string(n), "\n", "\r\n") },
		"the newest line":                       func(n []byte) string { return s.line(n) },
		"the newest line without its line feed": func(n []byte) string { return strings.TrimSuffix(s.line(n), "\n") },
		"the whole file": func(n []byte) string {
			return "\n" + s.line(s.signCheckpoint(s.service, 1)) + s.line(a.before) + s.line(n)
		},
		"the file with a cut line":         func(n []byte) string { return s.line(a.before) + "\"bailiwick\n" + s.line(n) + "\"bail" },
		"all commits":                      func(n []byte) string { return string(a.before) + string(n) },
		"all commits, empty lines between": func(n []byte) string { return string(n) + "\n\n" + string(a.before) + "\n" },
	}
	kinds := map[string]report.Claim{"": report.ClaimTamperDetecting, "disk=": report.ClaimTamperDetecting, "history=": report.ClaimTamperDetecting, "worm=": report.ClaimTamperEvident, "elsewhere=": report.ClaimNone}
	for form, of := range forms {
		for age, x := range map[string]struct {
			signed []byte
			covers bool
		}{"before": {a.before, false}, "within": {a.within, false}, "covering": {a.covering, true}, "equal": {a.equal, true}} {
			for kind, claim := range kinds {
				if !x.covers {
					claim = report.ClaimNone
				}
				code, out := s.verified(a.b, "--anchor", kind+"|"+of(x.signed))
				if code != 0 || !strings.Contains(out, "\nclaim: "+string(claim)+" ") || !strings.Contains(out, "pass  consistency") {
					t.Errorf("%s, %s, %q: exit %d, want claim %s:\n%s", form, age, kind, code, claim, out)
				}
			}
		}
		// A copy from after the export: evidence exported with it has a proof for it.
		with := *a.b
		cp, err := logproof.Peek(a.newer)
		s.must(err)
		with.Case.Anchored = []bundle.Anchored{{Checkpoint: a.newer, Proof: bundle.Hashes(consistency(t, s.hashes(), len(s.leaves)-3, int(cp.Size)))}} //nolint:gosec // G115: small
		code, out := s.verified(&with, "--anchor", "history=|"+of(a.newer), "--require", "tamper-detecting")
		if code != 0 {
			t.Errorf("%s, newer: exit %d:\n%s", form, code, out)
		}
		// Control: without it, nothing shows whether the copy is of this log.
		code, out = s.verified(a.b, "--anchor", "history=|"+of(a.newer))
		if code != 1 || !strings.Contains(out, "fail  consistency") || !strings.Contains(out, "bailiwick audit export d-01 --dispatch --checkpoint copy") {
			t.Errorf("%s, newer, control: exit %d:\n%s", form, code, out)
		}
	}
	// A whole file that was copied after the export has lines that are compared.
	if code, out := s.verified(a.b, "--anchor", "disk=|"+s.line(a.covering)+s.line(a.newer), "--require", "tamper-detecting"); code != 0 {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// A copy of another log is found in every form and at every age, also where a part of
// it is the same.
//
// proves R-A6
func TestACopyOfAnotherLogIsFound(t *testing.T) {
	s := newStory(t)
	s.places = []AnchorTrust{{Name: "history", Kind: receipt.Git, Place: "/srv/a.git#b"}}
	a := s.grow(true)
	fork := func(signed []byte, k logproof.Signer) string {
		cp, err := logproof.Peek(signed)
		s.must(err)
		cp.Root[3] ^= 1
		out, err := logproof.Sign(t.Context(), cp, k)
		s.must(err)
		return string(out)
	}
	for age, signed := range map[string][]byte{"before": a.before, "within": a.within, "covering": a.covering, "equal": a.equal} {
		for _, kind := range []string{"", "history=", "elsewhere="} {
			for name, x := range map[string]struct{ copy, says string }{
				"alone":                      {fork(signed, s.service), "of another log signed by the same keys"},
				"beside the newest":          {string(a.equal) + fork(signed, s.service), "forged"},
				"two roots of one size":      {string(signed) + fork(signed, s.service), "two roots"},
				"signed by a stranger":       {fork(signed, newSigner(t)), "signed by none of the known keys"},
				"the signature was replaced": {strings.Replace(string(signed), "\n\n\u2014 ", "\n\n\u2014 x", 1), "signed by none of the known keys"},
			} {
				code, out := s.verified(a.b, "--anchor", kind+"|"+x.copy)
				if code != 1 || !strings.Contains(out, "fail  consistency") || !strings.Contains(out, x.says) || strings.Contains(out, "pass  anchor") {
					t.Errorf("%s, %s, %q: exit %d:\n%s", age, name, kind, code, out)
				}
			}
		}
	}
	// The end of the log was cut and rewritten: what was before is the same, and a
	// copy with more lines than that cannot be compared.
	code, out := s.verified(a.b, "--anchor", "history=|"+string(a.before)+string(a.newer))
	if code != 1 || !strings.Contains(out, "cannot be compared") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if code, out := s.verified(a.b, "--anchor", "history=|"+string(a.before)+string(a.equal)); code != 0 { // the control
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// What an auditor brings and cannot be compared is a failure that says what to do.
// Control: the same file with one checkpoint that can be.
func TestAnAnchorThatCannotBeComparedFails(t *testing.T) {
	s := newStory(t)
	a := s.grow(false)
	other := newStory(t)
	other.whole("d-01")
	foreign := string(other.signCheckpoint(other.service, 3))
	for name, x := range map[string]struct {
		args []string
		says []string
	}{
		"an older one without a proof":      {[]string{"--anchor", "|" + string(a.within)}, []string{"fail  consistency", "copye cannot be compared", "bailiwick audit export d-01 --dispatch --checkpoint copye --out d-01-2.evidence"}},
		"a newer one":                       {[]string{"--anchor", "|" + string(a.newer)}, []string{"fail  consistency", "--checkpoint copye"}},
		"of another log":                    {[]string{"--anchor", "|" + foreign}, []string{"fail  consistency", "has a checkpoint of another log"}},
		"the second of two":                 {[]string{"--anchor", "|" + string(a.equal), "--anchor", "x=|" + string(a.newer)}, []string{"fail  consistency", "x=copyg cannot be compared", "--checkpoint copyg"}},
		"a missing file":                    {[]string{"--anchor", "nowhere"}, []string{"--anchor nowhere: ", "file does not exist", "want a file with signed checkpoints"}},
		"no name of a file":                 {[]string{"--anchor", "disk="}, []string{"--anchor disk=: the file is missing"}},
		"an empty file":                     {[]string{"--anchor", "|"}, []string{"has no signed checkpoint"}},
		"empty lines":                       {[]string{"--anchor", "x=|\n\n\n"}, []string{"has no signed checkpoint"}},
		"only a line that a power cut left": {[]string{"--anchor", "|\"bailiwick.dev"}, []string{"has no signed checkpoint"}},
		"only what a disk left":             {[]string{"--anchor", "|\x00\x00\x00"}, []string{"has no signed checkpoint"}},
		"words":                             {[]string{"--anchor", "|all is well\n"}, []string{"neither a line of an anchor's file nor a signed checkpoint"}},
		"words after a checkpoint":          {[]string{"--anchor", "|" + string(a.equal) + "all is well\n"}, []string{"neither a line"}},
		"JSON of something else":            {[]string{"--anchor", "|{\"a\": 1}\n"}, []string{"neither a line"}},
		"a string of something else":        {[]string{"--anchor", "|\"all is well\"\n"}, []string{"--anchor copye: "}},
	} {
		code, out := s.verified(a.b, x.args...)
		if code != 1 {
			t.Errorf("%s: exit %d:\n%s", name, code, out)
		}
		for _, want := range x.says {
			if !strings.Contains(out, want) {
				t.Errorf("%s: lacks %q:\n%s", name, want, out)
			}
		}
	}
	if code, out := s.verified(a.b, "--anchor", "|"+string(a.equal)+string(a.newer)); code != 0 {
		t.Errorf("control: exit %d:\n%s", code, out)
	}
}

// The text of a receipt proves nothing. It is in no row that passes, whatever the
// auditor has fetched, and is shown as unchecked. Control: what the auditor's trust
// file says of the same place.
//
// proves R-A6, R-A7
func TestTheTextOfAReceiptIsInNoPassingRow(t *testing.T) {
	const lie = "2999-12-31"
	until, err := time.Parse(time.DateOnly, lie)
	if err != nil {
		t.Fatal(err)
	}
	for kind, r := range map[receipt.Kind]receipt.Receipt{
		receipt.File: {Place: "/a/lie/" + lie},
		receipt.Git:  {Place: "/a/lie/" + lie, Git: &receipt.Commit{ID: strings.Repeat("dead", 10)}},
		receipt.S3:   {Place: "/a/lie/" + lie, S3: &receipt.Object{Key: "lie-key", Version: "lie-version", ETag: "lie-tag", Until: until}},
		receipt.TSA:  {Place: "/a/lie/" + lie, TSA: &receipt.Token{Token: []byte{1}}},
	} {
		s := newStory(t)
		s.places = []AnchorTrust{{Name: "there", Kind: receipt.S3, Place: "the/true/place"}}
		a := s.grow(true)
		r.Name, r.Kind, r.Signed = "there", kind, a.equal
		s.received(a.b, r, len(s.leaves))
		a.b.Case.Anchored[0].Proof = []byte{}
		code, out := s.verified(a.b, "--anchor", "there=|"+string(a.covering), "--require", "tamper-evident")
		if kind == receipt.TSA { // an invalid token, or a foreign one
			if strings.Contains(out, "pass  time") {
				t.Errorf("%s: exit %d:\n%s", kind, code, out)
			}
			continue
		}
		if code != 0 || !strings.Contains(out, "is held by s3 the/true/place\n") || !strings.Contains(out, "claimed    receipt of anchor there, unchecked: "+string(kind)+" /a/lie/"+lie) {
			t.Errorf("%s: exit %d:\n%s", kind, code, out)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "pass") && (strings.Contains(line, "lie") || strings.Contains(line, "2999") || strings.Contains(line, "dead")) {
				t.Errorf("%s: a lie passes: %s", kind, line)
			}
		}
		// Without a copy nothing is earned, and nothing of the receipt passes.
		code, out = s.verified(a.b)
		if code != 0 || !strings.Contains(out, "na    anchor") || !strings.Contains(out, "claim: none") {
			t.Errorf("%s: exit %d:\n%s", kind, code, out)
		}
	}
}

// A checkpoint counts once, however many files have it and however many anchors hold
// it. Control: two checkpoints count as two.
func TestACheckpointCountsOnce(t *testing.T) {
	s := newStory(t)
	s.places = []AnchorTrust{{Name: "a", Kind: receipt.File, Place: "/a"}, {Name: "b", Kind: receipt.Git, Place: "/b#c"}}
	a := s.grow(true)
	three := []string{"--anchor", "|" + string(a.equal), "--anchor", "a=|" + string(a.equal), "--anchor", "b=|" + s.line(a.equal) + s.line(a.equal)}
	_, out := s.verified(a.b, three...)
	for _, want := range []string{"one log with 1 checkpoint of the auditor's (", "is held by file /a, git /b#c\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	_, out = s.verified(a.b, append(three, "--anchor", "|"+string(a.covering))...)
	if !strings.Contains(out, "one log with 2 checkpoints of the auditor's (") {
		t.Errorf("control:\n%s", out)
	}
	// Likewise the checkpoints of several anchors in the file.
	b := s.bundle(bundle.Case{Dispatch: "d-01"})
	s.anchored(b, 4)
	s.anchored(b, 4)
	if _, out = s.verified(b); !strings.Contains(out, "one log with 1 other in the file (4 entries)\n") {
		t.Errorf("in the file:\n%s", out)
	}
}

// The names that keys have in rotations are words of the exporter's too.
func TestTheNameOfAKeyIsInNoRow(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	origin, next := s.origin(), newSigner(t)
	envelope, err := seal.KeyRotation{V: 1, Log: origin, Old: s.service.KeyID(), New: seal.KeyOf(next, "audited by the state"), Entry: uint64(len(s.leaves)), At: s.at}.Sign(t.Context(), s.service)
	s.must(err)
	b := s.bundle(bundle.Case{Dispatch: "d-01"})
	b.Case.Rotations = [][]byte{envelope}
	b.Case.Checkpoint, err = logproof.Sign(t.Context(), logproof.Checkpoint{Origin: origin, Size: uint64(len(s.leaves)), Root: rootOf(t, s.hashes())}, next)
	s.must(err)
	if code, out := s.verified(b); !strings.Contains(out, string(next.KeyID())) || strings.Contains(out, "audited by") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// A witness adds its signature to a checkpoint, under its own name: such a checkpoint is
// compared as any other, alone, among others and in the bundle itself. The controls: a
// signature in the name of the log that is not of its keys, and a changed one of its key.
//
// proves R-A5, R-A6 (no false alarm)
func TestTheSignatureOfAWitnessIsIgnored(t *testing.T) {
	s := newStory(t)
	a := s.grow(true)
	line := func(name string) string { return "\u2014 " + name + " " + strings.Repeat("A", 52) + "\n" }
	verify := func(b *bundle.Bundle, copied []byte) report.Report {
		list, err := receipt.Checkpoints(copied)
		if err != nil {
			t.Fatal(err)
		}
		return Verify(reread(t, b), s.trust(), Options{Copies: []Copy{{File: "copy", Checkpoints: list}}})
	}
	more := append(bytes.Clone(a.equal), line("witness.example/w1")+line("witness.example/w2")...)
	for form, copied := range map[string][]byte{"alone": more, "among others": append(bytes.Clone(a.covering), more...), "as a line of the file": []byte(s.line(more))} {
		if r := verify(a.b, copied); r.Failed() || r.Claim != report.ClaimTamperDetecting {
			t.Errorf("%s:\n%s", form, r.Text())
		}
	}
	own := *a.b
	own.Case.Checkpoint = append(bytes.Clone(own.Case.Checkpoint), line("witness.example/w1")...)
	if r := verify(&own, a.equal); r.Failed() || r.Claim != report.ClaimTamperDetecting {
		t.Errorf("in the bundle:\n%s", r.Text())
	}
	flipped := bytes.Clone(more)
	if at := bytes.Index(flipped, []byte("\n\u2014 ")) + len("\n\u2014 "+s.origin()+" ") + 20; flipped[at] == 'A' {
		flipped[at] = 'B'
	} else {
		flipped[at] = 'A'
	}
	for what, copied := range map[string][]byte{"a further one in the name of the log": append(bytes.Clone(more), line(s.origin())...), "a changed one": flipped} {
		if r := verify(a.b, copied); !r.Failed() {
			t.Errorf("control: %s:\n%s", what, r.Text())
		}
	}
}
