package api

import (
	"fmt"
	"math/big"
	"strings"
)

// ModelAPI is the wire format that a model endpoint speaks. The set is closed.
type ModelAPI string

// The formats.
const (
	AnthropicMessages ModelAPI = "anthropic-messages"
	OpenAIResponses   ModelAPI = "openai-responses"
	OpenAIChat        ModelAPI = "openai-chat"
	Gemini            ModelAPI = "gemini"
)

// ModelAPIs lists them all.
func ModelAPIs() []ModelAPI {
	return []ModelAPI{AnthropicMessages, OpenAIResponses, OpenAIChat, Gemini}
}

// Agents lists the adapters: command, which runs any program, and agent programs that
// Bailiwick knows.
func Agents() []string { return []string{"command", "claude-code", "codex", "opencode", "gemini"} }

// AgentAPIs lists the formats that an adapter speaks.
func AgentAPIs(agent string) []ModelAPI {
	switch agent {
	case "claude-code":
		return []ModelAPI{AnthropicMessages}
	case "codex":
		return []ModelAPI{OpenAIResponses}
	case "gemini":
		return []ModelAPI{Gemini}
	}
	return ModelAPIs()
}

// Model is an endpoint of a model provider. Workers reach it only through the broker,
// which holds the credential, refuses other models than that of the subagent's
// level, and counts what passes.
type Model struct {
	Name        Name             `json:"name"`
	Description string           `json:"description,omitempty"`
	API         ModelAPI         `json:"api"`
	Endpoint    string           `json:"endpoint"` // https://HOST[:PORT][/PATH], or http://127.0.0.1:PORT[/PATH] of this machine
	Credential  *Credential      `json:"credential,omitempty"`
	Levels      map[Name]string  `json:"levels"`                // the provider's model id of each level
	Prices      map[string]Price `json:"prices,omitempty"`      // by the provider's model id
	Currency    string           `json:"currency,omitempty"`    // of Prices and of the limit cost: three letters; usd when empty
	ServerTools []string         `json:"serverTools,omitempty"` // tools of the provider that a request may use, such as web_search; none when empty
}

// Credential says how a secret is added to each request to an endpoint.
type Credential struct {
	Header string `json:"header"`
	Prefix string `json:"prefix,omitempty"` // before the value, such as "Bearer "
	Secret Name   `json:"secret"`
}

// DefaultCurrency is the currency of a model that names none.
const DefaultCurrency = "usd"

// Price is the price of a model, per million tokens.
type Price struct {
	Input      Cost `json:"input,omitempty"`
	Output     Cost `json:"output,omitempty"`
	CacheRead  Cost `json:"cacheRead,omitempty"`
	CacheWrite Cost `json:"cacheWrite,omitempty"`
}

// ModelUse is the model that a dispatch uses.
type ModelUse struct {
	Name  Name   `json:"name"`  // of the Model artifact
	Level Name   `json:"level"` // one of its levels
	ID    string `json:"id"`    // the provider's model id of that level
}

// SplitModel returns the model and level of a subagent's NAME/LEVEL.
func SplitModel(s string) (model, level Name, err error) {
	m, l, ok := strings.Cut(s, "/")
	if !ok {
		return "", "", fmt.Errorf("model %q: want NAME/LEVEL, a model of the catalog and one of its levels", s)
	}
	if model, err = ParseName(m); err == nil {
		level, err = ParseName(l)
	}
	if err != nil {
		return "", "", fmt.Errorf("model %q: %w", s, err)
	}
	return model, level, nil
}

// Cost is an amount of money in millionths of a currency unit, written as a decimal
// number: "1.25".
type Cost int64

// costUnit is one currency unit.
const costUnit = 1_000_000

// MaxCost is the largest amount that UnmarshalText reads.
const MaxCost Cost = 1_000_000_000*costUnit - 1

// Float is c in units of the currency.
func (c Cost) Float() float64 { return float64(c) / costUnit }

// MarshalText writes c as a decimal number without trailing zeros.
func (c Cost) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c Cost) String() string {
	s := fmt.Sprintf("%d.%06d", int64(c)/costUnit, int64(c)%costUnit)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// UnmarshalText reads a positive decimal number with at most six decimals.
func (c *Cost) UnmarshalText(b []byte) error {
	s := string(b)
	whole, part, dot := strings.Cut(s, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !digits(whole) || len(whole) > 9 || dot && (!digits(part) || len(part) > 6) {
		return fmt.Errorf("amount %q: want a decimal number such as 5 or 0.25, with at most six decimals and no currency", s)
	}
	v, ok := new(big.Int).SetString(whole+part+strings.Repeat("0", 6-len(part)), 10)
	if !ok || !v.IsInt64() {
		return fmt.Errorf("amount %q: too large", s)
	}
	*c = Cost(v.Int64())
	return nil
}

// UnmarshalJSON accepts a number or text.
func (c *Cost) UnmarshalJSON(b []byte) error {
	return c.UnmarshalText([]byte(strings.Trim(string(b), `"`)))
}
