package daemoncli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

func anchorsOf(items ...string) []byte {
	return []byte("version: 1\nanchors:\n  - {" + strings.Join(items, "}\n  - {") + "}\n")
}

const (
	aFile = "name: disk, kind: file, path: /mnt/b/high-water"
	aGit  = "name: history, kind: git, repository: /srv/a.git"
	anS3  = "name: worm, kind: s3, endpoint: https://s3.example.com, region: eu-1, bucket: anchors, credentials: /etc/s3.json"
	aTSA  = "name: time, kind: tsa, url: https://tsa.example.com/tsr, roots: /etc/tsa.pem"
)

// proves R-A6
func TestAnchorsAreReadWhole(t *testing.T) {
	s, err := parseSettings("service.yaml", anchorsOf(aFile, aGit+`, branch: log, every: 5m`, anS3+", prefix: log/, retain: 30d, ca: /ca.pem", aTSA+", every: 1h"))
	if err != nil {
		t.Fatal(err)
	}
	list := s.Anchors.all("/state")
	if len(list) != 4 || list[0].Every != time.Minute || list[1].Every != 5*time.Minute || list[1].Branch != "log" || list[2].Retain != 30*24*time.Hour || list[2].Prefix != "log/" || list[3].Every != time.Hour {
		t.Errorf("%+v", list)
	}
	if s, err = parseSettings("service.yaml", anchorsOf(`name: a, kind: git, repository: "file:///srv/a.git"`)); err != nil || s.Anchors.List[0].Repository != "/srv/a.git" {
		t.Errorf("%+v, %v", s.Anchors, err)
	}
	// Without the section the default is a file in the state directory; an empty section
	// means no anchors.
	if s, err = parseSettings("service.yaml", []byte("version: 1\n")); err != nil || len(s.Anchors.all("/state")) != 1 || s.Anchors.all("/state")[0].Path != "/state/high-water" {
		t.Errorf("%+v, %v", s.Anchors, err)
	}
	if s, err = parseSettings("service.yaml", []byte("version: 1\nanchors: []\n")); err != nil || len(s.Anchors.all("/state")) != 0 {
		t.Errorf("%+v, %v", s.Anchors, err)
	}
}

// proves R-A6: an unknown key refuses the start.
func TestAnInvalidAnchorIsReportedWithItsPosition(t *testing.T) {
	swap := func(s, old, fresh string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("%q is not in %q", old, s)
		}
		return strings.Replace(s, old, fresh, 1)
	}
	for content, want := range map[string]string{
		"name: a":                                       `anchors[0]: the key "kind" is missing`,
		"name: a, kind: flie":                           `"flie" is not one of file, git, s3, tsa; did you mean "file"?`,
		"name: a, kind: witness":                        "is not one of file, git, s3, tsa",
		"kind: file, path: /x":                          `the key "name" is missing`,
		"name: a, kind: file":                           `the key "path" is missing`,
		swap(aFile, "disk", "A"):                        `name: "A": want 1 to 63`,
		swap(aFile, "/mnt/b/", "b/"):                    "want /absolute/path",
		swap(aFile, "/mnt/b/", "/mnt/../b/"):            "want /absolute/path",
		swap(aFile, "path", "paht"):                     `unknown key "paht"; did you mean "path"?`,
		aFile + ", bucket: x":                           `unknown key "bucket"`,
		aFile + ", every: 1ms":                          "too short: want at least 1s",
		aFile + ", every: 0s":                           "want a duration such as",
		swap(aGit, "/srv/a.git", "https://h/a"):         "remote repositories are not supported",
		swap(aGit, "/srv/a.git", "git@h:a.git"):         "remote repositories are not supported",
		swap(aGit, "/srv/a.git", "../a.git"):            "want a clean absolute path",
		aGit + `, branch: "a b"`:                        "branch",
		aGit + ", retain: 3d":                           `unknown key "retain"`,
		swap(anS3, "https:", "http:"):                   "want https://HOST[:PORT]",
		swap(anS3, "s3.example.com", "10.0.0.1"):        "10.0.0.1 is private",
		swap(anS3, "s3.example.com", "localhost"):       "not fully qualified",
		swap(anS3, "s3.example.com", "169.254.169.254"): "metadata",
		swap(anS3, ", credentials: /etc/s3.json", ""):   `the key "credentials" is missing`,
		anS3 + ", secretKey: x":                         `unknown key "secretKey"`,
		anS3 + ", prefix: x":                            "prefix",
		anS3 + ", retain: 1m":                           "want at least 1h",
		swap(aTSA, "https:", "http:"):                   "want https://HOST[:PORT]/PATH",
		swap(aTSA, "tsa.example.com", "192.168.1.1"):    "192.168.1.1 is private",
		swap(aTSA, ", roots: /etc/tsa.pem", ""):         `the key "roots" is missing`,
		aTSA + ", path: /x":                             `unknown key "path"`,
		aFile + "}\n  - {" + aFile:                      `anchors[1].name: duplicate name "disk"`,
	} {
		_, err := parseSettings("service.yaml", anchorsOf(content))
		if err == nil || api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: err = %v\nwant %s", content, err, want)
		}
	}
	for content, want := range map[string]string{
		"version: 1\nanchors: {}\n":                                         "anchors: want a list",
		"version: 1\nanchors:\n":                                            "anchors: want a list",
		"version: 1\nanchors: [file]\n":                                     `the key "kind" is missing`,
		"version: 1\nanchors:\n" + strings.Repeat("  - {kind: file}\n", 17): "anchors: more than 16",
	} {
		if _, err := parseSettings("service.yaml", []byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: err = %v\nwant %s", content, err, want)
		}
	}
}

// proves R-A6: the secret is its owner's alone, and in no message.
func TestObjectStoreKeysMustBePrivate(t *testing.T) {
	dir := t.TempDir()
	own := ownFiles{os.Geteuid()}
	path := filepath.Join(dir, "s3.json")
	const secret = "a-very-secret-word"
	write := func(content string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	good := `{"accessKey": "a", "secretKey": "` + secret + `"}` + "\n"
	write(good, 0o600)
	if k, err := own.storeKeys(path); err != nil || k.Access != "a" || k.Secret != secret {
		t.Fatalf("control: %v, %v", k, err)
	}
	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		"readable by the group": {good, 0o640},
		"readable by all":       {good, 0o604},
		"another key":           {`{"accessKey": "a", "secretKey": "` + secret + `", "` + secret + `": 1}`, 0o600},
		"twice":                 {`{"accessKey": "a", "accessKey": "` + secret + `", "secretKey": "x"}`, 0o600},
		"without one":           {`{"secretKey": "` + secret + `"}`, 0o600},
		"with a line in it":     {`{"accessKey": "a", "secretKey": "` + secret + `\nx"}`, 0o600},
		"as text":               {secret, 0o600},
		"as a number":           {`{"accessKey": "a", "secretKey": 1}`, 0o600},
	} {
		write(c.content, c.mode)
		_, err := own.storeKeys(path)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := own.storeKeys(dir); err == nil {
		t.Error("a directory")
	}
}

func TestDoctorReportsAnchors(t *testing.T) {
	dir := t.TempDir()
	tr := &doctor{&tree{Config: Config{UID: os.Geteuid(), Output: console.Output{Now: time.Now}, Dirs: api.Dirs{State: dir, Config: dir}}}}
	c := tr.anchorCheck(t.Context(), anchorSettings{Name: "disk", Kind: receipt.File, Path: filepath.Join(dir, "f")})
	if c.ok || !c.advice || !strings.Contains(c.found, "no checkpoint yet; on the same disk as the state") {
		t.Errorf("%+v", c)
	}
	c = tr.anchorCheck(t.Context(), anchorSettings{Name: "disk", Kind: receipt.File, Path: "/proc/sys/none/f"})
	if c.ok || !c.advice || c.fix == "" {
		t.Errorf("%+v", c)
	}
	c = tr.anchorCheck(t.Context(), anchorSettings{Name: "worm", Kind: receipt.S3, Endpoint: "https://127.0.0.1:1", Region: "a", Bucket: "abc", Retain: time.Hour, Credentials: filepath.Join(dir, "none")})
	if c.ok || c.advice {
		t.Errorf("%+v", c)
	}
}
