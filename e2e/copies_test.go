package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	formats "github.com/transparency-dev/formats/log"
	sumnote "golang.org/x/mod/sumdb/note"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

var versitygwProgram = toolProgram("versitygw-1.8.0")

// places are real anchors of a world: a file, a git repository, an S3 store with
// Object Lock and openssl as a time-stamp authority.
type places struct {
	*world
	endpoint         string
	tls              tls.Certificate
	roots            *x509.CertPool
	accessKey, token string
}

func newPlaces(t *testing.T) *places {
	p := &places{world: newWorld(t, 0), accessKey: "service", token: "a-secret-of-the-store"}
	w := p.world
	w.mkdir("places")
	p.identity()
	w.git(".", "init", "-q", "--bare", w.path("places/anchor.git"))
	w.git("places/anchor.git", "config", "receive.denyNonFastForwards", "true")
	w.git("places/anchor.git", "config", "receive.denyDeletes", "true")
	p.store()
	w.write("config/bailiwick/store.json", fmt.Sprintf(`{"accessKey": %q, "secretKey": %q}`, p.accessKey, p.token), 0o600)
	w.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n"+
		"  - {name: disk, kind: file, path: "+w.path("places/high-water")+"}\n"+
		"  - {name: history, kind: git, repository: "+w.path("places/anchor.git")+"}\n"+
		"  - {name: worm, kind: s3, endpoint: \""+p.endpoint+"\", region: us-east-1, bucket: anchors, prefix: log/, credentials: "+w.path("config/bailiwick/store.json")+", ca: "+w.path("places/cert.pem")+"}\n"+
		"  - {name: time, kind: tsa, url: \""+p.authority()+"/tsr\", roots: "+w.path("places/root.pem")+", ca: "+w.path("places/cert.pem")+"}\n", 0o644)
	return p
}

// identity makes the key and the certificate of the servers.
func (p *places) identity() {
	t := p.t
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "loopback"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	cert, secret := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	p.write("places/cert.pem", string(cert), 0o644)
	p.write("places/key.pem", string(secret), 0o600)
	p.tls, err = tls.X509KeyPair(cert, secret)
	must(t, err)
	p.roots = x509.NewCertPool()
	p.roots.AppendCertsFromPEM(cert)
}

// store starts an S3 server with a bucket with Object Lock.
func (p *places) store() {
	t := p.t
	program, err := versitygwProgram()
	must(t, err)
	at := strings.TrimPrefix(freePort(t), "http://")
	p.endpoint = "https://" + at
	p.mkdir("places/objects")
	p.mkdir("places/versions")
	cmd := exec.Command(program, "--port", at, "--cert", p.path("places/cert.pem"), "--key", p.path("places/key.pem"), "posix", "--versioning-dir", p.path("places/versions"), p.path("places/objects"))
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + p.accessKey, "ROOT_SECRET_KEY=" + p.token, "HOME=" + p.path("tmp"), "PATH=" + os.Getenv("PATH")}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	admin, err := minio.New(at, &minio.Options{
		Creds: credentials.NewStaticV4(p.accessKey, p.token, ""), Secure: true, Region: "us-east-1", BucketLookup: minio.BucketLookupPath,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS12}},
	})
	must(t, err)
	for late := range polling(time.Minute) {
		err := admin.MakeBucket(t.Context(), "anchors", minio.MakeBucketOptions{ObjectLocking: true})
		if err == nil {
			return
		}
		if late {
			t.Fatal(err)
		}
	}
}

// authority starts a time-stamp authority and returns its address.
func (p *places) authority() string {
	dir := p.path("places")
	p.write("places/c.cnf", `[req]
distinguished_name = dn
[dn]
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
[tsa]
default_tsa = one
[one]
serial = `+dir+`/serial
crypto_device = builtin
signer_cert = `+dir+`/leaf.pem
signer_key = `+dir+`/leaf.key
certs = `+dir+`/root.pem
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
accuracy = secs:1
ess_cert_id_alg = sha256
`, 0o644)
	p.write("places/serial", "01\n", 0o644)
	for _, line := range []string{
		"req -config c.cnf -x509 -nodes -extensions ca -days 30 -subj /CN=root -keyout root.key -out root.pem -newkey ec -pkeyopt ec_paramgen_curve:P-256",
		"req -config c.cnf -nodes -subj /CN=tsa -keyout leaf.key -out leaf.csr -newkey ec -pkeyopt ec_paramgen_curve:P-256",
		"x509 -req -in leaf.csr -CA root.pem -CAkey root.key -CAcreateserial -days 30 -extfile c.cnf -extensions leaf -out leaf.pem",
	} {
		p.openssl(p.t.Context(), line)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		query, err := os.CreateTemp(p.path("tmp"), "query")
		if err == nil {
			_, err = io.Copy(query, io.LimitReader(r.Body, 1<<20))
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		_ = query.Close()
		cmd := exec.CommandContext(r.Context(), "openssl", "ts", "-reply", "-config", "c.cnf", "-section", "one", "-queryfile", query.Name())
		cmd.Dir = dir
		answer, err := cmd.Output()
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = rw.Write(answer)
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{p.tls}, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	p.t.Cleanup(srv.Close)
	return srv.URL
}

func (p *places) openssl(ctx context.Context, line string) {
	cmd := exec.CommandContext(ctx, "openssl", strings.Fields(line)...)
	cmd.Dir = p.path("places")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("openssl %s: %v: %s", line, err, out)
	}
}

// documented returns the block of the auditor's guide that no document runs.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/guide-auditor.md")
	must(t, err)
	_, rest, ok := strings.Cut(string(text), "e2e/copies_test.go runs these commands -->\n```sh\n")
	block, _, ended := strings.Cut(rest, "```\n")
	if !ok || !ended {
		t.Fatal("docs/guide-auditor.md has no block for this test")
	}
	return block
}

// What the auditor's guide says of an S3 store and of a time-stamp authority holds, with
// curl and openssl. Controls: another object, and another checkpoint under the stamp.
//
// proves R-A6, R-A7
func TestTheDocumentedCopiesOfAStoreAndStampsVerify(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	w := p.world
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.up()
	w.downAtEnd()
	d := w.dispatch("edit", "--source", "repo")
	wantEnd(t, d, api.EventFinished, "")
	w.must("dispatch", "attestation", string(d.ID))
	w.must("down") // the anchors get the newest checkpoint
	w.must("up")
	w.mkdir("auditor")
	w.must("audit", "export", string(d.ID), "--dispatch", "--out", w.path("auditor/hello.evidence"))
	var trust map[string]any
	decode(t, w.must("audit", "trust"), &trust)
	root, err := os.ReadFile(w.path("places/root.pem"))
	must(t, err)
	w.write("auditor/tsa.pem", string(root), 0o644)
	trust["tsa"] = []string{string(root)}
	trust["anchors"] = []map[string]string{{"name": "worm", "kind": "s3", "place": p.endpoint + "/anchors/log/"}}
	b, err := json.Marshal(trust)
	must(t, err)
	w.write("auditor/mine.json", string(b), 0o644)

	// Where the object is, is in no row that passes, but in a line of its own.
	verify := func(args ...string) done {
		return w.exec(filepath.Join(bin, "bailiwick-verify"), append([]string{w.path("auditor/hello.evidence"), "--trust", w.path("auditor/mine.json")}, args...)...)
	}
	r := verify()
	said := regexp.MustCompile(`claimed +receipt of anchor worm, unchecked: .* in object (\S+), version (\S+), locked until`).FindStringSubmatch(r.stdout)
	if r.status != 0 || said == nil || !strings.Contains(r.stdout, "pass  time                  CN=tsa time-stamped the checkpoint of ") || !strings.Contains(r.stdout, "time: attested") || !strings.Contains(r.stdout, "na    anchor") {
		t.Fatalf("%s\n%s", r, w.must("status"))
	}
	run := func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", "set -o pipefail\n"+script)
		cmd.Dir = w.path("auditor")
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CURL_CA_BUNDLE="+w.path("places/cert.pem"), "REGION=us-east-1", "ACCESS_KEY="+p.accessKey, "SECRET_KEY="+p.token,
			"ENDPOINT="+p.endpoint, "BUCKET=anchors", "KEY="+said[1], "VERSION="+said[2])
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run(documented(t))
	if err != nil || !strings.Contains(out, "is held by s3 "+p.endpoint+"/anchors/log/\n") || !strings.Contains(out, "claim: tamper-evident   time: attested") || !strings.Contains(out, "Verification: OK") {
		t.Errorf("%v\n%s", err, out)
	}
	// Controls.
	stamps, err := filepath.Glob(w.path("auditor/stamps/*.checkpoint"))
	must(t, err)
	if len(stamps) == 0 {
		t.Fatal("no stamp was written")
	}
	w.write("auditor/other", "another text\n", 0o644)
	if out, err := run("openssl ts -verify -in stamps/*.tst -token_in -data other -CAfile tsa.pem"); err == nil {
		t.Errorf("another text is stamped: %s", out)
	}
	named := slices.ContainsFunc(stamps, func(name string) bool { // the report names the first of them
		signed, err := os.ReadFile(name)
		must(t, err)
		text := strings.SplitN(string(signed), "\n", 3)
		return len(text) == 3 && strings.Contains(r.stdout, "CN=tsa time-stamped the checkpoint of "+text[1]+" entr")
	})
	if !named {
		t.Errorf("no stamp of %q is over the checkpoint that the report names:\n%s", stamps, r.stdout)
	}
	object, err := os.ReadFile(w.path("auditor/worm.checkpoint"))
	must(t, err)
	lines := strings.SplitN(string(object), "\n", 3)
	w.write("auditor/forged", lines[0]+"\n"+lines[1]+"\nAAAA"+lines[2][4:], 0o644)
	if r := verify("--anchor", "worm="+w.path("auditor/forged")); r.status != 1 || !strings.Contains(r.stdout, "fail  consistency") {
		t.Errorf("a forged object: %s", r)
	}
	if r := verify("--stamps", w.path("auditor/stamps")); r.status != 1 || !strings.Contains(r.stderr, "existing files are not overwritten") {
		t.Errorf("existing files: %s", r)
	}
}

// Each line of the file of an anchor, alone, is compared with evidence of an earlier
// dispatch: all since the last before it. An older one is compared in evidence that was
// exported with it, and says so before. Control: a line with another root fails both ways.
//
// proves R-A6, R-A7
func TestEachLineOfAnAnchorIsComparedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.mkdir("disk")
	w.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n  - {name: disk, kind: file, path: "+w.path("disk/high-water")+"}\n", 0o644)
	w.downAtEnd()
	var ids []string
	for range 5 { // a service that stops sends its newest checkpoint
		w.up()
		d := w.dispatch("edit", "--source", "repo")
		wantEnd(t, d, api.EventFinished, "")
		ids = append(ids, string(d.ID))
		w.must("down")
	}
	text, err := os.ReadFile(w.path("disk/high-water"))
	must(t, err)
	lines := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	if len(lines) < 5 {
		t.Fatalf("only %d checkpoints", len(lines))
	}
	w.up()
	file, trust, copied := w.path("tmp/e.evidence"), w.trustFile(), w.path("tmp/line")
	w.must("audit", "export", ids[2], "--dispatch", "--out", file)
	verify := func(file, line string) done {
		w.write("tmp/line", line, 0o644)
		return w.exec(filepath.Join(bin, "bailiwick-verify"), file, "--trust", trust, "--anchor", copied)
	}
	var r report.Report
	decode(t, w.exec(filepath.Join(bin, "bailiwick-verify"), file, "--trust", trust, "-o", "json").stdout, &r)
	first := uint64(0)
	for _, d := range r.Ran.Decided {
		if strings.Contains(d.What, "requested dispatch "+ids[2]) {
			first = d.Entry
		}
	}
	seen := map[string]int{}
	for i, line := range lines {
		size := sizeOfLine(t, line)
		next := uint64(math.MaxUint64)
		if i+1 < len(lines) {
			next = sizeOfLine(t, lines[i+1])
		}
		d := verify(file, line)
		switch {
		case next > first: // it, or a later one, has entries of the dispatch; or it is the last before
			seen["compared"]++
			if d.status != 0 || !strings.Contains(d.stdout, "pass  consistency") {
				t.Errorf("the checkpoint of %d entries, dispatch at #%d: %s", size, first, d)
			}
		default:
			seen["older"]++
			command := regexp.MustCompile(`bailiwick audit (export \S+ --dispatch --checkpoint \S+) --out \S+`).FindStringSubmatch(d.stdout)
			if d.status != 1 || command == nil {
				t.Fatalf("the checkpoint of %d entries, dispatch at #%d: %s", size, first, d)
			}
			with := w.path("tmp", fmt.Sprint("with-", i))
			w.must(append([]string{"audit"}, append(strings.Fields(command[1]), "--out", with)...)...)
			if d := verify(with, line); d.status != 0 || !strings.Contains(d.stdout, "pass  consistency") {
				t.Errorf("exported with it: %s", d)
			}
		}
		root := strings.Split(line, `\n`)[2]
		if d := verify(file, strings.Replace(line, root, "AAAA"+root[4:], 1)); d.status != 1 {
			t.Errorf("control: another root of %d entries: %s", size, d)
		}
	}
	if seen["compared"] < 3 || seen["older"] == 0 {
		t.Errorf("%v", seen)
	}
}

// sizeOfLine returns the size of the checkpoint in a line of a file anchor.
func sizeOfLine(t *testing.T, line string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.Split(line, `\n`)[1], 10, 64)
	must(t, err)
	return n
}

// The verifier key that audit key prints is read by other readers of signed notes, and
// verifies the log's checkpoint. Control: it verifies no other.
//
// proves R-A5
func TestTheKeyOfTheLogIsReadByOtherTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	w.downAtEnd()
	w.must("audit", "tiles", "--to", w.path("copy"))
	trust := w.trustFile()
	signed, err := os.ReadFile(w.path("copy/checkpoint"))
	must(t, err)
	vkey := strings.TrimSpace(w.must("audit", "key"))
	if offline := strings.TrimSpace(w.must("audit", "key", "--trust", trust)); offline != vkey {
		t.Errorf("of the trust file: %q, of the service: %q", offline, vkey)
	}
	v, err := sumnote.NewVerifier(vkey)
	must(t, err)
	n, err := sumnote.Open(signed, sumnote.VerifierList(v))
	if err != nil || len(n.Sigs) != 1 {
		t.Fatalf("%v: %+v", err, n)
	}
	if cp, _, _, err := formats.ParseCheckpoint(signed, v.Name(), v); err != nil || cp.Size == 0 {
		t.Errorf("%v: %+v", err, cp)
	}
	if n, err := sumnote.Open(bytes.Replace(signed, []byte("\n\n"), []byte("x\n\n"), 1), sumnote.VerifierList(v)); err == nil {
		t.Errorf("control: %+v", n)
	}
	if d := w.try("audit", "key", "--trust", trust); d.stderr != "" {
		t.Errorf("without an earlier key it notes %q", d.stderr)
	}
	// After a rotation it is the new key, with a note; --all has both. The checkpoint from
	// before verifies with the earlier key only.
	w.must("down")
	w.daemon("key", "rotate")
	w.must("up")
	var all []struct{ Key string }
	decode(t, w.must("audit", "key", "--all", "-o", "json"), &all)
	if now := strings.TrimSpace(w.must("audit", "key")); len(all) != 2 || all[0].Key != vkey || all[1].Key != now || now == vkey {
		t.Errorf("%+v, in force %s", all, now)
	} else if v, err := sumnote.NewVerifier(now); err != nil {
		t.Error(err)
	} else if n, err := sumnote.Open(signed, sumnote.VerifierList(v)); err == nil {
		t.Errorf("the new key verifies the old checkpoint: %+v", n)
	}
	for _, c := range []struct {
		args []string
		note bool
	}{{nil, true}, {[]string{"-o", "json"}, true}, {[]string{"--all"}, false}} {
		d := w.try(append([]string{"audit", "key"}, c.args...)...)
		if has := strings.Contains(d.stderr, "1 earlier key only; see: bailiwick audit key --all"); has != c.note {
			t.Errorf("audit key %v notes %q", c.args, d.stderr)
		}
	}
	w.refused(1, []string{"not a trust file", "bailiwick audit trust"}, "audit", "key", "--trust", w.path("copy/checkpoint"))
	w.refused(1, []string{"no such file"}, "audit", "key", "--trust", w.path("none"))
}
