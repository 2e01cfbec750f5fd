package scriptmodel

import (
	"encoding/json"
	"iter"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// messages is Anthropic's Messages API, as claude-code uses it.
type messages struct{}

func (messages) api() api.ModelAPI { return api.AnthropicMessages }
func (messages) last() string      { return "" }

func (messages) parse(body []byte) (*Turn, error) {
	var req struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct {
			Name   string
			Schema json.RawMessage `json:"input_schema"`
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	t := &Turn{API: api.AnthropicMessages, Model: req.Model, Streamed: req.Stream}
	for _, tool := range req.Tools {
		t.Tools = append(t.Tools, Tool{Name: tool.Name, Schema: tool.Schema})
	}
	called := map[string]string{}
	for _, m := range req.Messages {
		var blocks []struct {
			Type, ID, Name, Text string
			ToolUse              string `json:"tool_use_id"`
			Content              json.RawMessage
		}
		if json.Unmarshal(m.Content, &blocks) != nil && m.Role == "user" {
			t.Items = append(t.Items, Item{Text: textOf(m.Content)})
		}
		for _, b := range blocks {
			switch {
			case b.Type == "tool_use":
				called[b.ID] = b.Name
			case b.Type == "tool_result":
				t.Items = append(t.Items, Item{called[b.ToolUse], textOf(b.Content)})
			case b.Type == "text" && m.Role == "user":
				t.Items = append(t.Items, Item{Text: b.Text})
			}
		}
	}
	return t, nil
}

func (messages) document(t *Turn, r *Reply) object {
	n := t.tokens(r)
	block, reason := object{"type": "text", "text": r.Say}, "end_turn"
	if r.Tool != "" {
		block, reason = object{"type": "tool_use", "id": "tool" + t.id(), "name": r.Tool, "input": r.Args}, "tool_use"
	}
	return object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": t.Model, "content": []any{block}, "stop_reason": reason, "stop_sequence": nil,
		"usage": messagesUsage(n),
	}
}

func messagesUsage(n api.Tokens) object {
	return object{"input_tokens": n.Input, "output_tokens": n.Output, "cache_read_input_tokens": n.CacheRead, "cache_creation_input_tokens": n.CacheWrite}
}

// events reports the usage of the input at the beginning, and that of the output at the
// end.
func (f messages) events(t *Turn, r *Reply) iter.Seq[event] {
	return func(yield func(event) bool) {
		n := t.tokens(r)
		begun := n
		begun.Output = min(1, n.Output)
		message := f.document(t, r)
		reason := message["stop_reason"]
		message["content"], message["stop_reason"], message["usage"] = []any{}, nil, messagesUsage(begun)
		block, kind, member := object{"type": "text", "text": ""}, "text_delta", "text"
		if r.Tool != "" {
			block = object{"type": "tool_use", "id": "tool" + t.id(), "name": r.Tool, "input": object{}}
			kind, member = "input_json_delta", "partial_json"
		}
		for _, e := range []object{
			{"type": "message_start", "message": message},
			{"type": "content_block_start", "index": 0, "content_block": block},
			{"type": "ping"},
		} {
			if !yield(event{e, begun}) {
				return
			}
		}
		for p := range r.pieces {
			if !yield(event{object{"type": "content_block_delta", "index": 0, "delta": object{"type": kind, member: p}}, begun}) {
				return
			}
		}
		_ = yield(event{object{"type": "content_block_stop", "index": 0}, begun}) &&
			yield(event{object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": n.Output}}, n}) &&
			yield(event{object{"type": "message_stop"}, n})
	}
}

func (messages) failure(status int, message string) object {
	kind := map[int]string{
		http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "not_found_error",
		http.StatusTooManyRequests: "rate_limit_error", http.StatusInternalServerError: "api_error", 529: "overloaded_error",
	}[status]
	if kind == "" {
		kind = "invalid_request_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}
