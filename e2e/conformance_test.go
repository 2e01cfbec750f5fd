package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// suite is one run of the public conformance tests.
type suite struct {
	name    string // as in e2e/agents/conformance.txt
	program string
	args    []string
}

func suites() []suite {
	return []suite{
		{"2025-06-18", "conformance-2025", []string{"--suite", "all", "--spec-version", "2025-06-18"}},
		{"2025-11-25", "conformance-2025", []string{"--suite", "all", "--spec-version", "2025-11-25"}},
		{"2025-11-25+", "conformance-2026", []string{"--requirements", "2025-11-25"}},
		{"2026-07-28", "conformance-2026", []string{"--requirements", "2026-07-28"}},
	}
}

// The public conformance suites pass against the built server on HTTP, except
// for the checks in e2e/agents/conformance.txt that a server with nine tools
// rightly fails. Each line there must still be needed.
//
// proves R-T9
func TestThePublicConformanceSuitesPass(t *testing.T) {
	w := newWorld(t, 0)
	w.catalog(subagent{name: "writer", script: "true"})
	w.up()
	w.admit("ci:conformance")
	net := newIsland(t)
	token, err := os.ReadFile(w.tokenFile("ci:conformance"))
	must(t, err)
	p := &recordingProxy{}
	p.url = net.serve(t, p)
	p.to(t, net, w.serveMCP(net, "--allow-host", strings.TrimPrefix(p.url, "http://"), "--allow-origin", p.url))

	t.Run("control", func(t *testing.T) {
		// The same without a token: a suite that passed then would prove
		// nothing.
		wrong := w.in(t).conform(net, suite{"control", "conformance-2026", []string{"--scenario", "tools-list", "--spec-version", "2025-11-25"}}, p.url)
		if message := wrong["tools-list tools-list"]; !strings.Contains(message, "missing or invalid bearer token") {
			t.Errorf("want the refusal of a request without a token, got %q of %q", message, wrong)
		}
	})
	p.token.Store(strings.TrimSpace(string(token)))
	expected := expectedFailures(t)
	for _, s := range suites() {
		t.Run(s.name, func(t *testing.T) {
			wrong := w.in(t).conform(net, s, p.url)
			for check, message := range wrong {
				if says, ok := expected[s.name][check]; !ok || !strings.Contains(message, says) {
					t.Errorf("%s: %s", check, message)
				}
			}
			for check := range expected[s.name] {
				if _, ok := wrong[check]; !ok {
					t.Errorf("%s passes: remove it from e2e/agents/conformance.txt", check)
				}
			}
		})
	}
}

// expectedFailures reads which checks fail in which suite, with the suite's
// message.
func expectedFailures(t *testing.T) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for n, line := range lines("agents/conformance.txt") {
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		part := strings.Split(line, " | ")
		what := strings.Fields(part[0])
		if len(part) != 3 || len(what) != 3 || part[1] == "" || part[2] == "" {
			t.Fatalf("agents/conformance.txt:%d: want SUITE[,SUITE] SCENARIO CHECK | WHAT THE SUITE SAYS | WHY", n+1)
		}
		for s := range strings.SplitSeq(what[0], ",") {
			if all[s] == nil {
				all[s] = map[string]string{}
			}
			all[s][what[1]+" "+what[2]] = part[1]
		}
	}
	return all
}

// conform runs a suite and returns the checks that did not pass, as "SCENARIO
// CHECK", with the reason.
func (w *world) conform(net *island, s suite, server string) map[string]string {
	w.t.Helper()
	dir := w.path("conformance-" + s.name)
	args := append([]string{clientFile(w.t, s.program, "dist", "index.js"), "server", "--url", server + "/mcp", "-o", dir}, s.args...)
	out, errs, _ := w.runNode(net, args...) // the files say which checks failed
	return w.wrongChecks(s.name, dir, out+errs)
}

// wrongChecks reads the checks of a suite that did not pass. Said is what the suite
// printed.
func (w *world) wrongChecks(name, dir, said string) map[string]string {
	w.t.Helper()
	results, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	scenarios := regexp.MustCompile(`\((\d+) scenarios\)`).FindStringSubmatch(said)
	if len(results) == 0 || scenarios != nil && scenarios[1] != strconv.Itoa(len(results)) {
		w.t.Fatalf("%s: %d results: %s", name, len(results), said)
	}
	wrong, passed := map[string]string{}, 0
	for _, file := range results {
		text, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		decode(w.t, string(text), &checks)
		for _, c := range checks {
			switch c.Status {
			case "SUCCESS":
				passed++
			case "INFO", "SKIPPED":
			default:
				wrong[scenarioOf(file)+" "+c.ID] = c.Status + " " + c.ErrorMessage
			}
		}
	}
	w.t.Logf("%s: %d scenarios, %d checks passed, %d did not", name, len(results), passed, len(wrong))
	return wrong
}

// scenarioOf is the scenario of a file of results:
// server-NAME-TIME/checks.json.
func scenarioOf(file string) string {
	name := strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "server-")
	return regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`).ReplaceAllString(name, "")
}

// serveMCP starts bailiwick-mcp on HTTP until the test ends and returns its
// URL.
func (w *world) serveMCP(net *island, flags ...string) string {
	w.t.Helper()
	cmd := w.command(filepath.Join(bin, "bailiwick-mcp"), append([]string{"--http", "127.0.0.1:0", "--rate", "100000"}, flags...)...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := net.start(cmd); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	r := bufio.NewReader(errs)
	line, err := r.ReadString('\n')
	_, where, ok := strings.Cut(strings.TrimSpace(line), "listening at ")
	if err != nil || !ok {
		w.t.Fatalf("bailiwick-mcp --http: %v: %s", err, line)
	}
	go io.Copy(io.Discard, r) //nolint:errcheck // until the server exits
	return strings.TrimSuffix(where, "/mcp")
}

// recordingProxy is a proxy that forwards requests unchanged, including Host
// and Origin.
type recordingProxy struct {
	url    string
	token  atomic.Value // string: bearer token added to each request once set
	record string       // file that records the request bodies, one per line; empty for no record
	httputil.ReverseProxy
}

func (p *recordingProxy) to(t *testing.T, net *island, server string) {
	t.Helper()
	target, err := url.Parse(server)
	must(t, err)
	p.Transport, p.FlushInterval, p.ErrorLog = net.transport(), -1, slog.NewLogLogger(slog.DiscardHandler, 0) // clients that hang up
	p.Rewrite = func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
		if token, ok := p.token.Load().(string); ok {
			r.Out.Header.Set("Authorization", "Bearer "+token)
		}
		if p.record != "" && r.In.Method == http.MethodPost {
			if err := p.note(r.Out); err != nil {
				t.Error(err)
			}
		}
	}
}

// note records the body of a request.
func (p *recordingProxy) note(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f, err := os.OpenFile(p.record, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%s\n", body); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
