package daemoncli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// doctor says before browsers do that the certificate of the page is for another name, is
// over, or will be soon.
func TestDoctorLooksAtTheCertificateOfThePage(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour), DNSNames: []string{"bailiwick.example.com"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	path := filepath.Join(dir, "cert.pem")
	check := func(name string, content []byte, host string, later time.Duration) check {
		t.Helper()
		settings := "version: 1\nweb: {origin: \"https://" + host + "\", listen: \":443\", certificate: " + path + ", key: /nowhere}\n"
		for file, b := range map[string][]byte{path: content, filepath.Join(dir, "service.yaml"): []byte(settings)} {
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tr := &doctor{&tree{Config: Config{UID: os.Getuid(), Dirs: api.Dirs{Config: dir, State: t.TempDir()}, Output: console.Output{Now: func() time.Time { return now.Add(later) }}}}}
		got := tr.pageCheck()
		if len(got) != 1 {
			t.Fatalf("%s: %+v", name, got)
		}
		return got[0]
	}
	if c := check("good", good, "bailiwick.example.com", 0); !c.ok || !strings.Contains(c.found, "https://bailiwick.example.com") {
		t.Errorf("%+v", c)
	}
	for name, c := range map[string]struct {
		content []byte
		host    string
		later   time.Duration
		advice  bool
		want    string
	}{
		"soon":         {good, "bailiwick.example.com", 25 * 24 * time.Hour, true, "expires at"},
		"over":         {good, "bailiwick.example.com", 31 * 24 * time.Hour, false, "browsers refuse it"},
		"before":       {good, "bailiwick.example.com", -2 * time.Hour, false, "browsers refuse it"},
		"another name": {good, "other.example.com", 0, false, "other.example.com"},
		"none":         {[]byte("x"), "bailiwick.example.com", 0, false, "no certificate in PEM"},
	} {
		if got := check(name, c.content, c.host, c.later); got.ok || got.advice != c.advice || !strings.Contains(got.found, c.want) || !strings.Contains(got.fix, "without a restart") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
