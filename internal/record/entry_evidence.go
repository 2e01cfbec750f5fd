package record

import "fmt"

// EvidenceRefused is the detail of KindEvidenceRefused: what the service would
// hand to an auditor about what is over does not verify. The entry names neither
// run nor dispatch as its own, so that it is no part of that evidence.
type EvidenceRefused struct {
	Dispatch string   `json:"dispatch,omitempty"` // what it is about: this,
	Message  string   `json:"message"`            // why, in plain words
	Rows     []string `json:"rows"`               // that fail; none: it could not even be made
	Run      string   `json:"run,omitempty"`      // or this
}

func (d EvidenceRefused) bound(b *bounds) Detail {
	d.Dispatch, d.Message, d.Rows, d.Run = b.cut(d.Dispatch), b.cut(d.Message), b.list(d.Rows), b.cut(d.Run)
	return d
}

func (d EvidenceRefused) say(*Entry) string {
	what := "run " + word(d.Run)
	if d.Dispatch != "" {
		what = "dispatch " + word(d.Dispatch)
	}
	return fmt.Sprintf("the evidence about %s does not verify: %s", what, quote(d.Message))
}
