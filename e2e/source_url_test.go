package e2e

import (
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const gitToken = "planted-git-token-71c9"

// gitHost serves repositories below dir, by git's own http-backend, to bot with the
// token.
func (n *internet) gitHost(name, dir string) {
	backend := &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Root: "/", Env: []string{
		"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	n.host(name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "bot" || password != gitToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
}

// upOn starts a service on an island that stops when the test ends.
func (w *world) upOn(n *island) {
	w.t.Helper()
	if w.unit != nil {
		w.unit.moveTo(n)
		w.up()
		return
	}
	cmd := w.command(filepath.Join(bin, "bailiwick"), "up")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(w.t, n.start(cmd))
	if err := cmd.Wait(); err != nil {
		w.t.Fatalf("up: %v: %s", err, out.String())
	}
	w.downAtEnd()
}

// A worker starts from a repository that the service fetches with a secret. The agent
// has neither the secret nor a network, and what was fetched is used again.
//
// proves R-S4, R-T7, R-D8
func TestASourceByURLIsFetchedByTheService(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		n := newInternet(t)
		w := newWorld(t, uid)
		w.repository("hosted/team/app", map[string]string{"hello": "hello\n"})
		n.gitHost("git.example.com", w.path("hosted"))
		hosts, err := os.ReadFile(n.path("hosts"))
		must(t, err)
		n.file("hosts", string(hosts)+"10.0.0.5 intranet.example.com\n")
		w.init()
		w.manifest(subagent{name: "writer", script: "env; echo 'hello, world' >hello; cat .git/config; exit 0"})
		w.replace("project/bailiwick.yaml", "sources:\n", "secrets:\n  - {name: git, ref: \""+w.secretRef("git", "GIT_TOKEN")+"\"}\nsources:\n"+
			"  - {name: app, repo: \"https://git.example.com/team/app\", user: bot, secret: git}\n"+
			"  - {name: public, repo: \"https://git.example.com/team/app\"}\n"+
			"  - {name: none, repo: \"https://nowhere.example.com/team/app\"}\n"+
			"  - {name: inside, repo: \"https://intranet.example.com/team/app\"}\n")
		w.replace("project/bailiwick.yaml", "sources: [repo]", "sources: [repo, app, public, none, inside]")
		w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
		w.upKnowing(map[string][2]string{"git": {"GIT_TOKEN", gitToken}}, n)
		commit := strings.TrimSpace(w.git("hosted/team/app", "rev-parse", "HEAD"))
		d := w.dispatch("writer", "--source", "app")
		if d.State != api.EventFinished || d.Source == nil || d.Source.Commit != commit {
			t.Fatalf("%+v", d)
		}
		if patch := w.must("dispatch", "patch", string(d.ID)); !strings.Contains(patch, "+hello, world") {
			t.Errorf("patch: %s", patch)
		}
		w.refused(1, []string{"fetch https://git.example.com/team/app", "401 Unauthorized", "needs a secret"}, "dispatch", "run", "writer", "--source", "public")
		w.refused(1, []string{"fetch https://nowhere.example.com/team/app", "nowhere.example.com"}, "dispatch", "run", "writer", "--source", "none")
		w.refused(1, []string{"fetch https://intranet.example.com/team/app", "refused by the egress filter", "10.0.0.5"}, "dispatch", "run", "writer", "--source", "inside")
		w.write("hosted/team/app/hello", "goodbye\n", 0o644)
		w.git("hosted/team/app", "commit", "-q", "-a", "--amend", "-m", "rewritten")
		if again := w.dispatch("writer", "--source", "app@"+commit); again.State != api.EventFinished || again.Source.Commit != commit {
			t.Errorf("%+v", again)
		}
		if next := w.dispatch("writer", "--source", "app"); next.State != api.EventFinished || next.Source.Commit == commit {
			t.Errorf("%+v", next)
		}
		if out, err := exec.Command("grep", "-rlF", gitToken, w.path("state"), w.path("data"), w.path("config"), w.path("tmp"), w.path("home")).Output(); err == nil {
			t.Errorf("the secret is in %s", out)
		}
	})
}

// secretRef is where a secret of a manifest comes from: a variable of the service, or what
// only the launcher of a machine can decrypt.
func (w *world) secretRef(name, variable string) string {
	if w.unit != nil {
		return "file:" + name
	}
	return "env:" + variable
}

// upKnowing starts a service on an internet, with the variables and values of its secrets.
func (w *world) upKnowing(secrets map[string][2]string, n *internet) {
	w.t.Helper()
	var names []string
	if w.unit != nil {
		w.unit.knows(n)
	} else {
		for _, s := range secrets {
			names = append(names, s[0])
			w.env = append(w.env, s[0]+"="+s[1])
		}
		w.write(serviceConfig, "version: 1\nsecrets:\n  env: ["+strings.Join(names, ", ")+"]\n", 0o600)
	}
	w.upOn(n.island)
	if w.unit == nil {
		return
	}
	for name, s := range secrets {
		if d := w.setSecret(name, s[1]); d.status != 0 {
			w.t.Fatalf("secret set %s: %s", name, d)
		}
	}
}
