package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// said is what an answer has said of itself so far.
type said struct {
	tokens api.Tokens
	usage  bool   // it has said what it used
	last   bool   // its last event was there
	fault  string // an error of the model in the answer
	bad    error  // a usage that cannot be read
}

// maxTokens bounds each number of an answer. A larger one is no count.
const maxTokens = 1 << 40

var errUsage = errors.New("the answer has an invalid count of tokens")

// readerOf returns the function that reads an event of a stream, or a whole answer. It
// ignores what it does not know.
func readerOf(a api.ModelAPI) func(data []byte, s *said) {
	switch a {
	case api.AnthropicMessages:
		return readAnthropic
	case api.OpenAIResponses:
		return readResponses
	case api.OpenAIChat:
		return readChat
	case api.Gemini:
		return readGemini
	}
	return func([]byte, *said) {} // New refuses other formats
}

// has reports whether data may have a member or value that begins with one of words,
// each with its first quote. A quote inside a text has a backslash before it, and the
// first quote of a text never does. It is quick, so that the many events with nothing
// but text cost little.
func has(data []byte, words ...string) bool {
	for _, w := range words {
		for rest := data; ; {
			at := bytes.Index(rest, []byte(w))
			if at < 0 {
				break
			}
			if at == 0 || rest[at-1] != '\\' {
				return true
			}
			rest = rest[at+1:]
		}
	}
	return false
}

// decode reads the members of data that v has. A break in the middle of an event leaves
// data that is no JSON, and says nothing.
func (s *said) decode(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	if _, broken := errors.AsType[*json.SyntaxError](err); err != nil && !broken {
		s.bad = errUsage
	}
	return err == nil
}

// count sets the tokens of s, unless one of them is no count.
func (s *said) count(t api.Tokens) {
	for _, n := range []int64{t.Input, t.Output, t.CacheRead, t.CacheWrite} {
		if n < 0 || n > maxTokens {
			s.bad = errUsage
			return
		}
	}
	s.tokens, s.usage = t, true
}

// modelError is an error in an answer.
type modelError struct {
	Type    string          `json:"type"`
	Status  string          `json:"status"` // of gemini
	Code    json.RawMessage `json:"code"`
	Message string          `json:"message"`
}

// UnmarshalJSON accepts a text instead of an object.
func (e *modelError) UnmarshalJSON(b []byte) error {
	type object modelError
	if json.Unmarshal(b, &e.Message) == nil {
		return nil
	}
	var o object
	err := json.Unmarshal(b, &o)
	if _, kind := errors.AsType[*json.UnmarshalTypeError](err); kind {
		err = nil // what it does say is enough
	}
	*e = modelError(o)
	return err
}

func (e *modelError) String() string {
	kind := e.Type
	if kind == "" {
		kind = e.Status
	}
	if kind == "" {
		kind = strings.Trim(string(e.Code), `"`)
	}
	return strings.TrimSuffix(strings.TrimPrefix(kind+": "+e.Message, ": "), ": ")
}

type anthropicUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	// Where the server did more than one inference, the members above are only the last.
	Iterations []anthropicUsage `json:"iterations"`
}

// onto returns t with the numbers that u has. They are those of the whole answer so far.
func (u *anthropicUsage) onto(t api.Tokens) api.Tokens {
	for _, n := range []struct {
		of *int64
		to *int64
	}{{u.Input, &t.Input}, {u.Output, &t.Output}, {u.CacheRead, &t.CacheRead}, {u.CacheWrite, &t.CacheWrite}} {
		if n.of != nil {
			*n.to = *n.of
		}
	}
	if len(u.Iterations) == 0 {
		return t
	}
	var sum api.Tokens
	for _, i := range u.Iterations {
		each := i.onto(api.Tokens{})
		sum.Input += min(each.Input, maxTokens+1) // so that no sum wraps around
		sum.Output += min(each.Output, maxTokens+1)
		sum.CacheRead += min(each.CacheRead, maxTokens+1)
		sum.CacheWrite += min(each.CacheWrite, maxTokens+1)
	}
	t.Input, t.Output = max(t.Input, sum.Input), max(t.Output, sum.Output)
	t.CacheRead, t.CacheWrite = max(t.CacheRead, sum.CacheRead), max(t.CacheWrite, sum.CacheWrite)
	return t
}

func readAnthropic(data []byte, s *said) {
	if !has(data, `"usage`, `"error`, `"message_stop"`) {
		return
	}
	var e struct {
		Type    string
		Message struct{ Usage *anthropicUsage }
		Usage   *anthropicUsage
		Error   *modelError
	}
	if !s.decode(data, &e) {
		return
	}
	u := e.Usage
	switch e.Type {
	case "message_start":
		u = e.Message.Usage
	case "message_stop", "message": // the latter is a whole answer
		s.last = true
	case "error":
		s.fail(e.Error)
	}
	if u != nil {
		s.count(u.onto(s.tokens))
	}
}

// fail notes an error of the model.
func (s *said) fail(e *modelError) {
	s.fault = "unknown error"
	if e != nil && e.String() != "" {
		s.fault = e.String()
	}
}

type openAIUsage struct {
	Input   int64         `json:"input_tokens"`
	Output  int64         `json:"output_tokens"`
	Details openAIDetails `json:"input_tokens_details"`
	// The names of the chat format.
	Prompt     int64         `json:"prompt_tokens"`
	Completion int64         `json:"completion_tokens"`
	Prompted   openAIDetails `json:"prompt_tokens_details"`
}

type openAIDetails struct {
	Cached  int64 `json:"cached_tokens"`
	Written int64 `json:"cache_write_tokens"`
}

// tokens separates those of a cache from the input, which contains them.
func (u *openAIUsage) tokens() api.Tokens {
	t := api.Tokens{
		Input: u.Input + u.Prompt, Output: u.Output + u.Completion,
		CacheRead: u.Details.Cached + u.Prompted.Cached, CacheWrite: u.Details.Written + u.Prompted.Written,
	}
	t.CacheRead = min(t.CacheRead, t.Input)
	t.CacheWrite = min(t.CacheWrite, t.Input-t.CacheRead)
	t.Input -= t.CacheRead + t.CacheWrite
	return t
}

func readResponses(data []byte, s *said) {
	if !has(data, `"usage`, `"error`, `"response.completed"`, `"response.incomplete"`, `"response.failed"`) {
		return
	}
	type response struct {
		Usage *openAIUsage
		Error *modelError
	}
	var e struct {
		Type     string
		Object   string // of a whole answer
		Response *response
		Usage    *openAIUsage
		Error    *modelError
		Code     json.RawMessage
		Message  string
	}
	if !s.decode(data, &e) {
		return
	}
	r := response{e.Usage, e.Error}
	if e.Response != nil {
		r = *e.Response
	}
	switch e.Type {
	case "response.completed", "response.incomplete", "response.failed":
		s.last = true
	case "error":
		if r.Error == nil {
			r.Error = &modelError{Code: e.Code, Message: e.Message}
		}
	}
	s.last = s.last || strings.HasPrefix(e.Object, "response")
	if r.Error != nil {
		s.fail(r.Error)
	}
	if r.Usage != nil {
		s.count(r.Usage.tokens())
	}
}

func readChat(data []byte, s *said) {
	if string(data) == "[DONE]" {
		s.last = true
		return
	}
	if !has(data, `"usage`, `"error`) {
		return
	}
	var e struct {
		Object string
		Usage  *openAIUsage
		Error  *modelError
	}
	if !s.decode(data, &e) {
		return
	}
	s.last = s.last || e.Object == "chat.completion" // a whole answer
	if e.Error != nil {
		s.fail(e.Error)
	}
	if e.Usage != nil {
		s.count(e.Usage.tokens())
	}
}

func readGemini(data []byte, s *said) {
	if !has(data, `"usageMetadata"`, `"error`, `"finishReason"`, `"blockReason"`) {
		return
	}
	var e struct {
		Candidates []struct{ FinishReason string }
		Feedback   struct{ BlockReason string } `json:"promptFeedback"`
		Usage      *struct {
			Prompt     int64 `json:"promptTokenCount"` // with those of the cache
			Tool       int64 `json:"toolUsePromptTokenCount"`
			Cached     int64 `json:"cachedContentTokenCount"`
			Candidates int64 `json:"candidatesTokenCount"`
			Thoughts   int64 `json:"thoughtsTokenCount"`
		} `json:"usageMetadata"`
		Error *modelError
	}
	if !s.decode(data, &e) {
		return
	}
	for _, c := range e.Candidates {
		s.last = s.last || c.FinishReason != ""
	}
	s.last = s.last || e.Feedback.BlockReason != ""
	if e.Error != nil {
		s.fail(e.Error)
	}
	if u := e.Usage; u != nil {
		cached := min(u.Cached, u.Prompt)
		s.count(api.Tokens{Input: u.Prompt - cached + u.Tool, Output: u.Candidates + u.Thoughts, CacheRead: cached})
	}
}
