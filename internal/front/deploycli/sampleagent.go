package deploycli

import (
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// provider is the model provider that the sample of an agent begins with.
type provider struct {
	name     string
	api      api.ModelAPI
	endpoint string
	header   string // members of credential
	small    sampleModel
	large    sampleModel
}

type sampleModel struct{ id, price string }

// providerOf returns the provider for the sample of an agent.
func providerOf(agent string) provider {
	switch agent {
	case "codex":
		return provider{
			"openai", api.OpenAIResponses, "https://api.openai.com/v1", `header: authorization, prefix: "Bearer "`,
			sampleModel{"gpt-5-mini", "input: 0.25, output: 2, cacheRead: 0.025"},
			sampleModel{"gpt-5-codex", "input: 1.25, output: 10, cacheRead: 0.125"},
		}
	case "gemini":
		return provider{
			"gemini", api.Gemini, "https://generativelanguage.googleapis.com", "header: x-goog-api-key",
			sampleModel{"gemini-2.5-flash", "input: 0.30, output: 2.50, cacheRead: 0.03"},
			sampleModel{"gemini-2.5-pro", "input: 2.50, output: 15, cacheRead: 0.25"}, // of long prompts
		}
	}
	return provider{
		"anthropic", api.AnthropicMessages, "https://api.anthropic.com", "header: x-api-key",
		sampleModel{"claude-haiku-4-5", "input: 1, output: 5, cacheRead: 0.10, cacheWrite: 2"}, // of an hour; five minutes cost less
		sampleModel{"claude-opus-4-6", "input: 5, output: 25, cacheRead: 0.50, cacheWrite: 10"},
	}
}

// replacer fills in the manifest of an agent's sample.
func (p provider) replacer(agent string) *strings.Replacer {
	return strings.NewReplacer("ADAPTER", agent, "MODEL_NAME", p.name, "MODEL_API", string(p.api), "MODEL_ENDPOINT", p.endpoint, "MODEL_HEADER", p.header,
		"MODEL_SMALL", p.small.id, "MODEL_LARGE", p.large.id, "PRICE_SMALL", p.small.price, "PRICE_LARGE", p.large.price)
}
