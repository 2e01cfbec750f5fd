package scriptmodel

import (
	"encoding/json"
	"iter"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// gemini is Google's Gemini API, as gemini-cli uses it.
type gemini struct{}

func (gemini) api() api.ModelAPI { return api.Gemini }
func (gemini) last() string      { return "" }

func (gemini) parse(body []byte) (*Turn, error) {
	var req struct {
		Contents []struct {
			Role  string
			Parts []struct {
				Text     string
				Response *struct {
					Name     string
					Response json.RawMessage
				} `json:"functionResponse"`
			}
		}
		Tools []struct {
			Functions []struct {
				Name       string
				Parameters json.RawMessage
				Schema     json.RawMessage `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	t := &Turn{API: api.Gemini}
	for _, set := range req.Tools {
		for _, f := range set.Functions {
			if f.Schema == nil {
				f.Schema = f.Parameters
			}
			t.Tools = append(t.Tools, Tool{Name: f.Name, Schema: f.Schema})
		}
	}
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			switch {
			case p.Response != nil:
				// {"output": TEXT}, or another object where the call failed.
				var result struct{ Output string }
				if json.Unmarshal(p.Response.Response, &result) != nil || result.Output == "" {
					result.Output = string(p.Response.Response)
				}
				t.Items = append(t.Items, Item{p.Response.Name, result.Output})
			case c.Role != "model":
				t.Items = append(t.Items, Item{Text: p.Text})
			}
		}
	}
	return t, nil
}

// frame is a response with one part. A quarter of the output is thoughts, as the API
// reports them.
func (gemini) frame(t *Turn, part object, finish any, n api.Tokens) object {
	candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{part}}}
	if finish != nil {
		candidate["finishReason"] = finish
	}
	return object{"candidates": []any{candidate}, "modelVersion": t.Model, "usageMetadata": object{
		"promptTokenCount": n.Input + n.CacheRead, "cachedContentTokenCount": n.CacheRead,
		"candidatesTokenCount": n.Output - n.Output/4, "thoughtsTokenCount": n.Output / 4, "totalTokenCount": n.Total(),
	}}
}

func (f gemini) document(t *Turn, r *Reply) object {
	part := object{"text": r.Say}
	if r.Tool != "" {
		part = object{"functionCall": object{"id": t.id(), "name": r.Tool, "args": r.Args}}
	}
	return f.frame(t, part, "STOP", t.tokens(r))
}

// events reports the usage so far in every event. A call is one event.
func (f gemini) events(t *Turn, r *Reply) iter.Seq[event] {
	return func(yield func(event) bool) {
		whole := t.tokens(r)
		n := whole
		n.Output = 0
		for p := range r.pieces {
			if r.Endless || n.Output < whole.Output {
				n.Output++
			}
			if r.Tool == "" && !yield(event{f.frame(t, object{"text": p}, nil, n), n}) {
				return
			}
		}
		e := f.document(t, r)
		if r.Tool == "" {
			e = f.frame(t, object{"text": ""}, "STOP", whole)
		}
		yield(event{e, whole})
	}
}

func (gemini) failure(status int, message string) object {
	kind := map[int]string{http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusInternalServerError: "INTERNAL"}[status]
	if kind == "" {
		kind = "UNAVAILABLE"
	}
	return object{"error": object{"code": status, "message": message, "status": kind}}
}
