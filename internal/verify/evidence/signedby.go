package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// signersIn returns those of ids that a trust root lists.
func signersIn(root seal.TrustRoot, ids []seal.KeyID) (list []report.SignedBy) {
	for _, k := range root.Keys {
		if slices.Contains(ids, k.ID) {
			list = append(list, report.SignedBy{Key: k.ID, Name: k.Name, Principal: k.Principal})
		}
	}
	return list
}

// publishers returns who signed a catalog revision; nobody if it is nil.
func publishers(r *revision, trust DeployTrust) (list []report.SignedBy) {
	if r == nil {
		return nil
	}
	for _, root := range trust.For(r.doc.Number) {
		for _, s := range signersIn(root, r.signers) {
			if !slices.ContainsFunc(list, func(o report.SignedBy) bool { return o.Key == s.Key }) {
				list = append(list, s)
			}
		}
	}
	return list
}

// serviceKey names a key of the service as the trust file does. The name in a rotation is
// a word of the exporter.
func (v *verification) serviceKey(id seal.KeyID) report.SignedBy {
	k, _ := FindKey(v.trust.Log.Keys, id)
	return report.SignedBy{Key: id, Name: k.Name}
}

// rotations adds the changes of the service's key, each signed with the key before.
func (v *verification) rotations(out *report.Ran) {
	for _, envelope := range v.b.Case.Rotations {
		r, err := seal.PeekRotation(envelope)
		if err != nil {
			continue // the row of the signatures reports it
		}
		if _, ok := FindKey(v.log.keys.Keys, r.New.ID); !ok {
			continue // likewise
		}
		if _, ok := FindKey(v.log.keys.Keys, r.Old); !ok {
			continue
		}
		what := "the service's key is replaced by " + v.serviceKey(r.New.ID).Text()
		out.Decided = append(out.Decided, report.Decided{Entry: r.Entry, At: r.At, What: what, Signed: []report.SignedBy{v.serviceKey(r.Old)}})
	}
	slices.SortStableFunc(out.Decided, func(a, b report.Decided) int {
		switch {
		case a.Entry < b.Entry:
			return -1
		case a.Entry > b.Entry:
			return 1
		}
		return 0
	})
}

// asked returns the requests for approvals of calls and tasks, by id.
func (w *world) asked() map[api.ApprovalID]*entry {
	out := map[api.ApprovalID]*entry{}
	for _, h := range w.ordered {
		for id, e := range h.approvals {
			out[api.ApprovalID(id)] = e
		}
	}
	for _, r := range w.replayed {
		if r == nil {
			continue
		}
		for i := range r.tasks {
			for _, p := range append([]*poll{&r.tasks[i].poll}, r.tasks[i].writes...) {
				if p.asked != nil {
					out[api.ApprovalID(detail[record.ApprovalRequest](p.asked).Approval)] = p.asked
				}
			}
		}
	}
	return out
}

// voted says what a person decided about a request.
func voted(rec *signedRecord, request *entry) string {
	verb := "approved"
	if rec.Verb == api.VerbDeny {
		verb = "denied"
	}
	what := fmt.Sprintf("a call of %s by dispatch %s", record.Word(request.Tool), record.Word(request.Dispatch))
	if request.Tool == "" {
		what = fmt.Sprintf("task %s of run %s", record.Word(request.Task), record.Word(request.Run))
	}
	return fmt.Sprintf("%s %s, approval %s", verb, what, rec.Approval)
}
