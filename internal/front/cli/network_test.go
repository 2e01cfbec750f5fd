package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// Names of hosts, paths, reasons and the text of an agent cannot steer a terminal, nor
// make up a further row. The control: the same text is in the record.
//
// proves R-D7
func TestNetworkAndTextDoNotSteerATerminal(t *testing.T) {
	const hostile = "h\x1b[2J\u009b2J\u202e\n1  2026\t9"
	var out bytes.Buffer
	verbs := &dispatchVerbs{tree: &tree{}}
	verbs.Output = console.Output{Format: "text", Stdout: &out, Stderr: &out, Screen: true, Now: time.Now}
	list := []api.NetworkLine{{Number: 1, Form: hostile, Host: hostile, Method: hostile, Path: hostile, Refused: hostile}, {Number: 2, Error: hostile}, {Number: 3, Usage: &api.Tokens{Input: 4, CacheRead: 5, Output: 6}}}
	if err := verbs.printNetwork(list); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 4 || !strings.Contains(out.String(), "9 tokens in, 6 out") {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
	verbs.printAgent(&api.Dispatch{ID: "d-1", Outcome: &api.ResultSummary{
		Text: hostile + "\nusage      nothing", Redacted: []string{hostile}, Refusals: &api.Refusals{Count: 2}, Agent: &api.AgentReport{Adapter: hostile, Version: hostile},
		Usage: api.Usage{Model: &api.ModelUsage{Currency: hostile}},
	}})
	if !strings.Contains(out.String(), "made no request to its model") || !strings.Contains(out.String(), "dispatch network d-1 --refused") {
		t.Errorf("%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.ContainsAny(line, "\x1b\u009b\u202e") || strings.HasPrefix(line, "usage") || strings.Contains(line, "            usage") {
			t.Errorf("the terminal gets %q", line)
		}
	}
	if !strings.Contains(list[0].Host, "\x1b") {
		t.Error("the control has no control character")
	}
}

func TestModelUsageSaysWhatWasCounted(t *testing.T) {
	for want, u := range map[string]api.ModelUsage{
		"made no request to its model":                                                                  {Currency: "usd"},
		"1 request, 0 turns, 0 tokens (0 in, 0 out)":                                                    {Requests: 1},
		"2 requests, 1 turn, 15 tokens (10 in, 5 out), cost 0.0125 usd":                                 {Requests: 2, Turns: 1, Tokens: api.Tokens{Input: 10, Output: 5}, Cost: 12_500, Currency: "usd"},
		"2 requests, 2 turns, 18 tokens (10 in, 5 out, 1 read from cache, 2 written to it), cost 0 eur": {Requests: 2, Turns: 2, Tokens: api.Tokens{Input: 10, Output: 5, CacheRead: 1, CacheWrite: 2}, Currency: "eur"},
	} {
		if got := console.ModelUsage(u); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
