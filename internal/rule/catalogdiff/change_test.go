package catalogdiff

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// change is an edit of an artifact, with the exact lines that it adds, and those that
// its reversal adds.
type change[T any] struct {
	name                    string
	edit                    func(*T)
	widens, narrows         string
	backWidens, backNarrows string
}

// checkChanges compares the set of put(base()) with the one after each edit, in both
// directions. Control: the unchanged artifact has no lines.
func checkChanges[T any](t *testing.T, ref api.Ref, base func() T, put func(*catalog.Set, T), changes []change[T]) {
	t.Helper()
	set := func(edit func(*T)) *catalog.Set {
		s, v := catalog.NewSet(), base()
		edit(&v)
		put(s, v)
		return s
	}
	text := func(list []api.AuthorityChange) string {
		all := make([]string, 0, len(list))
		for _, l := range list {
			if l.Ref != ref {
				l.What = string(l.Ref) + ": " + l.What
			}
			all = append(all, l.What)
		}
		return strings.Join(all, "\n")
	}
	check := func(name, what string, got []api.AuthorityChange, want string) {
		t.Helper()
		if got := text(got); got != want {
			t.Errorf("%s %s\n%s\nwant\n%s", name, what, got, want)
		}
	}
	for _, c := range append(changes, change[T]{name: "nothing", edit: func(*T) {}}) {
		before, after := set(func(*T) {}), set(c.edit)
		forth, back := Compare(before, after), Compare(after, before)
		check(c.name, "widens", forth.Widens, c.widens)
		check(c.name, "narrows", forth.Narrows, c.narrows)
		check(c.name+", reversed,", "widens", back.Widens, c.backWidens)
		check(c.name+", reversed,", "narrows", back.Narrows, c.backNarrows)
	}
}

// checkWhole checks the lines of an artifact that is added to an empty set, and of one
// that is removed.
func checkWhole(t *testing.T, name string, whole *catalog.Set, widens, narrows string) {
	t.Helper()
	added, removed := Compare(nil, whole), Compare(whole, nil)
	lines := func(list []api.AuthorityChange) string {
		var all []string
		for _, l := range list {
			all = append(all, string(l.Ref)+": "+l.What)
		}
		return strings.Join(all, "\n")
	}
	if got := lines(added.Widens); got != widens || len(added.Narrows) > 0 {
		t.Errorf("%s, added, widens\n%s\nwant\n%s\nand narrows %v", name, got, widens, added.Narrows)
	}
	if got := lines(removed.Narrows); got != narrows || len(removed.Widens) > 0 {
		t.Errorf("%s, removed, narrows\n%s\nwant\n%s\nand widens %v", name, got, narrows, removed.Widens)
	}
}

// Each raised limit is one line, whatever its type, and its reversal is one line of what
// is lost.
//
// proves R-C6
func TestEachLimitHasItsLine(t *testing.T) {
	typ := reflect.TypeFor[api.Limits]()
	for i := range typ.NumField() {
		field, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		limits := func(n int64) (l api.Limits) {
			v := reflect.ValueOf(&l).Elem().Field(i)
			if v.CanFloat() {
				v.SetFloat(float64(n))
			} else {
				v.SetInt(n)
			}
			return l
		}
		some := func(l api.Limits) string {
			var all []string
			for _, r := range raisedLimits(l, limits(2)) {
				all = append(all, r.field+" "+r.to)
			}
			return strings.Join(all, "\n")
		}
		text := limitText(reflect.ValueOf(limits(2)).Field(i).Interface())
		for name, c := range map[string]struct {
			old  int64
			want string
		}{"raised": {1, field + " " + text}, "lowered": {3, ""}, "the same": {2, ""}, "new": {0, ""}} {
			if got := some(limits(c.old)); got != c.want {
				t.Errorf("%s %s: %q, want %q", field, name, got, c.want)
			}
		}
		if got := raisedLimits(limits(2), api.Limits{}); len(got) != 1 || got[0] != (raised{field, text, ""}) {
			t.Errorf("%s removed: %v", field, got)
		}
	}
}

// proves R-C6
func TestChangesOfSubagents(t *testing.T) {
	base := func() api.Subagent {
		return api.Subagent{
			Name: "fixer", Agent: "command", Command: api.Command{"sh", "fix it"}, Role: "build", Tier: api.Reversible, RequireModel: true,
			Capabilities: []api.Name{"docs", "tools"}, Input: json.RawMessage(`{}`), Output: json.RawMessage(`{}`),
			Verify: &api.Verify{Command: api.Command{"go", "test"}, Protects: []string{"*_test.go", "go.mod"}},
			Limits: api.Limits{Memory: 1 << 30, Tokens: 1000},
		}
	}
	put := func(s *catalog.Set, v api.Subagent) { s.Subagents[v.Name] = v }
	checkChanges(t, "subagent/fixer", base, put, []change[api.Subagent]{
		{"agent", func(v *api.Subagent) { v.Agent = "codex" }, "new agent: codex with model , was sh \"fix it\"", "", "new agent: sh \"fix it\", was codex with model ", ""},
		{"model", func(v *api.Subagent) { v.Model = "m/large" }, "new agent: sh \"fix it\" with model m/large, was sh \"fix it\"", "", "new agent: sh \"fix it\", was sh \"fix it\" with model m/large", ""},
		{"command", func(v *api.Subagent) { v.Command = nil }, "new command: nothing, was sh \"fix it\"", "", "new command: sh \"fix it\", was nothing", ""},
		{"tier", func(v *api.Subagent) { v.Tier = api.Stateful }, "higher tier: stateful, was reversible", "", "", "lower tier: reversible, was stateful"},
		{"role", func(v *api.Subagent) { v.Role = "ship" }, "new role: ship, was build", "", "new role: build, was ship", ""},
		{"capability", func(v *api.Subagent) { v.Capabilities = []api.Name{"tools", "more", "docs"} }, "gains capability more", "", "", "loses capability more"},
		{"pure", func(v *api.Subagent) { v.Effect = api.EffectPure }, pureText, "", "", ""},
		{"write", func(v *api.Subagent) { v.Effect = api.EffectWrite }, "", "declared to write: people approve its tasks where a grant of their principal has writes", "no longer declared to write: nobody approves its tasks before they start", ""},
		{"limit", func(v *api.Subagent) { v.Limits.Memory *= 2 }, "raised memory: 2GiB, was 1GiB", "", "", "lowered memory: 1GiB, was 2GiB"},
		{"default limit", func(v *api.Subagent) { v.Limits.Memory = 0 }, "raised memory: 4GiB, was 1GiB", "", "", "lowered memory: 1GiB, was 4GiB"},
		{"calls", func(v *api.Subagent) { v.Limits.Calls = 9999 }, "", "lowered calls: 9999, was 10000", "raised calls: 10000, was 9999", ""},
		{"no limit", func(v *api.Subagent) { v.Limits.Tokens = 0 }, "limit removed: tokens, was 1000", "", "", "new limit: tokens 1000"},
		{"no verify", func(v *api.Subagent) { v.Verify = nil }, "verify command removed: was go test", "", "", ""},
		{"other verify", func(v *api.Subagent) { v.Verify.Command = api.Command{"go", "vet"} }, "changed verify command: go vet, was go test", "", "changed verify command: go test, was go vet", ""},
		{"reported", func(v *api.Subagent) { v.Verify.ReportOnly = true }, "a failed verify no longer fails the dispatch", "", "", ""},
		{"protected", func(v *api.Subagent) { v.Verify.Protects = []string{"go.mod"} }, `verify no longer protects "*_test.go"`, "", "", ""},
		{"model optional", func(v *api.Subagent) { v.RequireModel = false }, "an agent that makes no request to its model no longer fails", "", "", ""},
		{"input", func(v *api.Subagent) { v.Input = nil }, "input schema removed: any input is accepted", "", "", ""},
		{"output", func(v *api.Subagent) { v.Output = nil }, "output schema removed: any output is accepted", "", "", ""},
	})
	whole := catalog.NewSet()
	v := base()
	v.Effect = api.EffectPure
	put(whole, v)
	const added = "subagent/fixer: new subagent: runs sh \"fix it\" in role build, tier reversible\nsubagent/fixer: " + pureText
	checkWhole(t, "subagent", whole, added, "subagent/fixer: removed subagent: nobody could dispatch it")
	whole.Grants["b"] = api.Grant{Name: "b", Principal: "human:bob", Subagents: []api.Name{"fixer"}}
	whole.Grants["a"] = api.Grant{Name: "a", Principal: "human:ann", Subagents: []api.Name{"fixer"}}
	whole.Grants["c"] = api.Grant{Name: "c", Principal: "human:cat", Subagents: []api.Name{"other"}}
	after := catalog.NewSet()
	after.Grants = whole.Grants
	if got := narrowings(whole, after); len(got) != 1 || got[0].What != "removed subagent: human:ann, human:bob could dispatch it" {
		t.Errorf("a removed subagent of two principals: %v", got)
	}
}

// proves R-C6
func TestChangesOfCapabilities(t *testing.T) {
	base := func() api.Capability {
		return api.Capability{Name: "tools", Setup: "setup.sh", Files: []api.File{{Path: "a.sh", Digest: "sha256:1"}, {Path: "setup.sh", Digest: "sha256:2"}}}
	}
	put := func(s *catalog.Set, v api.Capability) { s.Capabilities[v.Name] = v }
	checkChanges(t, "capability/tools", base, put, []change[api.Capability]{
		{"text of the setup", func(v *api.Capability) { v.Files[1].Digest = "sha256:3" }, "changed setup script: setup.sh", "", "changed setup script: setup.sh", ""},
		{"other setup", func(v *api.Capability) { v.Setup = "a.sh" }, "changed setup script: a.sh", "", "changed setup script: setup.sh", ""},
		{"no setup", func(v *api.Capability) { v.Setup = "" }, "", "", "new setup script: setup.sh runs in the jail before the agent", ""},
	})
	whole := catalog.NewSet()
	put(whole, base())
	checkWhole(t, "capability", whole, "capability/tools: new setup script: setup.sh runs in the jail before the agent\ncapability/tools: new file a.sh: setup.sh is run and can load it", "")
	server := func(digest api.Digest, run bool) *catalog.Set {
		s := catalog.NewSet()
		s.Capabilities["tools"] = api.Capability{Name: "tools", Files: []api.File{{Path: "serve", Digest: digest}}}
		v := api.ToolServer{Name: "t", Stdio: &api.StdioServer{Command: api.Command{"./serve"}, ToolHost: api.ToolHost{Capability: "tools"}}}
		if run {
			v.Stdio, v.Run = nil, &api.ToolCommand{Command: v.Stdio.Command, ToolHost: v.Stdio.ToolHost}
		}
		s.Tools["t"] = v
		return s
	}
	for _, run := range []bool{false, true} {
		got := widenings(server("sha256:1", run), server("sha256:2", run))
		if len(got) != 2 || got[0].What != "changed file serve: server t runs it" || got[1].What != "runs changed files of capability tools" {
			t.Errorf("a changed program of a server: %v", got)
		}
	}
	granted := func(digest api.Digest) *catalog.Set {
		s := catalog.NewSet()
		s.Capabilities["tools"] = api.Capability{Name: "tools", Files: []api.File{{Path: "x", Mode: 0o755, Digest: digest}}}
		s.Grants["g"] = api.Grant{Name: "g", Principal: "human:ann", Capabilities: []api.Name{"tools"}}
		return s
	}
	if got := widenings(granted("sha256:1"), granted("sha256:2")); len(got) != 1 || got[0].What != "changed file x: an agent that grant g lets have it can run it" {
		t.Errorf("a changed program of a grant: %v", got)
	}
}

// proves R-C6
func TestChangesOfEnvs(t *testing.T) {
	use := func(b api.Brokered) api.SecretUse { return api.SecretUse{Secret: "github", Brokered: &b} }
	base := func() api.Env {
		return api.Env{
			Name: "net", Values: map[string]string{"LOG": "info", "PATH": "/bin"}, Egress: []string{"a:443"},
			Secrets: map[string]api.SecretUse{"KEY": {Secret: "deploy", Exposed: true}, "TOKEN": use(api.Brokered{Hosts: []string{"a:443", "b:443"}, Header: "authorization", Prefix: "Bearer "})},
		}
	}
	put := func(s *catalog.Set, v api.Env) { s.Envs[v.Name] = v }
	const old = "lets agents use secret github at a:443, b:443, in header authorization Bearer"
	checkChanges(t, "env/net", base, put, []change[api.Env]{
		{"value", func(v *api.Env) { v.Values["LOG"] = "debug" }, "", "", "", ""},
		{"path", func(v *api.Env) { v.Values["PATH"] = "/x" }, "PATH=/x controls which code programs load", "", "PATH=/bin controls which code programs load", ""},
		{"loader", func(v *api.Env) { v.Values["LD_PRELOAD"] = "x" }, "LD_PRELOAD=x controls which code programs load", "", "", ""},
		{"git", func(v *api.Env) { v.Values["GIT_SSH"] = "x" }, "GIT_SSH=x controls which code programs load", "", "", ""},
		{"loader of a Mac", func(v *api.Env) { v.Values["DYLD_X"] = "x" }, "DYLD_X=x controls which code programs load", "", "", ""},
		{"host", func(v *api.Env) { v.Egress = []string{"b:443", "a:443"} }, "agents can reach b:443", "", "", "agents can no longer reach b:443"},
		{"exposed", func(v *api.Env) { v.Secrets["TOKEN"] = api.SecretUse{Secret: "github", Exposed: true} }, "exposes secret github to agents, in TOKEN", "", old, ""},
		{"other secret", func(v *api.Env) { v.Secrets["KEY"] = api.SecretUse{Secret: "other", Exposed: true} }, "exposes secret other to agents, in KEY", "agents no longer have secret deploy in KEY", "exposes secret deploy to agents, in KEY", "agents no longer have secret other in KEY"},
		{"other brokered secret", func(v *api.Env) {
			v.Secrets["TOKEN"] = api.SecretUse{Secret: "other", Brokered: v.Secrets["TOKEN"].Brokered}
		}, "lets agents use secret other at a:443, b:443, in header authorization Bearer", "agents no longer have secret github in TOKEN", old, "agents no longer have secret other in TOKEN"},
		{"no secret", func(v *api.Env) { delete(v.Secrets, "KEY") }, "", "agents no longer have secret deploy in KEY", "exposes secret deploy to agents, in KEY", ""},
		{"secret host", func(v *api.Env) { v.Secrets["TOKEN"].Brokered.Hosts = []string{"b:443"} }, "", "agents can no longer use secret github at a:443", "lets agents use secret github at a:443, too", ""},
		{"query", func(v *api.Env) {
			v.Secrets["TOKEN"] = use(api.Brokered{Hosts: []string{"a:443", "b:443"}, Query: "q"})
		}, "lets agents use secret github at a:443, b:443, in query parameter q", "", old, ""},
		{"field", func(v *api.Env) {
			v.Secrets["TOKEN"] = use(api.Brokered{Hosts: []string{"a:443", "b:443"}, Field: "f"})
		}, "lets agents use secret github at a:443, b:443, in field f", "", old, ""},
		{"prefix", func(v *api.Env) { v.Secrets["TOKEN"].Brokered.Prefix = "" }, "lets agents use secret github at a:443, b:443, in header authorization", "", old, ""},
	})
	whole := catalog.NewSet()
	put(whole, base())
	checkWhole(t, "env", whole, "env/net: PATH=/bin controls which code programs load\nenv/net: exposes secret deploy to agents, in KEY\nenv/net: "+old+"\nenv/net: agents can reach a:443", "")
	for _, name := range []string{
		"PATH", "BASH_ENV", "ENV", "IFS", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT",
		"RUBYLIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN", "SHELL", "EDITOR", "PAGER", "LD_X", "GIT_X", "DYLD_X",
	} {
		if !steers(name) || steers("X"+name) {
			t.Errorf("%s", name)
		}
	}
}

// proves R-C6
func TestChangesOfTargets(t *testing.T) {
	base := func() api.Target {
		return api.Target{Name: "local", Executor: "jail", Level: "full", Mode: api.Guarded, ReadOnly: []string{"/opt"}, Path: []string{"/opt/bin"}, Egress: []string{"a:443"}, Limits: api.Limits{Memory: 1 << 30}}
	}
	put := func(s *catalog.Set, v api.Target) { s.Targets[v.Name] = v }
	checkChanges(t, "target/local", base, put, []change[api.Target]{
		{"mode", func(v *api.Target) { v.Mode = api.Open }, "wider mode: open, was guarded", "", "", "narrower mode: guarded, was open: refuses tiers above stateful"},
		{"unknown mode", func(v *api.Target) { v.Mode = "x" }, "wider mode: x, was guarded", "", "wider mode: guarded, was x", ""},
		{"level", func(v *api.Target) { v.Level = "x" }, "changed isolation: executor jail level x, was jail full", "", "changed isolation: executor jail level full, was jail x", ""},
		{"executor", func(v *api.Target) { v.Executor = "x" }, "changed isolation: executor x level full, was jail full", "", "changed isolation: executor jail level full, was x full", ""},
		{"limit", func(v *api.Target) { v.Limits.Memory = 0 }, "limit removed: memory, was 1GiB", "", "", "new limit: memory 1GiB"},
		{"read-only", func(v *api.Target) { v.ReadOnly = []string{"/srv", "/opt"} }, "new read-only mount: jails can read /srv of the host", "", "", "jails can no longer read /srv of the host"},
		{"path", func(v *api.Target) { v.Path = []string{"/srv", "/opt/bin"} }, "new directory on PATH: /srv", "", "", "directory no longer on PATH: /srv"},
		{"host", func(v *api.Target) { v.Egress = nil }, "", "agents can no longer reach a:443", "agents can reach a:443", ""},
	})
	whole := catalog.NewSet()
	put(whole, base())
	const p = "target/local: "
	checkWhole(t, "target", whole, p+"new target: executor jail, level full, mode guarded\n"+p+"new read-only mount: jails can read /opt of the host\n"+p+"new directory on PATH: /opt/bin\n"+p+"agents can reach a:443",
		p+"removed target: nobody could run there")
}

// proves R-C6
func TestChangesOfModelsSecretsAndSources(t *testing.T) {
	model := func() api.Model {
		return api.Model{
			Name: "m", API: api.OpenAIChat, Endpoint: "https://m/", Credential: &api.Credential{Header: "h", Secret: "s"}, Levels: map[api.Name]string{"small": "m1"},
			Prices: map[string]api.Price{"m1": {Input: 2, Output: 2, CacheRead: 2, CacheWrite: 2}}, ServerTools: []string{"search"},
		}
	}
	price := func(p api.Price) func(*api.Model) { return func(v *api.Model) { v.Prices["m1"] = p } }
	const cheaper = "other prices of m1, by which a limit of cost may allow more"
	checkChanges(t, "model/m", model, func(s *catalog.Set, v api.Model) { s.Models["m"] = v }, []change[api.Model]{
		{"endpoint", func(v *api.Model) { v.Endpoint = "https://n/" }, "new endpoint: openai-chat at https://n/, was openai-chat at https://m/", "", "new endpoint: openai-chat at https://m/, was openai-chat at https://n/", ""},
		{"api", func(v *api.Model) { v.API = api.Gemini }, "new endpoint: gemini at https://m/, was openai-chat at https://m/", "", "new endpoint: openai-chat at https://m/, was gemini at https://m/", ""},
		{"credential", func(v *api.Model) { v.Credential = nil }, "new credential: none, was with secret s in header h", "", "new credential: with secret s in header h, was none", ""},
		{"level", func(v *api.Model) { v.Levels["small"] = "m2" }, "level small is now m2, was m1", "", "level small is now m1, was m2", ""},
		{"new level", func(v *api.Model) { v.Levels["large"] = "m2" }, "new level large: m2", "", "", ""},
		{"input", price(api.Price{Input: 1, Output: 2, CacheRead: 2, CacheWrite: 2}), cheaper, "", "", ""},
		{"output", price(api.Price{Input: 2, Output: 1, CacheRead: 2, CacheWrite: 2}), cheaper, "", "", ""},
		{"cached", price(api.Price{Input: 2, Output: 2, CacheRead: 1, CacheWrite: 2}), cheaper, "", "", ""},
		{"to the cache", price(api.Price{Input: 2, Output: 2, CacheRead: 2, CacheWrite: 1}), cheaper, "", "", ""},
		{"currency", func(v *api.Model) { v.Currency = "eur" }, cheaper, "", cheaper, ""},
		{"server tool", func(v *api.Model) { v.ServerTools = nil }, "", "the provider no longer runs search", "agents can have the provider run search", ""},
	})
	whole := catalog.NewSet()
	whole.Models["m"] = model()
	checkWhole(t, "model", whole, "model/m: new model: openai-chat at https://m/ with secret s in header h\nmodel/m: agents can have the provider run search", "")

	secret := func() api.Secret { return api.Secret{Name: "s", Ref: "file:s"} }
	checkChanges(t, "secret/s", secret, func(s *catalog.Set, v api.Secret) { s.Secrets["s"] = v }, []change[api.Secret]{
		{"place", func(v *api.Secret) { v.Ref = "env:S" }, "new value: from env:S, was from file:s", "", "new value: from file:s, was from env:S", ""},
	})
	whole = catalog.NewSet()
	whole.Secrets["s"] = secret()
	checkWhole(t, "secret", whole, "", "")

	source := func() api.Source {
		return api.Source{Name: "s", Repo: "https://r", Secret: "s", User: "u", KnownHosts: []string{"k"}}
	}
	checkChanges(t, "source/s", source, func(s *catalog.Set, v api.Source) { s.Sources["s"] = v }, []change[api.Source]{
		{"repository", func(v *api.Source) { v.Repo = "https://q" }, "new repository: https://q, was https://r", "", "new repository: https://r, was https://q", ""},
		{"user", func(v *api.Source) { v.User = "" }, "fetched with secret s, was with secret s as u", "", "fetched with secret s as u, was with secret s", ""},
		{"secret", func(v *api.Source) { v.Secret = "" }, "fetched none, was with secret s as u", "", "fetched with secret s as u, was none", ""},
		{"host key", func(v *api.Source) { v.KnownHosts = append(v.KnownHosts, "l") }, "trusts another host key", "", "", ""},
	})
	whole = catalog.NewSet()
	whole.Sources["s"] = source()
	checkWhole(t, "source", whole, "source/s: new source: https://r with secret s as u", "source/s: removed source: nobody could start from it")
}

// proves R-C6
func TestChangesOfSchedules(t *testing.T) {
	const text = "source: {name: app}\ntasks:\n  - {id: a, subagent: code, env: [plain]}\n"
	base := func() api.Schedule {
		return api.Schedule{Name: "n", Cron: "0 2 * * *", Zone: "UTC", Plan: text, Principal: "ci:main", CatchUp: api.CatchUpLast, CatchUpWithin: api.Duration(time.Hour)}
	}
	put := func(s *catalog.Set, v api.Schedule) { s.Schedules["n"] = v }
	plan := planText(base())
	if want := "a plan of 1 task (code), sha256 of its file " + api.DigestOf([]byte(text)).Hex()[:12]; plan != want {
		t.Fatalf("%q, want %q", plan, want)
	}
	const invalid = "an invalid plan"
	checkChanges(t, "schedule/n", base, put, []change[api.Schedule]{
		{"cron", func(v *api.Schedule) { v.Cron = "* * * * *" }, `new times: "* * * * *" in UTC, was "0 2 * * *" in UTC`, "", `new times: "0 2 * * *" in UTC, was "* * * * *" in UTC`, ""},
		{"zone", func(v *api.Schedule) { v.Zone = "Europe/Rome" }, `new times: "0 2 * * *" in Europe/Rome, was "0 2 * * *" in UTC`, "", `new times: "0 2 * * *" in UTC, was "0 2 * * *" in Europe/Rome`, ""},
		{"principal", func(v *api.Schedule) { v.Principal = "ci:root" }, "new principal: ci:root, was ci:main", "", "new principal: ci:main, was ci:root", ""},
		{"plan", func(v *api.Schedule) { v.Plan = "x" }, "new plan: " + invalid, "", "new plan: " + plan, ""},
		{"parameters", func(v *api.Schedule) { v.Set = map[string]json.RawMessage{"p": json.RawMessage("1")} }, "new plan: " + invalid, "", "new plan: " + plan, ""},
		{"paused", func(v *api.Schedule) { v.Pause = true }, "", "paused: its slots are skipped", `no longer paused: "0 2 * * *" in UTC submits ` + plan + " as ci:main", ""},
		{"all slots", func(v *api.Schedule) { v.CatchUp = api.CatchUpAll }, "missed slots: all within 1h0m0s made up, was last within 1h0m0s made up", "", "missed slots: last within 1h0m0s made up, was all within 1h0m0s made up", ""},
		{"no slots", func(v *api.Schedule) { v.CatchUp = "" }, "missed slots: none made up, was last within 1h0m0s made up", "", "missed slots: last within 1h0m0s made up, was none made up", ""},
		{"cancel", func(v *api.Schedule) { v.Overlap = api.OverlapCancel }, "a slot cancels a run that is open", "", "", ""},
	})
	whole := catalog.NewSet()
	v := base()
	v.Pause = true
	put(whole, v)
	checkWhole(t, "schedule", whole, `schedule/n: new schedule: "0 2 * * *" in UTC submits `+plan+" as ci:main, paused", `schedule/n: removed schedule: "0 2 * * *" in UTC submits `+plan+" as ci:main, paused")
}
