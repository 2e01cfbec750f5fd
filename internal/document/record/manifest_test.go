package record

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

func taskManifest() Manifest {
	d := api.DigestOf([]byte("x"))
	return Manifest{
		V: 1, ID: "d-1", Attempt: 1, Principal: "local:ann", Subagent: "edit", Target: "local", Input: d, RevisionDigest: d, Nonce: strings.Repeat("0", 32),
		Limits: api.DefaultLimits(), Run: "r-1", Task: "t-1", Fence: 1,
		Needs:     []Need{{Name: "a", Task: "up", Dispatch: "d-up", Kind: NeedOutput, Path: "x/y", Digest: d, Size: 1}},
		NotBefore: time.Unix(0, 0), Expires: time.Unix(10, 0),
	}
}

// A manifest is a task's in all of it or in nothing, and what it takes over has
// names that are those of files of its own.
//
// proves R-D2, R-O2
func TestManifestRefusesPartialTask(t *testing.T) {
	long := make([]Need, api.MaxTaskNeeds+1)
	for name, c := range map[string]struct {
		ok     bool
		change func(*Manifest)
	}{
		"a task's":             {true, func(*Manifest) {}},
		"without needs":        {true, func(m *Manifest) { m.Needs = nil }},
		"of no run":            {true, func(m *Manifest) { m.Run, m.Task, m.Fence, m.Needs = "", "", 0, nil }},
		"an empty patch":       {true, func(m *Manifest) { m.Needs[0].Kind, m.Needs[0].Path, m.Needs[0].Size = NeedPatch, "", 0 }},
		"no run":               {false, func(m *Manifest) { m.Run = "" }},
		"no task":              {false, func(m *Manifest) { m.Task = "" }},
		"no lease":             {false, func(m *Manifest) { m.Fence = 0 }},
		"needs of no run":      {false, func(m *Manifest) { m.Run, m.Task, m.Fence = "", "", 0 }},
		"a name twice":         {false, func(m *Manifest) { m.Needs = append(m.Needs, m.Needs[0]) }},
		"no name":              {false, func(m *Manifest) { m.Needs[0].Name = "" }},
		"a name that climbs":   {false, func(m *Manifest) { m.Needs[0].Name = "../../a" }},
		"a name with a folder": {false, func(m *Manifest) { m.Needs[0].Name = "a/b" }},
		"the input":            {false, func(m *Manifest) { m.Needs[0].Name = api.InputFile }},
		"the answer":           {false, func(m *Manifest) { m.Needs[0].Name = api.ResumeFile }},
		"no digest":            {false, func(m *Manifest) { m.Needs[0].Digest = "" }},
		"half a digest":        {false, func(m *Manifest) { m.Needs[0].Digest = "sha256:00" }},
		"a negative size":      {false, func(m *Manifest) { m.Needs[0].Size = -1 }},
		"no upstream":          {false, func(m *Manifest) { m.Needs[0].Task = "" }},
		"no upstream dispatch": {false, func(m *Manifest) { m.Needs[0].Dispatch = "" }},
		"an unknown kind":      {false, func(m *Manifest) { m.Needs[0].Kind = "log" }},
		"an output of no path": {false, func(m *Manifest) { m.Needs[0].Path = "" }},
		"a patch with a path":  {false, func(m *Manifest) { m.Needs[0].Kind = NeedPatch }},
		"too many":             {false, func(m *Manifest) { m.Needs = long }},
	} {
		m := taskManifest()
		c.change(&m)
		if err := m.Check(time.Unix(5, 0)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A result is of one attempt under one lease.
//
// proves R-O3, R-D5
func TestResultCarriesItsFencingToken(t *testing.T) {
	d := api.DigestOf([]byte("manifest"))
	for fence, ok := range map[uint64]bool{0: false, 6: false, 7: true, 8: false} {
		r := Result{V: 1, ID: "d-1", Attempt: 1, Fence: fence, Manifest: d, Outcome: api.EventFinished}
		if err := r.Check("d-1", 1, d, 7); (err == nil) != ok {
			t.Errorf("%d: %v", fence, err)
		}
	}
}

// An attempt begins with the taint of a need or of an earlier attempt, or without.
//
// proves R-G6
func TestManifestRefusesTaintFromNowhere(t *testing.T) {
	with := func(id api.DispatchID, attempt int, call int64, tool string) func(*Manifest) {
		return func(m *Manifest) { m.Taint = &api.Taint{Dispatch: id, Attempt: attempt, Call: call, Tool: tool} }
	}
	second := func(change func(*Manifest)) func(*Manifest) {
		return func(m *Manifest) {
			change(m)
			m.Attempt, m.Resume = 2, &Resume{Attempt: 1, Answer: api.DigestOf(nil)}
		}
	}
	for name, c := range map[string]struct {
		ok     bool
		change func(*Manifest)
	}{
		"none":                      {true, func(*Manifest) {}},
		"of a need":                 {true, with("d-up", 1, 1, "web/fetch")},
		"of what a need depends on": {true, with("d-first", 3, 9, "web/fetch")},
		"of the previous attempt":   {true, second(with("d-1", 1, 1, "web/fetch"))},
		"of this attempt":           {false, with("d-1", 1, 1, "web/fetch")},
		"of a later attempt":        {false, second(with("d-1", 2, 1, "web/fetch"))},
		"of another without a need": {false, func(m *Manifest) { with("d-up", 1, 1, "web/fetch")(m); m.Needs = nil }},
		"of what its item is from":  {true, func(m *Manifest) { with("d-up", 1, 1, "web/fetch")(m); m.Needs, m.ItemFrom = nil, "d-up" }},
		"of no dispatch":            {false, with("", 1, 1, "web/fetch")},
		"of no attempt":             {false, with("d-up", 0, 1, "web/fetch")},
		"of no call":                {false, with("d-up", 1, 0, "web/fetch")},
		"of no tool":                {false, with("d-up", 1, 1, "")},
	} {
		m := taskManifest()
		c.change(&m)
		if err := m.Check(time.Unix(5, 0)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
