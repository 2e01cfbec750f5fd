package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// endpoint is a request that a format has.
type endpoint struct {
	method, path string // below the model's endpoint
	answers      bool   // the answer is the model's: a turn, with usage
}

// endpointsOf lists all requests that may go to m. Paths are compared as they are sent,
// so no spelling with escapes, dots or more slashes is one of them.
func endpointsOf(m *Model) []endpoint {
	switch m.API {
	case api.AnthropicMessages:
		return []endpoint{
			{http.MethodPost, "v1/messages", true},
			{http.MethodPost, "v1/messages/count_tokens", false},
			{http.MethodGet, "v1/models", false},
			{http.MethodGet, "v1/models/" + m.ID, false},
		}
	case api.OpenAIResponses:
		return []endpoint{
			{http.MethodPost, "v1/responses", true},
			{http.MethodPost, "responses", true},
			{http.MethodPost, "v1/responses/compact", true},
			{http.MethodPost, "responses/compact", true},
			{http.MethodGet, "v1/models", false},
			{http.MethodGet, "models", false},
		}
	case api.OpenAIChat:
		return []endpoint{
			{http.MethodPost, "v1/chat/completions", true},
			{http.MethodPost, "chat/completions", true},
			{http.MethodGet, "v1/models", false},
			{http.MethodGet, "models", false},
		}
	case api.Gemini:
		at := "v1beta/models/" + m.ID
		return []endpoint{
			{http.MethodPost, at + ":generateContent", true},
			{http.MethodPost, at + ":streamGenerateContent", true},
			{http.MethodPost, at + ":countTokens", false},
			{http.MethodGet, "v1beta/models", false},
			{http.MethodGet, at, false},
		}
	}
	return nil
}

// boundOf names the member of a request that bounds the tokens of its answer.
func boundOf(a api.ModelAPI) string {
	switch a {
	case api.OpenAIResponses:
		return "max_output_tokens"
	case api.OpenAIChat:
		return "max_completion_tokens"
	case api.Gemini:
		return "maxOutputTokens"
	case api.AnthropicMessages:
	}
	return "max_tokens"
}

// find returns the endpoint of a request, or why it is unknown.
func (m *Model) find(method, path string) (endpoint, error) {
	for _, e := range endpointsOf(m) {
		if e.method == method && e.path == path {
			return e, nil
		}
	}
	if at, ok := strings.CutPrefix(path, "v1beta/models/"); ok && m.API == api.Gemini {
		id, _, _ := strings.Cut(at, ":")
		return endpoint{}, fmt.Errorf("this worker may use only the model %q, not %.80q", m.ID, id)
	}
	return endpoint{}, fmt.Errorf("%.20s %.80q is not a request of the %s API that workers may make", method, path, m.API)
}

// query returns the query to send. Others than the known parameters are refused: they
// may leave the usage out of an answer.
func query(raw string) (string, error) {
	all, err := url.ParseQuery(raw)
	if err != nil {
		return "", fmt.Errorf("invalid query: %w", err)
	}
	for name, values := range all {
		switch name {
		case "key": // the agent's credential
			delete(all, name)
		case "alt":
			if len(values) != 1 || values[0] != "sse" && values[0] != "json" {
				return "", fmt.Errorf("query parameter %q: want sse or json", name)
			}
		case "beta", "limit", "after_id", "before_id", "pageSize", "pageToken", "client_version":
		default:
			return "", fmt.Errorf("unknown query parameter %.60q", name)
		}
	}
	return all.Encode(), nil
}

// sentHeaders are the agent's headers that reach the model. Others could be
// credentials, choose another account, or leave the usage out of an answer.
func sentHeaders() []string {
	return []string{"Accept", "User-Agent", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta", "X-Goog-Api-Client"}
}

// errorBody is an error in the shape of a format.
func errorBody(a api.ModelAPI, status int, message string) []byte {
	kind, upper := "api_error", "UNAVAILABLE"
	switch status {
	case http.StatusBadRequest:
		kind, upper = "invalid_request_error", "INVALID_ARGUMENT"
	case http.StatusForbidden:
		kind, upper = "permission_error", "PERMISSION_DENIED"
	case http.StatusRequestEntityTooLarge:
		kind, upper = "request_too_large", "INVALID_ARGUMENT"
	case http.StatusUpgradeRequired:
		kind, upper = "invalid_request_error", "FAILED_PRECONDITION"
	}
	type object = map[string]any
	var v object
	switch a {
	case api.AnthropicMessages:
		v = object{"type": "error", "error": object{"type": kind, "message": message}}
	case api.Gemini:
		v = object{"error": object{"code": status, "message": message, "status": upper}}
	default:
		v = object{"error": object{"message": message, "type": kind, "param": nil, "code": kind}}
	}
	b, _ := json.Marshal(v) // texts and numbers only
	return append(b, '\n')
}
