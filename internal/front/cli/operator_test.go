package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func TestStopNeedsExactlyOneScope(t *testing.T) {
	for _, c := range []struct {
		flags stopFlags
		want  api.StopRequest
		words string // of the refusal
	}{
		{stopFlags{all: true, reason: "r"}, api.StopRequest{Scope: api.StopAll, Reason: "r"}, ""},
		{stopFlags{principal: "agent:a"}, api.StopRequest{Scope: api.StopPrincipal, Name: "agent:a"}, ""},
		{stopFlags{target: "local"}, api.StopRequest{Scope: api.StopTarget, Name: "local"}, ""},
		{stopFlags{dispatch: "d-1234"}, api.StopRequest{Scope: api.StopDispatch, Name: "d-1234"}, ""},
		{stopFlags{}, api.StopRequest{}, "--all, --principal PRINCIPAL, --target TARGET, --run RUN, --dispatch ID or --schedule NAME"},
		{stopFlags{all: true, target: "local"}, api.StopRequest{}, "one scope"},
		{stopFlags{principal: "everybody"}, api.StopRequest{}, "principal"},
		{stopFlags{target: "A\x1b[2J"}, api.StopRequest{}, "name"},
	} {
		got, err := c.flags.request()
		if c.words == "" {
			if err != nil || got != c.want {
				t.Errorf("%+v: %+v, %v", c.flags, got, err)
			}
			continue
		}
		if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%+v: %v, want an error with %q", c.flags, err, c.words)
		}
	}
}

// Text that others wrote cannot look like a row of a list.
func TestStopReasonsCannotForgeRows(t *testing.T) {
	hostile := "ok\ns-2  everything  -  local:ann\x1b[2J\u202e"
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var out bytes.Buffer
	o := &console.Output{Stdout: &out, Format: "text"}
	err := console.List(o, []api.Stop{{ID: "s-1", Scope: api.StopTarget, Name: "local", Reason: hostile, By: "local:ann", At: at}}, func(s api.Stop) string { return s.ID }, "ID", func(s api.Stop) string { return stopRow(o, s) })
	if err != nil || strings.Count(out.String(), "\n") != 2 || strings.ContainsAny(out.String(), "\x1b\u202e") {
		t.Errorf("%q, %v", &out, err)
	}
}

func TestTokenFilesAreNewAndPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	f, err := newSecretFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.write("secret\n"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := newSecretFile(path); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("an existing file would be overwritten: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := newSecretFile(link); err == nil {
		t.Error("a link is followed")
	}
	dropped, err := newSecretFile(path + "2")
	if err != nil {
		t.Fatal(err)
	}
	if err := dropped.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "2"); err == nil {
		t.Error("the removed file still exists")
	}
}

func TestNewTokenIDsAreValidAndUnique(t *testing.T) {
	seen := map[api.TokenID]bool{}
	for range 1000 {
		id := newTokenID()
		if err := new(api.TokenID).UnmarshalText([]byte(id)); err != nil || seen[id] {
			t.Fatalf("%s: %v", id, err)
		}
		seen[id] = true
	}
}

func FuzzParseExpires(f *testing.F) {
	for _, text := range []string{"90d", "12h", "1d12h30m", "0d", "-1d", "d", "", "1d1d", "99999d", "1s", "60s", "1e3d", "+5d", " 1d", "732d", "732d1ns", "65535d2562047h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseExpires(text)
		if err == nil && (d < time.Minute || d > api.MaxTokenLifetime) {
			t.Errorf("%q is %s", text, d)
		}
	})
}
