// Package agent knows the agent programs that workers run: how each is started
// without a secret in its arguments, and how its transcript, final text and session
// are read.
//
// An adapter says what to write into the home directory, the environment and the
// standard input of a program, and reads its event stream. Everything that it reads
// comes from the jail and is hostile: each part has a bound.
//
// Carries R-C2 (prompts are never arguments) and R-D6 (a question resumes the
// program's own session).
package agent

import (
	"fmt"
	"path"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Home is the home directory of an agent in its jail, and Own the directory in it for
// files of Bailiwick.
const (
	Home = "/home/agent"
	Own  = ".bailiwick"
)

// Start is what an agent is started with.
type Start struct {
	Subagent api.Subagent
	Input    []byte              // the canonical input
	Model    *Model              // nil: none
	Egress   []string            // hosts that it may reach
	Tools    string              // URL of the tools of its role, which speak MCP
	Answer   *record.ResumeInput // of an attempt that resumes from a question
	Session  *Session            // of the attempt that asked; nil: none
}

// Model is the model of an agent, as it reaches it.
type Model struct {
	api.ModelUse

	API api.ModelAPI
	URL string // of the broker's reverse proxy
	Key string // the placeholder
}

// File is a file below a directory.
type File struct {
	Path    string
	Content []byte
}

// Launch is how an agent is started. Prompt and input are never in Args, which every
// process of the jail can read.
type Launch struct {
	Args   []string // after the program
	Env    map[string]string
	Stdin  []byte
	Home   []File // below Home
	Inputs []File // below inputs/ of the workspace
}

// Adapter knows one agent program.
type Adapter struct {
	Name    string
	Program string // on PATH; empty for the command adapter
	// Session lists the paths below Home that have the program's own session. A
	// directory stands for all files in it.
	Session []string

	launch func(Start, prompts, *Launch) error
	read   func(line []byte, r *Report) (string, error)
}

// adapters are all adapters, in the order of api.Agents.
func adapters() []*Adapter {
	return []*Adapter{command(), claude(), codex(), opencode(), gemini()}
}

// For returns the adapter of a name.
func For(name string) (*Adapter, error) {
	for _, a := range adapters() {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("unknown agent %q: this version knows %q", name, Names())
}

// Names lists the adapters.
func Names() []string {
	var names []string
	for _, a := range adapters() {
		names = append(names, a.Name)
	}
	return names
}

// Launch returns how to start the program.
func (a *Adapter) Launch(s Start) (Launch, error) {
	l := Launch{Env: map[string]string{}, Inputs: []File{{api.InputFile, s.Input}}}
	p, err := render(s)
	if err != nil {
		return l, fmt.Errorf("subagent %q: %w", s.Subagent.Name, err)
	}
	if s.Subagent.System != "" {
		l.Inputs = append(l.Inputs, File{api.SystemFile, []byte(s.Subagent.System)})
	}
	if s.Subagent.Prompt != "" {
		l.Inputs = append(l.Inputs, File{api.PromptFile, p.task})
	}
	if a.Program != "" {
		if s.Model == nil {
			return l, fmt.Errorf("subagent %q: agent %s needs a model: give the subagent one of the catalog, model: NAME/LEVEL", s.Subagent.Name, a.Name)
		}
		if !slices.Contains(api.AgentAPIs(a.Name), s.Model.API) {
			return l, fmt.Errorf("subagent %q: agent %s cannot use model %q, which speaks %s: it speaks %q", s.Subagent.Name, a.Name, s.Model.Name, s.Model.API, api.AgentAPIs(a.Name))
		}
		l.Stdin = p.turn(s)
		if s.Session != nil {
			l.Home = append(l.Home, s.Session.Files...)
		}
	}
	return l, a.launch(s, p, &l)
}

// Names and bounds of the tools in the configuration of a program.
const (
	toolServer = "bailiwick"
	// toolTime is how long a call may take, in seconds: the service has a shorter limit
	// for each tool, and humans may have to approve a call first.
	toolTime = 3600
)

// home returns the path of a file below Home.
func home(name string) string { return path.Join(Home, name) }

// command runs any program: the input is JSON on its standard input.
func command() *Adapter {
	return &Adapter{Name: "command", launch: func(s Start, _ prompts, l *Launch) error {
		if len(s.Subagent.Command) == 0 {
			return fmt.Errorf("subagent %q: the command adapter needs a command", s.Subagent.Name)
		}
		l.Args, l.Stdin = slices.Clone(s.Subagent.Command), s.Input
		l.Env["BAILIWICK_MCP_URL"] = s.Tools
		if m := s.Model; m != nil {
			l.Env["BAILIWICK_MODEL_URL"], l.Env["BAILIWICK_MODEL"], l.Env["BAILIWICK_MODEL_KEY"] = m.URL, m.ID, m.Key
		}
		return nil
	}}
}
