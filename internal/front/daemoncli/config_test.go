package daemoncli

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

func TestTheConfigurationIsReadWhole(t *testing.T) {
	s, err := parseSettings("service.yaml", []byte(`version: 1
log: {format: json, level: warn}
metrics: {listen: "unix:/run/x/metrics.sock"}
tracing: {otlp: "http://127.0.0.1:4318"}
`))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Log.JSON || s.Log.Level != slog.LevelWarn || s.Metrics.Listen.String() != "unix:/run/x/metrics.sock" || s.Tracing.OTLP.String() != "127.0.0.1:4318" {
		t.Errorf("%+v", s)
	}
	if s, err = parseSettings("service.yaml", []byte("version: 1\n")); err != nil || !s.Metrics.Listen.IsZero() || !s.Tracing.OTLP.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAnInvalidConfigurationIsReportedWithItsPosition(t *testing.T) {
	for content, want := range map[string]string{
		"":                                                                "service.yaml:1:1: the file is empty",
		"log: {}\n":                                                       `the key "version" is missing`,
		"version: 2\n":                                                    "service.yaml:1:10: version: this build reads version 1",
		"version: 1\nmetric: {}\n":                                        `service.yaml:2:1: configuration: unknown key "metric"; did you mean "metrics"?`,
		"version: 1\nlog: {fromat: json}\n":                               `service.yaml:2:7: log: unknown key "fromat"; did you mean "format"?`,
		"version: 1\nlog: {format: jsn}\n":                                `log.format: "jsn" is not one of text, json; did you mean "json"?`,
		"version: 1\nlog: {level: verbose}\n":                             "service.yaml:2:14: log.level",
		"version: 1\nlog: [json]\n":                                       "want a mapping",
		"version: 1\nlog:\n":                                              "want a mapping of keys to values, got nothing",
		"version: 1\nmetrics: {listen: 9090}\n":                           "want text, got the number 9090",
		"version: 1\ntracing: {otlp: [a]}\n":                              "tracing.otlp: want text",
		"version: 1\nversion: 1\n":                                        "duplicate key",
		metricsAt("0.0.0.0:9464"):                                         "0.0.0.0 is not a loopback address; metrics are served on this machine only: write unix:/absolute/path or 127.0.0.1:9464",
		metricsAt("[::]:9464"):                                            ":: is not a loopback address",
		metricsAt(":9464"):                                                "not a numeric address and port",
		metricsAt("localhost:9464"):                                       "not a numeric address and port",
		metricsAt("10.0.0.1:9464"):                                        "10.0.0.1 is not a loopback address",
		metricsAt("[::ffff:127.0.0.1]:9464"):                              "is not a loopback address",
		metricsAt("unix:metrics.sock"):                                    "must be absolute",
		metricsAt("unix:@abstract"):                                       "must be absolute",
		metricsAt("unix:/a/../b"):                                         "must be absolute and clean",
		metricsAt("unix:/" + strings.Repeat("a", 107)):                    "at most 107 bytes",
		spansTo("https://127.0.0.1:4318"):                                 "not of the form http://ADDRESS:PORT",
		spansTo("http://collector:4318"):                                  "spans go to this machine only",
		spansTo("http://192.0.2.1:4318"):                                  "192.0.2.1 is not a loopback address",
		spansTo("http://127.0.0.1:4318/v1?x=y"):                           "not of the form",
		spansTo("http://u:p@127.0.0.1:4318"):                              "not of the form",
		spansTo("http://127.0.0.1"):                                       "not a numeric address and port",
		spansTo("http://127.0.0.1:0"):                                     "port 0 is not a port",
		"version: 1\noauth: {}\n":                                         "oauth: write all of issuer, audience and jwks",
		oauthOf("", "/keys.json"):                                         "write all of issuer, audience and jwks",
		oauthOf("http://idp.example", "/keys.json"):                       "oauth.issuer: \"http://idp.example\": want https://",
		oauthOf("https://idp.example", "keys.json"):                       "want /absolute/path or https://HOST[:PORT]/PATH",
		oauthOf("https://idp.example", "/a/../b"):                         "want /absolute/path",
		oauthOf("https://idp.example", "http://127.0.0.1/jwks"):           "want /absolute/path or https://",
		oauthOf("https://idp.example", "https://10.0.0.1/jwks"):           "10.0.0.1 is private (10.0.0.0/8, RFC 1918)",
		oauthOf("https://idp.example", "https://169.254.169.254/jwks"):    "metadata",
		oauthOf("https://idp.example", "https://2130706433/jwks"):         "not fully qualified",
		oauthOf("https://idp.example", "https://127.1/jwks"):              "an IPv4 address in a non-canonical form",
		oauthOf("https://idp.example", "https://localhost/jwks"):          "not fully qualified",
		oauthOf("https://idp.example", "https://[::ffff:127.0.0.1]/jwks"): "not a loopback address",
		oauthOf("https://idp.example", "https://[fe80::1%25eth0]/jwks"):   "zone",
		oauthOf("https://idp.example", "https://u:p@idp.example/jwks"):    "want /absolute/path or https://",
		oauthOf("https://idp.example", "https://idp.example:0/jwks"):      "invalid port",
		oauthOf("https://idp.example", "https://127.0.0.1:0/jwks"):        "invalid port",
		spansTo("http://127.0.0.1@evil.test:80"):                          "not of the form",
		"version: 1\nkeys: {statement: /k}\n":                             `keys: unknown key "statement"; did you mean "statements"?`,
		"version: 1\nkeys: {statements: k}\n":                             "want /absolute/path",
		"version: 1\nkeys: {statements: /a/../k}\n":                       "want /absolute/path",
		"version: 1\nkeys: {statements: [/k]}\n":                          "keys.statements",
		"version: 1\nkeys:\n":                                             "keys: want a mapping",
		"version: 1\norchestrator:\n":                                     "orchestrator: want a mapping of keys to values, got nothing",
		"version: 1\norchestrator: true\n":                                "orchestrator: want a mapping",
		"version: 1\norchestrator: {queue: {}}\n":                         `orchestrator: unknown key "queue"; did you mean "queues"?`,
		"version: 1\norchestrator: {queues: [a]}\n":                       "orchestrator.queues: want a mapping",
		queuesOf("a: 8"):                                                  "orchestrator.queues.a: want a mapping",
		queuesOf("a: {slot: 8}"):                                          `orchestrator.queues.a: unknown key "slot"; did you mean "slots"?`,
		queuesOf("a: {slots: 0}"):                                         "orchestrator.queues.a.slots: want a positive whole number",
		queuesOf("a: {slots: 10001}"):                                     "orchestrator.queues.a.slots: 10001 is too many: at most 10000",
		queuesOf("A: {slots: 1}"):                                         `orchestrator.queues: name "A"`,
		queuesOf("a: {slots: 1}, a: {slots: 2}"):                          "duplicate key",
		queuesOf(manyQueues(maxQueues + 1)):                               "orchestrator.queues: 65 queues, more than 64",
	} {
		_, err := parseSettings("service.yaml", []byte(content))
		if err == nil || api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: err = %v\nwant %s", content, err, want)
		}
	}
}

func queuesOf(s string) string { return "version: 1\norchestrator: {queues: {" + s + "}}\n" }

func manyQueues(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("q%d: {slots: %d}", i, i+1))
	}
	return strings.Join(all, ", ")
}

// The section turns the orchestrator on, except with --idle, and sets the slots of each
// queue. The default queue always exists.
//
// proves R-O3
func TestTheSectionTurnsRunsOn(t *testing.T) {
	for content, want := range map[string]orchestratorSettings{
		"version: 1\n":                   {},
		"version: 1\norchestrator: {}\n": {On: true},
		queuesOf(""):                     {On: true},
		queuesOf("wide: {slots: 10000}, default: {}"): {On: true, Queues: map[api.Name]int{"wide": 10_000, "default": 8}},
		queuesOf("default: {slots: 1}"):               {On: true, Queues: map[api.Name]int{"default": 1}},
	} {
		s, err := parseSettings("service.yaml", []byte(content))
		if err != nil || s.Orchestrator.On != want.On || !maps.Equal(s.Orchestrator.Queues, want.Queues) {
			t.Errorf("%q: %+v, %v", content, s.Orchestrator, err)
		}
		if n := s.Orchestrator.all()[api.DefaultQueue]; n != 1 && n != 8 {
			t.Errorf("%q: the default queue has %d slots", content, n)
		}
		for _, c := range []struct {
			tree  tree
			wants bool
		}{
			{tree{}, want.On},
			{tree{orchestrator: true}, true},
			{tree{idle: time.Second}, false},
		} {
			if got := c.tree.wantsRuns(s); got != c.wants {
				t.Errorf("%q: with the flag %v and idle %s: %v", content, c.tree.orchestrator, c.tree.idle, got)
			}
		}
	}
	if s, err := parseSettings("service.yaml", []byte(queuesOf(manyQueues(maxQueues)))); err != nil || len(s.Orchestrator.Queues) != maxQueues {
		t.Errorf("%d queues: %v", maxQueues, err)
	}
	both := tree{orchestrator: true, idle: time.Second}
	if err := both.checkRuns(); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("--orchestrator with --idle: %v", err)
	}
}

func oauthOf(issuer, jwks string) string {
	return "version: 1\noauth: {issuer: \"" + issuer + "\", audience: \"https://mcp.example/mcp\", jwks: \"" + jwks + "\"}\n"
}

func TestKeysMayBeInAFileOrAtAPublicURLOrAtOneLoopbackPort(t *testing.T) {
	for _, jwks := range []string{"/etc/keys.json", "https://idp.example/jwks", "https://idp.example:8443/jwks?tenant=1", "https://8.8.8.8/jwks", "https://127.0.0.1:8443/jwks", "https://[::1]/jwks"} {
		s, err := parseSettings("service.yaml", []byte(oauthOf("https://idp.example", jwks)))
		if err != nil || s.OAuth != (oauthSettings{"https://idp.example", "https://mcp.example/mcp", jwks}) {
			t.Errorf("%s: %+v, %v", jwks, s.OAuth, err)
		}
	}
}

func metricsAt(s string) string { return "version: 1\nmetrics: {listen: \"" + s + "\"}\n" }
func spansTo(s string) string   { return "version: 1\ntracing: {otlp: \"" + s + "\"}\n" }

func TestAConfigurationWritableByOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "service.yaml")
	tr := &tree{Config: Config{UID: os.Getuid(), Dirs: api.Dirs{Config: dir}}}
	if s, err := tr.settings(); err != nil || s.File != "" {
		t.Fatalf("without a file: %+v, %v", s, err)
	}
	write := func(mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte("version: 1\nlog: {format: json}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(0o644)
	if s, err := tr.settings(); err != nil || !s.Log.JSON || s.File != path {
		t.Fatalf("positive control: %+v, %v", s, err)
	}
	write(0o664)
	if _, err := tr.settings(); err == nil || !strings.Contains(err.Error(), "run: chmod go-w") {
		t.Errorf("a file that the group can write: %v", err)
	}
	write(0o600)
	if err := os.Chown(path, 64321, 64321); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.settings(); err == nil || !strings.Contains(err.Error(), "owned by another account") {
		t.Errorf("another account's file: %v", err)
	}
	tr.config = filepath.Join(dir, "none.yaml")
	if _, err := tr.settings(); err == nil {
		t.Error("a missing --config file was ignored")
	}
	tr.config = ""
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "none.yaml"), path); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.settings(); err == nil {
		t.Error("a link that leads nowhere was passed over")
	}
}

// FuzzSettings: every file gives settings or problems, without a panic, and never an
// address outside this machine.
func FuzzSettings(f *testing.F) {
	f.Add("version: 1\nlog: {format: json, level: warn}\n")
	f.Add(metricsAt("127.0.0.1:0"))
	f.Add(metricsAt("unix:/a"))
	f.Add(spansTo("http://[::1]:4318"))
	f.Add(queuesOf("a: {slots: 7}, default: {}"))
	f.Fuzz(func(t *testing.T, content string) {
		s, err := parseSettings("f", []byte(content))
		if err != nil {
			return
		}
		for _, a := range []string{s.Metrics.Listen.String(), s.Tracing.OTLP.String()} {
			if a != "" && !strings.HasPrefix(a, "127.") && !strings.HasPrefix(a, "[::1]:") && !strings.HasPrefix(a, "unix:/") {
				t.Errorf("%q was taken for a place on this machine", a)
			}
		}
		for name, slots := range s.Orchestrator.all() {
			if _, err := api.ParseName(string(name)); err != nil || slots < 1 || slots > maxSlots {
				t.Errorf("queue %q has %d slots", name, slots)
			}
		}
	})
}

// proves R-S1
func TestKeysThatTheConfigurationNamesArePrivate(t *testing.T) {
	s, err := parseSettings("/srv/b/service.yaml", []byte("version: 1\nkeys: {statements: /srv/k}\nanchors:\n  - {"+anS3+"}\nnotify:\n  - {name: hook, webhook: \"https://a.example/\", secret: /srv/hook.key}\n"))
	if want := []string{"/srv/b/service.yaml", "/srv/k", "/etc/s3.json", "/srv/hook.key"}; err != nil || !slices.Equal(s.private(), want) {
		t.Errorf("%q %v, want %q", s.private(), err, want)
	}
	dir := &tree{Config: Config{Dirs: api.Dirs{State: t.TempDir()}}}
	for range 2 {
		if err := writePrivate(dir.Dirs.Private(), append(s.private(), "/srv/api.sock")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(dir.Dirs.Private())
	if err != nil || string(text) != "/srv/b/service.yaml\n/srv/k\n/etc/s3.json\n/srv/hook.key\n/srv/api.sock\n" {
		t.Errorf("%v %q", err, text)
	}
}
