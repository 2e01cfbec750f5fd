package broker

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
)

// vault has the brokered secrets of an attempt.
type vault struct {
	secrets      []held
	authority    *authority // nil without secrets
	placeholders *scan      // finds those of every dispatch
	values       *scan      // finds the values of secrets
}

// held is a brokered secret.
type held struct {
	Secret

	rules []egress.Rule // of its hosts
	core  string        // of its placeholder: the part by which it is recognised
}

// core is the shape of a placeholder without its prefix.
func core() *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf("%s[0-9a-f]{%d}", regexp.QuoteMeta(placeholderMark), placeholderDigits))
}

func newVault(secrets []Secret, now time.Time) (*vault, error) {
	v := &vault{placeholders: newScan([]pattern{{fixed: placeholderMark, digits: placeholderDigits}})}
	var values []pattern
	var hosts []target
	shape := core()
	for _, s := range secrets {
		h := held{Secret: s, core: shape.FindString(s.Placeholder)}
		places := 0
		for _, p := range []string{s.Header, s.Query, s.Field} {
			if p != "" {
				places++
			}
		}
		if h.core == "" || s.Value == "" || places != 1 {
			return nil, errors.New("broker: a brokered secret needs a placeholder, a value, and one of header, query and field")
		}
		var err error
		if h.rules, err = parseRules(s.Hosts); err != nil {
			return nil, err
		}
		for i, r := range h.rules {
			t, err := parseTarget(s.Hosts[i], "")
			if err != nil || r.Wildcard() {
				return nil, fmt.Errorf("broker: a brokered secret is for single hosts, not for %s", s.Hosts[i])
			}
			hosts = append(hosts, t)
		}
		v.secrets = append(v.secrets, h)
		if len(s.Value) >= redact.MinLength {
			values = append(values, pattern{fixed: s.Value})
		}
	}
	v.values = newScan(values)
	if len(hosts) == 0 {
		return v, nil
	}
	var err error
	v.authority, err = newAuthority(hosts, now)
	return v, err
}

func (v *vault) ca() []byte {
	if v.authority == nil {
		return nil
	}
	return v.authority.pem()
}

// of returns the secrets for t.
func (v *vault) of(t target) []held {
	var all []held
	for _, h := range v.secrets {
		if matches(h.rules, t) {
			all = append(all, h)
		}
	}
	return all
}

// ends reports whether the broker ends the TLS of tunnels to t.
func (v *vault) ends(t target) bool {
	return slices.ContainsFunc(v.secrets, func(h held) bool { return matches(h.rules, t) })
}

// credentials lists the header fields that carry credentials. Towards the host of a
// brokered secret, what an agent puts there is taken out.
func credentials() []string {
	return []string{
		"Api-Key", "Apikey", "Authorization", "Cookie", "Deploy-Token", "Job-Token", "Private-Token", "Proxy-Authorization", "X-Access-Token", "X-Amz-Security-Token",
		"X-Api-Key", "X-Api-Token", "X-Auth-Key", "X-Auth-Token", "X-Authorization", "X-Functions-Key", "X-Github-Token", "X-Gitlab-Token", "X-Goog-Api-Key", "X-Vault-Token",
	}
}

// isCredential reports whether the secrets of a host own the header field name.
func isCredential(own []held, name string) bool {
	return slices.ContainsFunc(own, func(h held) bool { return h.Header != "" && http.CanonicalHeaderKey(h.Header) == name }) || slices.Contains(credentials(), name)
}
