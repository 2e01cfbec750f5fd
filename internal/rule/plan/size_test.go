package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// manifold is a plan of n tasks, the i-th with the dependencies deps(i).
func manifold(n int, deps func(i int) []int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"tasks":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"t%d","subagent":"s","depends_on":[`, i)
		for k, d := range deps(i) {
			if k > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"t%d"`, d)
		}
		b.WriteString(`]}`)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// chain is a plan in which each task depends on the next: a recursive reader would
// need a stack as deep as the plan is long.
func chain(n int) []byte {
	return manifold(n, func(i int) []int {
		if i == n-1 {
			return nil
		}
		return []int{i + 1}
	})
}

func ring(n int) []byte { return manifold(n, func(i int) []int { return []int{(i + 1) % n} }) }

// edges returns a plan of n tasks. Each depends on the k before it.
func edges(n, k int) []byte {
	return manifold(n, func(i int) []int {
		var deps []int
		for d := max(0, i-k); d < i; d++ {
			deps = append(deps, d)
		}
		return deps
	})
}

// bulk is a plan of exactly size bytes: a task with a large input.
func bulk(size int) []byte {
	head, tail := `{"tasks":[{"id":"a","input":{"x":"`, `"},"subagent":"s"}]}`
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}

// hostile is a plan of the maximum size with as many problems as fit.
func hostile() []byte {
	key := func(i int) string { return fmt.Sprintf(`"%07d":0,`, i) }
	var b bytes.Buffer
	b.WriteString(`{"tasks":[{`)
	for i := 0; b.Len() < api.MaxPlan-64; i++ {
		b.WriteString(key(i))
	}
	b.WriteString(`"id":"\u001b[2J","subagent":"s"}]}`)
	return b.Bytes()
}

// numbers is a plan of the maximum size with as many values as fit.
func numbers() []byte {
	return []byte(`{"tasks":[{"id":"a","subagent":"s","input":{"x":[` + strings.Repeat("0,", api.MaxPlan/2-64) + `0]}}]}`)
}

// Plans with the maximum of tasks, of dependencies, of depth and of bytes.
//
// proves R-O2
func TestParseAcceptsTheLargestPlans(t *testing.T) {
	for name, c := range map[string]struct {
		raw          []byte
		tasks, edges int
	}{
		"chain": {chain(api.MaxPlanTasks), api.MaxPlanTasks, api.MaxPlanTasks - 1},
		"edges": {edges(9_000, 11), 9_000, 11*9_000 - 66},
		"bytes": {bulk(api.MaxPlan - len(`,"queue":"default"`)), 1, 0},
	} {
		p, problems := Parse(c.raw)
		if problems != nil {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		if len(p.Tasks) != c.tasks || total(p.deps) != c.edges || total(p.dependents) != c.edges || len(p.Order()) != c.tasks {
			t.Errorf("%s: %d tasks, %d edges, an order of %d", name, len(p.Tasks), total(p.deps), len(p.Order()))
		}
	}
	p, _ := Parse(chain(api.MaxPlanTasks))
	for at, i := range p.Order() {
		if int(i) != api.MaxPlanTasks-1-at {
			t.Fatalf("task %d of the chain comes as number %d", i, at)
		}
	}
}

func TestParseRefusesTooLargePlans(t *testing.T) {
	many := func(n int, format string) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(format, i))
		}
		return strings.Join(parts, ",")
	}
	commit, small := strings.Repeat("x", 250), edges(api.MaxPlanTasks, 9)
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"bytes":  {bulk(api.MaxPlan + 1), "4194305 bytes: more than 4194304"},
		"normal": {bulk(api.MaxPlan), "more than 4194304"}, // with its queue
		"tasks":  {chain(api.MaxPlanTasks + 1), "$.tasks: 10001 items: at most 10000"},
		"edges":  {edges(9_200, 11), "$.tasks: 101134 dependencies: at most 100000"},
		"locks":  {[]byte(`{"tasks":[{"id":"a","subagent":"s","locks":[` + many(65, `"%d"`) + `]}]}`), "$.tasks[0].locks (task a): 65 items: at most 64"},
		"needs":  {[]byte(`{"tasks":[{"id":"b","subagent":"s"},{"id":"a","subagent":"s","needs":{` + many(65, `"n%d":{"from":"b","patch":true}`) + `}}]}`), "$.tasks[1].needs (task a): 65 needs: at most 64"},
		"key":    {[]byte(`{"tasks":[{"id":"a","subagent":"s","locks":["` + strings.Repeat("x", 257) + `"]}]}`), "257 characters: at most 256"},
		"source": {slices.Concat([]byte(`{"source":{"name":"`+commit[:60]+`","commit":"`+commit+`"},`), small[1:]), "with the source of each task: more than 4194304"},
	} {
		p, problems := Parse(c.raw)
		if p != nil || len(problems) != 1 || !strings.Contains(problems[0].String(), c.want) {
			t.Errorf("%s: %.300v", name, problems)
		}
	}
	if _, problems := Parse(small); problems != nil {
		t.Errorf("positive control: %v", problems)
	}
}

func TestLongCycleIsAbbreviated(t *testing.T) {
	_, problems := Parse(ring(api.MaxPlanTasks))
	if len(problems) != 1 {
		t.Fatalf("%.500v", problems)
	}
	m := problems[0].Message
	if !strings.HasPrefix(m, "dependency cycle: t0 -> t1 -> ") || !strings.HasSuffix(m, "-> t9998 -> t9999 -> t0") || !strings.Contains(m, "-> t49 -> (9901 more) -> t9951 ->") {
		t.Errorf("%s", m)
	}
}

func TestParseCountsAsManyProblemsAsFit(t *testing.T) {
	raw := hostile()
	if len(raw) > api.MaxPlan {
		t.Fatal(len(raw))
	}
	_, problems := Parse(raw)
	if len(problems) != api.MaxProblems || !strings.Contains(problems[99].Message, "problems in all") {
		t.Errorf("%.300v", problems)
	}
}

// Parse returns a plan whose canonical form parses to the same plan, or problems,
// for any input.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"tasks":[{"id":"a","subagent":"s"}]}`, string(ring(3)), string(chain(3)), `{"id":"x","queue":"q","source":{"name":"s","commit":"HEAD"},"limits":{"wall":"4h","tasks":2},"tasks":[]}`,
		`{"tasks":[{"id":"a","subagent":"s","locks":["k",{"shared":"l"}],"retry":{"attempts":3,"backoff":"2s..2m","on":["lost"]},"timeout":"20m","priority":-5}]}`,
		`{"tasks":[{"id":"b","subagent":"s","needs":{"x.y":{"from":"a","output":"p/q"}}},{"id":"a","subagent":"s","input":{"\u00e9":[1e30,null]}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, problems := Parse(raw)
		if (p == nil) == (len(problems) == 0) || len(problems) > api.MaxProblems {
			t.Fatalf("a plan %v and %d problems", p, len(problems))
		}
		var text bytes.Buffer
		if json.Indent(&text, raw, "", " ") == nil {
			if written, places := ReadText(text.Bytes()); places == nil {
				for _, place := range written.Places(problems) {
					if place.Path != "$" && place.Line == 0 {
						t.Fatalf("%s is nowhere", place.Path)
					}
				}
			}
		}
		if p == nil {
			return
		}
		again, problems := Parse(p.Canonical())
		if problems != nil || !bytes.Equal(again.Canonical(), p.Canonical()) {
			t.Fatalf("%s: %v", p.Canonical(), problems)
		}
	})
}

// ReadText returns unambiguous JSON or problems for any input.
func FuzzReadText(f *testing.F) {
	for _, seed := range []string{sample, bad, "a: [1, 2\n", "a: &b c\n", "{\"a\": 1,}", "{\"a\":\t\"\\ud83d\\ude00\"}", "- 1\n---\n- 2\n", "a: 1e3\nb: 0x10\nc: 2020-01-01\n", "\ufeffa: b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		raw, problems := parseYAML(text)
		if (raw == nil) == (len(problems) == 0) {
			t.Fatalf("JSON %s and %d problems", raw, len(problems))
		}
		if raw == nil {
			return
		}
		if again, problems := parseYAML(raw); problems != nil || !bytes.Equal(again, raw) {
			t.Fatalf("%s became %s: %v", raw, again, problems)
		}
		Parse(raw)
	})
}

func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name string
		raw  []byte
	}{
		{"chain of 100", chain(100)},
		{"chain of 1000", chain(1_000)},
		{"chain of 10000", chain(api.MaxPlanTasks)},
		{"cycle of 10000", ring(api.MaxPlanTasks)},
		{"99000 edges", edges(9_000, 11)},
		{"4 MiB", bulk(api.MaxPlan - 64)},
		{"4 MiB of problems", hostile()},
		{"4 MiB of numbers", numbers()},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.raw)))
			for b.Loop() {
				Parse(c.raw)
			}
		})
	}
}

func total(lists [][]int32) (n int) {
	for _, l := range lists {
		n += len(l)
	}
	return n
}
