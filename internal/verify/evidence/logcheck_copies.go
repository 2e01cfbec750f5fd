package evidence

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// copies compares the auditor's copies with the roots that the bundle proves, and says
// what they are worth. others are the sizes of further checkpoints in the bundle. It
// reports whether a checkpoint that counts by itself covers the bundle's own.
func (l *logCheck) copies(others map[uint64]bool) (vouched bool) {
	row := l.rows[report.RowConsistency]
	own := map[uint64]bool{} // sizes of the auditor's checkpoints that are the same here
	holds := map[string]uint64{}
	var notes []string
	for _, c := range l.copied {
		same, err := l.same(c)
		if err != nil {
			row.Fail("%v", err)
			continue
		}
		newest := uint64(0)
		for _, h := range same {
			own[h.Size], newest = true, max(newest, h.Size)
			vouched = vouched || h.alone && h.Size >= l.cp.Size
		}
		switch at, err := l.worth(c, newest); {
		case err != nil:
			notes = append(notes, err.Error())
		case at != "":
			holds[at] = max(holds[at], newest)
		}
	}
	maps.DeleteFunc(others, func(size uint64, _ bool) bool { return own[size] })
	var words []string
	if n := len(own); n > 0 {
		words = append(words, fmt.Sprintf("%s of the auditor's (%s)", record.Plural(n, "checkpoint"), sizesText(own)))
	}
	if n := len(others); n > 0 {
		words = append(words, fmt.Sprintf("%d other in the file (%s)", n, sizesText(others)))
	}
	if row.Checked = len(own) + len(others); row.Checked == 0 {
		row.Absent = "no other checkpoint to compare with"
	}
	l.rows[report.RowConsistency].Right = "one log with " + strings.Join(words, " and ")
	l.held(holds, notes)
	return vouched
}

// held reports which anchors hold a checkpoint that covers the bundle, by the
// auditor's copies. notes are about the other copies.
func (l *logCheck) held(holds map[string]uint64, notes []string) {
	row := l.rows[report.RowAnchor]
	bySize := map[uint64][]string{}
	for place, size := range holds {
		bySize[size] = append(bySize[size], place)
	}
	var words []string
	for _, size := range slices.Sorted(maps.Keys(bySize)) { // a checkpoint counts once
		row.Checked++
		slices.Sort(bySize[size])
		words = append(words, fmt.Sprintf("the checkpoint of %s is held by %s", record.Plural(size, "entry"), strings.Join(bySize[size], ", ")))
	}
	if row.Checked > 0 {
		row.Absent = ""
	} else if len(notes) > 0 {
		row.Absent = strings.Join(notes, "; ")
	}
	l.rows[report.RowAnchor].Right = strings.Join(append(words, notes...), "; ")
	l.claimedReceipts(holds)
}

// worth says what a copy earns whose newest checkpoint that is the same here has this
// size: it returns the trusted place that holds it, or why the copy earns nothing.
func (l *logCheck) worth(c Copy, newest uint64) (place string, err error) {
	i := slices.IndexFunc(l.trust.Anchors, func(a AnchorTrust) bool { return a.Name == c.Anchor })
	switch covers := l.covers(newest); {
	case !covers:
		return "", fmt.Errorf("%s is older than the last entry here: a newer copy would prove more", c)
	case c.Anchor == "":
		l.earn(report.ClaimTamperDetecting)
		return "", nil
	case i < 0:
		return "", fmt.Errorf("%s: the trust file names no anchor %q", c, c.Anchor)
	case l.trust.Anchors[i].Kind == receipt.TSA:
		return "", fmt.Errorf("%s: a time-stamp authority holds no checkpoints", c)
	}
	a := l.trust.Anchors[i]
	if a.Kind == receipt.S3 { // under an object lock
		l.earn(report.ClaimTamperEvident)
	}
	l.earn(report.ClaimTamperDetecting)
	return placeOf(a.Kind, a.Place), nil
}

func placeOf(kind receipt.Kind, place string) string { return fmt.Sprintf("%s %.200s", kind, place) }

func (c Copy) String() string {
	if c.Anchor != "" {
		return c.Anchor + "=" + c.File
	}
	return c.File
}

// same returns the checkpoints of a copy that the bundle proves to be of its log. It
// fails if one contradicts, or if none shows whether the copy is of the same log: the
// newest that is the same has to cover all entries here, or to be the copy's newest.
func (l *logCheck) same(c Copy) (same []signed, err error) {
	roots := map[uint64]logproof.Hash{}
	newest, open, outOfForce := uint64(0), uint64(0), error(nil)
	for _, raw := range c.Checkpoints {
		if err := l.work.spend(unitEntry + len(raw)); err != nil {
			return nil, err
		}
		h, err := logproof.Peek(raw)
		switch root, seen := roots[h.Size]; {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", c, err)
		case h.Origin != l.keys.Origin:
			return nil, fmt.Errorf("%s: has a checkpoint of another log, %.120q", c, h.Origin)
		case seen && root != h.Root:
			return nil, fmt.Errorf("%s: has two roots for %s: one of the two is forged", c, record.Plural(h.Size, "entry"))
		case seen:
			continue
		}
		roots[h.Size] = h.Root
		root, proved := l.roots[h.Size]
		if !proved {
			open = max(open, h.Size)
			continue
		}
		s, err := l.open(raw)
		switch {
		case errors.Is(err, errNotInForce): // it counts for nothing
			outOfForce = err
		case err != nil:
			return nil, fmt.Errorf("%s: %w", c, err)
		case root != h.Root:
			return nil, fmt.Errorf("%s: its checkpoint of %s is of another log signed by the same keys: one of the two is forged", c, record.Plural(h.Size, "entry"))
		default:
			same, newest = append(same, s), max(newest, h.Size)
		}
	}
	switch failed := l.rows[report.RowInclusion].Failed(); {
	case failed, l.covers(newest), len(same) > 0 && open <= newest:
		return same, nil
	case open == 0 && outOfForce != nil:
		return nil, fmt.Errorf("%s: %w", c, outOfForce)
	}
	if l.whole {
		return nil, fmt.Errorf("%s cannot be compared: the copy of the log ends before its checkpoint of %s; continue the copy: bailiwick audit tiles --to DIR", c, record.Plural(open, "entry"))
	}
	return nil, fmt.Errorf("%s cannot be compared: the proofs here do not reach its checkpoint of %s; export evidence that has it: %s", c, record.Plural(open, "entry"), l.exportWith(c.File))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./@:+,-]{1,200}$`)

// exportWith is the command that exports this evidence with a proof for the newest
// checkpoint in a file.
func (l *logCheck) exportWith(file string) string {
	if !plainWord.MatchString(file) || file[0] == '-' {
		file = "FILE"
	}
	id, kind := "ID", ""
	if parsed, err := api.ParseRunID(string(l.b.Case.Run)); err == nil {
		id = string(parsed)
	} else if parsed, err := api.ParseDispatchID(string(l.b.Case.Dispatch)); err == nil {
		id, kind = string(parsed), " --dispatch"
	}
	return fmt.Sprintf("bailiwick audit export %s%s --checkpoint %s --out %s-2.evidence", id, kind, file, id)
}

// sizesText lists a few sizes of logs, or the range of many.
func sizesText(sizes map[uint64]bool) string {
	list := slices.Sorted(maps.Keys(sizes))
	last := list[len(list)-1]
	if len(list) > 4 {
		return fmt.Sprintf("%d to %s", list[0], record.Plural(last, "entry"))
	}
	words := make([]string, 0, len(list))
	for _, n := range list[:len(list)-1] {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(append(words, record.Plural(last, "entry")), ", ")
}

// maxClaimed bounds how many receipts a report shows.
const maxClaimed = 20

// claimedReceipts adds where the service says that checkpoints are: the newest receipt
// of each place, unless the auditor has a copy from there. It tells where to fetch one.
func (l *logCheck) claimedReceipts(holds map[string]uint64) {
	newest := map[string]receipt.Receipt{}
	for _, r := range l.receipts {
		key := r.Name + " " + placeOf(r.Kind, r.Place)
		if _, held := holds[placeOf(r.Kind, r.Place)]; !held && newest[key].Checkpoint().Size <= r.Checkpoint().Size {
			newest[key] = r
		}
	}
	list := slices.SortedFunc(maps.Values(newest), func(x, y receipt.Receipt) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Place, y.Place))
	})
	for _, r := range list[:min(len(list), maxClaimed)] {
		l.claimed = append(l.claimed, "receipt of anchor "+r.Name+", unchecked: "+claimOf(r))
	}
}

// claimOf says what a receipt claims.
func claimOf(r receipt.Receipt) string {
	s := fmt.Sprintf("%s has the checkpoint of %s", placeOf(r.Kind, r.Place), record.Plural(r.Checkpoint().Size, "entry"))
	switch r.Kind {
	case receipt.Git:
		s += " in commit " + r.Git.ID
	case receipt.S3:
		s += fmt.Sprintf(" in object %.100s, version %.100s, locked until %s", r.S3.Key, r.S3.Version, r.S3.Until.Format("2006-01-02"))
	case receipt.TSA:
		s = fmt.Sprintf("%s stamped the checkpoint of %s; the trust file does not list that authority", placeOf(r.Kind, r.Place), record.Plural(r.Checkpoint().Size, "entry"))
	case receipt.File:
	}
	return s
}
