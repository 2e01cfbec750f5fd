package api

import (
	"encoding/json"
	"time"
)

// Listing is what a caller may know of an artifact that it may use (R-B6):
// never contents, prompts, values or references to secrets.
type Listing struct {
	Name         Name            `json:"name"`
	Kind         Kind            `json:"kind"`
	Description  string          `json:"description,omitempty"`
	Revision     uint64          `json:"revision"` // of the catalog that is in force
	Digest       Digest          `json:"digest"`
	RegisteredAt time.Time       `json:"registeredAt"`    // when this content came into the catalog
	Input        json.RawMessage `json:"input,omitempty"` // of a subagent: JSON Schema of its input

	// Of a subagent, as far as the caller's grants reach.
	Role         Name   `json:"role,omitempty"`
	Tier         *Tier  `json:"tier,omitempty"`
	Target       Name   `json:"target,omitempty"` // the default, where granted
	Targets      []Name `json:"targets,omitempty"`
	Sources      []Name `json:"sources,omitempty"`
	Envs         []Name `json:"env,omitempty"`
	Capabilities []Name `json:"capabilities,omitempty"` // extras that a request may name
}

// ListingPage is a part of a list, in the order of names.
type ListingPage struct {
	Items []Listing `json:"items"`
	Next  string    `json:"next,omitempty"` // cursor of the page behind; absent at the end
	// AboveCeiling is how many subagents are granted to the caller and not
	// listed, because they reach further than was consented to.
	AboveCeiling int `json:"aboveCeiling,omitempty"`
}
