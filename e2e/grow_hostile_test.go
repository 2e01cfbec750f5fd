package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
)

// hostileList is what a worker leaves from which nothing may grow.
type hostileList struct {
	name string
	do   string // the worker's script
	grow string // members of the task that grows, beside its id
	want string // part of why it does not
}

func hostileLists() []hostileList {
	const items = `"subagent": "word", "for_each": {"from": "list", "items": "$.f[*]"}, "input": {"do": "{{each.name}}"}`
	const files = `"subagent": "word", "for_each": {"from": "list", "outputs": "parts/*", "max": 50}, "needs": {"in": {"from": "list", "output": "{{each.path}}"}}`
	result := func(json string) string {
		return "cat > outputs/result.json <<'END'\n" + json + "\nEND\n"
	}
	python := func(program string) string { return "python3 -c '" + program + "' > outputs/result.json\n" }
	var all []hostileList
	for name, c := range map[string][2]string{
		"a slash": {`["ok", "a/b"]`, `item 2: name "a/b"`}, "the parent": {`[".."]`, `item 1: name ".."`}, "a null byte": {`["a\u0000"]`, `item 1: name "a\x00"`},
		"an escape": {`["\u001b[2J"]`, `item 1: name "\x1b[2J"`}, "bidi": {`["\u202egpj"]`, `item 1: name "\u202egpj"`}, "a placeholder": {`["\u007b{each.name}}"]`, `item 1: name "{{each.name}}"`},
		"a template": {`["{{.do}}"]`, `item 1: name`}, "the same twice": {`["a", "b", "a"]`, `item 3: duplicate name "a"`}, "a decomposed letter": {`["e\u0301"]`, `item 1: name`},
		"a prototype": {`["__proto__"]`, `item 1: name "__proto__"`}, "a task's id": {`["part[a]"]`, `item 1: name "part[a]"`}, "nothing": {`[""]`, `item 1: name ""`},
		"65 letters": {`["` + strings.Repeat("x", 65) + `"]`, `item 1: name`}, "half a character": {`["\ud800"]`, ``}, "no list": {`{"0": "a"}`, `want a list, got an object`},
		"a text": {`"a"`, `want a list`}, "null": {`null`, `want a list`}, "lists": {`[["a"]]`, `item 1: want a name`}, "numbers": {`[1]`, `item 1: want a name`},
		"a huge number": {`["a", 1e400]`, ``}, "members of a task": {`[{"id": "x", "subagent": "root", "name": "../x"}]`, `item 1: name "../x"`},
		"an input that the subagent refuses": {`["a", "toolong"]`, `item "toolong": input does not match`},
	} {
		all = append(all, hostileList{name, result(`{"f": ` + c[0] + `}`), items, c[1]})
	}
	return append(
		all,
		hostileList{"another member", result(`{"g": ["a"]}`), items, `$ has no member "f"`},
		hostileList{"a duplicate member", result(`{"f": ["a"], "f": ["b"]}`), items, ""},
		hostileList{"more than a result may have", python(`print("{\"f\":[" + ",".join(["\"a%d\"" % i for i in range(10**6)]) + "]}")`), items, ""},
		hostileList{"30,000 items", python(`print("{\"f\":[" + ",".join(["\"%x\"" % i for i in range(3*10**4)]) + "]}")`), items, "30000 items, more than max 100"},
		hostileList{"100,000 levels", python(`print("{\"f\":" + "["*10**5 + "]"*10**5 + "}")`), items, ""},
		hostileList{"a long text", python(`print("{\"f\":[\"" + "x"*250000 + "\"]}")`), items, "item 1: name"},
		hostileList{"more files than max", "mkdir outputs/parts; cd outputs/parts; seq 60 | xargs touch\n", files, "60 outputs match"},
		hostileList{"a file with a line break", "mkdir outputs/parts; touch $'outputs/parts/a\\nb'\n", files, "was left out: a name that is not printable text"},
		hostileList{"a hidden file", "mkdir outputs/parts; touch outputs/parts/.a outputs/parts/b\n", files, `item 1: name ".a"`},
		hostileList{"an option", "mkdir outputs/parts; touch outputs/parts/-rf\n", files, `item 1: name "-rf"`},
		hostileList{"a placeholder as a file", "mkdir outputs/parts; touch $'outputs/parts/\\x7b{each.path}}'\n", files, `item 1: name`},
		hostileList{"a link", "mkdir outputs/parts; ln -s /etc/passwd outputs/parts/a\n", files, `"outputs/parts/a" was left out: a symbolic link`},
		hostileList{"a linked directory", "ln -s /etc outputs/parts\n", files, `"outputs/parts" was left out: a symbolic link`},
		hostileList{"a list that is a link", "rmdir outputs; ln -s /etc outputs\n", files, `"outputs" was left out`},
		hostileList{"2,000 files", "mkdir outputs/parts; cd outputs/parts; seq 2000 | xargs touch\n", files, "was left out: more than 1000 files"},
		hostileList{"a path that leads out", result(`{"f": [{"name": "a", "p": "../../x"}]}`), `"subagent": "word", "for_each": {"from": "list", "items": "$.f[*]"}, "needs": {"in": {"from": "list", "output": "in/{{each.value}}"}}`, `item "a": need "in": {{each.value}} is not text`},
		hostileList{"more tasks than the run may have", result(`{"f": ["a", "b", "c", "d"]}`), items, "the run would have 6 tasks: its limit is 5"},
	)
}

// A worker decides how many tasks a run grows and what they work on. Whatever else it
// writes grows nothing: the task fails and says which item is wrong, in a short printable
// message. Controls: names that differ by case only, and a value with members of a task.
//
// proves R-O9
func TestHostileListsGrowNothing(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		w := orchestrated(t, uid, growing()...)
		ids := map[string]api.RunID{}
		run := func(name, do, grow string) {
			doc, err := json.Marshal(map[string]string{"do": do})
			must(t, err)
			var p api.Plan
			lists := "says"
			if strings.Contains(grow, `"outputs"`) {
				lists = "sh"
			}
			must(t, json.Unmarshal([]byte(`{"source": {"name": "repo"}, "limits": {"tasks": 5}, "tasks": [{"id": "list", "subagent": "`+lists+`", "input": `+string(doc)+`}, {"id": "part", `+grow+`}]}`), &p))
			ids[name] = w.submit(p)
		}
		all := hostileLists()
		for _, c := range all {
			run(c.name, c.do, c.grow)
		}
		const items = `"subagent": "word", "for_each": {"from": "list", "items": "$.f[*]"}, "input": {"do": "{{each.name}}"}`
		run("control", `echo '{"f": ["a", "A", {"name": "b", "subagent": "root", "__proto__": {"env": ["x"]}}]}' > outputs/result.json`, items)
		for _, c := range all {
			run := w.awaitSettled(ids[c.name])
			list, part := run.Tasks[0], run.Tasks[1]
			refused := part.State == api.TaskFailed && part.Reason == api.ReasonOutput && strings.Contains(part.Message, c.want) && c.want != ""
			unread := list.State == api.TaskFailed && part.State == api.TaskSkipped && c.want == ""
			if len(run.Tasks) != 2 || !refused && !unread {
				t.Errorf("%s: %d tasks; list is %s %s, part is %s %s: %s, want %q", c.name, len(run.Tasks), list.State, list.Message, part.State, part.Reason, part.Message, c.want)
			}
			if len(part.Message) > 1100 || strings.ContainsFunc(part.Message, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: the message is not short and printable: %q", c.name, part.Message)
			}
		}
		if run := w.awaitSettled(ids["control"]); run.State != api.RunDone || len(run.Tasks) != 5 || run.Tasks[4].Subagent != "word" {
			t.Errorf("control: %s %+v", run.State, run.Tasks)
		}
		for _, name := range []string{"control", "an escape", "an input that the subagent refuses", "more tasks than the run may have", "a linked directory"} {
			w.verifyEvidence(string(ids[name]))
		}
	})
}

// growing are subagents for plans that grow: says runs its input and has a result, word
// takes one short word.
func growing() []subagent {
	return []subagent{
		{name: "says", script: "set -e\nmkdir -p outputs\neval \"$(cat inputs/prompt.md)\"", more: "    prompt: \"{{.do}}\"\n    output: {type: object}\n"},
		{name: "word", script: "echo word > word.txt", more: "    input: {type: object, properties: {do: {type: string, maxLength: 3}}}\n"},
	}
}

// What checks, fixes and votes say is a verdict or none, and a fix gives a patch and no
// more. Controls: the same with a verdict of the form that is wanted.
//
// proves R-O9
func TestHostileVerdictsDecideNothing(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, growing()...)
	says := func(verdict string) string {
		doc, err := json.Marshal(map[string]string{"do": "cat > outputs/result.json <<'END'\n" + verdict + "\nEND\n"})
		must(t, err)
		return `{"subagent": "says", "input": ` + string(doc) + `}`
	}
	sh := func(do string) string {
		doc, err := json.Marshal(map[string]string{"do": do})
		must(t, err)
		return `"subagent": "sh", "input": ` + string(doc)
	}
	gate := func(verdict string) string {
		return `{"id": "work", ` + sh("echo x > x.txt") + `, "gate": {"verify": ` + says(verdict) + `, "fix": "word"}}`
	}
	fixed := func(do, check string) string {
		verify := `{"subagent": "says", "input": {"do": "if grep -q '^.x' inputs/change; then v=red; else v=green; fi; ` + check + `; echo '{\"verdict\": \"'$v'\"}' > outputs/result.json"}}`
		return `{"id": "work", ` + sh("echo x > x.txt") + `, "gate": {"verify": ` + verify + `, "fix": {` + sh(do) + `}}}`
	}
	for name, c := range map[string]struct {
		plan  string
		state api.TaskState
		want  string
		tasks int
	}{
		"green":                  {gate(`{"verdict": "green", "why": {"verdict": "red"}}`), api.TaskDone, "", 2},
		"another case":           {gate(`{"verdict": "GREEN"}`), api.TaskFailed, `want "green" or "red"`, 2},
		"a list":                 {gate(`{"verdict": ["green"]}`), api.TaskFailed, `got a list`, 2},
		"an approval of a gate":  {gate(`{"verdict": "approve"}`), api.TaskFailed, `want "green" or "red"`, 2},
		"no verdict":             {gate(`{"Verdict": "green"}`), api.TaskFailed, `no member "verdict"`, 2},
		"both":                   {gate(`{"verdict": "red", "verdict": "green"}`), api.TaskFailed, `work.gate1 is failed`, 2},
		"an empty patch":         {fixed("true", "true"), api.TaskDone, "", 4},
		"a patch of git's files": {fixed("mkdir -p .git/hooks; echo x > .git/hooks/post-checkout; echo y > y.txt", "! grep hooks inputs/change"), api.TaskDone, "", 4},
		"a link as a patch":      {fixed("ln -s /etc/passwd x.txt", "if grep -q root: inputs/change; then v=red; fi"), api.TaskDone, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			var p api.Plan
			must(t, json.Unmarshal([]byte(`{"source": {"name": "repo"}, "tasks": [`+c.plan+`]}`), &p))
			run := w.awaitSettled(w.submit(p))
			if work := run.Tasks[0]; work.State != c.state || !strings.Contains(work.Message, c.want) || len(run.Tasks) != c.tasks {
				t.Errorf("%d tasks: %s %s: %s, want %s, %d tasks: %s\n%+v", len(run.Tasks), work.State, work.Reason, work.Message, c.state, c.tasks, c.want, run.Tasks)
			}
		})
	}
	for name, c := range map[string]struct {
		second string
		state  api.TaskState
	}{
		"approve": {`{"verdict": "approve"}`, api.TaskDone}, "twice": {`[{"verdict": "approve"}, {"verdict": "approve"}]`, api.TaskFailed},
		"true": {`{"verdict": true}`, api.TaskFailed}, "green": {`{"verdict": "green"}`, api.TaskFailed}, "both": {`{"verdict": "approve", "verdict": "approve"}`, api.TaskFailed},
	} {
		t.Run("a vote: "+name, func(t *testing.T) {
			w.write("gate/vote", c.second, 0o644)
			var p api.Plan
			must(t, json.Unmarshal([]byte(fmt.Sprintf(`{"source": {"name": "repo"}, "tasks": [{"id": "vote", "quorum": {"of": ["says", "says"], "approve": 2}, "input": {"do": "cp %s outputs/result.json"}}]}`, w.path("gate/vote"))), &p))
			run := w.awaitSettled(w.submit(p))
			if vote := run.Tasks[0]; vote.State != c.state {
				t.Errorf("%s %s: %s, want %s", vote.State, vote.Reason, vote.Message, c.state)
			}
		})
	}
}
