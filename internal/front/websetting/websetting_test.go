package websetting

import (
	"strings"
	"testing"
)

const valid = `version: 1
web: {origin: "https://bailiwick.example.com", listen: ":443", certificate: /etc/c.pem, key: /etc/k.pem}
log: {level: "not looked at here"}
login: {issuer: "https://id.example.com", client: bailiwick, ca: /etc/ca.pem}
`

// A page for several people has a name that passkeys can be for, and a certificate. Every
// other section is for the service.
func TestTheSectionWebIsReadStrictly(t *testing.T) {
	s, err := ReadFile("service.yaml", []byte(valid))
	if err != nil || s != (Page{Setting: Setting{Origin: "https://bailiwick.example.com", Listen: ":443", Certificate: "/etc/c.pem", Key: "/etc/k.pem"}, Issuer: "https://id.example.com", CA: "/etc/ca.pem"}) || s.Host() != "bailiwick.example.com" {
		t.Fatalf("%+v, %v", s, err)
	}
	for want, c := range map[string][2]string{
		"no section web":                       {"web:", "log2:"},
		"unknown key \"lissten\"":              {"listen:", "lissten:"},
		"all of origin, listen":                {`, key: /etc/k.pem`, ""},
		"want /absolute/path":                  {"/etc/k.pem", "k.pem"},
		"without a path":                       {"example.com\"", "example.com/\""},
		"want https://NAME":                    {"https://bailiwick", "http://bailiwick"},
		"not for addresses":                    {"bailiwick.example.com", "192.0.2.1"},
		"two labels":                           {"bailiwick.example.com", "localhost"},
		"in lower case":                        {"bailiwick.example.com", "Bailiwick.example.com"},
		"leave out the port":                   {"example.com\"", "example.com:443\""},
		"web.origin: want text, got a mapping": {`"https://bailiwick.example.com"`, "{}"},
	} {
		text := strings.Replace(valid, c[0], c[1], 1)
		if _, err := ReadFile("service.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
