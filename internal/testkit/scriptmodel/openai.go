package scriptmodel

import (
	"encoding/json"
	"iter"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// responses is OpenAI's Responses API, as codex uses it.
type responses struct{}

func (responses) api() api.ModelAPI { return api.OpenAIResponses }
func (responses) last() string      { return "" }

func (responses) parse(body []byte) (*Turn, error) {
	var req struct {
		Model  string
		Stream bool
		Input  json.RawMessage
		Tools  []struct {
			Type, Name string
			Parameters json.RawMessage
			Tools      []struct {
				Name       string
				Parameters json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	t := &Turn{API: api.OpenAIResponses, Model: req.Model, Streamed: req.Stream}
	for _, tool := range req.Tools {
		for _, in := range tool.Tools {
			t.Tools = append(t.Tools, Tool{in.Name, tool.Name, in.Parameters})
		}
		if tool.Type == "function" {
			t.Tools = append(t.Tools, Tool{Name: tool.Name, Schema: tool.Parameters})
		}
	}
	var items []struct {
		Type, Role, Name string
		CallID           string `json:"call_id"`
		Content, Output  json.RawMessage
	}
	if json.Unmarshal(req.Input, &items) != nil {
		t.Items = []Item{{Text: textOf(req.Input)}}
	}
	called := map[string]string{}
	for _, i := range items {
		switch {
		case i.Type == "function_call":
			called[i.CallID] = i.Name
		case i.Type == "function_call_output":
			t.Items = append(t.Items, Item{called[i.CallID], textOf(i.Output)})
		case i.Role == "user":
			t.Items = append(t.Items, Item{Text: textOf(i.Content)})
		}
	}
	return t, nil
}

func (responses) item(t *Turn, r *Reply) object {
	if r.Tool == "" {
		return object{"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": []any{object{"type": "output_text", "text": r.Say, "annotations": []any{}}}}
	}
	item := object{"type": "function_call", "id": "f_1", "status": "completed", "call_id": t.id(), "name": r.Tool, "arguments": r.text()}
	if space := t.space(r.Tool); space != "" {
		item["namespace"] = space
	}
	return item
}

func (f responses) document(t *Turn, r *Reply) object {
	n := t.tokens(r)
	return object{"id": "resp_1", "object": "response", "status": "completed", "model": t.Model, "output": []any{f.item(t, r)}, "usage": object{
		"input_tokens": n.Input + n.CacheRead, "input_tokens_details": object{"cached_tokens": n.CacheRead},
		"output_tokens": n.Output, "output_tokens_details": object{"reasoning_tokens": n.Output / 4}, "total_tokens": n.Total(),
	}}
}

// events reports the usage in the last event.
func (f responses) events(t *Turn, r *Reply) iter.Seq[event] {
	return func(yield func(event) bool) {
		item := f.item(t, r)
		begun := object{"id": item["id"], "type": item["type"], "status": "in_progress", "role": "assistant", "content": []any{}}
		kind := "response.output_text.delta"
		if r.Tool != "" {
			begun = object{"id": item["id"], "type": item["type"], "status": "in_progress", "call_id": item["call_id"], "name": r.Tool, "arguments": ""}
			kind = "response.function_call_arguments.delta"
		}
		for _, e := range []object{
			{"type": "response.created", "response": object{"id": "resp_1", "status": "in_progress", "output": []any{}}},
			{"type": "response.output_item.added", "output_index": 0, "item": begun},
		} {
			if !yield(event{data: e}) {
				return
			}
		}
		for p := range r.pieces {
			if !yield(event{data: object{"type": kind, "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": p}}) {
				return
			}
		}
		_ = yield(event{data: object{"type": "response.output_item.done", "output_index": 0, "item": item}}) &&
			yield(event{object{"type": "response.completed", "response": f.document(t, r)}, t.tokens(r)})
	}
}

func (responses) failure(status int, message string) object {
	kind := map[int]string{http.StatusUnauthorized: "invalid_api_key", http.StatusTooManyRequests: "rate_limit_exceeded"}[status]
	if kind == "" {
		kind = "server_error"
	}
	return object{"error": object{"message": message, "type": kind, "code": kind}}
}

// chat is OpenAI's Chat Completions API, as opencode uses it with a custom provider.
type chat struct{ responses }

func (chat) api() api.ModelAPI { return api.OpenAIChat }
func (chat) last() string      { return "data: [DONE]\n\n" }

func (chat) parse(body []byte) (*Turn, error) {
	type function struct {
		ID       string
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
	var req struct {
		Model   string
		Stream  bool
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
		Messages []struct {
			Role    string
			Content json.RawMessage
			Calls   []function `json:"tool_calls"`
			CallID  string     `json:"tool_call_id"`
		}
		Tools []function
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	t := &Turn{API: api.OpenAIChat, Model: req.Model, Streamed: req.Stream, noUsage: req.Stream && !req.Options.Usage}
	for _, tool := range req.Tools {
		t.Tools = append(t.Tools, Tool{Name: tool.Function.Name, Schema: tool.Function.Parameters})
	}
	called := map[string]string{}
	for _, m := range req.Messages {
		for _, c := range m.Calls {
			called[c.ID] = c.Function.Name
		}
		switch m.Role {
		case "tool":
			t.Items = append(t.Items, Item{called[m.CallID], textOf(m.Content)})
		case "user":
			t.Items = append(t.Items, Item{Text: textOf(m.Content)})
		}
	}
	return t, nil
}

func (chat) frame(t *Turn, kind string, choices []any, usage any) object {
	return object{"id": "c_1", "object": kind, "created": 1, "model": t.Model, "choices": choices, "usage": usage}
}

func (chat) usage(n api.Tokens) object {
	return object{
		"prompt_tokens": n.Input + n.CacheRead, "prompt_tokens_details": object{"cached_tokens": n.CacheRead},
		"completion_tokens": n.Output, "completion_tokens_details": object{"reasoning_tokens": n.Output / 4}, "total_tokens": n.Total(),
	}
}

func (f chat) document(t *Turn, r *Reply) object {
	message, reason := object{"role": "assistant", "content": r.Say}, "stop"
	if r.Tool != "" {
		reason = "tool_calls"
		call := object{"index": 0, "id": t.id(), "type": "function", "function": object{"name": r.Tool, "arguments": r.text()}}
		message = object{"role": "assistant", "content": nil, "tool_calls": []any{call}}
	}
	return f.frame(t, "chat.completion", []any{object{"index": 0, "message": message, "finish_reason": reason}}, f.usage(t.tokens(r)))
}

// events reports the usage in a last event without choices, if the request asks for it.
func (f chat) events(t *Turn, r *Reply) iter.Seq[event] {
	return func(yield func(event) bool) {
		chunk := func(delta object, finish any) event {
			return event{data: f.frame(t, "chat.completion.chunk", []any{object{"index": 0, "delta": delta, "finish_reason": finish}}, nil)}
		}
		begin, reason := object{"role": "assistant", "content": ""}, "stop"
		piece := func(p string) object { return object{"content": p} }
		if r.Tool != "" {
			reason = "tool_calls"
			begin = object{"role": "assistant", "content": nil, "tool_calls": []any{object{"index": 0, "id": t.id(), "type": "function", "function": object{"name": r.Tool, "arguments": ""}}}}
			piece = func(p string) object {
				return object{"tool_calls": []any{object{"index": 0, "function": object{"arguments": p}}}}
			}
		}
		if !yield(chunk(begin, nil)) {
			return
		}
		for p := range r.pieces {
			if !yield(chunk(piece(p), nil)) {
				return
			}
		}
		if yield(chunk(object{}, reason)) && !t.noUsage {
			n := t.tokens(r)
			yield(event{f.frame(t, "chat.completion.chunk", []any{}, f.usage(n)), n})
		}
	}
}
