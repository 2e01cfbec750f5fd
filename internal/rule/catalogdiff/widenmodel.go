package catalogdiff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (w *widening) model(ref api.Ref, old, v api.Model, had bool) {
	if !had {
		w.add(ref, "new model: %s at %s%s", v.API, v.Endpoint, credentialText(v.Credential))
	} else {
		if old.Endpoint != v.Endpoint || old.API != v.API {
			w.add(ref, "new endpoint: %s at %s, was %s at %s", v.API, v.Endpoint, old.API, old.Endpoint)
		}
		if is, was := credentialText(v.Credential), credentialText(old.Credential); is != was {
			w.add(ref, "new credential:%s, was%s", orNo(is), orNo(was))
		}
		w.levels(ref, old, v)
	}
	for _, t := range missing(v.ServerTools, old.ServerTools) {
		w.add(ref, "agents can have the provider run %s", t)
	}
}

// levels lists models that subagents get, and prices by which a limit of cost allows
// more.
func (w *widening) levels(ref api.Ref, old, v api.Model) {
	for _, level := range slices.Sorted(maps.Keys(v.Levels)) {
		switch was, ok := old.Levels[level]; {
		case !ok:
			w.add(ref, "new level %s: %s", level, v.Levels[level])
		case was != v.Levels[level]:
			w.add(ref, "level %s is now %s, was %s", level, v.Levels[level], was)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(v.Prices)) {
		was, ok := old.Prices[id]
		is := v.Prices[id]
		if ok && (is.Input < was.Input || is.Output < was.Output || is.CacheRead < was.CacheRead || is.CacheWrite < was.CacheWrite || old.Currency != v.Currency) {
			w.add(ref, "other prices of %s, by which a limit of cost may allow more", id)
		}
	}
}

func credentialText(c *api.Credential) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf(" with secret %s in header %s", c.Secret, c.Header)
}

func orNo(text string) string {
	if text == "" {
		return " none"
	}
	return text
}

func (w *widening) secret(ref api.Ref, old, v api.Secret, had bool) {
	if had && old.Ref != v.Ref {
		w.add(ref, "new value: from %s, was from %s", v.Ref, old.Ref)
	}
}

// uses lists what agents get of secrets by an env.
func (w *widening) uses(ref api.Ref, old, now map[string]api.SecretUse) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		use, was := now[name], old[name]
		switch {
		case use.Exposed && (!was.Exposed || was.Secret != use.Secret):
			w.add(ref, "exposes secret %s to agents, in %s", use.Secret, name)
		case use.Brokered == nil:
		case was.Brokered == nil || was.Secret != use.Secret || placeText(was.Brokered) != placeText(use.Brokered):
			w.add(ref, "lets agents use secret %s at %s, in %s", use.Secret, strings.Join(use.Brokered.Hosts, ", "), placeText(use.Brokered))
		default:
			for _, h := range missing(use.Brokered.Hosts, was.Brokered.Hosts) {
				w.add(ref, "lets agents use secret %s at %s, too", use.Secret, h)
			}
		}
	}
}

// placeText says where in a request a secret goes.
func placeText(b *api.Brokered) string {
	switch {
	case b.Query != "":
		return "query parameter " + b.Query
	case b.Field != "":
		return "field " + b.Field
	}
	return strings.TrimSpace("header " + b.Header + " " + b.Prefix)
}

func (w *widening) egress(ref api.Ref, old, now []string) {
	for _, h := range missing(now, old) {
		w.add(ref, "agents can reach %s", h)
	}
}

func (w *widening) source(ref api.Ref, old, v api.Source, had bool) {
	if !had {
		w.add(ref, "new source: %s%s", v.Repo, fetchText(v))
		return
	}
	if old.Repo != v.Repo {
		w.add(ref, "new repository: %s, was %s", v.Repo, old.Repo)
	}
	if is, was := fetchText(v), fetchText(old); is != was {
		w.add(ref, "fetched%s, was%s", orNo(is), orNo(was))
	}
	for range missing(v.KnownHosts, old.KnownHosts) {
		w.add(ref, "trusts another host key")
	}
}

// fetchText says with what a source is fetched.
func fetchText(s api.Source) string {
	if s.Secret == "" {
		return ""
	}
	text := fmt.Sprintf(" with secret %s", s.Secret)
	if s.User != "" {
		text += " as " + s.User
	}
	return text
}

// agentText says what a subagent runs.
func agentText(s api.Subagent) string {
	if s.Agent == "command" && s.Model == "" {
		return commandText(s.Command)
	}
	what := s.Agent
	if s.Agent == "command" {
		what = commandText(s.Command)
	}
	return what + " with model " + s.Model
}
