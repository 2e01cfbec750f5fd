package runverbs

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// manyRuns serves runs r-1 to r-n, the oldest of them open, as the service
// lists them.
func manyRuns(n int, asked *[]url.Values) *runService {
	s := newRunService()
	s.list = func(q url.Values) ([]api.Run, error) {
		*asked = append(*asked, q)
		f, err := api.ParseRunFilter(q)
		if err != nil {
			return nil, err
		}
		limit, _ := strconv.Atoi(q.Get("limit"))
		list := []api.Run{}
		behind := f.After == ""
		for i := n; i > 0; i-- {
			run := s.run
			run.RunID, run.State = api.RunID(fmt.Sprintf("r-%d", i)), api.RunDone
			if i == 1 {
				run.State = api.RunPaused
			}
			if behind && (len(list) < limit || f.Open && i == 1) {
				list = append(list, run)
			}
			behind = behind || run.RunID == f.After
		}
		return list, nil
	}
	return s
}

// A list has exactly as many runs as asked for, or the last 50 and every older
// one that is open; it says how to see the next ones, also beyond what fits into
// one answer of the service.
func TestListPagesAndKeepsOpenRuns(t *testing.T) {
	var asked []url.Values
	socket := manyRuns(1300, &asked).serve(t)
	for _, c := range []struct {
		words       string
		count       int
		first, last string
		next        string
	}{
		{"run list", 51, "r-1300", "r-1", "older runs: bailiwick run list --after r-1251\n"},
		{"run list --last 50", 50, "r-1300", "r-1251", "older runs: bailiwick run list --after r-1251\n"},
		{"run list --last 1", 1, "r-1300", "r-1300", "older runs: bailiwick run list --last 1 --after r-1300\n"},
		{"run list --last 1200 --queue q --state open --state done", 1200, "r-1300", "r-101", "older runs: bailiwick run list --state open --state done --queue q --last 1200 --after r-101\n"},
		{"run list --last 1300", 1300, "r-1300", "r-1", ""},
		{"run list --last 5000 --after r-1200", 1199, "r-1199", "r-1", ""},
	} {
		status, out, errs := at(t, socket, c.words)
		lines := strings.Split(strings.TrimSpace(out), "\n")[1:]
		if status != 0 || len(lines) != c.count || !strings.HasPrefix(lines[0], c.first+" ") || !strings.HasPrefix(lines[len(lines)-1], c.last+" ") || errs != c.next {
			t.Errorf("%s: status %d, %d runs, %q to %q, %q", c.words, status, len(lines), lines[0], lines[len(lines)-1], errs)
		}
	}
	if _, out, errs := at(t, socket, "run list --last 2 -o name"); out != "r-1300\nr-1299\n" || errs != "" {
		t.Errorf("%q, %q", out, errs)
	}
}

func TestListFiltersReachTheService(t *testing.T) {
	var asked []url.Values
	socket := manyRuns(1, &asked).serve(t)
	if status, _, errs := at(t, socket, "run list --state settled --state paused --since 2026-11-21 --queue night --principal local:ann --subagent edit --after r-9 --last 7"); status != 0 {
		t.Fatal(errs)
	}
	want := "after=r-9&limit=8&principal=local%3Aann&queue=night&since=2026-11-21T00%3A00%3A00Z&state=done&state=failed&state=cancelled&state=paused&subagent=edit"
	if got := asked[0].Encode(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for line, want := range map[string]string{
		"--state finished": `state "finished": want one of running, waiting, paused, done, failed, cancelled, open or settled`, "--since yesterday": `--since "yesterday": want a time such as`,
		"--last 0": "--last 0: want at least 1", "--queue Bad/": "queue", "--after UPPER": "run id", "--principal nobody": "principal",
	} {
		if status, _, errs := at(t, socket, "run list "+line); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", line, status, errs)
		}
	}
}
