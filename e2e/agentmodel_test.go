package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// step is the model's response: a tool call, or text.
type step struct {
	tool string // our name of the tool; next translates it to the client's
	args map[string]any
	say  string
}

// scripted is a model with a fixed script: list the workers, try one that does
// not exist, dispatch one that does, check its state, wait for it, read its
// patch page by page, and repeat the patch as text. It keeps no state between
// turns, so everything that it says has come through the client.
type scripted struct {
	dispatch map[string]any // arguments of the dispatch, including a dispatchId

	mu       sync.Mutex // guards the fields below
	done     []string   // the calls, by our names
	offered  []string   // our tools in the latest request, by our names, sorted
	problems []string   // violations found
	said     string     // its final text
}

// next answers a turn with the next step of the script.
func (s *scripted) next(t *scriptmodel.Turn) scriptmodel.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	wire := s.ours(t.Tools)
	if len(wire) == 0 {
		return scriptmodel.Reply{Say: "a side question"} // clients also ask for other things, such as a title
	}
	st, err := s.story(t.Results())
	if err == nil && st.tool != "" && wire[st.tool] == "" {
		err = fmt.Errorf("%s is not offered, only %q", st.tool, t.Tools)
	}
	if err != nil {
		s.problems = append(s.problems, err.Error())
		return scriptmodel.Reply{Say: "this is not what was expected"}
	}
	if st.tool == "" {
		s.said = st.say
		return scriptmodel.Reply{Say: st.say}
	}
	s.done = append(s.done, st.tool)
	return scriptmodel.Reply{Tool: wire[st.tool], Args: st.args}
}

// ours maps our names of the tools to the client's, and records any other tool
// with our prefix.
func (s *scripted) ours(tools []scriptmodel.Tool) map[string]string {
	wire := map[string]string{}
	for _, t := range tools {
		tool := t.Name
		if !strings.Contains(tool, "bailiwick") {
			continue // the client's own tools
		}
		i := slices.IndexFunc(nineTools(), func(n string) bool { return strings.HasSuffix(tool, n) })
		if i < 0 || wire[nineTools()[i]] != "" {
			s.problems = append(s.problems, fmt.Sprintf("a tenth tool is offered: %s", tool))
			continue
		}
		wire[nineTools()[i]] = tool
	}
	if len(wire) > 0 {
		s.offered = nil
		for name := range wire {
			s.offered = append(s.offered, name)
		}
		slices.Sort(s.offered)
	}
	return wire
}

// story returns the step that follows the results so far.
func (s *scripted) story(results []scriptmodel.Item) (step, error) {
	if len(results) == 0 {
		return step{tool: "bailiwick_subagents_list", args: map[string]any{}}, nil
	}
	last := results[len(results)-1]
	switch len(results) {
	case 1:
		return step{tool: "bailiwick_dispatch", args: map[string]any{"subagent": "nobody"}}, s.listed(last)
	case 2:
		// The hint reaches the model, however its client shows errors.
		for _, word := range []string{"denied", "do not retry", "bailiwick_subagents_list"} {
			if !strings.Contains(last.Text, word) {
				return step{}, fmt.Errorf("the refusal of an unknown subagent lacks %q: %s", word, last.Text)
			}
		}
		return step{tool: "bailiwick_dispatch", args: s.dispatch}, nil
	}
	return s.follow(len(results), last, results)
}

// listed checks that the list contains the subagent.
func (s *scripted) listed(r scriptmodel.Item) error {
	var list struct{ Items []struct{ Name string } }
	if err := firstObject(r.Text, &list); err != nil {
		return fmt.Errorf("%s: %w in %q", r.Tool, err, r.Text)
	}
	for _, i := range list.Items {
		if i.Name == s.dispatch["subagent"] {
			return nil
		}
	}
	return fmt.Errorf("subagent %s is not in the list: %s", s.dispatch["subagent"], r.Text)
}

// follow waits for the dispatch, and reads its patch when it has ended.
func (s *scripted) follow(n int, last scriptmodel.Item, results []scriptmodel.Item) (step, error) {
	var answer struct {
		ID    string `json:"dispatchId"`
		State string
		Patch *struct{ Text string }
		Next  string
	}
	if err := firstObject(last.Text, &answer); err != nil {
		return step{}, fmt.Errorf("%s: %w in %q", last.Tool, err, last.Text)
	}
	describe := map[string]any{"dispatchId": s.dispatch["dispatchId"]}
	switch {
	case !strings.HasPrefix(answer.ID, s.dispatch["dispatchId"].(string)+"-"): // ids are scoped to their principal
		return step{}, fmt.Errorf("%s: want dispatch %s, got %s", last.Tool, s.dispatch["dispatchId"], last.Text)
	case n == 3:
		return step{tool: "bailiwick_dispatch_describe", args: describe}, nil
	case n == 4: // repeating the dispatch starts nothing and waits
		again := map[string]any{"wait": 50}
		maps.Copy(again, s.dispatch)
		return step{tool: "bailiwick_dispatch", args: again}, nil
	case n == 5 && answer.State != "finished":
		return step{}, fmt.Errorf("it has not finished after the wait: %s", last.Text)
	case answer.Patch != nil && answer.Next == "":
		return step{say: s.patch(results)}, nil
	}
	describe["dispatchId"], describe["include"] = answer.ID, "patch" // either spelling finds it
	if answer.Next != "" {
		describe["cursor"] = answer.Next
	}
	return step{tool: "bailiwick_dispatch_describe", args: describe}, nil
}

// patch joins the pages of the patch.
func (s *scripted) patch(results []scriptmodel.Item) string {
	var whole strings.Builder
	for _, r := range results {
		var page struct{ Patch struct{ Text string } }
		if firstObject(r.Text, &page) == nil {
			whole.WriteString(page.Patch.Text)
		}
	}
	return whole.String()
}

// firstObject decodes the first JSON object in a client's rendering of a
// result.
func firstObject(text string, v any) error {
	i := strings.IndexByte(text, '{')
	if i < 0 {
		return errors.New("no object")
	}
	return json.NewDecoder(strings.NewReader(text[i:])).Decode(v)
}

// The positive control of the scripted model: it detects a missing tool, an
// extra tool and a duplicate tool.
//
// proves R-B3
func TestScriptedModelDetectsATenthTool(t *testing.T) {
	t.Parallel()
	offer := func(names ...string) (all []scriptmodel.Tool) {
		for _, n := range names {
			all = append(all, scriptmodel.Tool{Name: n})
		}
		return all
	}
	var named []scriptmodel.Tool
	for _, n := range nineTools() {
		named = append(named, offer("mcp__bailiwick__"+n)...)
	}
	for _, tt := range []struct {
		name    string
		tools   []scriptmodel.Tool
		problem bool
		offered int
	}{
		{"the nine, with the client's own tools", append(offer("Bash", "Read"), named...), false, 9},
		{"an extra tool", append(offer("mcp__bailiwick__bailiwick_audit"), named...), true, 9},
		{"a duplicate tool", append(offer("mcp__other__bailiwick_dispatch"), named...), true, 9},
		{"a missing tool", named[1:], false, 8},
	} {
		s := &scripted{}
		s.ours(tt.tools)
		if (len(s.problems) > 0) != tt.problem || len(s.offered) != tt.offered {
			t.Errorf("%s: %d offered, %q", tt.name, len(s.offered), s.problems)
		}
	}
}
