package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The forms of a place in a result, and of one that is a list.
var (
	placeForm = regexp.MustCompile(`^\$(\.[A-Za-z0-9_-]{1,64})+$`)
	listForm  = regexp.MustCompile(`^\$(\.[A-Za-z0-9_-]{1,64})*\[\*\]$`)
	starForm  = regexp.MustCompile(`^[^*]*\*[^*]*$`)
)

// form reads a text of a form.
func (r *reader) form(path string, raw json.RawMessage, form *regexp.Regexp, want string) string {
	before := r.count
	s := r.visible(path, raw, maxPath)
	if r.count == before && !form.MatchString(s) {
		r.shape(path, "%s: want %s", clip(s), want)
	}
	return s
}

// notItem reports whether a value is neither a name nor an object.
func notItem(raw json.RawMessage) bool { return raw[0] != '"' && raw[0] != '{' }

func readForEach(r *reader, path string, raw json.RawMessage) *api.ForEach {
	f := &api.ForEach{}
	members := r.object(path, raw, readers{
		"from": func(path string, raw json.RawMessage) { f.From = parsed(r, path, raw, api.ParseTaskID) },
		"outputs": func(path string, raw json.RawMessage) {
			f.Outputs = r.form(path, raw, starForm, "a path with one *, such as parts/*.csv")
		},
		"items": func(path string, raw json.RawMessage) {
			f.Items = r.form(path, raw, listForm, "the place of a list, such as $.files[*]")
		},
		"values": func(path string, raw json.RawMessage) {
			r.items(path, raw, api.MaxForEach, func(path string, raw json.RawMessage) {
				if notItem(raw) {
					r.shape(path, `want a name, or an object with "name", got %s`, kind(raw))
				}
				f.Values = append(f.Values, slices.Clone(raw))
			})
			if string(raw) == "[]" {
				r.shape(path, "is empty: want at least one item")
			}
		},
		"max": func(path string, raw json.RawMessage) { f.Max = r.whole(path, raw, 1, api.MaxForEach) },
	})
	kinds := 0
	for _, key := range []string{"outputs", "items", "values"} {
		if _, ok := members[key]; ok {
			kinds++
		}
	}
	_, from := members["from"]
	_, values := members["values"]
	switch {
	case members == nil:
	case kinds == 0:
		r.shape(path, "no list: want one of outputs, items and values")
	case kinds > 1:
		r.shape(path, "%d lists: want only one of outputs, items and values", kinds)
	case !from && !values:
		r.shape(path, "missing key \"from\": the task whose outputs or result have the list")
	case from && values:
		r.shape(path, "from does not go with values, which are the list themselves")
	}
	return f
}

func readGate(r *reader, path string, raw json.RawMessage) *api.Gate {
	g := &api.Gate{}
	members := r.object(path, raw, readers{
		"verify":    func(path string, raw json.RawMessage) { g.Verify = readGateStep(r, path, raw) },
		"fix":       func(path string, raw json.RawMessage) { g.Fix = readGateStep(r, path, raw) },
		"attempts":  func(path string, raw json.RawMessage) { g.Attempts = r.whole(path, raw, 1, api.MaxFixes) },
		"protected": func(path string, raw json.RawMessage) { g.Protected = r.yes(path, raw) },
	})
	r.require(path, members, "verify", "fix")
	return g
}

func readGateStep(r *reader, path string, raw json.RawMessage) (s api.GateStep) {
	if raw[0] == '"' {
		s.Subagent = parsed(r, path, raw, api.ParseName)
		return s
	}
	members := r.object(path, raw, readers{
		"subagent": func(path string, raw json.RawMessage) { s.Subagent = parsed(r, path, raw, api.ParseName) },
		"input":    func(path string, raw json.RawMessage) { s.Input = readInput(r, path, raw) },
	})
	r.require(path, members, "subagent")
	return s
}

// parsePerson reads a person that votes or approves.
func parsePerson(s string) (api.Principal, error) {
	p, err := api.ParsePrincipal(s)
	if err != nil || !p.Person() {
		return "", fmt.Errorf("%s: want a person, human:NAME or local:NAME", clip(s))
	}
	return p, nil
}

func parseVoter(s string) (string, error) {
	_, err := parsePerson(s)
	if !IsPerson(s) {
		_, err = api.ParseName(s)
	}
	if err != nil {
		return s, fmt.Errorf("%s: want a subagent, or a person as human:NAME or local:NAME", clip(s))
	}
	return s, nil
}

func readQuorum(r *reader, path string, raw json.RawMessage) *api.Quorum {
	q := &api.Quorum{}
	members := r.object(path, raw, readers{
		"of": func(path string, raw json.RawMessage) {
			r.items(path, raw, api.MaxVoters, func(path string, raw json.RawMessage) { q.Of = append(q.Of, person(r, path, raw, parseVoter)) })
			if string(raw) == "[]" {
				r.shape(path, "is empty: want at least one voter")
			}
		},
		"approve": func(path string, raw json.RawMessage) { q.Approve = r.whole(path, raw, 1, api.MaxVoters) },
	})
	r.require(path, members, "of", "approve")
	return q
}

// person reads a principal or name, which may be longer than an id.
func person[T ~string](r *reader, path string, raw json.RawMessage, parse func(string) (T, error)) T {
	const most = len("human:") + 128
	before := r.count
	s := r.text(path, raw, most)
	if r.count == before {
		if _, err := parse(s); err != nil {
			r.shape(path, "%v", err)
		}
	}
	return T(s)
}

func readApproval(r *reader, path string, raw json.RawMessage) *api.TaskApproval {
	a := &api.TaskApproval{}
	members := r.object(path, raw, readers{
		"by": func(path string, raw json.RawMessage) {
			r.items(path, raw, api.MaxVoters, func(path string, raw json.RawMessage) {
				p := person(r, path, raw, parsePerson)
				if p != "" && slices.ContainsFunc(a.By, p.SamePerson) {
					r.shape(path, "duplicate %s: a person votes once", clip(string(p)))
				}
				a.By = append(a.By, p)
			})
			if string(raw) == "[]" {
				r.shape(path, "is empty: want at least one person")
			}
		},
		"count": func(path string, raw json.RawMessage) { a.Count = r.whole(path, raw, 1, api.MaxVoters) },
		"show": func(path string, raw json.RawMessage) {
			a.Show = texts(r, path, raw, api.MaxTaskNeeds, api.ParseTaskID)
		},
		"timeout": func(path string, raw json.RawMessage) { a.Timeout = r.duration(path, raw) },
	})
	r.require(path, members, "by")
	return a
}

func readWhen(r *reader, path string, raw json.RawMessage) *api.When {
	w := &api.When{}
	members := r.object(path, raw, readers{
		"task": func(path string, raw json.RawMessage) { w.Task = parsed(r, path, raw, api.ParseTaskID) },
		"result": func(path string, raw json.RawMessage) {
			w.Result = r.form(path, raw, placeForm, "a place in the result, such as $.risk")
		},
		"is": func(path string, raw json.RawMessage) {
			if raw[0] == '{' || raw[0] == '[' || raw[0] == 'n' {
				r.shape(path, "want text, a number or a boolean, got %s", kind(raw))
			}
			w.Is = slices.Clone(raw)
		},
	})
	r.require(path, members, "task", "result", "is")
	return w
}

func readAfter(r *reader, path string, raw json.RawMessage) api.After {
	if string(raw) != `"any"` {
		r.shape(path, `want "any", got %s; omit it otherwise`, kind(raw))
		return ""
	}
	return api.AfterAny
}
