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
		"over":         {good, "bailiwick.example.com", 31 * 24 * time.Hour, false, "clients refuse it"},
		"before":       {good, "bailiwick.example.com", -2 * time.Hour, false, "clients refuse it"},
		"another name": {good, "other.example.com", 0, false, "other.example.com"},
		"none":         {[]byte("x"), "bailiwick.example.com", 0, false, "no certificate in PEM"},
	} {
		if got := check(name, c.content, c.host, c.later); got.ok || got.advice != c.advice || !strings.Contains(got.found, c.want) || !strings.Contains(got.fix, "without a restart") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// doctor says that the certificate for remote callers, or its key, was replaced by
// something that the service cannot use, although a running service still answers.
func TestDoctorLooksAtTheCertificateOfTheServer(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour), DNSNames: []string{"bailiwick.example.com"}}
	pair := func() (cert, private []byte) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	}
	cert, key := pair()
	_, other := pair()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, c := range map[string]struct {
		cert, key []byte
		later     time.Duration
		ok        bool
		want      string
	}{
		"good":               {cert, key, 0, true, "by a certificate until"},
		"garbage":            {[]byte("x"), key, 0, false, "no certificate in PEM"},
		"the key of another": {cert, other, 0, false, "private key does not match"},
		"garbage as the key": {cert, []byte("x"), 0, false, "failed to find any PEM data in key"},
		"expired":            {cert, key, 31 * 24 * time.Hour, false, "clients refuse it"},
		"before its time":    {cert, key, -2 * time.Hour, false, "clients refuse it"},
		"soon over":          {cert, key, 25 * 24 * time.Hour, false, "expires at"},
	} {
		settings := "version: 1\nserver: {listen: \"127.0.0.1:7717\", certificate: " + at("cert.pem") + ", key: " + at("key.pem") + "}\n"
		for file, b := range map[string][]byte{at("cert.pem"): c.cert, at("key.pem"): c.key, at("service.yaml"): []byte(settings)} {
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tr := &doctor{&tree{Config: Config{UID: os.Getuid(), Dirs: api.Dirs{Config: dir, State: t.TempDir()}, Output: console.Output{Now: func() time.Time { return now.Add(c.later) }}}}}
		got := tr.serverCheck()
		if len(got) != 1 || got[0].ok != c.ok || !strings.Contains(got[0].found, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
