package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// The parts of the four wire formats that the scripted model needs: tools
// offered, results of calls, and a response of one call or one text.

type object = map[string]any

// whole responds with one document.
func whole(w http.ResponseWriter, v object) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

// stream responds with server-sent events, named by their member "type" if they
// have one.
func stream(w http.ResponseWriter, events ...object) error {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if name, ok := e["type"].(string); ok {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return err
		}
	}
	return nil
}

// encoded encodes the arguments of a call as text, which three of the formats
// use.
func encoded(args map[string]any) string {
	text, err := json.Marshal(args)
	if err != nil {
		panic(err) // the story's own maps
	}
	return string(text)
}

// callID numbers the calls of a conversation.
func callID(t turn) string { return "call_" + strconv.Itoa(len(t.results)) }

// textOf is the text of a content that is a string or a list of parts.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// messages implements Anthropic's Messages API as claude-code uses it.
func (s *scripted) messages(w http.ResponseWriter, raw []byte) error {
	var req struct {
		Stream   bool
		Messages []struct{ Content json.RawMessage }
		Tools    []struct{ Name string }
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return err
	}
	var t turn
	for _, tool := range req.Tools {
		t.tools = append(t.tools, tool.Name)
	}
	called := map[string]string{}
	for _, m := range req.Messages {
		var blocks []struct {
			Type, ID, Name string
			ToolUse        string `json:"tool_use_id"`
			Content        json.RawMessage
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue // a plain text
		}
		for _, b := range blocks {
			switch b.Type {
			case "tool_use":
				called[b.ID] = b.Name
			case "tool_result":
				t.results = append(t.results, toolResult{called[b.ToolUse], textOf(b.Content)})
			}
		}
	}
	return anthropic(w, req.Stream, callID(t), s.next(t))
}

func anthropic(w http.ResponseWriter, streamed bool, id string, st step) error {
	reason := "end_turn"
	begin, all := object{"type": "text", "text": ""}, object{"type": "text", "text": st.say}
	delta := object{"type": "text_delta", "text": st.say}
	if st.tool != "" {
		reason = "tool_use"
		begin = object{"type": "tool_use", "id": id, "name": st.tool, "input": object{}}
		all = object{"type": "tool_use", "id": id, "name": st.tool, "input": st.args}
		delta = object{"type": "input_json_delta", "partial_json": encoded(st.args)}
	}
	usage := object{"input_tokens": 1, "output_tokens": 1}
	message := object{"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []any{all}, "stop_reason": reason, "stop_sequence": nil, "usage": usage}
	if !streamed {
		return whole(w, message)
	}
	message["content"], message["stop_reason"] = []any{}, nil
	return stream(w,
		object{"type": "message_start", "message": message},
		object{"type": "content_block_start", "index": 0, "content_block": begin},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": usage},
		object{"type": "message_stop"},
	)
}

// responses implements OpenAI's Responses API as codex uses it: it puts the
// tools of an MCP server in a namespace.
func (s *scripted) responses(w http.ResponseWriter, raw []byte) error {
	var req struct {
		Input []struct {
			Type, Name string
			CallID     string `json:"call_id"`
			Output     json.RawMessage
		}
		Tools []struct {
			Name  string
			Tools []struct{ Name string }
		}
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return err
	}
	var t turn
	space := map[string]string{}
	for _, tool := range req.Tools {
		if tool.Tools == nil {
			t.tools = append(t.tools, tool.Name)
		}
		for _, in := range tool.Tools {
			t.tools = append(t.tools, in.Name)
			space[in.Name] = tool.Name
		}
	}
	called := map[string]string{}
	for _, item := range req.Input {
		switch item.Type {
		case "function_call":
			called[item.CallID] = item.Name
		case "function_call_output":
			t.results = append(t.results, toolResult{called[item.CallID], textOf(item.Output)})
		}
	}
	st := s.next(t)
	item := object{"type": "message", "id": "m_1", "role": "assistant", "content": []any{object{"type": "output_text", "text": st.say}}}
	if st.tool != "" {
		item = object{"type": "function_call", "id": "f_1", "call_id": callID(t), "name": st.tool, "arguments": encoded(st.args)}
		if space[st.tool] != "" {
			item["namespace"] = space[st.tool]
		}
	}
	usage := object{"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}
	return stream(w,
		object{"type": "response.created", "response": object{"id": "resp_1"}},
		object{"type": "response.output_item.added", "output_index": 0, "item": item},
		object{"type": "response.output_item.done", "output_index": 0, "item": item},
		object{"type": "response.completed", "response": object{"id": "resp_1", "output": []any{item}, "usage": usage}},
	)
}

// completions implements OpenAI's chat completions API as opencode uses it with
// a custom provider.
func (s *scripted) completions(w http.ResponseWriter, raw []byte) error {
	type function struct {
		ID       string
		Function struct{ Name string }
	}
	var req struct {
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
			Calls   []function `json:"tool_calls"`
			CallID  string     `json:"tool_call_id"`
		}
		Tools []function
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return err
	}
	var t turn
	for _, tool := range req.Tools {
		t.tools = append(t.tools, tool.Function.Name)
	}
	called := map[string]string{}
	for _, m := range req.Messages {
		for _, c := range m.Calls {
			called[c.ID] = c.Function.Name
		}
		if m.Role == "tool" {
			t.results = append(t.results, toolResult{called[m.CallID], textOf(m.Content)})
		}
	}
	st := s.next(t)
	message, reason := object{"role": "assistant", "content": st.say}, "stop"
	if st.tool != "" {
		reason = "tool_calls"
		call := object{"index": 0, "id": callID(t), "type": "function", "function": object{"name": st.tool, "arguments": encoded(st.args)}}
		message = object{"role": "assistant", "content": nil, "tool_calls": []any{call}}
	}
	usage := object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	answer := func(kind, member string, content object, finish any) object {
		choice := object{"index": 0, member: content, "finish_reason": finish}
		return object{"id": "c_1", "object": kind, "created": 1, "model": "scripted", "choices": []any{choice}, "usage": usage}
	}
	if !req.Stream {
		return whole(w, answer("chat.completion", "message", message, reason))
	}
	const chunk = "chat.completion.chunk"
	if err := stream(w, answer(chunk, "delta", message, nil), answer(chunk, "delta", object{}, reason)); err != nil {
		return err
	}
	_, err := io.WriteString(w, "data: [DONE]\n\n")
	return err
}

// generate implements Google's Gemini API as gemini-cli uses it.
func (s *scripted) generate(w http.ResponseWriter, raw []byte, verb string) error {
	var req struct {
		Contents []struct {
			Parts []struct {
				Response *struct {
					Name     string
					Response json.RawMessage
				} `json:"functionResponse"`
			}
		}
		Tools []struct {
			Functions []struct{ Name string } `json:"functionDeclarations"`
		}
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return err
	}
	var t turn
	for _, set := range req.Tools {
		for _, f := range set.Functions {
			t.tools = append(t.tools, f.Name)
		}
	}
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			if p.Response == nil {
				continue
			}
			// {"output": TEXT}, or another object where the call failed.
			var result struct{ Output string }
			if json.Unmarshal(p.Response.Response, &result) != nil || result.Output == "" {
				result.Output = string(p.Response.Response)
			}
			t.results = append(t.results, toolResult{p.Response.Name, result.Output})
		}
	}
	if verb == "countTokens" {
		return whole(w, object{"totalTokens": 1})
	}
	st := s.next(t)
	part := object{"text": st.say}
	if st.tool != "" {
		part = object{"functionCall": object{"id": callID(t), "name": st.tool, "args": st.args}}
	}
	answer := object{
		"candidates":    []any{object{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": []any{part}}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		"modelVersion":  "scripted",
	}
	if verb == "streamGenerateContent" {
		return stream(w, answer)
	}
	return whole(w, answer)
}
