package catalogdiff

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

func (w *widening) tool(ref api.Ref, old, v api.ToolServer, had bool) {
	switch is, was := upstreamText(v), upstreamText(old); {
	case !had:
		w.add(ref, "new server: %s", is)
	case is != was:
		w.add(ref, "changed server: %s, was %s", is, was)
	}
	if v.Trusted && (!had || !old.Trusted) {
		w.add(ref, "trusted: a dispatch that reads what it returns is not tainted")
	}
	if had && v.Session == api.SessionShared && old.Session != api.SessionShared {
		w.add(ref, "one session for all dispatches, was one for each")
	}
	w.toolHost(ref, old, v)
	for _, a := range v.Allow {
		w.toolAllow(ref, old, v, a)
	}
	if had {
		for _, r := range raise(raise(nil, "timeout", cmp.Or(old.Timeout, api.DefaultToolTimeout), cmp.Or(v.Timeout, api.DefaultToolTimeout)), "parallel", cmp.Or(old.Parallel, api.DefaultToolParallel), cmp.Or(v.Parallel, api.DefaultToolParallel)) {
			w.add(ref, "raised %s: %s, was %s", r.field, r.to, r.from)
		}
	}
}

// toolHost lists what the jail of a server gains.
func (w *widening) toolHost(ref api.Ref, oldServer, server api.ToolServer) {
	v, old := server.Host(), oldServer.Host()
	if v == nil {
		return
	}
	had := old != nil
	if !had {
		old = &api.ToolHost{}
	}
	before, after := w.before.Capabilities[v.Capability], w.after.Capabilities[v.Capability]
	if had && v.Capability != "" && v.Capability == old.Capability && !slices.Equal(before.Files, after.Files) {
		w.add(ref, "runs changed files of capability %s", v.Capability)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Env)) {
		if was, ok := old.Env[name]; had && (!ok || was != v.Env[name]) || !had && steers(name) {
			w.add(ref, "runs with %s=%s", name, v.Env[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Secrets)) {
		if old.Secrets[name] != v.Secrets[name] {
			w.add(ref, "the server has the value of secret %s, in %s", v.Secrets[name], name)
		}
	}
	for _, p := range missing(v.ReadOnly, old.ReadOnly) {
		w.add(ref, "the server can read %s of the host", p)
	}
	for _, p := range missing(v.Path, old.Path) {
		w.add(ref, "new directory on PATH: %s", p)
	}
	for _, h := range missing(v.Egress, old.Egress) {
		w.add(ref, "the server can reach %s", h)
	}
	for _, port := range slices.Sorted(maps.Keys(v.Connect)) {
		if old.Connect[port] != v.Connect[port] {
			w.add(ref, "the server can reach %s, at its port %d", v.Connect[port], port)
		}
	}
	if had {
		w.limits(ref, inEffect(old.Limits), inEffect(v.Limits))
	}
}

// toolAllow lists what roles gain of one tool.
func (w *widening) toolAllow(ref api.Ref, oldServer, server api.ToolServer, a api.ToolAllow) {
	old, had := allowOf(oldServer, a.Tool)
	id := catalog.ToolID(server.Name, a.Tool)
	for _, role := range missing(a.Roles, old.Roles) {
		w.add(ref, "role %s can call %s: %s", role, id, allowText(a))
	}
	if !had {
		return
	}
	if a.Tier < old.Tier {
		w.add(ref, "lower tier of %s: %s, was %s", id, a.Tier, old.Tier)
	}
	if old.Approval != nil && a.Approval == nil {
		w.add(ref, "calls of %s no longer need an approval", id)
	}
	if old.Approval != nil && a.Approval != nil {
		was, is := cmp.Or(old.Approval.Expires, api.DefaultApprovalExpiry), cmp.Or(a.Approval.Expires, api.DefaultApprovalExpiry)
		if is > was {
			w.add(ref, "an approval of %s is good for %s, was %s", id, limitText(is), limitText(was))
		}
	}
	if old.Tainted == api.TaintedForbid && a.Tainted != api.TaintedForbid {
		w.add(ref, "a tainted dispatch can call %s, with an approval", id)
	}
	if parts := ChangedParts(oldServer.Definitions, server.Definitions, a.Tool); len(parts) > 0 {
		w.add(ref, "%s is defined otherwise: %s changed", id, strings.Join(parts, ", "))
	}
}

func (n *narrowing) tool(ref api.Ref, old, v api.ToolServer, has bool) {
	if !has {
		v = api.ToolServer{Name: old.Name}
		n.add(ref, "removed server: %s", upstreamText(old))
	}
	if has && old.Trusted && !v.Trusted {
		n.add(ref, "no longer trusted: a dispatch that reads what it returns is tainted")
	}
	for _, o := range old.Allow {
		n.toolAllow(ref, old.Name, v, o)
	}
	was, is := old.Host(), v.Host()
	if was == nil || is == nil {
		return
	}
	for _, h := range missing(was.Egress, is.Egress) {
		n.add(ref, "the server can no longer reach %s", h)
	}
	for _, port := range slices.Sorted(maps.Keys(was.Connect)) {
		if is.Connect[port] != was.Connect[port] {
			n.add(ref, "the server can no longer reach %s, at its port %d", was.Connect[port], port)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Secrets)) {
		if is.Secrets[name] != was.Secrets[name] {
			n.add(ref, "the server no longer has secret %s in %s", was.Secrets[name], name)
		}
	}
	for _, p := range missing(was.ReadOnly, is.ReadOnly) {
		n.add(ref, "the server can no longer read %s of the host", p)
	}
	n.limits(ref, inEffect(was.Limits), inEffect(is.Limits))
}

func (n *narrowing) toolAllow(ref api.Ref, server api.Name, v api.ToolServer, old api.ToolAllow) {
	now, has := allowOf(v, old.Tool)
	id := catalog.ToolID(server, old.Tool)
	for _, role := range missing(old.Roles, now.Roles) {
		n.add(ref, "role %s can no longer call %s", role, id)
	}
	if !has {
		return
	}
	if now.Tier > old.Tier {
		n.add(ref, "higher tier of %s: %s, was %s", id, now.Tier, old.Tier)
	}
	if old.Approval == nil && now.Approval != nil {
		n.add(ref, "each call of %s needs an approval", id)
	}
	if old.Tainted != api.TaintedForbid && now.Tainted == api.TaintedForbid {
		n.add(ref, "a tainted dispatch can no longer call %s", id)
	}
}

// upstreamText says what answers the calls of a server, and with which credential.
func upstreamText(s api.ToolServer) string {
	in := func(c api.Name) string {
		if c == "" {
			return ""
		}
		return " in the files of capability " + string(c)
	}
	switch {
	case s.Stdio != nil:
		return "runs " + commandText(s.Stdio.Command) + in(s.Stdio.Capability)
	case s.Run != nil:
		return "runs " + commandText(s.Run.Command) + in(s.Run.Capability) + " for each call"
	case s.HTTP == nil:
		return "nothing"
	}
	text := s.HTTP.URL
	if s.HTTP.Address != "" {
		text += " at " + s.HTTP.Address
	}
	if o := s.HTTP.OAuth; o != nil {
		text += fmt.Sprintf(" with secret %s for client %s at %s", o.Secret, strconv.Quote(o.ClientID), o.TokenURL)
		if len(o.Scopes) > 0 {
			text += ", scopes " + strings.Join(o.Scopes, " ")
		}
	}
	return text + credentialText(s.HTTP.Header)
}

// allowText says what a call of a tool needs.
func allowText(a api.ToolAllow) string {
	text := "tier " + a.Tier.String()
	if a.Approval != nil {
		text += ", each call with an approval"
		if a.Approval.Wait > 0 {
			text += ", wait " + limitText(a.Approval.Wait)
		}
		if a.Approval.Expires > 0 {
			text += ", expires " + limitText(a.Approval.Expires)
		}
	}
	if a.Tainted == api.TaintedForbid {
		text += ", not for a tainted dispatch"
	}
	return text
}

func allowOf(s api.ToolServer, tool string) (api.ToolAllow, bool) {
	i := slices.IndexFunc(s.Allow, func(a api.ToolAllow) bool { return a.Tool == tool })
	if i < 0 {
		return api.ToolAllow{}, false
	}
	return s.Allow[i], true
}

// ChangedParts lists the parts in which a tool is defined otherwise; nil if one of the
// lists does not define it.
func ChangedParts(before, after []api.ToolDefinition, tool string) (parts []string) {
	is := func(d api.ToolDefinition) bool { return d.Name == tool }
	i, j := slices.IndexFunc(before, is), slices.IndexFunc(after, is)
	if i < 0 || j < 0 {
		return nil
	}
	old, now := &before[i], &after[j]
	for _, p := range []struct {
		what    string
		changed bool
	}{
		{"title", old.Title != now.Title},
		{"description", old.Description != now.Description},
		{"input schema", !bytes.Equal(old.InputSchema, now.InputSchema)},
		{"output schema", !bytes.Equal(old.OutputSchema, now.OutputSchema)},
		{"annotations", !bytes.Equal(old.Annotations, now.Annotations)},
	} {
		if p.changed {
			parts = append(parts, p.what)
		}
	}
	return parts
}
