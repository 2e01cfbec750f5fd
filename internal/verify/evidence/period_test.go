package evidence

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// folder is the files of a copy of the log, by their names below DIR.
type folder map[string][]byte

// copied is the copy of the whole log that "audit tiles" makes.
func (s *story) copied() folder {
	f := folder{logproof.CheckpointName: s.signCheckpoint(s.service, len(s.leaves))}
	f.put(s.leaves)
	records := 0
	for i := range s.entries {
		e := &s.entries[i]
		var envelopes [][]byte
		switch e.SignedRef() {
		case record.RefRevision:
			for _, d := range s.revisions[e.Refs[record.RefRevision]].Envelopes {
				envelopes = append(envelopes, s.documents[d])
			}
		case record.RefRecord:
			envelopes = [][]byte{s.documents[s.records[records]]}
			records++
		case record.RefRotation:
			for _, r := range s.rotations {
				if api.DigestOf(r) == e.Refs[record.RefRotation] {
					envelopes = [][]byte{r}
				}
			}
		default:
			continue
		}
		f.sign(s, i, envelopes...)
	}
	return f
}

func (f folder) sign(s *story, entry int, envelopes ...[]byte) {
	b, err := bundle.Signed{V: 1, Envelopes: envelopes}.Encode()
	s.must(err)
	f[logproof.SignedName(uint64(entry))] = b //nolint:gosec // G115: small
}

// put writes bundles of entries.
func (f folder) put(leaves [][]byte) {
	for i := 0; i < len(leaves); i += logproof.TileWidth {
		part := leaves[i:min(len(leaves), i+logproof.TileWidth)]
		var b []byte
		for _, leaf := range part {
			b = binary.BigEndian.AppendUint16(b, uint16(len(leaf))) //nolint:gosec // G115: small
			b = append(b, leaf...)
		}
		f[logproof.TileName("entries", uint64(i/logproof.TileWidth), uint64(len(part)))] = b //nolint:gosec // G115: small
	}
}

// verifiedPeriod runs bailiwick-verify --tiles with a trust file.
func (s *story) verifiedPeriod(f folder, trust Trust, args ...string) (int, string) {
	s.t.Helper()
	doc, err := trust.Encode()
	s.must(err)
	files := map[string][]byte{"trust": doc}
	for name, b := range f {
		files["log/"+name] = b
	}
	args = append([]string{"--tiles", "log", "--trust", "trust"}, args...)
	for i := range args {
		if name, raw, ok := strings.Cut(args[i], "|"); ok {
			files["copy"], args[i] = []byte(raw), name+"copy"
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

// quarter is a log of two periods: in the second, the service's key and the operators'
// keys change, people vote, and a run and a dispatch stay open. It returns its start.
func (s *story) quarter() time.Time {
	toolCalls(s)
	s.idle(260) // more than one bundle
	s.at = s.at.AddDate(0, 1, 0)
	since := s.at
	s.rotate()
	s.publish("local:ann", "local:bob")
	third := s.newKey()
	s.replaceKeys(s.nextSet(1, s.operator, s.second, third), s.operator)
	s.consentBy("local:ann", api.Reversible, third)
	s.whole("d-90")
	s.submit(strings.Replace(planDoc, `"id":"r1"`, `"id":"r9"`, 1), "", 0)
	open := &work{id: "d-91"}
	s.admit(open)
	s.start(open)
	s.write(record.Entry{Kind: record.KindDispatchDenied, Principal: "agent:x", Action: "dispatch", Resource: "code", Detail: record.DispatchRequest{Subagent: "code", Reasons: []string{"no grant\n\x1b[2J"}}})
	s.write(record.Entry{Kind: record.KindEvidenceRefused, Detail: record.EvidenceRefused{Dispatch: "d-90", Message: "no", Rows: []string{"inclusion"}}})
	s.write(record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{Mode: "same-user", Config: &record.ServiceConfig{File: "/etc/service.yaml", Digest: string(api.DigestOf([]byte("c"))), Settings: []string{"anchors=1"}}}})
	return since
}

// A copy of the log verifies offline, with the keys that changed in the period, and lists
// what happened in it.
//
// proves R-A5, R-A7
func TestAPeriodIsVerifiedAndListed(t *testing.T) {
	s := newStory(t)
	since := s.quarter()
	code, out := s.verifiedPeriod(s.copied(), s.trust(), "--since", since.Format(time.RFC3339))
	if code != 0 {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	for _, want := range []string{
		"period     from " + since.Format(time.RFC3339) + " to the last entry, by the service's clock\n",
		"\nrun        r9: not settled, 4 tasks, submitted by local:ann in #",
		"\ndispatch   d-90: finished, subagent code for local:ann, accepted in #", ", statement in #",
		"\ndispatch   d-91: started, subagent code for local:ann, accepted in #",
		"agent:x requested code", `denied ("no grant\n\u001b[2J") [#`,
		"\napproval   none\n",
		"signing key for service rotated from ", "catalog revision 3 by ann in force", "operator record ", ` of human:bob`,
		"\nservice    ", `configuration "/etc/service.yaml" (sha256:`,
		"\nlacking    dispatch d-90: the service found that its evidence does not verify [#", "\nlacking    run r9: it has not settled in this copy\n", "\nlacking    dispatch d-91: it has not ended in this copy\n",
		"\npass  inclusion             all ", "1 key rotation, each signed by the previous key\n", "\nna    consistency ",
		"\npass  catalog signatures    3 catalog revisions, each signed by at least 1 deploy key\n", "\npass  operator records      ", "which changed 1 time\n", "\npass  chains ",
		"\nclaim: none   time: asserted\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q", want)
		}
	}
	for _, other := range []string{"d-01", "\x1b", "local:eve approved"} {
		if strings.Contains(strings.Split(out, "\nlog ")[0], other) {
			t.Errorf("has %q", other)
		}
	}
	// The period before has the votes, and ends before the others begin.
	_, before := s.verifiedPeriod(s.copied(), s.trust(), "--until", since.Format(time.RFC3339))
	for _, want := range []string{"\ndispatch   d-01: ", "approves a-bbbbbbbbbbbb", "of human:eve", "\nlacking    none\n"} {
		if !strings.Contains(before, want) {
			t.Errorf("the period before lacks %q", want)
		}
	}
	if strings.Contains(before, "d-90") || strings.Contains(before, "r9") {
		t.Error("the period before has later work")
	}
	if t.Failed() {
		t.Logf("%s\nbefore:\n%s", out, before)
	}
	// As JSON, everything.
	code, out = s.verifiedPeriod(s.copied(), s.trust(), "-o", "json")
	var r report.PeriodReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Entries != uint64(len(s.entries)) || len(r.Denials) < 3 || len(r.Approvals) < 6 || r.Since != nil {
		t.Errorf("exit %d %v: %s", code, err, out)
	}
}

// An empty period lists nothing, and is verified.
func TestAnEmptyPeriodIsVerified(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	code, out := s.verifiedPeriod(s.copied(), s.trust(), "--since", "2025-01-01", "--until", "2025-03-31")
	for _, want := range []string{"period     from 2025-01-01T00:00:00Z to before 2025-04-01T00:00:00Z", "\nentries    none\n", "\nrun        none\n", "\ndispatch   none\n", "\nlacking    none\n", "\npass  inclusion"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if code != 0 || t.Failed() {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// Each change of a copy is found: X without a key, K with the service's.
// The control is the unchanged copy.
//
// proves R-A5, R-A6, R-A7
func TestAChangedCopyOfTheLogFails(t *testing.T) {
	s := newStory(t)
	s.quarter()
	bundles := func(f folder, leaves [][]byte) {
		for name := range f {
			if strings.HasPrefix(name, "tile/entries/") {
				delete(f, name)
			}
		}
		f.put(leaves)
	}
	find := func(kind record.Kind) int {
		for i := range slices.Backward(s.entries) {
			if s.entries[i].Kind == kind {
				return i
			}
		}
		t.Fatalf("no %s", kind)
		return 0
	}
	without := func(i int) [][]byte { return append(append([][]byte{}, s.leaves[:i]...), s.leaves[i+1:]...) }
	// signAgain is what K does: sign the checkpoint of other entries.
	signAgain := func(f folder, leaves [][]byte) {
		bundles(f, leaves)
		hashes := make([]logproof.Hash, len(leaves))
		for i, leaf := range leaves {
			hashes[i] = logproof.LeafHash(leaf)
		}
		signed, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: s.origin(), Size: uint64(len(leaves)), Root: rootOf(t, hashes)}, s.service)
		s.must(err)
		f[logproof.CheckpointName] = signed
	}
	last := logproof.TileName("entries", uint64(len(s.leaves)/logproof.TileWidth), uint64(len(s.leaves)%logproof.TileWidth)) //nolint:gosec // G115: small
	record1 := find(record.KindOperatorRecorded)
	for name, c := range map[string]struct {
		change func(f folder, trust *Trust)
		row    string // that fails; empty: none
	}{
		"control": {func(folder, *Trust) {}, ""},
		"a complete bundle supersedes the partial one": {func(f folder, _ *Trust) {
			whole, _, _ := strings.Cut(last, ".p/")
			f[whole] = append(bytes.Clone(f[last]), 0, 1, 'x')
			delete(f, last)
		}, ""},
		"an entry flipped": {func(f folder, _ *Trust) {
			f[last] = bytes.Replace(f[last], []byte(`"agent:x"`), []byte(`"agent:y"`), 1)
		}, "inclusion"},
		"an entry removed":   {func(f folder, _ *Trust) { bundles(f, without(find(record.KindDispatchDenied))) }, "inclusion"},
		"a bundle removed":   {func(f folder, _ *Trust) { delete(f, last) }, "inclusion"},
		"a bundle truncated": {func(f folder, _ *Trust) { f[last] = f[last][:len(f[last])-1] }, "inclusion"},
		"a bundle with more": {func(f folder, _ *Trust) { f[last] = append(bytes.Clone(f[last]), 0) }, "inclusion"},
		"an older log under a new checkpoint": {func(f folder, _ *Trust) {
			bundles(f, s.leaves[:len(s.leaves)-1])
		}, "inclusion"},
		"a foreign key": {func(f folder, _ *Trust) { f[logproof.CheckpointName] = s.signCheckpoint(newSigner(t), len(s.leaves)) }, "checkpoint signature"},
		"a retired key": {func(f folder, _ *Trust) { f[logproof.CheckpointName] = s.signCheckpoint(s.first, len(s.leaves)) }, "checkpoint signature"},
		"another service": {func(_ folder, trust *Trust) {
			other := newStory(t).trust()
			trust.Log, trust.Statements = other.Log, other.Statements
		}, "checkpoint signature"},
		"a rotation by nobody": {func(f folder, _ *Trust) {
			delete(f, logproof.SignedName(uint64(find(record.KindKeyRotated)))) //nolint:gosec // G115: small
		}, "checkpoint signature"},
		"another deploy key": {func(_ folder, trust *Trust) { trust.Deploy = newStory(t).trust().Deploy }, "catalog signatures"},
		"a revision without its document": {func(f folder, _ *Trust) {
			delete(f, logproof.SignedName(uint64(find(record.KindCatalogRevision)))) //nolint:gosec // G115: small
		}, "catalog signatures"},
		"a record without its document": {func(f folder, _ *Trust) { delete(f, logproof.SignedName(uint64(record1))) }, "operator records"}, //nolint:gosec // G115: small
		"the record of another entry": {func(f folder, _ *Trust) {
			f.sign(s, record1, s.documents[s.records[0]])
		}, "operator records"},
		"other operators": {func(_ folder, trust *Trust) {
			other := newStory(t).trust()
			trust.Operators = other.Operators
		}, "operator records"},
		"K removes an entry of a dispatch": {func(f folder, _ *Trust) { signAgain(f, without(find(record.KindDispatchFinished))) }, "chains"},
		"K removes the last decision":      {func(f folder, _ *Trust) { signAgain(f, without(record1)) }, "operator records"},
		"K writes an impossible entry": {func(f folder, _ *Trust) {
			signAgain(f, append(append([][]byte{}, s.leaves...), s.leaves[find(record.KindDispatchFinished)]))
		}, "chains"},
		"K writes what is no entry": {func(f folder, _ *Trust) { signAgain(f, append(append([][]byte{}, s.leaves...), []byte(`{"v":1}`))) }, "chains"},
	} {
		f, trust := s.copied(), s.trust()
		c.change(f, &trust)
		code, out := s.verifiedPeriod(f, trust)
		failed := strings.Contains(out, "\nfail  ")
		switch {
		case c.row == "" && (code != 0 || failed):
			t.Errorf("%s: exit %d:\n%s", name, code, out)
		case c.row != "" && (code != 1 || !strings.Contains(out, fmt.Sprintf("\nfail  %-20s  ", c.row)) || !strings.Contains(out, "\nclaim: none ")):
			t.Errorf("%s: exit %d, want %s to fail:\n%s", name, code, c.row, out)
		}
	}
}

// A checkpoint that the auditor kept earns its claim, if it covers the period. One of a
// log that the service rewrote since, and signed again, fails.
//
// proves R-A6
func TestAPeriodIsComparedWithTheCopiesOfTheAuditor(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	until := s.at
	kept := s.signCheckpoint(s.service, len(s.leaves))
	s.at = s.at.Add(time.Hour)
	s.whole("d-02")
	first := []string{"--until", until.Format(time.RFC3339), "--require", "tamper-detecting", "--anchor", "|" + string(kept)}
	if code, out := s.verifiedPeriod(s.copied(), s.trust(), first...); code != 0 || !strings.Contains(out, "claim: tamper-detecting") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if code, out := s.verifiedPeriod(s.copied(), s.trust(), "--require", "tamper-detecting", "--anchor", "|"+string(kept)); code != 1 || !strings.Contains(out, "claim: none") || !strings.Contains(out, "older than the last entry here") {
		t.Errorf("a copy that does not cover the period: exit %d:\n%s", code, out)
	}
	newer := s.signCheckpoint(s.service, len(s.leaves))
	short := *s
	short.leaves, short.entries = s.leaves[:len(s.leaves)-1], s.entries[:len(s.entries)-1]
	if code, out := s.verifiedPeriod(short.copied(), s.trust(), "--anchor", "|"+string(newer)); code != 1 || !strings.Contains(out, "continue the copy: bailiwick audit tiles --to DIR") {
		t.Errorf("a copy of more than is here: exit %d:\n%s", code, out)
	}
	// K rewrites the log: the last entry before the kept checkpoint is another one.
	forged := *s
	forged.leaves = append([][]byte{}, s.leaves...)
	forged.leaves[0] = bytes.Replace(forged.leaves[0], []byte(`same-user`), []byte(`system`), 1)
	if code, out := s.verifiedPeriod(forged.copied(), s.trust()); code != 0 {
		t.Errorf("the control, a rewritten log alone: exit %d:\n%s", code, out)
	}
	if code, out := s.verifiedPeriod(forged.copied(), s.trust(), first...); code != 1 || !strings.Contains(out, "one of the two is forged") {
		t.Errorf("a rewritten log: exit %d:\n%s", code, out)
	}
}

// What an auditor types wrong ends with a sentence, and nothing is verified.
func TestArgumentsOfAPeriodAreChecked(t *testing.T) {
	s := newStory(t)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"unexpected argument", []string{"file"}},
		{"is not before", []string{"--since", "2026-01-02", "--until", "2026-01-01"}},
		{"--since", []string{"--since", "yesterday"}},
		{"for a file of evidence", []string{"--html", "x"}},
	} {
		if code, out := s.verifiedPeriod(s.copied(), s.trust(), c.args...); code != 1 || !strings.Contains(out, c.want) || strings.Contains(out, "pass  ") {
			t.Errorf("%v: exit %d: %s", c.args, code, out)
		}
	}
	if code, out := s.verifiedPeriod(folder{}, s.trust()); code != 1 || !strings.Contains(out, "the signed checkpoint of the copy") {
		t.Errorf("an empty folder: exit %d: %s", code, out)
	}
	s.whole("d-01")
	if code, out := s.verified(s.bundle(bundle.Case{Dispatch: "d-01"}), "--since", "2026-01-01"); code != 1 || !strings.Contains(out, "need --tiles") {
		t.Errorf("--since of a file: exit %d: %s", code, out)
	}
}
