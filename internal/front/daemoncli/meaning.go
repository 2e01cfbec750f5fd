package daemoncli

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// logged returns the configuration as the entry of a start has it.
func (s *settings) logged(state string) *record.ServiceConfig {
	c := &record.ServiceConfig{File: s.File, Digest: string(s.Digest)}
	all := s.meaning(state)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		c.Settings = append(c.Settings, key+"="+all[key])
	}
	return c
}

// meaning returns what is in force by key, defaults included: everything but the values
// of secrets, paths of webhooks, arguments of programs and keys without a value.
func (s *settings) meaning(state string) map[string]string {
	all := map[string]string{
		"log.format": "text", "log.level": s.Log.Level.String(),
		"metrics.listen": s.Metrics.Listen.String(), "tracing.otlp": s.Tracing.OTLP.String(),
		"keys.statements": s.Keys.Statements,
		"oauth.issuer":    s.OAuth.Issuer, "oauth.audience": s.OAuth.Audience, "oauth.jwks": withoutQuery(s.OAuth.JWKS),
		"secrets.env": strings.Join(s.Secrets.Env, " "),
		"web.origin":  s.Web.Origin, "web.listen": s.Web.Listen, "web.certificate": s.Web.Certificate, "web.key": s.Web.Key, "web.secret": s.Web.Secret,
	}
	if s.Log.JSON {
		all["log.format"] = "json"
	}
	s.Login.meaning(all)
	s.Server.meaning(all)
	s.Retention.meaning(all)
	for _, a := range s.Anchors.all(state) {
		a = a.within(state)
		a.meaning(all)
	}
	for i := range s.Notify {
		s.Notify[i].meaning(all)
	}
	s.Secrets.meaning(all)
	s.Orchestrator.meaning(all)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// withoutQuery cuts the query of a URL, which may have a secret.
func withoutQuery(address string) string {
	address, _, _ = strings.Cut(address, "?")
	return address
}

// span is a duration as text; "" for none.
func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func size(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func (s retentionSettings) meaning(all map[string]string) {
	s = s.rules()
	r := s.Rules
	all["retention.every"] = span(s.Every)
	all["retention.checkouts.age"], all["retention.checkouts.size"] = span(r.Checkouts.Age), size(r.Checkouts.Size)
	all["retention.content.age"], all["retention.content.count"], all["retention.content.size"] = span(r.Content.Age), size(int64(r.Content.Count)), size(r.Content.Size)
	all["retention.evidence.age"], all["retention.runs.age"] = span(r.Evidence), span(r.Runs)
}

func (a anchorSettings) meaning(all map[string]string) {
	key := "anchors." + a.Name + "."
	all[key+"kind"], all[key+"every"] = string(a.Kind), span(a.Every)
	all[key+"place"] = a.place()
	if a.Repository != "" {
		all[key+"branch"] = a.Branch
	}
	if a.Bucket != "" {
		all[key+"retain"] = span(a.Retain)
	}
	all[key+"credentials"], all[key+"ca"], all[key+"roots"] = a.Credentials, a.CA, a.Roots
}

func (a anchorSettings) place() string {
	return strings.Join(slices.DeleteFunc([]string{a.Path, a.Repository, a.Endpoint, a.Region, a.Bucket, a.Prefix, withoutQuery(a.URL)}, func(s string) bool { return s == "" }), " ")
}

func (n *notifySettings) meaning(all map[string]string) {
	key := "notify." + n.Name + "."
	var on []string
	for _, kind := range n.On {
		on = append(on, string(kind))
	}
	all[key+"on"] = strings.Join(on, " ")
	if len(n.Command) > 0 {
		all[key+"command"] = n.Command[0] // an argument may be a secret
	}
	if u, err := url.Parse(n.Webhook); err == nil && n.Webhook != "" {
		all[key+"webhook"] = u.Scheme + "://" + u.Host // its path may be a secret
	}
	all[key+"secret"], all[key+"ca"] = n.Secret, n.CA
}

func (s *secretsSettings) meaning(all map[string]string) {
	for name, h := range s.Exec {
		key := "secrets.exec." + string(name) + "."
		all[key+"command"], all[key+"timeout"] = h.Command[0], span(h.Timeout)
	}
	v := &s.Vault
	for name, value := range map[string]string{"address": v.Address, "namespace": v.Namespace, "ca": v.CA, "tokenFile": v.TokenFile, "roleID": v.RoleID, "secretIDFile": v.SecretIDFile, "mount": v.Mount} {
		all["secrets.vault."+name] = value
	}
}

func (s orchestratorSettings) meaning(all map[string]string) {
	if !s.On {
		return
	}
	all["orchestrator"] = "on"
	for name, slots := range s.all() {
		key := "orchestrator.queues." + string(name) + "."
		all[key+"slots"] = strconv.Itoa(slots)
		var weights []string
		for _, p := range slices.Sorted(maps.Keys(s.Weights[name])) {
			weights = append(weights, fmt.Sprintf("%s=%d", p, s.Weights[name][p]))
		}
		all[key+"weights"] = strings.Join(weights, " ")
	}
}
