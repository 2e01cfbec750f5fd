package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const value = "the-value-of-the-secret"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func encrypt(t *testing.T, to, text string) []byte {
	t.Helper()
	r, err := age.ParseX25519Recipient(to)
	must(t, err)
	var out bytes.Buffer
	w, err := age.Encrypt(&out, r)
	must(t, err)
	_, err = io.WriteString(w, text)
	must(t, errors.Join(err, w.Close()))
	return out.Bytes()
}

func script(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "helper")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700)) //nolint:gosec // G306: it is executed
	return []string{"/bin/sh", path}
}

// kv is a server of the KV version 2 protocol of Vault and OpenBao, with AppRole.
func kv(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(status int, doc any) {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(doc)
		}
		login := map[string]string{}
		switch _ = json.NewDecoder(r.Body).Decode(&login); {
		case r.URL.Path == "/v1/auth/approle/login" && login["role_id"] == "ci" && login["secret_id"] == "secret-id":
			answer(200, map[string]any{"auth": map[string]any{"client_token": "token"}})
		case r.URL.Path == "/v1/auth/approle/login", r.Header.Get("X-Vault-Token") != "token":
			answer(403, map[string]any{"errors": []string{"permission denied " + value}})
		case r.URL.Path == "/v1/kv/data/team/model":
			answer(200, map[string]any{"data": map[string]any{"data": map[string]any{"key": value, "number": 7}, "metadata": map[string]any{"version": 3}}})
		case r.URL.Path == "/v1/kv/data/team/html":
			_, _ = io.WriteString(w, "<html>"+value)
		case r.URL.Path == "/v1/kv/data/team/sealed":
			answer(503, map[string]any{"errors": []string{"Vault is sealed"}})
		default:
			answer(404, map[string]any{"errors": []string{}})
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func text(s string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(s), nil }
}

// Each kind of reference finds its value, and each failure names the reference, says
// what to do and shows no value.
//
// proves R-C3
func TestReferences(t *testing.T) {
	t.Parallel()
	server := kv(t)
	files, err := OpenFiles(filepath.Join(t.TempDir(), "secrets"))
	must(t, err)
	content := encrypt(t, files.Recipient(), value)
	must(t, files.Put(content))
	credentials := t.TempDir()
	must(t, os.WriteFile(filepath.Join(credentials, "key"), []byte(value+"\n"), 0o600))
	must(t, os.Symlink("/etc/hostname", filepath.Join(credentials, "link")))
	cfg := Config{
		Files: files, Digest: func(n api.Name) (api.Digest, bool) {
			d, ok := map[api.Name]api.Digest{"key": api.DigestOf(content), "gone": api.DigestOf(nil)}[n]
			return d, ok
		},
		Env: map[string]string{"KEY": value, "EMPTY": "", "NUL": "a\x00b"}, Credentials: credentials,
		Helpers: map[api.Name]Helper{
			"key":   {Argv: append(script(t, `test "$(env | wc -l)" -le 3 && echo `+value), "x")},
			"fails": {Argv: script(t, "echo "+value+"; echo "+value+" >&2; exit 3")},
			"slow":  {Argv: script(t, "sleep 60 & sleep 60"), Timeout: 50 * time.Millisecond},
			"large": {Argv: script(t, "yes "+value)},
			"gone":  {Argv: []string{filepath.Join(credentials, "gone")}},
			"bytes": {Argv: script(t, `printf '\377\376'`)},
		},
		Vault: &Vault{Address: server.URL, Client: server.Client(), Token: text("token\n")},
	}
	role := cfg
	role.Vault = &Vault{Address: server.URL, Client: server.Client(), AppRole: &AppRole{RoleID: "ci", SecretID: text("secret-id\n")}}
	denied := cfg
	denied.Vault = &Vault{Address: server.URL, Client: server.Client(), Token: text("other")}
	away := cfg
	away.Vault = &Vault{Address: "https://127.0.0.1:1", Client: server.Client(), Token: text("token")}
	for _, c := range []struct {
		cfg       Config
		ref, want string // a part of the error, or empty for the value
	}{
		{cfg, "file:key", ""},
		{cfg, "file:gone", "bailiwick secret set gone"},
		{cfg, "file:other", "not set: bailiwick secret set other"},
		{cfg, "env:KEY", ""},
		{cfg, "env:HOME", "list it under secrets.env"},
		{cfg, "env:EMPTY", "the value is empty"},
		{cfg, "env:NUL", "NUL"},
		{cfg, "credential:key", ""},
		{cfg, "credential:other", "LoadCredential="},
		{cfg, "exec:key", ""},
		{cfg, "exec:other", "declare it under secrets.exec"},
		{cfg, "exec:fails", "exit status 3"},
		{cfg, "exec:slow", "killed after 50ms"},
		{cfg, "exec:large", "printed more than"},
		{cfg, "exec:gone", "no such file"},
		{cfg, "exec:bytes", "not UTF-8"},
		{cfg, "vault://kv/team/model#key", ""},
		{role, "vault://kv/team/model#key", ""},
		{cfg, "vault://kv/team/model#other", "no such key"},
		{cfg, "vault://kv/team/model#number", "not text"},
		{cfg, "vault://kv/team/none#key", "status 404"},
		{cfg, "vault://kv/team/html#key", "not of the KV version 2 engine"},
		{cfg, "vault://kv/team/sealed#key", "status 503"},
		{cfg, "vault://kv#key", "vault://MOUNT/PATH#KEY"},
		{denied, "vault://kv/team/model#key", "status 403"},
		{away, "vault://kv/team/model#key", "the vault does not answer"},
		{Config{}, "vault://kv/team/model#key", "no vault is configured"},
		{Config{}, "credential:key", "$CREDENTIALS_DIRECTORY"},
		{Config{}, "file:key", "not set"},
	} {
		got, err := New(c.cfg).Resolve(t.Context(), c.ref)
		switch {
		case c.want == "" && (got != value || err != nil):
			t.Errorf("%s: %q, %v", c.ref, got, err)
		case c.want != "" && (err == nil || got != "" || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), c.ref+": ")):
			t.Errorf("%s: %q, %v, want %q", c.ref, got, err, c.want)
		case err != nil && strings.Contains(err.Error(), value):
			t.Errorf("%s: the error shows the value: %v", c.ref, err)
		}
	}
}

func TestAReferenceIsNoPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "key"), []byte(value), 0o600))
	s := New(Config{Credentials: filepath.Join(dir, "credentials")})
	for _, ref := range []string{"credential:../key", "credential:/etc/hostname", "credential:.", "file:../identity", "exec:../../bin/id", "vault://kv/../sys/seal#x", value} {
		if got, err := s.Resolve(t.Context(), ref); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %q, %v", ref, got, err)
		}
	}
}

// A helper that is cut off leaves no process.
func TestACancelledReadingEndsTheHelper(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	s := New(Config{Helpers: map[api.Name]Helper{"slow": {Argv: script(t, "exec sleep 60")}}})
	if _, err := s.Resolve(ctx, "exec:slow"); err == nil {
		t.Error("it was not cut off")
	}
}

// What lies in the secret directory counts only by its digest, and only if it is
// encrypted to the service.
//
// proves R-C3
func TestOnlyTheLoggedContentCounts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	files, err := OpenFiles(dir)
	must(t, err)
	content := encrypt(t, files.Recipient(), value)
	must(t, files.Put(content))
	must(t, files.Put(content)) // a repetition
	digest := api.DigestOf(content)
	stored, err := os.ReadFile(files.path(digest))
	if err != nil || bytes.Contains(stored, []byte(value)) {
		t.Fatal("the value is not encrypted", err)
	}
	again, err := OpenFiles(dir) // the same identity
	must(t, err)
	if got, err := again.read(digest); got != value || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	must(t, os.WriteFile(files.path(digest), encrypt(t, files.Recipient(), "planted-value"), 0o600))
	if got, err := files.read(digest); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a planted file is used: %q, %v", got, err)
	}
	other, err := age.GenerateX25519Identity()
	must(t, err)
	for name, bad := range map[string][]byte{
		"to another service": encrypt(t, other.Recipient().String(), value),
		"no encryption":      []byte(value),
		"empty":              encrypt(t, files.Recipient(), ""),
		"too large":          encrypt(t, files.Recipient(), strings.Repeat("a", record.MaxSecret+1)),
		"cut off":            content[:len(content)-1],
	} {
		if err := files.Put(bad); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, files.Keep(func(api.Digest) bool { return false }))
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 || list[0].Name() != identityFile {
		t.Errorf("left: %v, %v", list, err)
	}
	must(t, os.Chmod(filepath.Join(dir, identityFile), 0o644)) //nolint:gosec // G302: it must be refused
	if _, err := OpenFiles(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("an identity that others can read: %v", err)
	}
}

func TestAValueFitsItsUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		use   api.SecretKind
		value string
		ok    bool
	}{
		{api.SecretExposed, "12345678", true},
		{api.SecretExposed, "1234567", false},
		{api.SecretExposed, "-----BEGIN KEY-----\nabc\n", true},
		{api.SecretModel, "short", true},
		{api.SecretModel, "two\nlines", false},
		{api.SecretBrokered, "header\r\nX-Injected: 1", false},
		{api.SecretBrokered, "pässwörd", true},
	} {
		if err := api.CheckSecretUse(c.use, c.value); (err == nil) != c.ok || err != nil && strings.Contains(err.Error(), c.value) {
			t.Errorf("%s %q: %v", c.use, c.value, err)
		}
	}
}
