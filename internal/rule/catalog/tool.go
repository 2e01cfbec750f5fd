package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// PinOf returns the pin of definitions: the digest of their canonical list.
func PinOf(list []api.ToolDefinition) (api.Digest, error) {
	doc, err := canon.Marshal(list)
	return api.DigestOf(doc), err
}

// DefinitionDigest returns the digest of a definition, which equal ones share.
func DefinitionDigest(d api.ToolDefinition) (api.Digest, error) {
	doc, err := canon.Marshal(d)
	return api.DigestOf(doc), err
}

// Bounds of what an upstream says about a tool, in bytes and levels.
const (
	MaxDefinitions = 1000 // tools of a server
	maxDefinition  = 128 << 10
	maxToolText    = 16 << 10
	maxSchemaDepth = 32
)

var toolNamePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Define returns what an upstream says about a tool in the canonical form, which pins
// are of. It refuses what is larger than people read.
func Define(d api.ToolDefinition) (api.ToolDefinition, error) {
	if !IsToolName(d.Name) {
		return d, fmt.Errorf("tool %.80q: the name is not 1 to 64 of A-Z a-z 0-9 . _ -", d.Name)
	}
	if len(d.Title) > maxToolText || len(d.Description) > maxToolText {
		return d, fmt.Errorf("tool %q: the description is longer than %d KiB", d.Name, maxToolText>>10)
	}
	if !utf8.ValidString(d.Title) || !utf8.ValidString(d.Description) {
		return d, fmt.Errorf("tool %q: the description is not valid UTF-8", d.Name)
	}
	if len(d.InputSchema)+len(d.OutputSchema)+len(d.Annotations) > maxDefinition {
		return d, fmt.Errorf("tool %q: the schemas are larger than %d KiB", d.Name, maxDefinition>>10)
	}
	for _, part := range []struct {
		what string
		doc  *json.RawMessage
	}{{"inputSchema", &d.InputSchema}, {"outputSchema", &d.OutputSchema}, {"annotations", &d.Annotations}} {
		if len(*part.doc) == 0 && part.doc != &d.InputSchema {
			*part.doc = nil
			continue
		}
		doc, err := canonicalObject(*part.doc)
		if err != nil {
			return d, fmt.Errorf("tool %q: %s: %w", d.Name, part.what, err)
		}
		*part.doc = doc
	}
	return d, nil
}

// IsToolName reports whether s can name a tool of a server.
func IsToolName(s string) bool { return toolNamePattern.MatchString(s) }

func canonicalObject(doc []byte) ([]byte, error) {
	depth, deepest := 0, 0
	dec := json.NewDecoder(bytes.NewReader(doc))
	for {
		token, err := dec.Token()
		if err != nil {
			break // the next step says what is wrong
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if deepest > maxSchemaDepth {
			return nil, fmt.Errorf("nested deeper than %d", maxSchemaDepth)
		}
	}
	clean, err := canon.Canonicalize(doc)
	if err != nil {
		return nil, err
	}
	if len(clean) == 0 || clean[0] != '{' {
		return nil, errors.New("want a JSON object")
	}
	return clean, nil
}

// maxExposed is the length of the longest name of a tool that all model providers take.
const maxExposed = 64

// ExposedName returns the name by which agents call a tool of a server, or a declared
// command, whose tool is empty. Providers take A-Z a-z 0-9 _ and -, so a dot becomes _.
func ExposedName(server api.Name, tool string) (string, error) {
	name := string(server)
	if tool != "" {
		name += "_" + tool
	}
	name = strings.ReplaceAll(name, ".", "_")
	if len(name) > maxExposed {
		return "", fmt.Errorf("agents would call it %s, which has %d characters; model providers take %d: give the server a shorter name", name, len(name), maxExposed)
	}
	return name, nil
}

// ToolServer returns a registered server and the digest of its document. What a role
// may call of it is in Tools.
func (r *Revision) ToolServer(name api.Name) (api.ToolServer, api.Digest, error) {
	return lookup(r, api.KindTool, r.set.Tools, name)
}

// ToolServers returns the servers that let role call something, sorted.
func (r *Revision) ToolServers(role api.Name) []api.Name {
	var names []api.Name
	for _, n := range slices.Sorted(maps.Keys(r.set.Tools)) {
		if len(toolsOf(role, r.set.Tools[n])) > 0 {
			names = append(names, n)
		}
	}
	return names
}

// Tools returns everything that role may call, sorted by Name.
func (r *Revision) Tools(role api.Name) []api.Tool {
	return ToolsOf(role, slices.Collect(maps.Values(r.set.Tools))...)
}

// ToolsOf returns everything that role may call of servers, with the tools of Bailiwick
// itself, sorted by Name. It is the only maker of an api.Tool (R-G1).
func ToolsOf(role api.Name, servers ...api.ToolServer) []api.Tool {
	list := ownTools(role)
	for _, s := range servers {
		list = append(list, toolsOf(role, s)...)
	}
	slices.SortFunc(list, func(a, b api.Tool) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func toolsOf(role api.Name, s api.ToolServer) (list []api.Tool) {
	for _, a := range s.Allow {
		if !slices.Contains(a.Roles, role) {
			continue
		}
		name, err := ExposedName(s.Name, a.Tool)
		if err != nil {
			continue // no revision has it: Problems
		}
		t := api.Tool{ID: ToolID(s.Name, a.Tool), Name: name, Role: role, Server: s.Name, ToolAllow: a, Trusted: s.Trusted}
		i := slices.IndexFunc(s.Definitions, func(d api.ToolDefinition) bool { return d.Name == a.Tool })
		if i < 0 {
			continue // without a pinned definition nothing can be called
		}
		t.Definition = s.Definitions[i]
		list = append(list, t)
	}
	return list
}

// ToolID returns the name of a tool of a server for people and logs: SERVER/TOOL, or the
// name of a declared command, whose tool is empty.
func ToolID(server api.Name, tool string) string {
	if tool == "" {
		return string(server)
	}
	return string(server) + "/" + tool
}

// ownTools are the tools of Bailiwick itself in the hands of role.
func ownTools(role api.Name) []api.Tool {
	own := func(name, description, input string) api.Tool {
		return api.Tool{
			ID: name, Name: name, Role: role, ToolAllow: api.ToolAllow{Tool: name, Roles: []api.Name{role}, Tier: api.Observe}, Trusted: true,
			Definition: api.ToolDefinition{Name: name, Description: description, InputSchema: json.RawMessage(input)},
		}
	}
	return []api.Tool{
		own(api.ToolAsk, "Ask the human who owns this work a question that you cannot answer yourself. Your attempt ends, and you resume when someone answers.",
			fmt.Sprintf(`{"additionalProperties":false,"properties":{"options":{"description":"Suggested answers.","items":{"type":"string"},"maxItems":100,"type":"array"},"question":{"maxLength":%d,"minLength":1,"type":"string"}},"required":["question"],"type":"object"}`, api.MaxAnswer)),
		own(api.ToolReport, "Report progress in one line, for the humans who watch this work.",
			fmt.Sprintf(`{"additionalProperties":false,"properties":{"text":{"maxLength":%d,"minLength":1,"type":"string"}},"required":["text"],"type":"object"}`, api.MaxReport)),
	}
}

// toolProblems returns the unresolved references of registered servers, names that
// agents could not tell apart, and subagents whose tier is below that of a tool of their
// role.
func (s *Set) toolProblems() (all []Problem) {
	exposed := map[string]string{api.ToolAsk: "a tool of every role", api.ToolReport: "a tool of every role"}
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		v := s.Tools[name]
		w := &references{ref: api.RefTo(api.KindTool, name), set: s}
		w.toolServer(v)
		for _, a := range v.Allow {
			at := allowField(a)
			for _, role := range a.Roles {
				w.one(at+".roles", api.KindRole, role)
			}
			call, err := ExposedName(name, a.Tool)
			if err != nil {
				w.problems = append(w.problems, Problem{Ref: w.ref, Field: at, Message: err.Error()})
				continue
			}
			if first, twice := exposed[call]; twice {
				w.problems = append(w.problems, Problem{Ref: w.ref, Field: at, Message: fmt.Sprintf("agents call it %s, as %s; rename the server", call, first)})
				continue
			}
			exposed[call] = ToolID(name, a.Tool)
		}
		all = append(all, w.problems...)
	}
	return append(all, s.tierProblems()...)
}

func (w *references) toolServer(v api.ToolServer) {
	host := &api.ToolHost{}
	switch {
	case v.Stdio != nil:
		host = &v.Stdio.ToolHost
	case v.Run != nil:
		host = &v.Run.ToolHost
	case v.HTTP != nil && v.HTTP.Header != nil:
		w.one("credential.secret", api.KindSecret, v.HTTP.Header.Secret)
	case v.HTTP != nil && v.HTTP.OAuth != nil:
		w.one("oauth.secret", api.KindSecret, v.HTTP.OAuth.Secret)
	}
	if host.Capability != "" {
		w.one("capability", api.KindCapability, host.Capability)
	}
	for _, variable := range slices.Sorted(maps.Keys(host.Secrets)) {
		w.one("credential.env."+variable, api.KindSecret, host.Secrets[variable])
	}
}

// allowField is the field of an allow in problems.
func allowField(a api.ToolAllow) string {
	if a.Tool == "" {
		return "allow"
	}
	return "allow[" + a.Tool + "]"
}

// tierProblems refuses a subagent whose role has a tool above its tier.
func (s *Set) tierProblems() (all []Problem) {
	for _, name := range slices.Sorted(maps.Keys(s.Subagents)) {
		v := s.Subagents[name]
		highest, tool := v.Tier, ""
		for _, server := range slices.Sorted(maps.Keys(s.Tools)) {
			for _, a := range s.Tools[server].Allow {
				if slices.Contains(a.Roles, v.Role) && a.Tier > highest {
					highest, tool = a.Tier, ToolID(server, a.Tool)
				}
			}
		}
		if tool != "" {
			all = append(all, Problem{Ref: api.RefTo(api.KindSubagent, name), Field: "tier", Message: fmt.Sprintf("%s, but its role %s has the tool %s of tier %s; give the subagent that tier, or take the role from the tool", v.Tier, v.Role, tool, highest)})
		}
	}
	return all
}
