package broker

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/bailiwick-dev/bailiwick/api"
)

func testModel(a api.ModelAPI, tools ...string) *Model {
	return &Model{Model: api.Model{Name: "big", API: a, ServerTools: tools}, ID: testID}
}

// cliBodies are what the four programs send, in shape.
func cliBodies() map[api.ModelAPI]string {
	return map[api.ModelAPI]string{
		api.AnthropicMessages: `{"model":"large-1","metadata":{"user_id":"{\"device_id\":\"9\"}"},"max_tokens":64000,"thinking":{"type":"adaptive","display":"updates"},
			"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"output_config":{"effort":"high"},"stream":true,
			"system":[{"type":"text","text":"You are","cache_control":{"type":"ephemeral"}}],
			"tools":[{"name":"Bash","description":"d","input_schema":{"type":"object","properties":{"type":{"type":"string"},"Type":{}}}},{"type":"custom","name":"x"},
				{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"memory_20250818","name":"m"}],
			"messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},
				{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"tool_use","id":"t","name":"Bash","input":{"source":{"type":"url","url":"https://x"},"model":"other","file_id":"f","Model":1}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a lone \ud83d surrogate"}]},{"type":"tool_result","tool_use_id":"u","content":"text"}]},
				{"role":"user","content":[{"type":"search_result","source":"https://example.com/a","title":"t","content":[{"type":"text","text":"x"}]},
					{"type":"document","source":{"type":"content","content":[{"type":"text","text":"x"}]}}]}]}`,
		api.OpenAIResponses: `{"model":"large-1","instructions":"You","stream":true,"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"summary":"auto"},"store":false,
			"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","client_metadata":{"a":"b"},"background":false,"service_tier":null,"stream_options":null,
			"tools":[{"type":"function","name":"exec_command","strict":false,"parameters":{"type":"object"}},{"type":"namespace","name":"n","tools":[{"type":"function","name":"x"}]},{"type":"custom","name":"apply_patch","format":{"type":"grammar"}}],
			"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"see https://example.com"}]},{"role":"user","content":"text"},
				{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"}]},
				{"type":"function_call","call_id":"c","name":"f","arguments":"{\"image_url\":\"https://x\"}"},{"type":"function_call_output","call_id":"c","output":"text"},
				{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},
				{"type":"reasoning","summary":[],"encrypted_content":"e"},{"type":"local_shell_call","action":{"type":"exec","command":["curl","https://x"]}}]}`,
		api.OpenAIChat: `{"model":"large-1","max_tokens":32000,"tool_choice":"auto","stream":true,"stream_options":{"include_usage":true},
			"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],
			"messages":[{"role":"system","content":"You"},{"role":"user","content":[{"type":"text","text":"https://x"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"file","file":{"filename":"a:b","file_data":"data:x"}}]},
				{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"t"}]}`,
		api.Gemini: `{"contents":[{"role":"user","parts":[{"text":"hi"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"fileData":1,"file_data":2}},"thoughtSignature":"s"}]},
			{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{"fileData":{"fileUri":"https://x"}}}}]}],
			"systemInstruction":{"role":"user","parts":[{"text":"x"}]},"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":{}}]}],"toolConfig":{},
			"generationConfig":{"temperature":1,"topP":0.95,"topK":64,"thinkingConfig":{"includeThoughts":true}}}`,
	}
}

func TestBodiesOfTheFourProgramsPass(t *testing.T) {
	for a, body := range cliBodies() {
		f, err := inspect([]byte(body), rulesOf(a), testModel(a))
		if err != nil || f.named != (a != api.Gemini) {
			t.Errorf("%s: %+v, %v", a, f, err)
		}
	}
}

// bad is a body that is refused, and why.
type bad struct{ body, why string }

func badAnthropic() map[string]bad {
	message := func(block string) string {
		return `{"model":"large-1","messages":[{"role":"user","content":[` + block + `]}]}`
	}
	tool := func(t string) string { return `{"model":"large-1","messages":[],"tools":[` + t + `]}` }
	return map[string]bad{
		"another model":          {`{"model":"huge-9","messages":[]}`, "only the model \"large-1\", not \"huge-9\""},
		"an escaped name":        {`{"mod\u0065l":"huge-9","messages":[]}`, "only the model"},
		"a second model":         {`{"model":"large-1","messages":[],"model":"huge-9"}`, "duplicate"},
		"a second, escaped":      {`{"model":"large-1","messages":[],"mode\u006c":"huge-9"}`, "duplicate"},
		"another case":           {`{"model":"large-1","messages":[],"Model":"huge-9"}`, "want the spelling"},
		"a Kelvin sign":          {`{"model":"large-1","to\u212aens":1,"messages":[]}`, "unknown member"},
		"a long s":               {`{"model":"large-1","me\u017f\u017fages":[]}`, "want the spelling"},
		"a list of models":       {`{"model":["large-1","huge-9"],"messages":[]}`, "unexpected kind"},
		"a number":               {`{"model":7,"messages":[]}`, "only the model"},
		"a list":                 {`[{"model":"large-1"}]`, "not a JSON object"},
		"more after it":          {`{"model":"large-1"} {"model":"huge-9"}`, "data after it"},
		"fallbacks":              {`{"model":"large-1","fallbacks":[{"model":"huge-9"}]}`, "unknown member"},
		"an MCP server":          {`{"model":"large-1","mcp_servers":[{"type":"url","url":"https://evil.example"}]}`, "/mcp_servers"},
		"a container":            {`{"model":"large-1","container":{"id":"c"}}`, "/container"},
		"a more expensive tier":  {`{"model":"large-1","service_tier":"priority"}`, "costs"},
		"a more expensive speed": {`{"model":"large-1","speed":"fast"}`, "costs"},
		"web search":             {tool(`{"type":"web_search_20250305","name":"web_search"}`), "web_search_20250305"},
		"web fetch":              {tool(`{"name":"Bash"},{"type":"web_fetch_20250910","name":"web_fetch"}`), "/tools/1"},
		"code execution":         {tool(`{"type":"code_execution_20250825","name":"x"}`), "code_execution"},
		"an MCP toolset":         {tool(`{"type":"mcp_toolset","mcp_server_name":"x"}`), "mcp_toolset"},
		"an advisor":             {tool(`{"type":"advisor_20260301","model":"huge-9"}`), "advisor"},
		"a tool of another case": {tool(`{"name":"x","Type":"web_search_20250305"}`), "want the spelling"},
		"two kinds of a tool":    {tool(`{"type":"custom","name":"x","type":"web_search_20250305"}`), "duplicate"},
		"a kind in a list":       {tool(`{"type":["web_search_20250305"],"name":"x"}`), "unexpected kind"},
		"one tool, no list":      {`{"model":"large-1","tools":{"type":"web_search_20250305"}}`, "web_search_20250305"},
		"an image by URL":        {message(`{"type":"image","source":{"type":"url","url":"https://evil.example/?q=secret"}}`), "url"},
		"an untyped URL":         {message(`{"type":"image","source":{"url":"https://evil.example"}}`), "url"},
		"a stored file":          {message(`{"type":"document","source":{"type":"file","file_id":"f"}}`), "file"},
		"an upload":              {message(`{"type":"container_upload","file_id":"f"}`), "file"},
		"an image in a result":   {message(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://evil.example"}}]}`), "url"},
		"an image in a document": {message(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"x"}}]}}`), "url"},
		"an image in the system": {`{"model":"large-1","system":[{"type":"image","source":{"type":"url","url":"x"}}]}`, "url"},
		"an unknown source":      {message(`{"type":"image","source":{"type":"bucket","at":"x"}}`), "unknown kind of source"},
	}
}

func badOpenAI() map[string]bad {
	return map[string]bad{
		"another model":         {`{"model":"huge-9"}`, "only the model"},
		"web search":            {`{"model":"large-1","tools":[{"type":"web_search","external_web_access":false}]}`, "web_search"},
		"a preview":             {`{"model":"large-1","tools":[{"type":"web_search_preview_2025_03_11"}]}`, "web_search_preview"},
		"an MCP server":         {`{"model":"large-1","tools":[{"type":"mcp","server_url":"https://evil.example"}]}`, "mcp"},
		"in a namespace":        {`{"model":"large-1","tools":[{"type":"namespace","tools":[{"type":"mcp","server_url":"https://evil.example"}]}]}`, "/tools/0/tools/0/type"},
		"in the input":          {`{"model":"large-1","input":[{"type":"tool_search_output","tools":[{"type":"code_interpreter"}]}]}`, "code_interpreter"},
		"file search":           {`{"model":"large-1","tools":[{"type":"file_search"}]}`, "file_search"},
		"images":                {`{"model":"large-1","tools":[{"type":"image_generation"}]}`, "image_generation"},
		"a hosted shell":        {`{"model":"large-1","tools":[{"type":"shell"}]}`, "shell"},
		"in the background":     {`{"model":"large-1","background":true}`, "counted"},
		"a stored prompt":       {`{"model":"large-1","prompt":{"id":"p"}}`, "unknown member"},
		"a stored conversation": {`{"model":"large-1","conversation":"c"}`, "stored"},
		"a stored answer":       {`{"model":"large-1","previous_response_id":"resp_1"}`, "stored"},
		"another spelling":      {`{"model":"large-1","previousResponseId":"resp_1"}`, "spelling"},
		"a stored item":         {`{"model":"large-1","input":[{"type":"item_reference","id":"msg_1"}]}`, "stored"},
		"a stored item, bare":   {`{"model":"large-1","input":[{"id":"msg_1"}]}`, "stored"},
		"a stored item, null":   {`{"model":"large-1","input":[{"type":null,"id":"msg_1"}]}`, "stored"},
		"to be stored":          {`{"model":"large-1","store":true}`, "stored"},
		"stored as a text":      {`{"model":"large-1","store":"true"}`, "stored"},
		"a container":           {`{"model":"large-1","input":[{"type":"code_interpreter_call","container_id":"cntr_1"}]}`, "stored"},
		"a tool's container":    {`{"model":"large-1","tools":[{"type":"function","name":"f","container":"cntr_1"}]}`, "stored"},
		"an environment":        {`{"model":"large-1","tools":[{"type":"local_shell","environment":{"type":"container_reference","container_id":"cntr_1"}}]}`, "stored"},
		"priority":              {`{"model":"large-1","service_tier":"priority"}`, "costs"},
		"an image by URL":       {`{"model":"large-1","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://evil.example/?q=s"}]}]}`, "url"},
		"another scheme":        {`{"model":"large-1","input":[{"role":"user","content":[{"type":"input_image","image_url":" HTTPS://evil.example"}]}]}`, "url"},
		"a file by URL":         {`{"model":"large-1","input":[{"role":"user","content":[{"type":"input_file","file_url":"https://evil.example"}]}]}`, "url"},
		"another case":          {`{"model":"large-1","input":[{"role":"user","content":[{"type":"input_file","File_URL":"https://evil.example"}]}]}`, "spelling"},
		"a file as data":        {`{"model":"large-1","input":[{"role":"user","content":[{"type":"input_file","file_data":"https://evil.example"}]}]}`, "url"},
		"a stored file":         {`{"model":"large-1","input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`, "file"},
		"an image in an output": {`{"model":"large-1","input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"https://evil.example"}}]}`, "url"},
		"one item, no list":     {`{"model":"large-1","input":{"role":"user","content":{"image_url":"https://evil.example"}}}`, "url"},
	}
}

func badChat() map[string]bad {
	part := func(p string) string { return `{"model":"large-1","messages":[{"role":"user","content":[` + p + `]}]}` }
	return map[string]bad{
		"another model":     {`{"model":"huge-9"}`, "only the model"},
		"models":            {`{"model":"large-1","models":["huge-9"]}`, "unknown member"},
		"another server":    {`{"model":"large-1","api_base":"https://evil.example"}`, "unknown member"},
		"plugins":           {`{"model":"large-1","plugins":[{"id":"web"}]}`, "unknown member"},
		"web search":        {`{"model":"large-1","web_search_options":{}}`, "unknown member"},
		"a tool":            {`{"model":"large-1","tools":[{"type":"web_search","web_search":{"enable":true}}]}`, "web_search"},
		"an image by URL":   {part(`{"type":"image_url","image_url":{"url":"https://evil.example"}}`), "url"},
		"as a string":       {part(`{"type":"image_url","image_url":"https://evil.example"}`), "url"},
		"a video":           {part(`{"type":"video_url","video_url":{"url":"https://evil.example"}}`), "url"},
		"a local file":      {part(`{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}`), "url"},
		"a stored file":     {part(`{"type":"file","file":{"file_id":"f"}}`), "file"},
		"another spelling":  {part(`{"type":"image_url","imageUrl":{"url":"https://evil.example"}}`), "spelling"},
		"two spellings":     {`{"model":"large-1","stream":false,"Stream":true}`, "spelling"},
		"a part, no list":   {`{"model":"large-1","messages":[{"role":"user","content":{"type":"image_url","image_url":{"url":"https://evil.example"}}}]}`, "url"},
		"a document":        {part(`{"type":"document_url","document_url":"https://evil.example/?q=s"}`), "url"},
		"a URL of anything": {part(`{"type":"x","x":1,"newMediaUri":{"url":"https://evil.example"}}`), "url"},
		"a URL as data":     {part(`{"type":"file","file":{"filename":"x.pdf","file_data":"https://evil.example"}}`), "url"},
		"sound as data":     {part(`{"type":"input_audio","input_audio":{"data":"https://evil.example","format":"mp3"}}`), "url"},
		"in a message":      {`{"model":"large-1","messages":[{"role":"user","content":"","image_url":"https://evil.example"}]}`, "url"},
		"a URL in a list":   {part(`{"type":"image_url","image_url":["https://evil.example"]}`), "unexpected kind"},
		"extra body":        {`{"model":"large-1","extra_body":{"model":"huge-9"}}`, "unknown member"},
		"a stream in words": {`{"model":"large-1","stream":"true"}`, "want true or false"},
		"a model in a list": {`{"model":["large-1"]}`, "unexpected kind"},
	}
}

func badGemini() map[string]bad {
	return map[string]bad{
		"Google search":     {`{"contents":[],"tools":[{"googleSearch":{}}]}`, "/tools/0/googleSearch"},
		"snake case":        {`{"contents":[],"tools":[{"google_search":{}}]}`, "google_search"},
		"a URL context":     {`{"contents":[],"tools":[{"functionDeclarations":[]},{"urlContext":{}}]}`, "/tools/1/urlContext"},
		"code execution":    {`{"contents":[],"tools":[{"codeExecution":{}}]}`, "codeExecution"},
		"one tool, no list": {`{"contents":[],"tools":{"googleSearch":{}}}`, "googleSearch"},
		"a file":            {`{"contents":[{"parts":[{"fileData":{"fileUri":"https://evil.example"}}]}]}`, "url"},
		"one part, no list": {`{"contents":{"parts":{"file_data":{"file_uri":"https://evil.example"}}}}`, "url"},
		"another case":      {`{"contents":[{"parts":[{"FileData":{"fileUri":"https://evil.example"}}]}]}`, "spelling"},
		"in the system":     {`{"systemInstruction":{"parts":[{"fileData":{"fileUri":"x"}}]}}`, "url"},
		"in a response":     {`{"contents":[{"parts":[{"functionResponse":{"parts":[{"fileData":{"fileUri":"x"}}]}}]}]}`, "url"},
		"both spellings":    {`{"contents":[],"systemInstruction":{},"system_instruction":{"parts":[]}}`, "second spelling"},
		"stored content":    {`{"cachedContent":"cachedContents/1"}`, "unknown member"},
		"another model":     {`{"model":"models/huge-9","contents":[]}`, "only the model"},
		"one inside":        {`{"generateContentRequest":{"model":"models/huge-9","contents":[]}}`, "only the model"},
		"a tool inside":     {`{"generateContentRequest":{"model":"models/large-1","tools":[{"googleSearch":{}}]}}`, "googleSearch"},
		"priority":          {`{"contents":[],"serviceTier":"priority"}`, "costs"},
	}
}

// A request cannot use a tool of the provider, make it fetch a URL, name another model
// or change the price, however it spells that.
//
// proves R-S3
func TestBodiesThatReachBeyondTheModelAreRefused(t *testing.T) {
	for a, cases := range map[api.ModelAPI]map[string]bad{
		api.AnthropicMessages: badAnthropic(), api.OpenAIResponses: badOpenAI(), api.OpenAIChat: badChat(), api.Gemini: badGemini(),
	} {
		for name, c := range cases {
			_, err := inspect([]byte(c.body), rulesOf(a), testModel(a))
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s: %s: want %q, got %v", a, name, c.why, err)
			}
		}
	}
}

// The positive control: what serverTools lists passes.
func TestListedServerToolsPass(t *testing.T) {
	for _, c := range []struct {
		api  api.ModelAPI
		tool string
		body string
	}{
		{api.AnthropicMessages, "web_search", badAnthropic()["web search"].body},
		{api.AnthropicMessages, "web_search_20250305", badAnthropic()["web search"].body},
		{api.AnthropicMessages, "mcp_servers", badAnthropic()["an MCP server"].body},
		{api.AnthropicMessages, "url", badAnthropic()["an image by URL"].body},
		{api.AnthropicMessages, "file", badAnthropic()["a stored file"].body},
		{api.OpenAIResponses, "web_search", badOpenAI()["web search"].body},
		{api.OpenAIResponses, "web_search", badOpenAI()["a preview"].body},
		{api.OpenAIResponses, "url", badOpenAI()["an image by URL"].body},
		{api.OpenAIChat, "web_search", badChat()["web search"].body},
		{api.Gemini, "google_search", badGemini()["Google search"].body},
		{api.Gemini, "googleSearch", badGemini()["snake case"].body},
		{api.Gemini, "url", badGemini()["a file"].body},
	} {
		if _, err := inspect([]byte(c.body), rulesOf(c.api), testModel(c.api, "other", c.tool)); err != nil {
			t.Errorf("%s %s: %v", c.api, c.tool, err)
		}
	}
}

func TestBodiesInOtherEncodingsAreRefused(t *testing.T) {
	const body = `{"model":"large-1","messages":[]}`
	wide := func(order binary.AppendByteOrder) (b []byte) {
		for _, u := range utf16.Encode([]rune("\ufeff" + body)) {
			b = order.AppendUint16(b, u)
		}
		return b
	}
	rules, m := anthropicRules(), testModel(api.AnthropicMessages)
	if _, err := inspect([]byte(body), rules, m); err != nil {
		t.Fatal("control:", err)
	}
	for name, b := range map[string][]byte{
		"UTF-16LE": wide(binary.LittleEndian), "UTF-16BE": wide(binary.BigEndian), "a mark": []byte("\ufeff" + body), "Latin-1": []byte("{\"model\":\"large-1\",\"system\":\"\xe9\"}"),
		"empty": nil, "null": []byte("null"), "a form": []byte("model=large-1"), "half": []byte(body[:20]), "comments": []byte("/**/" + body), "a NUL": []byte(body + "\x00"),
		"deep": []byte(strings.Repeat(`{"messages":[`, 20_000)), "deep inside": []byte(`{"metadata":` + strings.Repeat("[", 1<<20)),
	} {
		if _, err := inspect(b, rules, m); !errors.Is(err, errSyntax) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChatStreamsAreAskedForTheirUsage(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"large-1"}`:                               `{"model":"large-1"}`,
		`{"model":"large-1","stream":false}`:                `{"model":"large-1","stream":false}`,
		` { "model":"large-1", "stream":true, "seed":1.50}`: ` {"stream_options":{"include_usage":true}, "model":"large-1", "stream":true, "seed":1.50}`,
		`{"model":"large-1","stream":true,"stream_options" : { "include_usage" : false , "x":1.0} ,"seed":1}`: `{"model":"large-1","stream":true,"stream_options" : {"include_usage":true,"x":1.0} ,"seed":1}`,
		`{"stream_options":null,"model":"large-1","stream":true}`:                                             `{"stream_options":{"include_usage":true},"model":"large-1","stream":true}`,
		`{"stream_options":[],"model":"large-1","stream":true}`:                                               `{"stream_options":{"include_usage":true},"model":"large-1","stream":true}`,
		`{"model":"large-1","stream":true,"stream_options":{"include_usage":true}}`:                           `{"model":"large-1","stream":true,"stream_options":{"include_usage":true}}`,
	} {
		f, err := inspect([]byte(body), chatRules(), testModel(api.OpenAIChat))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := withUsage([]byte(body), f); string(got) != want || err != nil {
			t.Errorf("%s: %s, %v", body, got, err)
		}
	}
}

// FuzzInspect checks that whatever passes names the allowed model and no other, for a
// reader that ignores case.
func FuzzInspect(f *testing.F) {
	for _, body := range cliBodies() {
		f.Add([]byte(body))
	}
	for _, c := range badAnthropic() {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, a := range api.ModelAPIs() {
			facts, err := inspect(body, rulesOf(a), testModel(a))
			if err != nil {
				continue
			}
			checkLenient(t, a, body, facts)
		}
	})
}

// A request of the responses format never stores its answer at the provider, which does
// so by default: other dispatches could refer to it.
func TestAnswersAreNotStoredAtTheProvider(t *testing.T) {
	for in, want := range map[string]string{
		`{"model":"large-1","input":"x"}`:               `{"store":false,"model":"large-1","input":"x"}`,
		`{"model":"large-1","store":null,"input":"x"}`:  `{"model":"large-1","store":false,"input":"x"}`,
		`{"model":"large-1","store":false,"input":"x"}`: `{"model":"large-1","store":false,"input":"x"}`,
	} {
		f, err := inspect([]byte(in), rulesOf(api.OpenAIResponses), testModel(api.OpenAIResponses))
		if got := string(withoutStore([]byte(in), f)); err != nil || got != want {
			t.Errorf("%s became %s, want %s; %v", in, got, want, err)
		}
	}
	// The control: a person allows it.
	for _, in := range []string{`{"model":"large-1","store":true}`, `{"model":"large-1","previous_response_id":"r","input":[{"id":"msg_1"},{"type":"item_reference","id":"m"}]}`} {
		if _, err := inspect([]byte(in), rulesOf(api.OpenAIResponses), testModel(api.OpenAIResponses, "stored")); err != nil {
			t.Errorf("%s with serverTools [stored]: %v", in, err)
		}
	}
}
