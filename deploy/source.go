package deploy

import (
	"encoding/base64"
	"errors"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

var (
	remoteRepo = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://|[^/]*:)`)
	repoPath   = regexp.MustCompile(`^(/[A-Za-z0-9_.~+@-]+)+/?$`)
	userName   = regexp.MustCompile(`^[A-Za-z0-9_.@+-]{1,128}$`)
)

func (r *reader) source(d *decl, what string) {
	var v api.Source
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"repo":        d.in("repo", func(n *yaml.Node) { v.Repo = r.Line(n, "repo") }),
		"secret":      d.in("secret", func(n *yaml.Node) { v.Secret = r.Name(n, "secret") }),
		"user":        d.in("user", func(n *yaml.Node) { v.User = r.Line(n, "user") }),
		"knownHosts":  d.in("knownHosts", func(n *yaml.Node) { v.KnownHosts = r.Texts(n, "knownHosts") }),
	}, "credentials", "env", "submodules")
	switch n := d.at("repo"); {
	case v.Repo == "":
		if d.node.Kind == yaml.MappingNode && d.pos["repo"] == nil {
			r.At(d.node, "%s: the key \"repo\" is missing", what)
		}
	case api.IsRemote(v.Repo):
		if err := checkRepoURL(v.Repo); err != nil {
			r.At(n, "repo: %v", err) // not quoted: it may contain a password
		} else {
			checkRemote(&r.parser, d, v)
		}
	case filepath.IsAbs(v.Repo):
		v.Repo = filepath.Clean(v.Repo)
	case remoteRepo.MatchString(v.Repo):
		r.At(n, "repo: want a path, https://HOST/PATH or ssh://HOST/PATH; git@HOST:PATH is ssh://HOST/PATH with user: git")
	case strings.HasPrefix(v.Repo, "~"):
		r.At(n, "repo: %q: ~ is not expanded; write the full path", strictyaml.Clip(v.Repo))
	default:
		v.Repo = filepath.Join(r.m.dir, v.Repo)
	}
	if !api.IsRemote(v.Repo) {
		for _, key := range []string{"secret", "user", "knownHosts"} {
			if d.pos[key] != nil {
				r.At(d.at(key), "%s: only for a repo by https:// or ssh://", key)
			}
		}
	}
	r.declare(d, api.KindSource, v.Name, v.Description, v)
}

// checkRepoURL accepts one spelling of a repository.
func checkRepoURL(repo string) error {
	u, err := url.Parse(repo)
	switch {
	case err != nil || u.Host == "":
		return errors.New("want https://HOST/PATH or ssh://HOST/PATH")
	case u.User != nil:
		return errors.New("the URL has a user name; write user: NAME, and the password or key as a secret")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" || !repoPath.MatchString(u.Path) || strings.Contains(u.Path+"/", "/../") || strings.Contains(u.Path+"/", "/./"):
		return errors.New("want a clean path after the host, without a query or fragment, such as https://github.com/OWNER/NAME.git")
	}
	host := u.Host
	if u.Port() == "" {
		host += map[string]string{"https": ":443", "ssh": ":22"}[u.Scheme]
	}
	rule, err := egress.ParseRule(host)
	if err == nil && rule.Wildcard() {
		err = errors.New("want one host")
	}
	return err
}

// checkRemote checks how the service authenticates to a repository, and it to the
// service.
func checkRemote(r *parser, d *decl, v api.Source) {
	if v.User != "" && (!userName.MatchString(v.User) || v.User[0] == '-') {
		r.At(d.at("user"), "user: %q is not the name of a user", strictyaml.Clip(v.User))
	}
	if strings.HasPrefix(v.Repo, "https://") {
		if d.pos["knownHosts"] != nil {
			r.At(d.at("knownHosts"), "knownHosts: only for ssh://")
		}
		if v.User != "" && v.Secret == "" {
			r.At(d.at("user"), "user: has no effect without secret: NAME, which is its password or token")
		}
		return
	}
	if v.Secret == "" && d.pos["secret"] == nil {
		r.At(d.at("repo"), "repo: ssh:// needs secret: NAME, an unencrypted private key that the service authenticates with")
	}
	if len(v.KnownHosts) == 0 {
		r.At(d.at("knownHosts"), "repo: ssh:// needs knownHosts, the lines that ssh-keyscan HOST prints and that you have compared with what the host publishes")
	}
	for i, line := range v.KnownHosts {
		if !isKnownHost(line) {
			r.At(d.at("knownHosts").Content[i], "knownHosts[%d]: want a line of known_hosts: HOST TYPE KEY, such as \"github.com ssh-ed25519 AAAA...\"", i)
		}
	}
}

func isKnownHost(line string) bool {
	f := strings.Fields(line)
	if len(f) < 3 || strings.ContainsAny(line, "\n\r") || strings.HasPrefix(f[0], "#") || strings.HasPrefix(f[0], "@") {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(f[2])
	return err == nil && (strings.HasPrefix(f[1], "ssh-") || strings.HasPrefix(f[1], "ecdsa-sha2-") || strings.HasPrefix(f[1], "sk-"))
}
