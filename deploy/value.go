package deploy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// parser adds to strictyaml.Parser the values that artifacts of several kinds have:
// paths, hosts, headers, variables, principals and uses of secrets. It does not know
// the manifest around them.
type parser struct{ strictyaml.Parser }

// mapping calls read for each key of a mapping whose keys the author chooses.
func (r *parser) mapping(n *yaml.Node, what, of string, read func(key, value *yaml.Node, at string)) {
	if n.Kind != yaml.MappingNode {
		r.At(n, "%s: want a mapping of %s, got %s", what, of, strictyaml.KindOf(n))
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; r.Key(key, what, seen) {
			read(key, n.Content[i+1], what+"."+strictyaml.Clip(key.Value))
		}
	}
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func (r *parser) names(d *decl, field string, into *[]api.Name) func(*yaml.Node) {
	return d.in(field, func(n *yaml.Node) {
		r.Items(n, field, func(i int, item *yaml.Node) {
			at := fmt.Sprintf("%s[%d]", field, i)
			d.pos[at] = item
			*into = append(*into, r.Name(item, at))
		})
	})
}

// oneOf reads one of a few words.
func (r *parser) oneOf(n *yaml.Node, what string, words ...string) string {
	v := r.Line(n, what)
	if v != "" && !slices.Contains(words, v) {
		r.At(n, "%s: %q: want one of %s", what, strictyaml.Clip(v), api.OneOf(words))
	}
	return v
}

// principals reads a list of distinct principals.
func (r *parser) principals(n *yaml.Node, what string) (list []api.Principal) {
	r.Items(n, what, func(i int, item *yaml.Node) {
		var p api.Principal
		r.Scalar(item, fmt.Sprintf("%s[%d]", what, i), &p)
		if p != "" && slices.Contains(list, p) {
			r.At(item, "%s[%d]: duplicate principal %s", what, i, p)
		}
		list = append(list, p)
	})
	return list
}

// people reads a list of different people.
func (r *parser) people(n *yaml.Node, what string) (list []api.Principal) {
	for i, p := range r.principals(n, what) {
		switch {
		case p == "":
		case !p.Person():
			r.At(n, "%s[%d]: %s is not a person; only local: and human: principals approve", what, i, p)
		case slices.ContainsFunc(list, p.SamePerson) && !slices.Contains(list, p): // principals refuses the same one
			r.At(n, "%s[%d]: %s is taken for another one of the list: a person approves once", what, i, p)
		}
		list = append(list, p)
	}
	return list
}

// patterns reads patterns of api.MatchPath.
func (r *parser) patterns(n *yaml.Node, what string) []string {
	before, list := r.Len(), r.Texts(n, what)
	switch {
	case r.Len() > before:
		return list
	case len(list) > api.MaxProtects:
		r.At(n, "%s: %d patterns, the limit is %d", what, len(list), api.MaxProtects)
	}
	for i, pattern := range list {
		if err := api.CheckPattern(pattern); err != nil {
			r.At(n, "%s[%d]: %v", what, i, err)
		}
	}
	return list
}

func (r *parser) hostPaths(n *yaml.Node, what string) []string {
	all := r.Texts(n, what)
	for i, p := range all {
		if p == "" {
			continue
		}
		if err := api.CheckHostPath(p); err != nil {
			r.At(n.Content[i], "%s[%d]: %v", what, i, err)
		}
	}
	return all
}

// maxHosts bounds a list of hosts, which is searched for each request.
const maxHosts = 256

// egress reads a list of hosts that may be reached.
func (r *parser) egress(n *yaml.Node, what string) []string {
	all := r.Texts(n, what)
	if len(all) > maxHosts {
		r.At(n, "%s: %d hosts, want at most %d", what, len(all), maxHosts)
		return nil
	}
	seen := map[string]bool{}
	for i, h := range all {
		if h == "" {
			continue
		}
		if _, err := egress.ParseRule(h); err != nil {
			r.At(n.Content[i], "%s[%d]: %v", what, i, err)
		} else if seen[h] {
			r.At(n.Content[i], "%s[%d]: duplicate %s", what, i, h)
		}
		seen[h] = true
	}
	return all
}

// variable refuses an invalid name and one that the worker sets.
func (r *parser) variable(n *yaml.Node, what string) {
	switch name := strings.ToUpper(n.Value); {
	case !api.IsVariable(n.Value):
		r.At(n, "%s: %q is not the name of an environment variable", what, strictyaml.Clip(n.Value))
	case strings.HasPrefix(name, "BAILIWICK_"):
		r.At(n, "%s: names beginning with BAILIWICK_ are reserved for the worker", what)
	case slices.Contains(proxyVariables(), name):
		r.At(n, "%s: %s is reserved for the worker, which sets it to the dispatch's broker", what, n.Value)
	}
}

// proxyVariables lists, in upper case, variables that lead programs to the broker and
// have them trust it.
func proxyVariables() []string {
	return []string{
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
		"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE",
	}
}

// pasted refuses a text in place of a mapping without quoting it: it may be the value of
// a secret.
func (r *parser) pasted(n *yaml.Node, what, want string) bool {
	if n.Kind == yaml.ScalarNode {
		r.At(n, "%s: want %s; the value of a secret never belongs into a manifest", what, want)
	}
	return n.Kind == yaml.ScalarNode
}

// secretName reads the name of a secret. It does not quote other text, which may be
// the value.
func (r *parser) secretName(n *yaml.Node, what string) api.Name {
	name, err := api.ParseName(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || err != nil {
		r.At(n, "%s: want the name of a secret; the value of a secret never belongs into a manifest", what)
		return ""
	}
	return name
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")

// header reads the name of a header that can carry a secret.
func (r *parser) header(n *yaml.Node, what string) string {
	v := r.Line(n, what)
	switch strings.ToLower(v) {
	case "":
		return v
	case "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade":
		r.At(n, "%s: %q is for one connection and is not passed on; want one such as authorization", what, v)
	case "host", "content-length", "content-type", "content-encoding", "expect", "accept-encoding":
		r.At(n, "%s: %q describes the request and cannot carry a secret; want one such as authorization", what, v)
	default:
		if !headerName.MatchString(v) {
			r.At(n, "%s: %q is not the name of a header", what, strictyaml.Clip(v))
		}
	}
	return v
}

// prefix reads what is put before a value in a header.
func (r *parser) prefix(n *yaml.Node, what string) string {
	v := r.Line(n, what)
	if v == "" {
		return v
	}
	last := v[len(v)-1]
	if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) || len(v) > 64 {
		r.At(n, "%s: want at most 64 printable ASCII characters", what)
	} else if last >= 'a' && last <= 'z' || last >= 'A' && last <= 'Z' {
		r.At(n, "%s: %q ends with a letter, which would touch the value; write %q", what, v, v+" ")
	}
	return v
}
