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
	RegisteredAt time.Time       `json:"registeredAt"`    // when this content was added to the catalog
	Input        json.RawMessage `json:"input,omitempty"` // JSON Schema of a subagent's input

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
