package daemoncli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func TestDoctorFindsStrayTokensAndNeverPrintsThem(t *testing.T) {
	home, config := t.TempDir(), t.TempDir()
	token := api.TokenText([32]byte{1, 2, 3})
	write := func(path, content string, mode os.FileMode) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tr := &doctor{&tree{Config: Config{Dirs: api.Dirs{Config: config, Data: t.TempDir()}, Output: console.Output{Env: []string{"HOME=" + home}}}}}
	if got := tokenChecks(tr.tokenPlaces()); len(got) != 1 || !got[0].ok {
		t.Errorf("nothing is there, and it says %+v", got)
	}
	write(filepath.Join(config, "service.yaml"), "version: 1\n", 0o600)
	write(filepath.Join(home, ".profile"), "export X=bwt_notone\n", 0o644)
	kept := write(filepath.Join(config, "claude.token"), token+"\n", 0o600)
	loose := write(filepath.Join(home, ".gemini/settings.json"), `{"headers": {"Authorization": "Bearer `+token+`"}}`, 0o644)
	typed := write(filepath.Join(home, ".bash_history"), "ls\ncurl -H "+token+"\n", 0o600)
	got := tokenChecks(tr.tokenPlaces())
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []struct{ path, found, fix string }{
		{kept, "every program of this account can read it", ""}, {typed, "every program of this account can read it", "token rotate"}, {loose, "readable by other accounts", "chmod 600"},
	} {
		c := got[i]
		if c.ok || !c.advice || !strings.Contains(c.found, want.path) || !strings.Contains(c.found, want.found) || !strings.Contains(c.fix, want.fix) || strings.Contains(c.found+c.fix, token) {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
}

func TestDoctorReportsWhoCanSignOperatorDecisions(t *testing.T) {
	dirs := api.Dirs{Config: t.TempDir(), Data: t.TempDir()}
	tr := &doctor{&tree{Config: Config{Dirs: dirs}}}
	if c := tr.operatorsCheck(nil); c.ok || !strings.Contains(c.fix, "bailiwick init") {
		t.Errorf("%+v", c)
	}
	key, err := seal.CreateKey(dirs.OperatorKey(), seal.NewKey{Unencrypted: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := seal.CreateTrustRoot(dirs.OperatorRoot(), seal.RootOf(seal.KeyOf(key, "ann"))); err != nil {
		t.Fatal(err)
	}
	if c := tr.operatorsCheck(nil); c.ok || !strings.Contains(c.found, "1 of 1 operator key must sign") || !strings.Contains(c.found, "can add its own key") {
		t.Errorf("%+v", c)
	}
	if c := tr.operatorsCheck(nil); strings.Contains(c.found, "deploy key too") {
		t.Errorf("positive control: %+v", c)
	}
	if err := seal.CreateTrustRoot(dirs.TrustRoot(), seal.RootOf(seal.KeyOf(key, "ann"))); err != nil {
		t.Fatal(err)
	}
	if c := tr.operatorsCheck(nil); c.ok || !strings.Contains(c.found, string(key.KeyID())+" is a deploy key too") {
		t.Errorf("%+v", c)
	}
	next, err := seal.RootOf(seal.KeyOf(key, "ann")).Encode()
	if err != nil {
		t.Fatal(err)
	}
	later := &api.OperatorKeys{Set: 3, Root: bytes.TrimSpace(next), Keys: []api.OperatorKey{{ID: string(key.KeyID()), Retired: &api.OperatorKeyChange{Set: 3}}}}
	if c := tr.operatorsCheck(later); !strings.Contains(c.found, "set 3 in force: 1 of 1 operator key must sign") || strings.Contains(c.found, "can add its own key") {
		t.Errorf("%+v", c)
	}
	if c := retiredCheck(check{ok: true}, dirs.OperatorKey(), later); c.ok || !strings.Contains(c.found, "is retired since set 3") {
		t.Errorf("%+v", c)
	}
	if c := retiredCheck(check{ok: true}, dirs.OperatorKey(), &api.OperatorKeys{Keys: []api.OperatorKey{{ID: string(key.KeyID())}}}); !c.ok {
		t.Errorf("positive control: %+v", c)
	}
	var plain check
	for _, c := range tr.reachChecks(t.Context()) {
		if c.name == "operator key" {
			plain = c
		}
	}
	if plain.ok || !strings.Contains(plain.found, "is not encrypted: every program of this account can raise its own ceiling") {
		t.Errorf("%+v", plain)
	}
	for scope, ok := range map[string]bool{"0\n": false, "1\n": true, "3\n": true} {
		file := filepath.Join(t.TempDir(), "scope")
		if err := os.WriteFile(file, []byte(scope), 0o600); err != nil {
			t.Fatal(err)
		}
		if c := ptraceCheck(file); c.ok != ok {
			t.Errorf("%q: %+v", scope, c)
		}
	}
	if c := ptraceCheck(filepath.Join(t.TempDir(), "none")); c.ok {
		t.Errorf("%+v", c)
	}
}
