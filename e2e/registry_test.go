package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/md5" //nolint:gosec // a field of Packages
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// files serves files by path.
type files map[string][]byte

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, ok := f[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/simple/"):
		w.Header().Set("Content-Type", "text/html")
	case strings.HasPrefix(r.URL.Path, "/tiny"):
		w.Header().Set("Content-Type", "application/json")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}

func zipped(t *testing.T, content ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(content); i += 2 {
		f, err := z.Create(content[i])
		must(t, err)
		_, err = f.Write([]byte(content[i+1]))
		must(t, err)
	}
	must(t, z.Close())
	return b.Bytes()
}

func tarred(t *testing.T, content ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for i := 0; i < len(content); i += 2 {
		must(t, w.WriteHeader(&tar.Header{Name: content[i], Mode: 0o644, Size: int64(len(content[i+1]))}))
		_, err := w.Write([]byte(content[i+1]))
		must(t, err)
	}
	must(t, w.Close())
	must(t, g.Close())
	return b.Bytes()
}

// registries serves one small package by the protocol of each registry.
func registries(t *testing.T, n *internet) {
	t.Helper()
	const mod = "module example.com/tiny\n"
	n.host("proxy.golang.org", files{
		"/example.com/tiny/@v/list": []byte("v1.0.0\n"), "/example.com/tiny/@v/v1.0.0.info": []byte(`{"Version": "v1.0.0"}`), "/example.com/tiny/@v/v1.0.0.mod": []byte(mod),
		"/example.com/tiny/@v/v1.0.0.zip": zipped(t, "example.com/tiny@v1.0.0/go.mod", mod, "example.com/tiny@v1.0.0/tiny.go", "package tiny\n"),
	})
	npm := tarred(t, "package/package.json", `{"name": "tiny", "version": "1.0.0"}`)
	sum := sha512.Sum512(npm)
	n.host("registry.npmjs.org", files{
		"/tiny/-/tiny-1.0.0.tgz": npm,
		"/tiny": fmt.Appendf(nil, `{"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "tiny", "version": "1.0.0", "dist": {"tarball": "https://registry.npmjs.org/tiny/-/tiny-1.0.0.tgz", "integrity": "sha512-%s"}}}}`,
			base64.StdEncoding.EncodeToString(sum[:])),
	})
	n.host("pypi.org", files{"/simple/tiny/": []byte(`<a href="https://files.pythonhosted.org/packages/tiny-1.0.0-py3-none-any.whl">tiny-1.0.0-py3-none-any.whl</a>`)})
	n.host("files.pythonhosted.org", files{"/packages/tiny-1.0.0-py3-none-any.whl": zipped(t, "tiny.py", "x = 1\n", "tiny-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n",
		"tiny-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "tiny-1.0.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.0.dist-info/METADATA,,\ntiny-1.0.0.dist-info/WHEEL,,\ntiny-1.0.0.dist-info/RECORD,,\n")})
	crate := tarred(t, "tiny-1.0.0/Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n", "tiny-1.0.0/src/lib.rs", "")
	n.host("index.crates.io", files{"/config.json": []byte(`{"dl": "https://static.crates.io/crates"}`), "/ti/ny/tiny": fmt.Appendf(nil, `{"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": "%x", "features": {}, "yanked": false}`+"\n", sha256.Sum256(crate))})
	n.host("static.crates.io", files{"/crates/tiny/1.0.0/download": crate})
	deb := []byte("!<arch>\n")
	packages := fmt.Appendf(nil, "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\nFilename: pool/tiny_1.0_all.deb\nSize: %d\nSHA256: %x\n\n", len(deb), sha256.Sum256(deb))
	release := fmt.Appendf(nil, "Origin: x\nSuite: stable\nCodename: stable\nDate: %s\nArchitectures: all amd64\nComponents: main\nMD5Sum:\n %x %d main/binary-amd64/Packages\nSHA256:\n %x %d main/binary-amd64/Packages\n",
		time.Now().UTC().Format(time.RFC1123), md5.Sum(packages), len(packages), sha256.Sum256(packages), len(packages)) //nolint:gosec // a field of Release
	srv := &http.Server{Handler: files{"/debian/dists/stable/Release": release, "/debian/dists/stable/main/binary-amd64/Packages": packages, "/debian/pool/tiny_1.0_all.deb": deb}, ReadHeaderTimeout: time.Minute}
	l := n.listen("deb.debian.org", 80)
	go srv.Serve(l) //nolint:errcheck // returns when closed
	t.Cleanup(func() { _ = srv.Close() })
}

// Agents install packages by the real programs through the egress list of
// docs/agent-contract.md.
func TestPackageRegistriesAreReachedThroughTheList(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	registries(t, n)
	w := newWorld(t, 0)
	w.init()
	goTool, err := exec.LookPath("go")
	must(t, err)
	w.manifest(
		subagent{name: "go", script: "cd /tmp && " + goTool + ` version && GONOSUMDB=example.com GOFLAGS=-modcacherw ` + goTool + ` mod download -json example.com/tiny@v1.0.0`},
		subagent{name: "npm", script: "cd /tmp && npm install --no-audit --no-fund tiny && cat node_modules/tiny/package.json"},
		subagent{name: "pip", script: "/usr/bin/python3 -m pip install --disable-pip-version-check --target /tmp/py tiny && cat /tmp/py/tiny.py"},
		subagent{name: "crates", script: "set -e; curl -fsS https://index.crates.io/config.json; curl -fsS https://index.crates.io/ti/ny/tiny; curl -fsSL https://static.crates.io/crates/tiny/1.0.0/download | tar xzO tiny-1.0.0/Cargo.toml"},
		subagent{name: "apt", script: `set -e; mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial; echo 'deb [trusted=yes arch=amd64] http://deb.debian.org/debian stable main' >/tmp/apt/sources.list; : >/tmp/apt/status
cat >/tmp/apt/conf <<'END'
Dir::State "/tmp/apt"; Dir::State::lists "/tmp/apt/lists"; Dir::State::status "/tmp/apt/status"; Dir::Cache "/tmp/apt/cache"; Dir::Etc::SourceList "/tmp/apt/sources.list"; Dir::Etc::SourceParts "-"; Dir::Log "/tmp/apt"; Debug::NoLocking "true";
END
export APT_CONFIG=/tmp/apt/conf; cd /tmp; apt-get update; apt-get download tiny; ls /tmp/tiny_1.0_all.deb`},
	)
	w.replace("project/bailiwick.yaml", "envs:\n", "envs:\n"+
		"  - {name: packages, egress: [\"proxy.golang.org:443\", \"sum.golang.org:443\", \"registry.npmjs.org:443\", \"pypi.org:443\", \"files.pythonhosted.org:443\", \"index.crates.io:443\", \"static.crates.io:443\", \"deb.debian.org:80\"]}\n")
	w.replace("project/bailiwick.yaml", "envs: [colours]", "envs: [colours, packages]")
	w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
	w.upOn(n.island)
	wants := map[string]string{"go": `"Version": "v1.0.0"`, "npm": `"name": "tiny"`, "pip": "x = 1", "crates": `name = "tiny"`, "apt": "tiny_1.0_all.deb"}
	if w.unit != nil {
		if strings.HasPrefix(goTool, "/usr/local/") { // which a machine of the tests has of its own
			delete(wants, "go")
		}
		for _, dir := range []string{"/etc/apt/apt.conf.d", "/etc/apt/preferences.d"} {
			w.unit.MkdirAll(dir, 0, 0, 0o755)
		}
	}
	for name, want := range wants {
		d := w.dispatch(name, "--env", "packages")
		if log := w.must("dispatch", "logs", string(d.ID)); d.State != api.EventFinished || !strings.Contains(log, want) {
			t.Errorf("%s: %s %s\n%s\n%s", name, d.State, d.Message, log, w.must("dispatch", "network", string(d.ID)))
		}
	}
	// The control: without the list the same client fails.
	if d := w.dispatch("npm"); d.State != api.EventFailed {
		t.Errorf("npm without the list: %s", d.State)
	}
}
