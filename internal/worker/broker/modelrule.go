package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The rules of request bodies. What a provider would do beyond the model's own answer is
// a way around the egress list, the level or the count: its tools, files that it
// fetches, other models, other prices, answers in the background. So every member
// at the top is listed, and every kind of tool.

// Names in serverTools for media that the provider fetches or has stored.
const (
	toolURL    = "url"
	toolFile   = "file"
	toolStored = "stored" // answers and containers of other requests, and to keep this one's
)

// rulesOf returns the rules of the requests of a format.
func rulesOf(a api.ModelAPI) *node {
	switch a {
	case api.AnthropicMessages:
		return anthropicRules()
	case api.OpenAIResponses:
		return responsesRules()
	case api.OpenAIChat:
		return chatRules()
	case api.Gemini:
		return geminiRules()
	}
	return nil
}

func anthropicRules() *node {
	source, block := open(nil), open(nil)
	blocks := &node{array: block, leaf: plain}
	source.object = map[string]*node{"type": {leaf: sourceType}, "content": blocks, "url": {tool: toolURL}, "file_id": {tool: toolFile}}
	source.leaf = plain // of a search result: its name
	source.unbound = true
	// The input of a tool call may be anything; a result of a tool has blocks.
	block.object = map[string]*node{"source": source.fold(), "content": blocks, "file_id": {tool: toolFile}}
	block.leaf = plain
	block.fold()
	tool := open(map[string]*node{"type": {leaf: toolType("custom", "bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_")}})
	return listed(map[string]*node{
		"model":        {leaf: modelID},
		"messages":     {array: open(map[string]*node{"content": blocks})},
		"system":       blocks,
		"tools":        {array: tool},
		"service_tier": {leaf: oneOf("auto", "standard_only")},
		"speed":        {leaf: oneOf("standard")},
		"max_tokens":   {raw: outputMost}, "context_management": {raw: compacting},
	}, "metadata", "stop_sequences", "stream", "temperature", "top_k", "top_p", "thinking", "tool_choice",
		"cache_control", "diagnostics", "output_config", "output_format")
}

func responsesRules() *node {
	tool := open(map[string]*node{"type": {leaf: toolType("function", "custom", "namespace", "local_shell", "apply_patch", "tool_search")}})
	tools := &node{array: tool}
	tool.object["tools"] = tools // of a namespace
	tool.fold()
	part := media(nil)
	part.leaf = plain
	parts := &node{array: part, leaf: plain}
	stored := &node{tool: toolStored}
	tool.object["container"], tool.object["environment"] = stored, stored // where a tool of the provider runs
	tool.fold()
	item := media(map[string]*node{
		"content": parts, "output": parts, "tools": tools, "type": {leaf: itemType}, "role": nil,
		"container_id": stored, "environment": stored,
	})
	item.needs = []string{"type", "role"} // an item without both refers to a stored one
	return listed(map[string]*node{
		"model":        {leaf: modelID},
		"input":        {array: item, leaf: plain},
		"tools":        tools,
		"background":   {leaf: oneOf("false")},
		"service_tier": {leaf: oneOf("auto", "default", "flex")},
		"store":        {raw: isStored}, "previous_response_id": stored, "conversation": stored,
		"max_output_tokens": {raw: outputMost}, "context_management": {raw: compacting},
	}, "instructions", "stream", "stream_options", "tool_choice", "parallel_tool_calls", "reasoning", "include", "text",
		"prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "client_metadata", "metadata", "temperature", "top_p",
		"max_tool_calls", "truncation", "user", "safety_identifier", "top_logprobs")
}

func chatRules() *node {
	part := media(nil)
	part.leaf = plain
	message := media(map[string]*node{"content": {array: part, leaf: plain}})
	return listed(map[string]*node{
		"model":          {leaf: modelID},
		"messages":       {array: message},
		"tools":          {array: open(map[string]*node{"type": {leaf: toolType("function", "custom")}})},
		"service_tier":   {leaf: oneOf("auto", "default", "flex")},
		"stream":         {raw: isStream},
		"stream_options": {raw: streamOptions},
		"store":          {raw: isStored},
		"max_tokens":     {raw: outputMost}, "max_completion_tokens": {raw: outputMost}, "n": {raw: choices},
		"prediction": {raw: unbound}, // what the model rejects of it counts as output, too
	}, "stop", "temperature", "top_p", "top_k", "min_p", "seed", "user", "metadata",
		"presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format",
		"tool_choice", "parallel_tool_calls", "functions", "function_call", "reasoning", "reasoning_effort", "verbosity", "modalities",
		"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "thinking", "enable_thinking", "thinking_budget", "chat_template_kwargs",
		"cache_prompt", "keep_alive", "include_reasoning", "usage")
}

func geminiRules() *node {
	part := open(map[string]*node{
		"fileData": {tool: toolURL}, "file_data": {tool: toolURL}, "inlineData": {raw: unbound}, "inline_data": {raw: unbound},
	})
	parts := &node{array: part}
	reply := open(map[string]*node{"parts": parts})
	part.object["functionResponse"], part.object["function_response"] = reply, reply
	part.fold()
	content := open(map[string]*node{"parts": parts})
	tool := listed(map[string]*node{}, "functionDeclarations", "function_declarations")
	config := open(map[string]*node{
		"maxOutputTokens": {raw: outputMost}, "max_output_tokens": {raw: outputMost}, "candidateCount": {raw: choices}, "candidate_count": {raw: choices},
	})
	top := listed(map[string]*node{
		"model":             {leaf: modelID},
		"contents":          {array: content},
		"systemInstruction": content, "system_instruction": content,
		"tools":            {array: tool},
		"generationConfig": config, "generation_config": config,
		"serviceTier": {leaf: oneOf("standard", "unspecified", "flex")}, "service_tier": {leaf: oneOf("standard", "unspecified", "flex")},
	}, "toolConfig", "tool_config", "safetySettings", "safety_settings", "labels")
	top.object["generateContentRequest"], top.object["generate_content_request"] = top, top // of countTokens
	return top.fold()
}

// media makes the rules of an object of OpenAI's formats, with the members that name a
// picture, sound, video or file. Servers of these formats have more of them than OpenAI.
func media(object map[string]*node) *node {
	n := open(map[string]*node{"file_id": {tool: toolFile}, "image_url": fetched(), "file_url": fetched()})
	n.media = true
	for _, name := range []string{"file", "image", "audio", "video", "input_audio", "input_file", "input_image"} {
		n.object[name] = open(map[string]*node{"file_id": {tool: toolFile}})
		n.object[name].leaf, n.object[name].media, n.object[name].unbound = dataURL, true, true
	}
	maps.Copy(n.object, object)
	return n.fold()
}

// fetched is the rule of a member whose URL the provider would fetch.
func fetched() *node {
	n := open(map[string]*node{"url": {leaf: dataURL}})
	n.leaf, n.unbound = dataURL, true
	return n
}

// namesMedia reports whether a member with a folded name has a URL or its data.
func namesMedia(folded string) bool {
	return strings.HasSuffix(folded, "url") || strings.HasSuffix(folded, "uri") || folded == "data" || folded == "filedata"
}

// modelID refuses other models than that of the level.
func modelID(in *inspection, v jsontext.Value) error {
	id := text(v)
	if in.model.API == api.Gemini {
		id = strings.TrimPrefix(id, "models/")
	}
	if v.Kind() != '"' || id != in.model.ID {
		return fmt.Errorf("this worker may use only the model %q, not %.80q", in.model.ID, id)
	}
	in.facts.named = true
	return nil
}

// toolType refuses tools that run at the provider. A name that ends in _ allows all
// versions.
func toolType(allowed ...string) check {
	return func(in *inspection, v jsontext.Value) error {
		t := text(v)
		ok := slices.ContainsFunc(allowed, func(a string) bool {
			return t == a || strings.HasSuffix(a, "_") && strings.HasPrefix(t, a)
		})
		if !ok && !in.model.serverTool(t) {
			return notListed(t)
		}
		if !slices.Contains([]string{"function", "custom", "namespace"}, t) {
			in.facts.unbound = true // the provider adds a text of its own for it
		}
		return nil
	}
}

// sourceType refuses sources that the provider fetches or has stored.
func sourceType(in *inspection, v jsontext.Value) error {
	switch t := text(v); t {
	case "base64", "text", "content":
		return nil
	case toolURL, toolFile:
		if !in.model.serverTool(t) {
			return notListed(t)
		}
		return nil
	default:
		return fmt.Errorf("unknown kind of source %.40q", t)
	}
}

// dataURL refuses a URL that the provider would fetch.
func dataURL(in *inspection, v jsontext.Value) error {
	u := text(v)
	if at := strings.IndexByte(u, ':'); at >= 0 && !strings.EqualFold(u[:at], "data") && !in.model.serverTool(toolURL) {
		return notListed(toolURL)
	}
	return nil
}

// itemType refuses a reference to an item of an earlier answer, and notes pictures.
func itemType(in *inspection, v jsontext.Value) error {
	t := text(v)
	in.facts.unbound = in.facts.unbound || strings.Contains(fold(t), "image")
	if fold(t) == fold("item_reference") && !in.model.serverTool(toolStored) {
		return notListed(toolStored)
	}
	return nil
}

// isStored notes whether the request decides about storing its answer, and refuses to.
func isStored(in *inspection, v jsontext.Value) error {
	in.facts.store = string(v) != "null"
	if !in.facts.store {
		end := in.dec.InputOffset()
		in.facts.storeAt = span{end - int64(len(v)), end}
	}
	if in.facts.store && string(v) != "false" && !in.model.serverTool(toolStored) {
		return notListed(toolStored)
	}
	return nil
}

func oneOf(allowed ...string) check {
	return func(_ *inspection, v jsontext.Value) error {
		if t := text(v); !slices.Contains(allowed, t) {
			return fmt.Errorf("%.40q is not allowed: it changes what the answer costs or how it is counted; use %s", t, strings.Join(allowed, " or "))
		}
		return nil
	}
}

// outputMost notes how many tokens an answer may have: the most that the body says.
func outputMost(in *inspection, v jsontext.Value) error {
	if v.Kind() == 'n' {
		return nil
	}
	// A server may read 1e5, 8.0 or "8" as a number, so anything but plain digits is no bound.
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && 1 <= n && n <= maxOutput {
		in.facts.most = max(in.facts.most, n)
	} else {
		in.facts.unbound = true
	}
	return nil
}

// choices notes whether a request may ask for more than one answer.
func choices(in *inspection, v jsontext.Value) error {
	in.facts.many = in.facts.many || v.Kind() != 'n' && string(v) != "1"
	return nil
}

// unbound allows any value. Unless it is null, the body says nothing about how many
// tokens the request may use.
func unbound(in *inspection, v jsontext.Value) error {
	in.facts.unbound = in.facts.unbound || v.Kind() != 'n'
	return nil
}

// compacting notes an option by which the provider may ask the model several times.
func compacting(in *inspection, v jsontext.Value) error {
	if bytes.Contains(bytes.ToLower(v), []byte("compact")) || bytes.IndexByte(v, '\\') >= 0 {
		return unbound(in, v)
	}
	return nil
}

// maxOutput bounds what a request may say to be its bound, in tokens.
const maxOutput = 1 << 30

// isStream notes whether the answer is to be streamed.
func isStream(in *inspection, v jsontext.Value) error {
	in.facts.stream = string(v) == "true"
	if !in.facts.stream && string(v) != "false" && string(v) != "null" {
		return errors.New("want true or false")
	}
	return nil
}

// streamOptions notes where the options of a stream are.
func streamOptions(in *inspection, v jsontext.Value) error {
	end := in.dec.InputOffset()
	in.facts.options = span{end - int64(len(v)), end}
	return nil
}

// withUsage returns a body of the chat format that asks for the usage of a stream. All
// else is as it was.
func withUsage(b []byte, f facts) ([]byte, error) {
	if !f.stream {
		return b, nil
	}
	if f.options == (span{}) {
		at := bytes.IndexByte(b, '{') + 1 // a checked body has a member: its model
		return slices.Concat(b[:at], []byte(`"stream_options":{"include_usage":true},`), b[at:]), nil
	}
	options := map[string]json.RawMessage{}
	if err := json.Unmarshal(b[f.options.from:f.options.to], &options); err != nil || options == nil {
		options = map[string]json.RawMessage{} // null, or nothing that a server would understand
	}
	if string(options["include_usage"]) == "true" {
		return b, nil
	}
	options["include_usage"] = json.RawMessage("true")
	v, err := json.Marshal(options)
	return slices.Concat(b[:f.options.from], v, b[f.options.to:]), err
}

// withoutStore returns a body of the responses format that says that the answer is not
// stored, since the provider stores it by default. All else is as it was.
func withoutStore(b []byte, f facts) []byte {
	if f.store {
		return b
	}
	at := bytes.IndexByte(b, '{') + 1 // a checked body has a member: its model
	if n := f.storeAt; n != (span{}) {
		return slices.Concat(b[:n.from], []byte("false"), b[n.to:])
	}
	return slices.Concat(b[:at], []byte(`"store":false,`), b[at:])
}

// text returns the content of a string, or another value as it is written.
func text(v jsontext.Value) string {
	if v.Kind() != '"' {
		return string(v)
	}
	b, _ := jsontext.AppendUnquote(nil, v) // v is valid; what is left of a lone surrogate matches nothing
	return string(b)
}
