package api

import (
	"encoding/json"
	"time"
)

// Listing is what a caller sees of an artifact that it may use (R-B6), never its
// content, prompts, values or references to secrets.
type Listing struct {
	Name         Name            `json:"name"`
	Kind         Kind            `json:"kind"`
	Description  string          `json:"description,omitempty"`
	Revision     uint64          `json:"revision"` // of the catalog that is in force
	Digest       Digest          `json:"digest"`
	RegisteredAt time.Time       `json:"registeredAt"`     // when this content was added to the catalog
	Input        json.RawMessage `json:"input,omitempty"`  // JSON Schema of a subagent's input
	Output       json.RawMessage `json:"output,omitempty"` // JSON Schema of its result; none if it has no structured result

	// Of a subagent, limited to the caller's grants.
	Role         Name   `json:"role,omitempty"`
	Tier         *Tier  `json:"tier,omitempty"`
	Target       Name   `json:"target,omitempty"` // the default, if granted
	Targets      []Name `json:"targets,omitempty"`
	Sources      []Name `json:"sources,omitempty"`
	Envs         []Name `json:"env,omitempty"`
	Capabilities []Name `json:"capabilities,omitempty"` // extras that a request may name
}

// ListingPage is a page of a listing, sorted by name.
type ListingPage struct {
	Items []Listing `json:"items"`
	Next  string    `json:"next,omitempty"` // cursor of the next page; absent on the last
	// AboveCeiling counts the subagents that are granted but not listed, because they
	// are above the caller's ceiling.
	AboveCeiling int `json:"aboveCeiling,omitempty"`
}

// ArtifactInfo is what a person sees of an artifact that it may use: its Listing,
// and what helps to choose it. Like a Listing it has no content, prompt, command
// or value.
type ArtifactInfo struct {
	Listing
	Limits      *Limits   `json:"limits,omitempty"`      // of one dispatch of a subagent; of a target, upper bounds
	Verify      bool      `json:"verify,omitempty"`      // a command judges the patch of the subagent
	NeedsSource bool      `json:"needsSource,omitempty"` // a capability of the subagent requires a work tree
	Mode        Mode      `json:"mode,omitempty"`        // of a target
	Agent       string    `json:"agent,omitempty"`       // adapter of a subagent
	Model       *ModelUse `json:"model,omitempty"`       // of a subagent
	Repo        string    `json:"repo,omitempty"`        // of a source; a caller by token does not see it
	Principal   Principal `json:"principal,omitempty"`   // of a grant
	Ceiling     *Tier     `json:"ceiling,omitempty"`     // of a grant
	Subagents   []Name    `json:"subagents,omitempty"`   // of a grant; of a role, those that the caller may dispatch, or all for an operator
	ToolCount   int       `json:"toolCount,omitempty"`   // of a role: how many it may call

	Egress  []string    `json:"egress,omitempty"`  // of a target or an env
	Secrets []SecretRef `json:"secrets,omitempty"` // of an env, without Ref

	// Of a model.
	API      ModelAPI         `json:"api,omitempty"`
	Endpoint string           `json:"endpoint,omitempty"` // a caller by token does not see it
	Levels   map[Name]string  `json:"levels,omitempty"`
	Prices   map[string]Price `json:"prices,omitempty"` // per million tokens
	Currency string           `json:"currency,omitempty"`
}

// ArtifactPage is a page of artifacts, sorted by name. See ListingPage.
type ArtifactPage struct {
	Items        []ArtifactInfo `json:"items"`
	Next         string         `json:"next,omitempty"`
	AboveCeiling int            `json:"aboveCeiling,omitempty"`
}

// Listings returns p without what only people see.
func (p ArtifactPage) Listings() ListingPage {
	list := ListingPage{Items: make([]Listing, len(p.Items)), Next: p.Next, AboveCeiling: p.AboveCeiling}
	for i := range p.Items {
		list.Items[i] = p.Items[i].Listing
	}
	return list
}
