// Package websetting reads the section web of the service's configuration: where the page
// for several people is served, and under which name. The service reads it for that name,
// bailiwick-web for the rest.
package websetting

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// Setting is the section web. The zero value means that there is no page for several
// people.
type Setting struct {
	// Origin is how people reach the page: https://NAME[:PORT]. Its name is the relying
	// party of their passkeys, so it stays.
	Origin string
	// Listen is HOST:PORT. With a proxy in front of it the port differs from Origin's.
	Listen           string
	Certificate, Key string // PEM files
	Secret           string // file with the secret of the page at the identity provider; may be empty
}

// Page is what bailiwick-web needs of the configuration: the section web, and of the section
// login, which the service validates, where the identity provider is.
type Page struct {
	Setting

	Issuer  string
	Address string // IP:PORT of a provider that is not public
	CA      string // file with the certificates that its own chains to
}

// Host returns the name in Origin.
func (s Setting) Host() string {
	u, err := url.Parse(s.Origin)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Read reads the section from its node.
func Read(p *strictyaml.Parser, n *yaml.Node) (s Setting) {
	before := p.Len()
	path := func(to *string, name string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			at := p.Len()
			if *to = p.Line(n, name); p.Len() == at && (!filepath.IsAbs(*to) || filepath.Clean(*to) != *to) {
				p.At(n, "%s: %q: want /absolute/path", name, strictyaml.Clip(*to))
			}
		}
	}
	p.Fields(n, "web", map[string]func(*yaml.Node){
		"origin": func(n *yaml.Node) {
			at := p.Len()
			s.Origin = p.Line(n, "web.origin")
			if err := CheckOrigin(s.Origin); p.Len() == at && err != nil {
				p.At(n, "web.origin: %q: %v", strictyaml.Clip(s.Origin), err)
			}
		},
		"listen":      func(n *yaml.Node) { s.Listen = p.Line(n, "web.listen") },
		"certificate": path(&s.Certificate, "web.certificate"),
		"key":         path(&s.Key, "web.key"),
		"secret":      path(&s.Secret, "web.secret"),
	})
	if p.Len() == before && (s.Origin == "" || s.Listen == "" || s.Certificate == "" || s.Key == "") {
		p.At(n, "web: write all of origin, listen, certificate and key")
	}
	return s
}

// ReadFile reads what bailiwick-web needs of a configuration file: the section web, and
// where the identity provider is. The service reads the rest. path is for messages.
func ReadFile(path string, b []byte) (s Page, err error) {
	p := &strictyaml.Parser{List: strictyaml.List{File: path}}
	n := p.Document(b)
	if n == nil {
		return Page{}, p.Err()
	}
	web := member(n, "web")
	if web == nil {
		return Page{}, fmt.Errorf("%s: no section web", path)
	}
	s.Setting = Read(p, web)
	if login := member(n, "login"); login != nil {
		for name, to := range map[string]*string{"issuer": &s.Issuer, "address": &s.Address, "ca": &s.CA} {
			if value := member(login, name); value != nil {
				*to = p.Line(value, "login."+name)
			}
		}
	}
	if err := p.Err(); err != nil {
		return Page{}, err
	}
	return s, nil
}

// member returns the value of a key of a mapping; nil without one.
func member(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// CheckOrigin returns an error unless its argument is the origin of a page over TLS that can be the relying party of
// passkeys: browsers take no address and, here, no single label.
func CheckOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Scheme+"://"+u.Host != s || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") {
		return fmt.Errorf("want https://NAME or https://NAME:PORT, without a path")
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return fmt.Errorf("want a name: passkeys are not for addresses")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return fmt.Errorf("want a domain name in lower case")
		}
	}
	switch {
	case !strings.Contains(host, "."), len(host) > 253:
		return fmt.Errorf("want a domain name of at least two labels, such as bailiwick.example.com")
	case u.Port() == "443":
		return fmt.Errorf("leave out the port 443, as browsers do")
	}
	return nil
}
