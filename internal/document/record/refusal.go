package record

import (
	"cmp"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// RefusalOf returns the refusal of a line of a network record, and false for a
// request that was allowed.
func RefusalOf(l *api.NetworkLine) (EgressRefusal, bool) {
	return EgressRefusal{Form: l.Form, Host: l.Host, Number: l.Number, Reason: l.Refused}.Short(), l.Refused != ""
}

// Short returns d with texts so short that every entry holds them whole. The worker
// signs what the log has.
func (d EgressRefusal) Short() EgressRefusal {
	short := limits()
	return (&bounds{text: short[len(short)-1]}).detail(d).(EgressRefusal) //nolint:forcetypeassert // of d's type
}

// RefusalsOf returns the summary of a worker's refusals, which the log must have;
// nil without any. Their order does not matter.
func RefusalsOf(list []EgressRefusal) (*api.Refusals, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // an absent member
	}
	sorted := make([]EgressRefusal, len(list))
	for i, r := range list {
		sorted[i] = r.Short()
	}
	slices.SortFunc(sorted, func(a, b EgressRefusal) int { return cmp.Compare(a.Number, b.Number) })
	doc, err := canon.Marshal(sorted)
	if err != nil {
		return nil, err
	}
	return &api.Refusals{Count: len(list), Digest: string(api.DigestOf(doc))}, nil
}

// Captured returns the content that a result names, but its log.
func Captured(sum *api.ResultSummary) []*api.Artifact {
	list := []*api.Artifact{sum.Patch, sum.Question, sum.Transcript, sum.Network, sum.Session}
	for i := range sum.Outputs {
		list = append(list, &sum.Outputs[i])
	}
	return slices.DeleteFunc(list, func(a *api.Artifact) bool { return a == nil })
}

// ContentOf returns the digests of all content that a result names.
func ContentOf(sum *api.ResultSummary) (list []api.Digest) {
	for _, a := range Captured(sum) {
		list = append(list, a.Digest)
	}
	for _, p := range sum.Log {
		list = append(list, p.Digest)
	}
	return list
}
