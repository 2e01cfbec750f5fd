package arch

import (
	"slices"
	"strings"
)

const module = "github.com/bailiwick-dev/bailiwick/"

// room is a group of packages below internal, or a package or directory outside of it.
type room struct {
	name   string
	floors [][]string // its packages, lowest floor first
}

// house lists the rooms by floor, lowest first. A package may import the packages of
// rooms on lower floors, and of its own room those on lower floors there.
func house() [][]room {
	return [][]room{
		{{"api", [][]string{{"api"}}}, {"packaging", [][]string{{"packaging"}}}},
		{{"internal/base", [][]string{
			{"uidblock"},
			{"background", "canon", "cron", "cuttext", "durable", "egress", "eventstream", "failpoint", "hostcommand", "installation", "landlock", "mountinfo", "ownedpath", "redact", "visibletext"}, // failpoint is empty in what is shipped
			{"gitexec", "httpguard", "mcpwire", "strictyaml", "unixframe", "usererror"},
		}}},
		{
			{"client", [][]string{{"client"}}},
			{"internal/document", [][]string{{"logproof", "record", "seal"}, {"ballot"}}},
		},
		{
			{"internal/rule", [][]string{{"catalog", "plan", "policy"}, {"catalogdiff"}}},
			{"internal/testkit", [][]string{{"arch", "faultdisk", "machine", "prebuilt", "scriptmodel", "softkey"}}},
		},
		{{"internal/verify", [][]string{{"bundle", "receipt", "report"}, {"evidence"}}}},
		{{"internal/state", [][]string{
			{"blob", "oauth", "store"},
			{"anchor", "audit", "budget", "secret"},
			{"approval", "export", "inforce", "login", "notify", "operator"},
		}}},
		{
			{"deploy", [][]string{{"deploy"}}},
			{"internal/tool", [][]string{{"toolclient"}, {"toolcall"}, {"gateway"}}},
			{"internal/worker", [][]string{{"launchsetting", "mounttree"}, {"agent", "broker", "capture", "jail", "mcpclient"}, {"account", "checkoutcache", "sourcefetch", "toolhost"}, {"launch", "supervisor"}}},
		},
		{{"internal/run", [][]string{{"executor", "retention"}, {"dispatch"}, {"orchestrator"}, {"schedule"}}}},
		{{"internal/front", [][]string{
			{"console", "installer", "mcpserve", "signin", "telemetry", "webpage/graph", "webpage/logview", "webpage/patch", "websetting"},
			{"decisiontext", "mcphttp", "readiness", "runverbs", "webpage"},
			{"cli", "deploycli", "server"},
			{"daemoncli"},
		}}},
		{
			{"cmd", [][]string{{"bailiwick", "bailiwick-deploy", "bailiwick-fetch", "bailiwick-launch", "bailiwick-mcp", "bailiwick-tool", "bailiwick-toolhost", "bailiwick-verify", "bailiwick-web", "bailiwick-worker", "bailiwickd"}}},
			{"e2e", [][]string{{"e2e"}, {"scriptmodel", "suite", "sweep", "toolserver"}}},
		},
	}
}

// place is where a package is: its room, the room's floor and its floor in the room.
type place struct {
	room     string
	at, here int
}

// places returns the place of every package of the house, by path in the module. A
// room below internal has a package of its own, its documentation.
func places() map[string]place {
	all := map[string]place{}
	for at, rooms := range house() {
		for _, r := range rooms {
			if strings.HasPrefix(r.name, "internal/") {
				all[r.name] = place{r.name, at, 0}
			}
			for here, names := range r.floors {
				for _, name := range names {
					if name != r.name {
						name = r.name + "/" + name
					}
					all[name] = place{r.name, at, here}
				}
			}
		}
	}
	return all
}

// telemetry lists packages that only the service links: they are large, slow to
// start, and use the network.
func telemetry() []string {
	return []string{"github.com/prometheus/...", "go.opentelemetry.io/...", "google.golang.org/...", "github.com/minio/..."}
}

// testOnly lists packages that no program links: tests compare the log's tiles with
// those of Tessera.
func testOnly() []string { return []string{"github.com/transparency-dev/tessera/...", "k8s.io/..."} }

// never lists packages that must be absent from an import closure. A name that ends
// in /... includes everything below it.
func never() map[string][]string {
	return map[string][]string{
		"internal/rule/catalog":      {module + "deploy", "database/sql"},
		"internal/run/dispatch":      {module + "deploy", module + "internal/run/orchestrator", module + "internal/rule/plan"}, // R-O1: it works without
		"internal/worker/supervisor": {module + "deploy", module + "internal/state/store", module + "internal/state/audit", module + "internal/rule/policy", "database/sql"},
		"cmd/bailiwick-deploy":       slices.Concat([]string{module + "internal/worker/capture", module + "internal/run/dispatch", module + "internal/state/store", module + "internal/run/executor", module + "internal/worker/jail", "database/sql"}, telemetry(), testOnly()),
		"cmd/bailiwick-worker":       slices.Concat([]string{module + "deploy", module + "internal/state/store", module + "internal/state/audit", module + "internal/run/dispatch", "database/sql"}, telemetry(), testOnly()),
		"cmd/bailiwick-launch":       slices.Concat([]string{module + "deploy", module + "internal/state/store", module + "internal/state/audit", module + "internal/run/dispatch", module + "internal/rule/policy", module + "internal/worker/jail", "database/sql", "os/exec", "plugin"}, telemetry(), testOnly()),
		"cmd/bailiwick-fetch":        slices.Concat([]string{module + "deploy", module + "internal/state/store", module + "internal/state/audit", module + "internal/run/dispatch", "database/sql"}, telemetry(), testOnly()),
		"cmd/bailiwick-toolhost":     slices.Concat([]string{module + "deploy", module + "internal/state/store", module + "internal/state/audit", module + "internal/run/dispatch", "database/sql"}, telemetry(), testOnly()),
		"cmd/bailiwick":              slices.Concat([]string{module + "internal/state/store", "database/sql", "modernc.org/..."}, telemetry(), testOnly()), // R-O1: only the service opens the database
		"cmd/bailiwick-mcp":          slices.Concat([]string{module + "deploy", module + "internal/document/seal", module + "internal/state/store", "database/sql", "modernc.org/...", "filippo.io/...", "plugin"}, telemetry(), testOnly()),
		"cmd/bailiwick-web":          slices.Concat([]string{module + "deploy", module + "internal/document/seal", module + "internal/state/store", "database/sql", "modernc.org/...", "filippo.io/...", "plugin"}, telemetry(), testOnly()),
		"cmd/bailiwickd":             slices.Concat([]string{module + "deploy", module + "internal/front/deploycli", "plugin"}, testOnly()),
		// R-A7: offline.
		"cmd/bailiwick-verify": slices.Concat([]string{"database/sql", "modernc.org/...", "os/exec", "plugin"}, testOnly()),
	}
}

// closure lists, for the programs and packages that must stay small, all packages of
// the module that they may reach.
func closure() map[string][]string {
	return map[string][]string{
		"internal/front/cli": {"api", "internal/base/cuttext", "client", "internal/base/canon", "internal/base/ownedpath", "internal/base/landlock", "internal/front/console", "internal/base/durable", "internal/base/uidblock", "internal/base/egress", "internal/verify/receipt", "internal/base/usererror", "internal/base/gitexec", "internal/document/logproof", "internal/rule/plan", "internal/front/readiness", "internal/document/record", "internal/front/runverbs", "internal/front/signin", "internal/base/strictyaml", "internal/base/visibletext"},
		"cmd/bailiwick":      {"api", "internal/base/installation", "internal/base/cuttext", "client", "internal/base/canon", "internal/base/ownedpath", "internal/base/landlock", "internal/front/cli", "internal/front/console", "internal/base/durable", "internal/base/uidblock", "internal/base/egress", "internal/verify/receipt", "internal/base/usererror", "internal/base/gitexec", "internal/document/logproof", "internal/rule/plan", "internal/front/readiness", "internal/document/record", "internal/front/runverbs", "internal/front/signin", "internal/base/strictyaml", "internal/base/visibletext"},
		// What the page shows, without a request or a socket.
		"internal/front/webpage/graph":   {"api", "internal/base/cuttext"},
		"internal/front/webpage/logview": {"api", "internal/base/cuttext", "internal/base/visibletext"},
		"internal/front/webpage/patch":   {"api", "internal/base/cuttext", "internal/base/visibletext"},
		// R-A7: all that an auditor has to read and trust.
		"internal/verify/evidence": verifier(),
		"cmd/bailiwick-verify":     append(verifier(), "internal/verify/evidence"),
		// R-B4: what an AI's client starts.
		"internal/front/mcpserve": {"api", "internal/base/installation", "internal/base/cuttext", "client", "internal/base/canon", "internal/base/egress", "internal/base/usererror", "internal/base/mcpwire"},
		"internal/front/mcphttp":  {"api", "internal/base/installation", "internal/base/cuttext", "client", "internal/base/canon", "internal/base/egress", "internal/base/usererror", "internal/base/httpguard", "internal/front/mcpserve", "internal/base/mcpwire"},
		"cmd/bailiwick-tool":      {"api", "internal/base/eventstream"}, // it runs in jails, and asks the gateway
		// The one program that becomes another account.
		"internal/worker/launch": launcher(),
		"cmd/bailiwick-launch":   append(launcher(), "internal/base/usererror", "internal/worker/launch"),
		// They run what a human signed, each with one credential or one server, and decide nothing.
		"cmd/bailiwick-fetch":    {"api", "internal/base/cuttext", "internal/base/canon", "internal/base/ownedpath", "internal/base/landlock", "internal/base/durable", "internal/base/uidblock", "internal/base/egress", "internal/base/failpoint", "internal/base/gitexec", "internal/base/mountinfo", "internal/base/redact", "internal/base/usererror", "internal/base/visibletext", "internal/document/record", "internal/worker/capture", "internal/worker/jail", "internal/worker/mounttree", "internal/worker/sourcefetch"},
		"cmd/bailiwick-toolhost": {"api", "internal/base/background", "internal/base/cuttext", "internal/base/canon", "internal/base/landlock", "internal/base/durable", "internal/base/uidblock", "internal/base/egress", "internal/base/eventstream", "internal/base/failpoint", "internal/base/mcpwire", "internal/base/mountinfo", "internal/base/redact", "internal/base/usererror", "internal/base/visibletext", "internal/document/ballot", "internal/document/record", "internal/document/seal", "internal/rule/catalog", "internal/rule/policy", "internal/state/blob", "internal/worker/broker", "internal/worker/jail", "internal/worker/mounttree", "internal/worker/mcpclient", "internal/worker/toolhost"},
		"cmd/bailiwick-mcp":      {"api", "internal/base/installation", "internal/base/cuttext", "client", "internal/base/canon", "internal/base/egress", "internal/base/usererror", "internal/base/httpguard", "internal/front/mcphttp", "internal/front/mcpserve", "internal/base/mcpwire"},
		// What a browser speaks to.
		"internal/front/webpage": {"api", "internal/base/cuttext", "internal/base/strictyaml", "internal/front/websetting", "client", "internal/base/canon", "internal/base/egress", "internal/base/httpguard", "internal/base/visibletext", "internal/front/webpage/graph", "internal/front/webpage/logview", "internal/front/webpage/patch"},
		"cmd/bailiwick-web":      {"api", "internal/base/installation", "internal/base/strictyaml", "internal/front/websetting", "internal/base/cuttext", "client", "internal/base/canon", "internal/base/egress", "internal/base/usererror", "internal/base/httpguard", "internal/base/visibletext", "internal/front/webpage", "internal/front/webpage/graph", "internal/front/webpage/logview", "internal/front/webpage/patch"},
	}
}

// launcher lists the packages that start signed attempts. None of them decides or reaches a
// network, and of what is unsigned they parse frames alone.
func launcher() []string {
	return []string{
		"api", "internal/base/canon", "internal/base/ownedpath", "internal/base/cuttext", "internal/base/durable", "internal/base/failpoint", "internal/base/mountinfo", "internal/base/strictyaml", "internal/base/uidblock", "internal/base/unixframe", "internal/base/visibletext", "internal/document/ballot", "internal/document/record", "internal/document/seal", "internal/rule/catalog", "internal/state/blob", "internal/worker/account", "internal/worker/launchsetting", "internal/worker/mounttree",
	}
}

// verifier lists the packages that verify evidence: formats, hashes, signatures and
// rules. None of them writes, listens, dials or authorises.
func verifier() []string {
	return []string{
		"api", "internal/base/canon", "internal/base/cuttext", "internal/rule/catalog", "internal/base/cron", "internal/base/durable", "internal/base/uidblock", "internal/verify/bundle", "internal/verify/receipt", "internal/verify/report", "internal/base/usererror", "internal/document/ballot", "internal/document/logproof", "internal/rule/plan", "internal/rule/policy", "internal/document/record", "internal/document/seal", "internal/base/strictyaml", "internal/base/visibletext",
	}
}

// direct lists packages that a package may not import itself. It is for standard
// packages such as os, which fmt adds to every closure.
func direct() map[string][]string {
	return map[string][]string{
		"api":                            {"os", "os/*", "net", "syscall", "unsafe"},
		"internal/base/canon":            {"os", "os/*", "net", "net/*"},
		"internal/front/webpage/graph":   {"os", "os/*", "net", "net/*", "syscall", "unsafe"},
		"internal/front/webpage/logview": {"os", "os/*", "net", "net/*", "syscall", "unsafe"},
		"internal/front/webpage/patch":   {"os", "os/*", "net", "net/*", "syscall", "unsafe"},
		"internal/base/visibletext":      {"os", "os/*", "net", "net/*", "syscall", "unsafe"},
		"internal/base/egress":           {"os", "os/*", "unsafe"},
		"internal/rule/plan":             {"os", "os/*", "net", "net/*", "syscall", "unsafe"},
		"internal/rule/policy":           {"os", "os/*", "net", "net/*", "time"},
		"internal/base/httpguard":        {"os/exec", "os/user", "plugin", "unsafe"},
		"internal/front/mcphttp":         {"os/exec", "os/user", "plugin", "unsafe"},
		"internal/front/mcpserve":        {"os/exec", "os/user", "plugin", "unsafe"},
		"internal/front/webpage":         {"os/exec", "os/user", "plugin", "unsafe"},
		"internal/document/logproof":     {"os", "os/*", "net", "net/*", "time", "database/*", "syscall", "unsafe"},
		"internal/document/record":       {"os", "os/*", "net", "net/*"},
		"internal/document/ballot":       {"os", "os/*", "net", "net/*", "database/*", "syscall", "unsafe"},
		"internal/verify/evidence":       {"os", "os/*", "net", "net/*", "database/*", "syscall", "unsafe"},
		"internal/verify/bundle":         {"os", "os/*", "net", "net/*", "database/*", "syscall", "unsafe"},
		"internal/verify/report":         {"os", "os/*", "net", "net/*", "database/*", "syscall", "unsafe"},
		// R-A7: receipts are checked offline.
		"internal/verify/receipt":   {"os", "os/*", "net", "net/*", "database/*", "syscall", "unsafe"},
		"internal/rule/catalog":     {"os", "os/*", "syscall", "unsafe"},
		"internal/rule/catalogdiff": {"os", "os/*", "net", "net/*", "syscall", "unsafe"},
	}
}

// only lists, for some packages, the packages that may reach them.
func only() map[string][]string {
	return map[string][]string{
		"deploy":                       {"internal/front/deploycli", "cmd/bailiwick-deploy"},
		"internal/testkit/faultdisk":   {},                  // tests only
		"internal/testkit/machine":     {},                  // tests only
		"internal/testkit/prebuilt":    {},                  // tests only
		"internal/testkit/scriptmodel": {"e2e/scriptmodel"}, // tests and the demo only
		"internal/testkit/softkey":     {},                  // tests only
		"internal/front/telemetry":     {"internal/front/daemoncli", "cmd/bailiwickd"},
		// R-O1: one process runs plans.
		"internal/run/orchestrator": {"internal/run/schedule", "internal/front/daemoncli", "cmd/bailiwickd"},
		"internal/state/login":      {"internal/front/server", "internal/front/daemoncli", "cmd/bailiwickd"},
		"internal/state/oauth":      {"internal/front/server", "internal/front/daemoncli", "cmd/bailiwickd"},
		"internal/state/anchor":     {"internal/front/daemoncli", "cmd/bailiwickd"},
		"internal/state/notify":     {"internal/front/daemoncli", "cmd/bailiwickd"},
		"internal/state/store":      {"internal/state/anchor", "internal/state/approval", "internal/state/audit", "internal/state/budget", "internal/state/export", "internal/state/login", "internal/state/notify", "internal/state/operator", "internal/run/retention", "internal/state/inforce", "internal/tool/gateway", "internal/run/dispatch", "internal/run/orchestrator", "internal/run/schedule", "internal/front/server", "internal/front/daemoncli", "cmd/bailiwickd"},
		// Only a worker's broker holds values of secrets for requests.
		"internal/worker/broker":     {"internal/worker/toolhost", "internal/worker/supervisor", "cmd/bailiwick-toolhost", "cmd/bailiwick-worker"},
		"internal/worker/supervisor": {"cmd/bailiwick-worker"},
		// The process that fetches holds a credential; the service does not link it.
		"internal/worker/sourcefetch": {"cmd/bailiwick-fetch"},
		// Only the service decides and makes calls of tools; only a process of its own runs
		// a server of them.
		"internal/tool/gateway":    {"internal/run/dispatch", "internal/run/orchestrator", "internal/run/schedule", "internal/front/server", "internal/front/daemoncli", "cmd/bailiwickd"},
		"internal/tool/toolcall":   {"internal/tool/gateway", "internal/run/dispatch", "internal/run/orchestrator", "internal/run/schedule", "internal/front/server", "internal/front/daemoncli", "cmd/bailiwickd"},
		"internal/worker/toolhost": {"cmd/bailiwick-toolhost"},
		// It speaks to servers with their credentials; the service does not link it.
		"internal/worker/mcpclient": {"internal/worker/toolhost", "cmd/bailiwick-toolhost"},
		"internal/worker/jail":      {"internal/worker/sourcefetch", "internal/worker/toolhost", "internal/worker/supervisor", "internal/front/daemoncli", "cmd/bailiwick-fetch", "cmd/bailiwick-toolhost", "cmd/bailiwick-worker", "cmd/bailiwickd"},
	}
}

// stdOnly lists the packages that reach only the standard library.
func stdOnly() []string {
	return []string{"api", "internal/base/background", "internal/base/cuttext", "internal/base/egress", "internal/base/eventstream", "internal/base/visibletext"}
}
