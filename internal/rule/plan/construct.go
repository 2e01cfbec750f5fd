package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// construct finds the problems of how a task grows, that the JSON Schema does not.
func (c *checker) construct(i int) {
	t, at := &c.plan.Tasks[i], task(i)
	if t.ForEach == nil {
		c.noPlaceholders(i)
	} else {
		c.forEach(t, at)
	}
	if t.Gate != nil {
		for _, n := range []api.Name{NeedChange, NeedVerdict} {
			if _, has := t.Needs[n]; has {
				c.sense(Member(at+".needs", string(n)), "inputs/%s is what the gate gives its fix; choose another name", n)
			}
		}
	}
	if n := len(t.Needs); t.Gate != nil && n > api.MaxTaskNeeds-2 {
		c.sense(at+".needs", "%d needs: at most %d beside a gate, which gives its fix two more", n, api.MaxTaskNeeds-2)
	}
	if t.Quorum != nil {
		c.quorum(t.Quorum, at+".quorum")
	}
	if a := t.Approval; a != nil && len(a.By) > 0 && a.Count > len(a.By) {
		c.sense(at+".approval.count", "%d are wanted, but by has %d", a.Count, len(a.By))
	}
	if a := t.Approval; a != nil && a.Timeout > maxApproval {
		c.sense(at+".approval.timeout", "%s: at most %s", time.Duration(a.Timeout), time.Duration(maxApproval))
	}
	if t.ID != "" && c.graph.index[t.ID] == i {
		c.grownName(i)
		if c.base != nil {
			c.appendedName(i)
		}
	}
}

func (c *checker) quorum(q *api.Quorum, at string) {
	if len(q.Of) > 0 && q.Approve > len(q.Of) {
		c.sense(at+".approve", "%d are wanted, but of has %d", q.Approve, len(q.Of))
	}
	for k, of := range q.Of {
		if IsPerson(of) && slices.ContainsFunc(q.Of[:k], func(other string) bool { return IsPerson(other) && api.Principal(of).SamePerson(api.Principal(other)) }) {
			c.sense(item(at+".of", k), "duplicate %s: a person votes once", clip(of))
		}
	}
}

// maxApproval is how long an approval may be waited for.
const maxApproval = api.Duration(90 * 24 * time.Hour)

// grownSuffix is what ends the id of a task that grows from a gate or a quorum.
var grownSuffix = regexp.MustCompile(`\.(gate|fix|vote)[1-9][0-9]?$`)

// grownName refuses an id that a task of this plan gives those that grow from it.
func (c *checker) grownName(i int) {
	id := string(c.plan.Tasks[i].ID)
	suffix := grownSuffix.FindString(id)
	if suffix == "" {
		return
	}
	if t, _ := c.named(api.TaskID(strings.TrimSuffix(id, suffix))); t != nil && (t.Gate != nil || t.Quorum != nil) {
		c.sense(task(i)+".id", "%s is the name of a task that grows from %s; choose another", clip(id), clip(string(t.ID)))
	}
}

// appendedName refuses an appended task whose own tasks would have names of the run.
func (c *checker) appendedName(i int) {
	t := &c.plan.Tasks[i]
	for _, child := range childNames(t) {
		if _, taken := c.base.index[child]; taken {
			c.sense(task(i)+".id", "task %s would grow from it, and the run has one of that name; choose another", clip(string(child)))
		}
	}
}

var placeholder = regexp.MustCompile(`\{\{.*?\}\}`)

// placeholders lists those that an item has.
func placeholders(f *api.ForEach) []string {
	if f.Outputs != "" {
		return []string{"{{each.name}}", "{{each.path}}"}
	}
	return []string{"{{each.name}}", "{{each.value}}"}
}

func (c *checker) forEach(t *api.PlanTask, at string) {
	f := t.ForEach
	if f.Outputs != "" {
		c.outputPath(at+".for_each.outputs", f.Outputs)
	}
	if f.Values != nil && f.From == "" && len(f.Values) <= api.MaxForEach && !slices.ContainsFunc(f.Values, notItem) {
		items, err := ItemsOf(f, nil)
		if err == nil {
			var filled int
			_, filled, err = instances(t, items, api.MaxRunInput-c.filled)
			c.filled += filled
		}
		if err != nil {
			c.sense(at+".for_each.values", "%v", err)
		}
	}
	known := placeholders(f)
	inDocument := func(at string, doc json.RawMessage) {
		c.inInput(at, doc, func(s string) string { return wholePlaceholder(s, known) })
	}
	inDocument(at+".input", t.Input)
	if t.Gate != nil {
		inDocument(at+".gate.verify.input", t.Gate.Verify.Input)
		inDocument(at+".gate.fix.input", t.Gate.Fix.Input)
	}
	inText := func(at, s string) {
		for _, found := range placeholder.FindAllString(s, -1) {
			if !slices.Contains(known, found) {
				c.sense(at, "%s: an item has %s", clip(found), strings.Join(known, " and "))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Needs)) {
		inText(Member(at+".needs", string(name))+".output", t.Needs[name].Output)
	}
	for k, l := range t.Locks {
		inText(item(at+".locks", k), l.Key)
	}
	if t.Source != nil && strings.Contains(t.Source.Commit, "{{each.") {
		c.sense(at+".source.commit", "%s: a placeholder stands in input, needs and locks only", clip(t.Source.Commit))
	}
}

// wholePlaceholder says what is wrong with a text of an input, if anything is.
func wholePlaceholder(s string, known []string) string {
	switch found := placeholder.FindAllString(s, -1); {
	case len(found) == 0 && strings.Contains(s, "{{each"):
		return fmt.Sprintf("%s: the placeholder has no end: want %s", clip(s), strings.Join(known, " or "))
	case len(found) == 0:
		return ""
	case !slices.Contains(known, found[0]):
		return fmt.Sprintf("%s: an item has %s", clip(found[0]), strings.Join(known, " and "))
	case found[0] != s:
		return fmt.Sprintf("%s: a placeholder is a whole text here, %q, and becomes a JSON value", clip(s), found[0])
	}
	return ""
}

// noPlaceholders refuses placeholders where there is no item.
func (c *checker) noPlaceholders(i int) {
	t, at := &c.plan.Tasks[i], task(i)
	const why = "%s: only a task with for_each has items"
	c.inInput(at+".input", t.Input, func(s string) string {
		if strings.Contains(s, "{{each.") {
			return fmt.Sprintf(why, clip(s))
		}
		return ""
	})
	for _, name := range slices.Sorted(maps.Keys(t.Needs)) {
		if output := t.Needs[name].Output; strings.Contains(output, "{{each.") {
			c.sense(Member(at+".needs", string(name))+".output", why, clip(output))
		}
	}
	for k, l := range t.Locks {
		if strings.Contains(l.Key, "{{each.") {
			c.sense(item(at+".locks", k), why, clip(l.Key))
		}
	}
}

// inInput reports what problem says of the texts of a JSON document.
func (c *checker) inInput(at string, doc json.RawMessage, problem func(string) string) {
	if !strings.Contains(string(doc), "{{") {
		return
	}
	var tree any
	if json.Unmarshal(doc, &tree) != nil {
		return // already reported
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case string:
			if p := problem(v); p != "" {
				c.sense(at, "%s", p)
			}
		case []any:
			for i := range v {
				walk(item(at, i), v[i])
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				if p := problem(k); p != "" || placeholder.MatchString(k) {
					c.sense(at, "key %s: a key cannot be a placeholder", clip(k))
				}
				walk(member(at, k), v[k])
			}
		}
	}
	walk(at, tree)
}

// outputPath refuses what is no clean path below outputs/.
func (c *checker) outputPath(at, p string) {
	if err := checkOutput(p); err != nil {
		c.sense(at, "%v", err)
	}
}

// dropGrowthDefaults removes what has its default value, as dropDefaults does.
func dropGrowthDefaults(t *api.PlanTask) {
	if f := t.ForEach; f != nil {
		own := *f
		if own.Max == api.DefaultForEach {
			own.Max = 0
		}
		for i := range own.Values {
			if v, err := canon.Canonicalize(own.Values[i]); err == nil {
				own.Values[i] = v
			}
		}
		t.ForEach = &own
	}
	if g := t.Gate; g != nil {
		own := *g
		if own.Attempts == 1 {
			own.Attempts = 0
		}
		for _, s := range []*api.GateStep{&own.Verify, &own.Fix} {
			if string(s.Input) == "{}" {
				s.Input = nil
			}
		}
		t.Gate = &own
	}
	if a := t.Approval; a != nil {
		own := *a
		if own.Count == 1 {
			own.Count = 0
		}
		if own.Timeout == api.DefaultApprovalExpiry {
			own.Timeout = 0
		}
		t.Approval = &own
	}
}
