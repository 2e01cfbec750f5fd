package catalogdiff

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// toolServer is a server with a jail, two tools and a definition of each.
func toolServer() api.ToolServer {
	return api.ToolServer{
		Name: "w", Timeout: api.Duration(time.Minute), Parallel: 4,
		Stdio: &api.StdioServer{Command: api.Command{"serve"}, ToolHost: api.ToolHost{
			Capability: "tools", Env: map[string]string{"LOG": "info"}, Secrets: map[string]api.Name{"PW": "pw"}, ReadOnly: []string{"/opt"}, Path: []string{"/opt/bin"},
			Egress: []string{"a:443"}, Connect: map[int]string{5432: "127.0.0.1:5432"}, Limits: api.Limits{Memory: 1 << 30},
		}},
		Allow: []api.ToolAllow{
			{Tool: "put", Roles: []api.Name{"build", "ship"}, Tier: api.Stateful, Approval: &api.ToolApproval{Wait: api.Duration(time.Minute), Expires: api.Duration(time.Hour)}, Tainted: api.TaintedForbid},
			{Tool: "query", Roles: []api.Name{"build"}, Tier: api.Reversible},
		},
		Definitions: []api.ToolDefinition{{Name: "put"}, {Name: "query", Title: "t", Description: "d", InputSchema: json.RawMessage(`{}`), OutputSchema: json.RawMessage(`{}`), Annotations: json.RawMessage(`{}`)}},
	}
}

// proves R-G1, R-C6
func TestChangesOfToolServers(t *testing.T) {
	put := func(s *catalog.Set, v api.ToolServer) { s.Tools[v.Name] = v }
	const server = "runs serve in the files of capability tools"
	const everything = "role build can call w/query: tier reversible"
	checkChanges(t, "tool/w", toolServer, put, []change[api.ToolServer]{
		{"command", func(v *api.ToolServer) { v.Stdio.Command = api.Command{"serve", "-a"} }, "changed server: runs serve -a in the files of capability tools, was " + server, "", "changed server: " + server + ", was runs serve -a in the files of capability tools", ""},
		{"each call", func(v *api.ToolServer) {
			v.Run, v.Stdio = &api.ToolCommand{Command: v.Stdio.Command, ToolHost: v.Stdio.ToolHost}, nil
		}, "changed server: " + server + " for each call, was " + server, "", "changed server: " + server + ", was " + server + " for each call", ""},
		{"capability", func(v *api.ToolServer) { v.Stdio.Capability = "" }, "changed server: runs serve, was " + server, "", "changed server: " + server + ", was runs serve", ""},
		{"trusted", func(v *api.ToolServer) { v.Trusted = true }, "trusted: a dispatch that reads what it returns is not tainted", "", "", "no longer trusted: a dispatch that reads what it returns is tainted"},
		{"shared", func(v *api.ToolServer) { v.Session = api.SessionShared }, "one session for all dispatches, was one for each", "", "", ""},
		{"variable", func(v *api.ToolServer) { v.Stdio.Env["LOG"] = "debug" }, "runs with LOG=debug", "", "runs with LOG=info", ""},
		{"new variable", func(v *api.ToolServer) { v.Stdio.Env["A"] = "b" }, "runs with A=b", "", "", ""},
		{"secret", func(v *api.ToolServer) { v.Stdio.Secrets["PW"] = "other" }, "the server has the value of secret other, in PW", "the server no longer has secret pw in PW", "the server has the value of secret pw, in PW", "the server no longer has secret other in PW"},
		{"no secret", func(v *api.ToolServer) { v.Stdio.Secrets = nil }, "", "the server no longer has secret pw in PW", "the server has the value of secret pw, in PW", ""},
		{"read-only", func(v *api.ToolServer) { v.Stdio.ReadOnly = nil }, "", "the server can no longer read /opt of the host", "the server can read /opt of the host", ""},
		{"path", func(v *api.ToolServer) { v.Stdio.Path = append(v.Stdio.Path, "/x") }, "new directory on PATH: /x", "", "", ""},
		{"host", func(v *api.ToolServer) { v.Stdio.Egress = nil }, "", "the server can no longer reach a:443", "the server can reach a:443", ""},
		{"port", func(v *api.ToolServer) { v.Stdio.Connect[5432] = "10.0.0.1:1" }, "the server can reach 10.0.0.1:1, at its port 5432", "the server can no longer reach 127.0.0.1:5432, at its port 5432", "the server can reach 127.0.0.1:5432, at its port 5432", "the server can no longer reach 10.0.0.1:1, at its port 5432"},
		{"limit", func(v *api.ToolServer) { v.Stdio.Limits.Memory = 0 }, "raised memory: 4GiB, was 1GiB", "", "", "lowered memory: 1GiB, was 4GiB"},
		{"timeout", func(v *api.ToolServer) { v.Timeout = 0 }, "raised timeout: 2m0s, was 1m0s", "", "", ""},
		{"parallel", func(v *api.ToolServer) { v.Parallel = 0 }, "raised parallel: 8, was 4", "", "", ""},
		{"tool", func(v *api.ToolServer) { v.Allow = v.Allow[:1] }, "", "role build can no longer call w/query", everything, ""},
		{"role", func(v *api.ToolServer) { v.Allow[1].Roles = []api.Name{"ship", "build"} }, "role ship can call w/query: tier reversible", "", "", "role ship can no longer call w/query"},
		{"tier", func(v *api.ToolServer) { v.Allow[1].Tier = api.Observe }, "lower tier of w/query: observe, was reversible", "", "", "higher tier of w/query: reversible, was observe"},
		{"no approval", func(v *api.ToolServer) { v.Allow[0].Approval = nil }, "calls of w/put no longer need an approval", "", "", "each call of w/put needs an approval"},
		{"expiry", func(v *api.ToolServer) { v.Allow[0].Approval.Expires = 0 }, "an approval of w/put is good for 24h0m0s, was 1h0m0s", "", "", ""},
		{"tainted", func(v *api.ToolServer) { v.Allow[0].Tainted = api.TaintedAsk }, "a tainted dispatch can call w/put, with an approval", "", "", "a tainted dispatch can no longer call w/put"},
		{"title", func(v *api.ToolServer) { v.Definitions[1].Title = "" }, "w/query is defined otherwise: title changed", "", "w/query is defined otherwise: title changed", ""},
		{"description and schema", func(v *api.ToolServer) {
			v.Definitions[1].Description, v.Definitions[1].InputSchema = "", json.RawMessage(`true`)
		}, "w/query is defined otherwise: description, input schema changed", "", "w/query is defined otherwise: description, input schema changed", ""},
		{"result and annotations", func(v *api.ToolServer) { v.Definitions[1].OutputSchema, v.Definitions[1].Annotations = nil, nil }, "w/query is defined otherwise: output schema, annotations changed", "", "w/query is defined otherwise: output schema, annotations changed", ""},
		{"no definition", func(v *api.ToolServer) { v.Definitions = v.Definitions[:1] }, "", "", "", ""},
	})
	whole := catalog.NewSet()
	v := toolServer()
	v.Trusted, v.Session, v.Stdio.Env["PATH"] = true, api.SessionShared, "/x"
	put(whole, v)
	const p = "tool/w: "
	checkWhole(t, "server", whole, strings.Join([]string{
		p + "new server: " + server, p + "trusted: a dispatch that reads what it returns is not tainted", p + "runs with PATH=/x", p + "the server has the value of secret pw, in PW",
		p + "the server can read /opt of the host", p + "new directory on PATH: /opt/bin", p + "the server can reach a:443", p + "the server can reach 127.0.0.1:5432, at its port 5432",
		p + "role build can call w/put: tier stateful, each call with an approval, wait 1m0s, expires 1h0m0s, not for a tainted dispatch",
		p + "role ship can call w/put: tier stateful, each call with an approval, wait 1m0s, expires 1h0m0s, not for a tainted dispatch", p + everything,
	}, "\n"), strings.Join([]string{
		p + "removed server: " + server, p + "role build can no longer call w/put", p + "role ship can no longer call w/put", p + "role build can no longer call w/query",
	}, "\n"))
}

// proves R-G1, R-C6
func TestChangesOfRemoteServers(t *testing.T) {
	base := func() api.ToolServer {
		return api.ToolServer{Name: "h", HTTP: &api.HTTPServer{
			URL: "https://h/mcp", Address: "10.0.0.7:443", Header: &api.Credential{Header: "x", Secret: "k"},
			OAuth: &api.OAuthGrant{TokenURL: "https://t", ClientID: "c", Secret: "s", Scopes: []string{"r", "w"}},
		}}
	}
	text := func(url, at, client, scopes, key string) string {
		return url + at + " with secret s for client \"" + client + "\" at https://t" + scopes + key
	}
	whole := text("https://h/mcp", " at 10.0.0.7:443", "c", ", scopes r w", " with secret k in header x")
	row := func(name string, edit func(*api.ToolServer), is string) change[api.ToolServer] {
		return change[api.ToolServer]{name, edit, "changed server: " + is + ", was " + whole, "", "changed server: " + whole + ", was " + is, ""}
	}
	changes := []change[api.ToolServer]{
		row("url", func(v *api.ToolServer) { v.HTTP.URL = "https://i/mcp" }, strings.Replace(whole, "//h/", "//i/", 1)),
		row("address", func(v *api.ToolServer) { v.HTTP.Address = "" }, text("https://h/mcp", "", "c", ", scopes r w", " with secret k in header x")),
		row("client", func(v *api.ToolServer) { v.HTTP.OAuth.ClientID = "d" }, text("https://h/mcp", " at 10.0.0.7:443", "d", ", scopes r w", " with secret k in header x")),
		row("scopes", func(v *api.ToolServer) { v.HTTP.OAuth.Scopes = nil }, text("https://h/mcp", " at 10.0.0.7:443", "c", "", " with secret k in header x")),
		row("credential", func(v *api.ToolServer) { v.HTTP.Header = nil }, text("https://h/mcp", " at 10.0.0.7:443", "c", ", scopes r w", "")),
		row("client secret", func(v *api.ToolServer) { v.HTTP.OAuth.Secret = "z" }, strings.Replace(whole, "secret s ", "secret z ", 1)),
		row("nothing left", func(v *api.ToolServer) { v.HTTP = nil }, "nothing"),
	}
	checkChanges(t, "tool/h", base, func(s *catalog.Set, v api.ToolServer) { s.Tools[v.Name] = v }, changes)
	if i := slices.IndexFunc(changes, func(c change[api.ToolServer]) bool { return c.widens == c.backWidens }); i >= 0 {
		t.Errorf("%s: both directions have one text", changes[i].name)
	}
}
