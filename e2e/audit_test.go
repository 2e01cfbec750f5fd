package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	sumtlog "golang.org/x/mod/sumdb/tlog"

	"github.com/bailiwick-dev/bailiwick/api"
)

// seen is an entry in the output of -o jsonl.
type seen struct {
	Seq   uint64          `json:"seq"`
	Entry json.RawMessage `json:"entry"`
}

func (w *world) audited(args ...string) (list []seen) {
	w.t.Helper()
	for line := range strings.Lines(w.must(append([]string{"audit", "list", "-o", "jsonl"}, args...)...)) {
		var s seen
		decode(w.t, line, &s)
		list = append(list, s)
	}
	return list
}

// audited world: two dispatches in two roles, one denial.
func auditedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo x > x.txt"}, subagent{name: "judge", script: "true", role: "quality"})
	w.up()
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "the-edit"), api.EventFinished, "")
	wantEnd(t, w.dispatch("judge", "--source", "repo", "--id", "the-judge"), api.EventFinished, "")
	w.refused(3, nil, "dispatch", "run", "nobody")
	return w
}

// Each filter selects its entries, as text and as JSON. An invalid value is
// refused before any output.
//
// proves R-A8, R-O5
func TestAuditListSupportsEveryFilter(t *testing.T) {
	t.Parallel()
	w := auditedWorld(t)
	all := w.audited()
	for flags, want := range map[string]func(e map[string]any) bool{
		"--dispatch the-edit":                                    func(e map[string]any) bool { id, _ := e["dispatch"].(string); return w.names(id, "the-edit") },
		"--role quality":                                         func(e map[string]any) bool { return e["role"] == "quality" },
		"--decision deny":                                        func(e map[string]any) bool { return e["decision"] == "deny" },
		"--decision allow --principal " + w.me():                 func(e map[string]any) bool { return e["decision"] == "allow" && e["principal"] == w.me() },
		"--kind dispatch.denied --kind dispatch.started":         func(e map[string]any) bool { return e["kind"] == "dispatch.denied" || e["kind"] == "dispatch.started" },
		"--since 24h":                                            func(map[string]any) bool { return true },
		"--since 1970-01-01 --until 9998-12-31 --role transform": func(e map[string]any) bool { return e["role"] == "transform" },
		"--until 2001-02-03":                                     func(map[string]any) bool { return false },
		"--tool warehouse/drop_table":                            func(map[string]any) bool { return false },
		"--run r-none --task t":                                  func(map[string]any) bool { return false },
		"--after 2 --before 5":                                   func(e map[string]any) bool { return e["#"].(uint64) > 2 && e["#"].(uint64) < 5 },
	} {
		var should []uint64
		for _, s := range all {
			var e map[string]any
			must(t, json.Unmarshal(s.Entry, &e))
			e["#"] = s.Seq
			if want(e) {
				should = append(should, s.Seq)
			}
		}
		var got []uint64
		for _, s := range w.audited(strings.Fields(flags)...) {
			if s.Seq < uint64(len(all)) { // there may be newer ones
				got = append(got, s.Seq)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(should) {
			t.Errorf("%s: %v, want %v", flags, got, should)
		}
	}
	if got := w.audited("--first", "3"); len(got) != 3 || got[2].Seq != 2 {
		t.Errorf("--first 3: %v", got)
	}
	if got := w.audited("--last", "2", "--before", "4"); len(got) != 2 || got[1].Seq != 3 {
		t.Errorf("--last 2 --before 4: %v", got)
	}
	if text := w.must("audit", "list", "--decision", "deny"); strings.Count(text, "\n") != 1 || !strings.Contains(text, w.me()+" requested nobody") || !strings.Contains(text, ": denied") {
		t.Errorf("denials as text: %s", text)
	}
	for _, bad := range []string{
		"--since tomorrow", "--until 5x", "--since -2h", "--last 0", "--last 1001", "--first 0", "--first 1 --last 1", "--after -1", "--kind nothing", "--decision maybe",
		"--dispatch X", "--run R_", "--task _", "--role R", "--principal me", "--tool a\u2028b", "--color",
	} {
		if d := w.try(append([]string{"audit", "list"}, strings.Fields(bad)...)...); d.status != 1 || d.stdout != "" {
			t.Errorf("%s: %s", bad, d)
		}
	}
	for _, flag := range []string{"--run", "--task", "--dispatch", "--role", "--tool", "--principal", "--decision", "--since", "--until"} {
		if d := w.try("audit", "list", flag, ""); d.status != 1 || d.stdout != "" {
			t.Errorf("%s with an empty value: %s", flag, d)
		}
	}
}

// audit show verifies the proof of the entry that it prints, and audit prove
// writes a proof that other programs verify: hashes as in RFC 6962.
//
// proves R-A8, R-A1, R-A5
func TestAuditShowPrintsAnEntryWithAPortableProof(t *testing.T) {
	t.Parallel()
	w := auditedWorld(t)
	n := w.audited("--dispatch", "the-judge", "--kind", "dispatch.accepted")[0].Seq
	arg := strconv.FormatUint(n, 10)
	text := w.must("audit", "show", arg)
	for _, want := range []string{"requested judge", "dispatch.accepted", w.me(), "allowed", "by policy \"grant:", "the-judge", "quality", "manifest sha256:", "subagent judge", "inclusion proved", "signed by ed25519:", "rule change: #"} {
		if !strings.Contains(text, want) {
			t.Errorf("audit show lacks %q:\n%s", want, text)
		}
	}
	w.must("audit", "prove", arg, "--out", w.path("proof"), "--entry", w.path("entry"))
	entry, err := os.ReadFile(w.path("entry"))
	must(t, err)
	file, err := os.ReadFile(w.path("proof"))
	must(t, err)
	check := func(entry []byte) error { return checkProof(file, int64(n), entry) }
	if err := check(entry); err != nil {
		t.Fatal(err)
	}
	if check(bytes.Replace(entry, []byte("allow"), []byte("alloy"), 1)) == nil {
		t.Error("control: the proof verifies another entry")
	}
	var shown struct {
		Hash string `json:"hash"`
		Tree struct {
			Index uint64 `json:"index"`
		} `json:"tree"`
		Entry json.RawMessage `json:"entry"`
	}
	decode(t, w.must("audit", "show", arg, "-o", "jsonl"), &shown)
	if want := sha256.Sum256(append([]byte{0}, entry...)); shown.Hash != fmt.Sprintf("%x", want) || shown.Tree.Index != n || !bytes.Equal(shown.Entry, entry) {
		t.Errorf("shown %+v", shown)
	}
	w.refused(1, []string{"file exists"}, "audit", "prove", arg, "--out", w.path("proof"))
	w.refused(1, []string{"no entry #99999"}, "audit", "show", "99999")
	for _, bad := range []string{"-1", "x", "1x", "01", "", "1 2", "99999999999999999999"} {
		w.refused(1, []string{"want"}, "audit", "show", "--", bad)
	}
}

// checkProof parses a C2SP tlog-proof by its specification and verifies it with
// the code of the Go checksum database.
func checkProof(file []byte, index int64, entry []byte) error {
	head, signed, _ := strings.Cut(string(file), "\n\n")
	lines := strings.Split(head, "\n")
	if lines[0] != "c2sp.org/tlog-proof@v1" || lines[1] != fmt.Sprintf("index %d", index) {
		return fmt.Errorf("head %q", lines[:2])
	}
	var proof sumtlog.RecordProof
	for _, line := range lines[2:] {
		b, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return err
		}
		proof = append(proof, sumtlog.Hash(b))
	}
	checkpoint := strings.Split(signed, "\n")
	size, err := strconv.ParseInt(checkpoint[1], 10, 64)
	if err != nil {
		return err
	}
	root, err := base64.StdEncoding.DecodeString(checkpoint[2])
	if err != nil {
		return err
	}
	return sumtlog.CheckRecord(proof, size, sumtlog.Hash(root), index, sumtlog.RecordHash(entry))
}

// dirTiles reads tiles from a directory, for the Go checksum database's reader.
type dirTiles string

func (dirTiles) Height() int                        { return 8 }
func (dirTiles) SaveTiles([]sumtlog.Tile, [][]byte) {}
func (d dirTiles) ReadTiles(list []sumtlog.Tile) (out [][]byte, err error) {
	for _, of := range list {
		name := fmt.Sprintf("tile/%d/%03d", of.L, of.N)
		if of.W < 256 {
			name += fmt.Sprintf(".p/%d", of.W)
		}
		b, err := os.ReadFile(filepath.Join(string(d), name))
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// Other programs read and verify the copy of the log. A second run extends it,
// and no foreign file is overwritten.
//
// proves R-A5, R-A8
func TestAuditTilesCopiesALogThatOtherToolsVerify(t *testing.T) {
	t.Parallel()
	w := auditedWorld(t)
	dir := w.path("copy")
	verify := func() int64 {
		t.Helper()
		signed, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
		must(t, err)
		lines := strings.Split(string(signed), "\n")
		size, err := strconv.ParseInt(lines[1], 10, 64)
		must(t, err)
		root, err := base64.StdEncoding.DecodeString(lines[2])
		must(t, err)
		reader := sumtlog.TileHashReader(sumtlog.Tree{N: size, Hash: sumtlog.Hash(root)}, dirTiles(dir))
		if _, err := sumtlog.ProveRecord(size, size/2, reader); err != nil {
			t.Fatal(err)
		}
		return size
	}
	if out := w.must("audit", "tiles", "--to", dir); !strings.Contains(out, "new files") {
		t.Errorf("audit tiles says %s", out)
	}
	first := verify()
	for range 300 { // fills the tile
		w.call("GET", "/v1/operator/log?wrong", "", nil)
	}
	newest := w.audited("--last", "1")
	w.must("audit", "prove", strconv.FormatUint(newest[0].Seq, 10)) // waits until a checkpoint covers it
	w.must("audit", "tiles", "--to", dir)
	if second := verify(); second < first+300 {
		t.Errorf("the copy went from %d entries to %d", first, second)
	}
	var again struct{ Written int }
	w.must("audit", "tiles", "--to", dir)
	decode(t, w.must("audit", "tiles", "--to", dir, "-o", "jsonl"), &again)
	if again.Written != 0 {
		t.Errorf("%d files were rewritten", again.Written)
	}
	// bailiwick-verify reads the same copy, and lists what happened.
	trust := w.path("trust.json")
	must(t, os.WriteFile(trust, []byte(w.try("audit", "trust").stdout), 0o644))
	period := func() done {
		return w.exec(filepath.Join(bin, "bailiwick-verify"), "--tiles", dir, "--trust", trust, "--since", "1d")
	}
	for _, want := range []string{"dispatch   the-edit: finished, subagent edit for " + w.me(), w.me() + " requested nobody", "pass  inclusion", "pass  operator records", "pass  chains"} {
		if d := period(); d.status != 0 || !strings.Contains(w.chosen(d.stdout), want) {
			t.Errorf("the period lacks %q: %s", want, d)
		}
	}
	// An entry of the copy that differs from the log.
	bundle := filepath.Join(dir, "tile/entries/000")
	good, err := os.ReadFile(bundle)
	must(t, err)
	must(t, os.WriteFile(bundle, bytes.Replace(good, []byte(w.me()), []byte("local:toor"), 1), 0o644))
	w.refused(1, []string{"000"}, "audit", "tiles", "--to", dir)
	if d := period(); d.status != 1 || !strings.Contains(d.stdout, "fail  inclusion") || !strings.Contains(d.stdout, "claim: none") {
		t.Errorf("a changed entry: %s", d)
	}
	must(t, os.WriteFile(bundle, good, 0o644))
	w.must("audit", "tiles", "--to", dir)
	// Foreign files stay.
	for _, name := range []string{"checkpoint", "tile/0/000", "tile/entries/000"} {
		other := w.path("other-" + strings.ReplaceAll(name, "/", "-"))
		path := filepath.Join(other, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("mine\n"), 0o644))
		w.refused(1, []string{filepath.Base(path)}, "audit", "tiles", "--to", other)
		if b, err := os.ReadFile(path); err != nil || string(b) != "mine\n" {
			t.Errorf("%s was overwritten: %q, %v", name, b, err)
		}
	}
	w.refused(1, []string{"--to"}, "audit", "tiles")
}

// A watch with filters continues with the next service.
//
// proves R-A8, R-O1
func TestAFilteredWatchContinuesAcrossRestarts(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	if w.on != nil {
		w.up()
	}
	cmd := w.command(filepath.Join(bin, "bailiwick"), "audit", "watch", "-o", "jsonl", "--decision", "deny", "--since", "1h")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var last uint64
	for i := range 4 {
		w.refused(3, nil, "dispatch", "run", fmt.Sprintf("nobody-%d", i))
		var s seen
		if !lines.Scan() {
			t.Fatal("the watch ended")
		}
		decode(t, lines.Text(), &s)
		if !strings.Contains(string(s.Entry), fmt.Sprintf("nobody-%d", i)) || i > 0 && s.Seq <= last {
			t.Errorf("entry %d is %s", i, lines.Text())
		}
		last = s.Seq
		if i < 3 { // the watch would start another service, which could outlive the test
			kill(t, w.status().PID)
		}
	}
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
}
