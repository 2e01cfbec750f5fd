package plan

import "testing"

func TestYAMLIsReadable(t *testing.T) {
	const want = `id: rename-symbol
queue: default
limits: {tasks: 200, wall: 4h0m0s}
tasks:
  - id: merge
    subagent: merger
    source: {commit: HEAD, name: service}
    needs:
      a: {from: edit-alpha, patch: true}
      b: {from: edit-beta, patch: true}
  - id: edit-alpha
    subagent: code-edit
    source: {commit: HEAD, name: service}
    input: {file: alpha.go}
    locks: [repo/alpha.go]
    priority: 5
    retry: {attempts: 3, on: [lost, denied]}
    timeout: 20m0s
  - id: edit-beta
    subagent: code-edit
    source: {name: other}
    input: {file: beta.go}
    locks: [repo/beta.go, {shared: repo/go.mod}]
`
	text, err := YAML(parse(t, sample))
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestYAMLRefusesInvisibleCharacters(t *testing.T) {
	p, problems := Parse([]byte(`{"tasks":[{"id":"a","subagent":"s","input":{"x":"\u0007"}}]}`))
	if problems != nil {
		t.Fatal(problems)
	}
	if text, err := YAML(p); err == nil {
		t.Errorf("%q", text)
	}
}
