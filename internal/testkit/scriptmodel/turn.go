package scriptmodel

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Turn is a client's request to its model, independent of the wire format.
type Turn struct {
	API      api.ModelAPI
	Model    string
	Streamed bool
	Tools    []Tool // that the client offers
	Items    []Item // the conversation, without what the model said
	Try      int    // how often the same conversation was sent before
	Size     int    // of the request's body, in bytes

	noUsage bool // a stream of OpenAI Chat whose request does not ask for the usage
}

// Tool is a tool that a client offers, by the client's name.
type Tool struct {
	Name   string
	Space  string // codex puts the tools of an MCP server in a namespace
	Schema json.RawMessage
}

// Item is one part of a conversation: a text of the user or of the client itself, or the
// result of a call.
type Item struct {
	Tool string // that was called; empty for a text
	Text string
}

// Results returns the results of calls so far.
func (t *Turn) Results() (all []Item) {
	for _, i := range t.Items {
		if i.Tool != "" {
			all = append(all, i)
		}
	}
	return all
}

// key identifies the conversation.
func (t *Turn) key() [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s %q %q", t.API, t.Tools, t.Items))
}

// Reply is the model's response: text, a call of a tool, an error, or a fault. The zero
// Reply is an empty text.
type Reply struct {
	Say  string
	Tool string // to call, by the client's name; Say is ignored
	Args map[string]any

	// Status, if not 0, is an error that is sent instead.
	Status     int
	RetryAfter string // value of the header; empty: no header

	Wait    time.Duration // before each event of a stream, or the whole document
	Endless bool          // the text never ends
	Cut     int           // break the connection off after this many bytes of the body; 0: never
	Early   bool          // end the response at the cut as if it were complete

	Tokens *api.Tokens // to report; nil: one token of output for each piece, the rest by size
}

// space returns the namespace of a tool.
func (t *Turn) space(name string) string {
	for _, tool := range t.Tools {
		if tool.Name == name {
			return tool.Space
		}
	}
	return ""
}

// id identifies the call that a reply to t makes.
func (t *Turn) id() string { return fmt.Sprintf("call_%d", len(t.Results())) }

// pieces splits the text of a reply, or the arguments of its call, as a model streams
// them. It stops early if yield does.
func (r *Reply) pieces(yield func(string) bool) {
	if r.Endless {
		for n := 1; yield(fmt.Sprintf("and %d, ", n)); n++ { // some clients notice a repetition
		}
		return
	}
	text := r.text()
	for len(text) > 0 {
		n := min(12, len(text))
		for n < len(text) && text[n]&0xC0 == 0x80 { // inside a character
			n++
		}
		if !yield(text[:n]) {
			return
		}
		text = text[n:]
	}
}

func (r *Reply) text() string {
	if r.Tool == "" {
		return r.Say
	}
	b, err := json.Marshal(r.Args)
	if err != nil {
		panic(err) // arguments that a test made
	}
	return string(b)
}

// tokens returns what a reply to t reports when it is complete. Each format has only
// classes that its provider reports.
func (t *Turn) tokens(r *Reply) api.Tokens {
	if r.Tokens != nil {
		return *r.Tokens
	}
	n := api.Tokens{Input: int64(t.Size/8 + 1), CacheRead: int64(t.Size / 8)}
	if t.API == api.AnthropicMessages {
		n.CacheWrite = int64(t.Size / 16)
	}
	if r.Endless {
		return n
	}
	for range r.pieces {
		n.Output++
	}
	n.Output = max(n.Output, 1)
	return n
}
