package deploy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const agentManifest = `version: 1
project: manifest
models:
  - name: anthropic
    api: anthropic-messages
    endpoint: https://api.anthropic.com/
    credential: {header: x-api-key, secret: anthropic}
    levels: {small: claude-haiku-4-5, large: claude-opus-4-6}
    prices: {claude-haiku-4-5: {input: 1.00, output: 5, cacheRead: 0.10}, claude-opus-4-6: {input: 5, output: 25}}
  - {name: here, api: openai-chat, endpoint: "http://127.0.0.1:11434/v1", levels: {small: "qwen3:8b"}}
secrets:
  - {name: anthropic, ref: "file:anthropic"}
  - {name: github, ref: "env:GITHUB_TOKEN"}
  - {name: deploy, ref: "vault://kv/team/deploy#key"}
subagents:
  - name: reviewer
    agent: claude-code
    model: anthropic/large
    requireModel: true
    role: quality
    tier: reversible
    limits: {tokens: 200000, cost: 1.50, turns: 40}
    target: local
  - {name: plain, agent: command, command: [./x.sh], model: here/small, role: quality, tier: observe}
envs:
  - name: tools
    values: {LOG_LEVEL: info}
    egress: [proxy.golang.org:443, "*.githubusercontent.com:443"]
    secrets:
      GITHUB_TOKEN: {secret: github, brokered: {hosts: [api.github.com:443], header: authorization, prefix: "Bearer "}}
      DEPLOY_KEY: {secret: deploy, exposed: true}
sources:
  - {name: web, repo: https://github.com/example/web.git, secret: github, user: x-access-token}
  - {name: ops, repo: ssh://git.example.com/ops.git, secret: deploy, user: git, knownHosts: ["git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"]}
roles: [quality]
targets:
  - {name: local, executor: jail, level: full, mode: guarded, egress: [deb.debian.org:80], limits: {tokens: 1000000}}
grants:
  - {principal: "agent:claude", subagents: [reviewer], envs: [tools], sources: [web], targets: [local], ceiling: reversible}
`

// proves R-C6
func TestInvalidAgentsModelsAndSecretsAreRefusedWithTheirPlace(t *testing.T) {
	tests := []struct{ name, old, now, want string }{
		{"api", "api: anthropic-messages", "api: anthropic", `:5:10: api: unknown API "anthropic"; want one of anthropic-messages, openai-responses, openai-chat or gemini`},
		{"model without levels", "    levels: {small: claude-haiku-4-5, large: claude-opus-4-6}\n", "", `models[0]: the key "levels" is missing`},
		{"endpoint without https", "https://api.anthropic.com/", "http://api.anthropic.com", `:6:15: endpoint: http is only for this machine, by address and port`},
		{"endpoint in the network", "https://api.anthropic.com/", "https://192.168.0.7", `endpoint: host "192.168.0.7:443": `},
		{"endpoint with a key", "https://api.anthropic.com/", "https://api.anthropic.com/?key=sk-ant-hidden", `endpoint: the URL has a query`},
		{"endpoint without a credential", "    credential: {header: x-api-key, secret: anthropic}\n", "", `the key "credential" is missing: api.anthropic.com is not on this machine`},
		{"credential that is no secret", "{header: x-api-key, secret: anthropic}", "{header: x-api-key, secret: other}", `:7:45: model/anthropic: credential.secret: no such secret "other"`},
		{"header of one connection", "header: x-api-key", "header: Proxy-Authorization", `:7:26: credential.header: "Proxy-Authorization" is for one connection`},
		{"header of the framing", "header: x-api-key", "header: host", `describes the request`},
		{"header with a space", "header: x-api-key", `header: "x api"`, `is not the name of a header`},
		{"prefix without its space", "header: x-api-key", "header: authorization, prefix: Bearer", `prefix: "Bearer" ends with a letter, which would touch the value; write "Bearer "`},
		{"price of another model", "{claude-haiku-4-5: {input: 1.00", "{claude-haiku-4: {input: 1.00", `:9:14: prices: no level has the model "claude-haiku-4"; the levels have claude-haiku-4-5, claude-opus-4-6`},
		{"price without output", "{input: 5, output: 25}", "{input: 5}", `prices.claude-opus-4-6: the key "output" is missing`},
		{"price in the style of others", "cacheRead: 0.10", "cache_read: 0.10", `unknown key "cache_read"; did you mean "cacheRead"?`},
		{"price below zero", "input: 1.00", "input: -1", `amount "-1"`},
		{"currency", "    levels: {small: claude", "    currency: $\n    levels: {small: claude", `currency: want three lower-case letters`},
		{"no such model", "model: anthropic/large", "model: openai/large", `:18:12: subagent/reviewer: model: no such model "openai"`},
		{"no such level", "model: anthropic/large", "model: anthropic/huge", `model "anthropic" has no level "huge"; it has large or small`},
		{"model without a level", "model: anthropic/large", "model: anthropic", `:18:12: model "anthropic": want NAME/LEVEL`},
		{"no model", "    model: anthropic/large\n", "", `subagent: agent "claude-code" needs model: NAME/LEVEL`},
		{"format of another agent", "agent: claude-code", "agent: codex", `agent codex speaks openai-responses, and model anthropic is anthropic-messages`},
		{"gemini with another format", "agent: claude-code", "agent: gemini", `agent gemini speaks gemini`},
		{"command of an agent", "agent: claude-code", "agent: claude-code\n    command: [claude]", `:18:14: command: only allowed with agent "command"`},
		{"agent without a command", "command: [./x.sh], ", "", `agent "command" needs a command`},
		{"requireModel without a model", "model: here/small", "requireModel: true", `requireModel: there is nothing to count without model`},
		{"cost without prices", "model: here/small,", "model: here/small, limits: {cost: 1},", `limits: cost cannot be limited: model here has no prices for qwen3:8b`},
		{"cost in a currency", "cost: 1.50", "cost: 5usd", `amount "5usd": want a decimal number such as 5 or 0.25`},
		{"turns below one", "turns: 40", "turns: 0", `want a positive whole number`},
		{"the value as a reference", `"file:anthropic"`, "sk-ant-api03-THEVALUE", `:12:28: ref: want file:NAME, env:NAME, credential:NAME, exec:NAME or vault://PATH#KEY; the value itself never belongs`},
		{"the value after file:", `"file:anthropic"`, `"file:sk-ant-THEVALUE"`, `ref: file:NAME: want 1 to 64 of a-z`},
		{"the value as a secret", `{name: anthropic, ref: "file:anthropic"}`, "sk-ant-THEVALUE", `secrets[0]: want {name: NAME, ref: file:NAME}`},
		{"the value as a credential", "{header: x-api-key, secret: anthropic}", "sk-ant-THEVALUE", `credential: want {header: NAME, secret: NAME}`},
		{"the value as a use", "{secret: deploy, exposed: true}", "THEVALUE", `secrets.DEPLOY_KEY: want {secret: NAME, exposed: true}`},
		{"more hosts than are searched", "egress: [deb.debian.org:80]", "egress: [" + strings.Repeat("a.example.com:443, ", 257) + "]", `egress: 257 hosts, want at most 256`},
		{"a path as a file", `"file:anthropic"`, `"file:../x"`, `ref: file:NAME`},
		{"vault without a key", "vault://kv/team/deploy#key", "vault://kv/team/deploy", `ref: vault://PATH#KEY: want a KEY`},
		{"vault by address", "vault://kv/team/deploy#key", "vault://kv//deploy#key", `PATH has an empty segment`},
		{"secret without a use", "{secret: deploy, exposed: true}", "{secret: deploy}", `want either exposed: true, or brokered`},
		{"secret of two uses", "{secret: deploy, exposed: true}", "{secret: deploy, exposed: true, brokered: {hosts: [a.example.com:443], header: x}}", `want either exposed: true, or brokered`},
		{"secret that is missing", "{secret: deploy, exposed: true}", "{secret: other, exposed: true}", `:31:7: env/tools: secrets.DEPLOY_KEY: no such secret "other"`},
		{"brokered to all", "hosts: [api.github.com:443]", `hosts: ["*.github.com:443"]`, `a secret goes to hosts that are named, without a wildcard`},
		{"brokered without a port", "hosts: [api.github.com:443]", "hosts: [api.github.com]", `"api.github.com" has no port: add :443`},
		{"brokered to nowhere", "hosts: [api.github.com:443], ", "", `the key "hosts" is missing or empty`},
		{"brokered in two places", `prefix: "Bearer "`, "query: key", `want one of header, query and field`},
		{"variable of both", "LOG_LEVEL: info", "DEPLOY_KEY: x", `:31:7: secrets: DEPLOY_KEY is in values, too`},
		{"variable of the worker", "DEPLOY_KEY: {", "BAILIWICK_KEY: {", `reserved for the worker`},
		{"variable of the broker", "DEPLOY_KEY: {", "SSL_CERT_FILE: {", `SSL_CERT_FILE is reserved for the worker`},
		{"variable with a space", "DEPLOY_KEY: {", `"A B": {`, `"A B" is not the name of an environment variable`},
		{"host without a port", "[proxy.golang.org:443,", "[proxy.golang.org,", `:28:14: egress[0]: "proxy.golang.org" has no port: add :443 for https, as in proxy.golang.org:443`},
		{"host by URL", "[proxy.golang.org:443,", `["https://proxy.golang.org",`, `egress[0]: "https://proxy.golang.org": want HOST:PORT`},
		{"host in the network", "egress: [deb.debian.org:80]", "egress: [169.254.169.254:80]", `egress[0]: "169.254.169.254:80"`},
		{"every host", "egress: [deb.debian.org:80]", `egress: ["*:443"]`, `wildcard is the whole first label`},
		{"source with a password", "https://github.com/example", "https://me:hunter2@github.com/example", `:33:23: repo: the URL has a user name`},
		{"source without a path", "https://github.com/example/web.git", "https://github.com", `want a clean path after the host`},
		{"user without a password", "secret: github, user: x-access-token", "user: x-access-token", `user: has no effect without secret`},
		{"ssh without known hosts", `, knownHosts: ["git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"]`, "", `ssh:// needs knownHosts`},
		{"known host without a key", "git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl", "git.example.com", `knownHosts[0]: want a line of known_hosts`},
		{"ssh without a key", "secret: deploy, user: git", "user: git", `ssh:// needs secret`},
		{"user that is an option", "user: git", "user: -oProxyCommand=x", `is not the name of a user`},
		{"secret of a path", "repo: https://github.com/example/web.git", "repo: /srv/web", `secret: only for a repo by https:// or ssh://`},
	}
	f := newFixture(t, 1, 1)
	for _, tt := range tests {
		f.write("bailiwick.yaml", agentManifest)
		f.edit(tt.old, tt.now)
		m, err := f.load()
		if err == nil {
			_, err = f.open().Plan(t.Context(), m, Options{SourcesElsewhere: true})
		}
		var all Problems
		if !errors.As(err, &all) || api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error()+"\n", tt.want) {
			t.Errorf("%s: err = %v\nwant %s", tt.name, err, tt.want)
		}
		for _, value := range []string{"THEVALUE", "hunter2", "hidden"} { // R-C3: the screen keeps what is printed
			if err != nil && strings.Contains(err.Error(), value) {
				t.Errorf("%s: the error quotes a secret: %v", tt.name, err)
			}
		}
	}
	f.write("bailiwick.yaml", agentManifest)
	p := f.plan(Options{})
	m := p.After().Models["anthropic"]
	if m.Endpoint != "https://api.anthropic.com" || m.Prices["claude-haiku-4-5"] != (api.Price{Input: 1e6, Output: 5e6, CacheRead: 1e5, CacheWrite: 1e6}) {
		t.Fatalf("positive control: %+v", m)
	}
	if s := p.After().Subagents["reviewer"]; s.Limits.Cost != 1.5e6 || s.Limits.Tokens != 200000 || s.Limits.Turns != 40 || !s.RequireModel {
		t.Fatalf("positive control: %+v", s)
	}
}

// A reference in a catalog is a name, so no value gets into one.
//
// proves R-C3
func TestAReferenceHasNoRoomForAValue(t *testing.T) {
	for ref, want := range map[string]api.SecretPlace{
		"file:anthropic":             {Source: api.SecretFile, Name: "anthropic"},
		"env:API_KEY":                {Source: api.SecretEnv, Name: "API_KEY"},
		"credential:API-key":         {Source: api.SecretCredential, Name: "API-key"},
		"exec:op":                    {Source: api.SecretExec, Name: "op"},
		"vault://kv/data/x#token":    {Source: api.SecretVault, Name: "kv/data/x", Key: "token"},
		"sk-ant-api03-x":             {},
		"":                           {},
		"file:":                      {},
		"file:/etc/shadow":           {},
		"file:.hidden":               {},
		"file:A":                     {},
		"File:a":                     {},
		"env:A=b":                    {},
		"env:1A":                     {},
		"credential:../x":            {},
		"credential:..":              {},
		"credential:":                {},
		"exec:op read op://x":        {},
		"exec:../sh":                 {},
		"vault://":                   {},
		"vault://kv":                 {},
		"vault://kv#":                {},
		"vault://kv/../sys#x":        {},
		"vault://kv#a#b":             {},
		"vault://kv?version=1#x":     {},
		"https://vault.example.com":  {},
		"data:text/plain,value":      {},
		"file:anthropic\nfile:other": {},
		"env:A\x00":                  {},
	} {
		got, err := api.ParseSecretRef(ref)
		if got != want || (err == nil) != (want != api.SecretPlace{}) {
			t.Errorf("%q: %+v, err = %v", ref, got, err)
		}
	}
}

// A catalog older than models has any text as the model of a command. It
// stays readable; a new manifest says what the text means.
func TestTextThatWasAModelStaysUntilItIsDeclaredAgain(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.edit("version: 1", "version: 1\nproject: manifest")
	m, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.decls {
		if d.ref == "subagent/fixer" {
			d.doc = []byte(strings.Replace(string(d.doc), `"name":"fixer"`, `"model":"gpt-5 or so","name":"fixer"`, 1))
		}
	}
	c := f.open()
	p, err := c.Plan(t.Context(), m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), p, Approval{Author: "a", Signers: f.signers}); err != nil {
		t.Fatal(err)
	}
	rev, err := f.open().Current(t.Context())
	if err != nil || rev.Set().Subagents["fixer"].Model != "gpt-5 or so" {
		t.Fatalf("%v", err)
	}
	sub, _, err := rev.Subagent("fixer")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := rev.Access(sub, rev.Set().Targets["local"], nil); err != nil || a.Endpoint != nil || len(a.Egress) != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	f.edit("agent: command", "agent: command\n    model: gpt-5 or so")
	if _, err := f.load(); err == nil || !strings.Contains(err.Error(), `model "gpt-5 or so": want NAME/LEVEL, a model of the catalog and one of its levels`) {
		t.Fatalf("err = %v", err)
	}
	other := f.beside("elsewhere", "version: 1\nproject: other\nmodels: [{name: here, api: gemini, endpoint: \"http://127.0.0.1:1\", levels: {a: b}}]\n")
	m, err = other.load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = other.open().Plan(t.Context(), m, Options{}); err == nil || !strings.Contains(err.Error(), `subagent/fixer of project manifest, which stays in the catalog: model: model "gpt-5 or so": want NAME/LEVEL`) {
		t.Fatalf("err = %v", err)
	}
}

// Each way in which a catalog gives agents more of a model, a secret or the network is
// a line of the plan, and each way back is one of what they lose.
//
// takeover both modes, one deploy key: until read a secret
//
// proves R-C6
func TestModelsSecretsAndEgressWidenAndNarrow(t *testing.T) {
	const extra = "      GITHUB_TOKEN: {secret: github, brokered: {hosts: [api.github.com:443], header: authorization, prefix: \"Bearer \"}}\n"
	tests := []struct{ old, now, widens, narrows string }{
		{"https://api.anthropic.com/", "https://gateway.example.com/anthropic", "model/anthropic: new endpoint: anthropic-messages at https://gateway.example.com/anthropic, was anthropic-messages at https://api.anthropic.com", ""},
		{"{header: x-api-key, secret: anthropic}", "{header: x-api-key, secret: github}", "model/anthropic: new credential: with secret github in header x-api-key, was with secret anthropic in header x-api-key", ""},
		{"large: claude-opus-4-6}", "large: claude-opus-4-6, best: claude-mythos-1}", "model/anthropic: new level best: claude-mythos-1", ""},
		{`{small: "qwen3:8b"}`, `{small: "qwen3:32b"}`, "model/here: level small is now qwen3:32b, was qwen3:8b", ""},
		{"output: 25", "output: 2", "model/anthropic: other prices of claude-opus-4-6, by which a limit of cost may allow more", ""},
		{"output: 25", "output: 26", "", ""},
		{"    levels: {small: claude", "    serverTools: [web_search_20250305]\n    levels: {small: claude", "model/anthropic: agents can have the provider run web_search_20250305", ""},
		{`"file:anthropic"`, `"env:ANTHROPIC"`, "secret/anthropic: new value: from env:ANTHROPIC, was from file:anthropic", ""},
		{"  - {name: github, ref", "  - {name: unused, ref: \"exec:op\"}\n  - {name: github, ref", "", ""},
		{"model: anthropic/large", "model: anthropic/small", "subagent/reviewer: new agent: claude-code with model anthropic/small, was claude-code with model anthropic/large", ""},
		{"agent: claude-code", "agent: opencode", "subagent/reviewer: new agent: opencode with model anthropic/large, was claude-code with model anthropic/large", ""},
		{"    requireModel: true\n", "", "subagent/reviewer: an agent that makes no request to its model no longer fails", ""},
		{"tokens: 200000,", "tokens: 300000,", "subagent/reviewer: raised tokens: 300000, was 200000", ""},
		{"tokens: 200000,", "", "subagent/reviewer: limit removed: tokens, was 200000", ""},
		{"cost: 1.50", "cost: 2", "subagent/reviewer: raised cost: 2, was 1.5", ""},
		{"cost: 1.50", "cost: 0.75", "", "subagent/reviewer: lowered cost: 0.75, was 1.5"},
		{"turns: 40", "turns: 41", "subagent/reviewer: raised turns: 41, was 40", ""},
		{"limits: {tokens: 1000000}", "limits: {}", "target/local: limit removed: tokens, was 1000000", ""},
		{"egress: [proxy.golang.org:443,", "egress: [proxy.golang.org:443, sum.golang.org:443,", "env/tools: agents can reach sum.golang.org:443", ""},
		{"egress: [proxy.golang.org:443,", "egress: [", "", "env/tools: agents can no longer reach proxy.golang.org:443"},
		{"egress: [deb.debian.org:80]", "egress: [deb.debian.org:443]", "target/local: agents can reach deb.debian.org:443", "target/local: agents can no longer reach deb.debian.org:80"},
		{extra, extra + "      OTHER: {secret: github, exposed: true}\n", "env/tools: exposes secret github to agents, in OTHER", ""},
		{extra, "      GITHUB_TOKEN: {secret: github, exposed: true}\n", "env/tools: exposes secret github to agents, in GITHUB_TOKEN", ""},
		{extra, "", "", "env/tools: agents no longer have secret github in GITHUB_TOKEN"},
		{"hosts: [api.github.com:443]", "hosts: [api.github.com:443, uploads.github.com:443]", "env/tools: lets agents use secret github at uploads.github.com:443, too", ""},
		{"hosts: [api.github.com:443]", "hosts: [uploads.github.com:443]", "env/tools: lets agents use secret github at uploads.github.com:443, too", "env/tools: agents can no longer use secret github at api.github.com:443"},
		{`header: authorization, prefix: "Bearer "`, "query: token", "env/tools: lets agents use secret github at api.github.com:443, in query parameter token", ""},
		{"secret: deploy, exposed", "secret: github, exposed", "env/tools: exposes secret github to agents, in DEPLOY_KEY", "env/tools: agents no longer have secret deploy in DEPLOY_KEY"},
		{"example/web.git", "example/other.git", "source/web: new repository: https://github.com/example/other.git, was https://github.com/example/web.git", ""},
		{"secret: github, user: x-access-token", "secret: deploy, user: x-access-token", "source/web: fetched with secret deploy as x-access-token, was with secret github as x-access-token", ""},
		{`"git.example.com ssh`, `"git.example.com,git2.example.com ssh`, "source/ops: trusts another host key", ""},
	}
	f := newFixture(t, 1, 1)
	f.write("bailiwick.yaml", agentManifest)
	if p := f.plan(Options{}); !slices.ContainsFunc(p.Widens, func(w api.AuthorityChange) bool {
		return w.Ref == "model/anthropic" && w.What == "new model: anthropic-messages at https://api.anthropic.com with secret anthropic in header x-api-key"
	}) {
		t.Errorf("a new model: %+v", p.Widens)
	}
	f.apply(f.signers[0])
	for _, tt := range tests {
		f.write("bailiwick.yaml", agentManifest)
		f.edit(tt.old, tt.now)
		p := f.plan(Options{})
		var widens, narrows []string
		for _, w := range p.Widens {
			widens = append(widens, string(w.Ref)+": "+w.What)
		}
		for _, n := range p.Narrows {
			narrows = append(narrows, string(n.Ref)+": "+n.What)
		}
		if strings.Join(widens, "\n") != tt.widens || strings.Join(narrows, "\n") != tt.narrows {
			t.Errorf("%s:\nwidens %q, want %q\nnarrows %q, want %q", tt.now, widens, tt.widens, narrows, tt.narrows)
		}
	}
}
