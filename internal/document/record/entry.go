package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// MaxEntry is the largest encoded entry in bytes. Encode makes every entry
// fit; Decode refuses a larger one.
const MaxEntry = 60 << 10

const (
	maxRefs  = 16
	prevRoom = 128 // more than Prev takes: Link adds it to an encoded entry
)

// Entry is one record of the audit log (R-A3). Its encoding, the leaf, is what
// the log stores and hashes.
//
// At, Principal, Action, Resource, Decision and Policies of an entry that
// carries a decision are filled in by the log from the decision itself.
type Entry struct {
	Kind      Kind
	At        time.Time
	Principal api.Principal // the caller; empty if unknown, or for what the service did on its own
	Action    string
	Resource  string
	Decision  Decided
	Policies  []string // that decided

	Run      string
	Task     string
	Dispatch api.DispatchID
	Attempt  int
	Role     api.Name
	Tool     string
	Tier     *api.Tier
	// Token authenticated Principal, if a token did: several clients may share a
	// principal. The log fills it in from the request.
	Token api.TokenID

	// Refs name content by digest. The names are constants of this program.
	Refs   map[string]api.Digest
	Detail Detail // the one type that belongs to Kind
	Prev   Prev   // the log fills it in
}

// Prev chains entries, so that a reader who has the last entry of a run can tell
// that none is missing. Each member is one more than the number of an earlier
// entry of the same log; 0 means that there is no earlier one.
type Prev struct {
	Dispatch uint64 `json:"dispatch,omitempty"` // the previous entry with the same Dispatch
	// Rule is the previous entry that changed what is allowed (see Kind.Rules). It
	// is set in entries that Admit something and in entries that are Rules.
	Rule uint64 `json:"rule,omitempty"`
	Run  uint64 `json:"run,omitempty"` // the previous entry with the same Run
}

// Link adds p to leaf, the encoding of an entry whose Prev is zero. The result
// is what Encode returns for the same entry with p. The log uses it because it
// knows p only inside the transaction.
func (p Prev) Link(leaf []byte) ([]byte, error) {
	if p == (Prev{}) {
		return leaf, nil
	}
	next := []byte(`,"principal":"`)
	i := bytes.Index(leaf, next) // no text has a bare quotation mark, and no detail such a member
	if i < 0 || p.Dispatch > maxInt || p.Rule > maxInt || p.Run > maxInt {
		return nil, fmt.Errorf("entry: cannot link to %+v", p)
	}
	member, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(leaf)+len(member)+8)
	out = append(append(append(out, leaf[:i]...), `,"prev":`...), member...)
	return append(out, leaf[i:]...), nil
}

// Names of refs.
const (
	RefManifest = "manifest" // the signed dispatch manifest
	RefInput    = "input"    // a dispatch's input
	RefResult   = "result"   // the signed result document
	RefPatch    = "patch"
	RefQuestion = "question" // the agent's
	RefAnswer   = "answer"   // the ResumeInput of the next attempt
	RefRevision = "revision" // a catalog revision
	RefRecord   = "record"   // what an operator signed
	RefPlan     = "plan"     // the canonical plan of a run
	RefSchedule = "schedule" // the artifact of the schedule that submitted a run
	RefGrowth   = "growth"   // the canonical plan.Growth of a run

	RefArguments = "arguments" // of a tool call, canonical
	RefReturned  = "returned"  // what a tool call returned, canonical
	RefAction    = "action"    // the api.ToolAction that people approve
	RefCalls     = "calls"     // the record of an attempt's tool calls

	RefStatement = "statement" // the signed attestation of a dispatch
	RefRotation  = "rotation"  // the next service key, signed with the one before it
)

// Decided says what an entry decides.
type Decided string

// The values of Decided.
const (
	Allow     Decided = "allow"
	Deny      Decided = "deny"
	NoDecided Decided = "none" // the entry states a fact
)

// wire is the encoded form. Its fields, like those of every Detail, are in the
// order of their JSON names, so that encoding/json writes canonical JSON.
// Whatever may come from outside is a plain string here: a hostile value must
// be logged, so decoding must accept it.
type wire struct {
	Action    string                `json:"action"`
	At        time.Time             `json:"at"`
	Attempt   int64                 `json:"attempt,omitempty"`
	Decision  Decided               `json:"decision"`
	Detail    any                   `json:"detail"`
	Dispatch  string                `json:"dispatch,omitempty"`
	Kind      Kind                  `json:"kind"`
	Policies  []string              `json:"policies"`
	Prev      *Prev                 `json:"prev,omitempty"`
	Principal string                `json:"principal"`
	Refs      map[string]api.Digest `json:"refs"`
	Resource  string                `json:"resource"`
	Role      string                `json:"role,omitempty"`
	Run       string                `json:"run,omitempty"`
	Task      string                `json:"task,omitempty"`
	Tier      *api.Tier             `json:"tier,omitempty"`
	Token     string                `json:"token,omitempty"`
	Tool      string                `json:"tool,omitempty"`
	V         int                   `json:"v"`
}

// Encode returns the leaf of e: canonical JSON, ASCII, at most MaxEntry bytes.
// It cuts texts and lists that are too long, and texts that are not UTF-8, and
// adds the length and digest of the whole; it clamps numbers to ±2^53. No
// content makes it fail, only a bug of ours does: an unknown kind, another
// kind's detail, a ref that is not a digest.
func (e *Entry) Encode() ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	var leaf []byte
	for _, limit := range limits() {
		w := e.wire(&bounds{text: limit})
		var err error
		if leaf, err = w.encode(); err != nil {
			return nil, fmt.Errorf("entry %q: %w", e.Kind, err)
		}
		if len(leaf) <= MaxEntry-prevRoom {
			return leaf, nil
		}
	}
	return nil, fmt.Errorf("entry %q: %d bytes, more than %d", e.Kind, len(leaf), MaxEntry)
}

func (e *Entry) wire(b *bounds) *wire {
	w := &wire{
		V: 1, Kind: e.Kind, At: e.At.UTC().Round(0), Decision: e.Decision, Tier: e.Tier, Refs: e.Refs,
		Principal: b.cut(string(e.Principal)), Action: b.cut(e.Action), Resource: b.cut(e.Resource), Policies: b.list(e.Policies),
		Run: b.cut(e.Run), Task: b.cut(e.Task), Dispatch: b.cut(string(e.Dispatch)), Attempt: b.number(int64(e.Attempt)),
		Role: b.cut(string(e.Role)), Tool: b.cut(e.Tool), Token: b.cut(string(e.Token)), Detail: b.detail(e.Detail),
	}
	if e.Prev != (Prev{}) {
		w.Prev = &Prev{min(e.Prev.Dispatch, maxInt), min(e.Prev.Rule, maxInt), min(e.Prev.Run, maxInt)}
	}
	w.present()
	return w
}

// present makes the members that every entry has non-nil.
func (w *wire) present() {
	if w.Policies == nil {
		w.Policies = []string{}
	}
	if w.Refs == nil {
		w.Refs = map[string]api.Digest{}
	}
}

// encode is canon.Marshal for a struct whose fields are in order. It takes a
// twentieth of the time, and every admission waits for it. A test compares the
// two.
func (w *wire) encode() ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(1024)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil {
		return nil, err
	}
	return escapeASCII(bytes.TrimSuffix(buf.Bytes(), []byte("\n"))), nil
}

func (e *Entry) check() error {
	row, ok := e.Kind.row()
	if !ok {
		return unknownKind(e.Kind)
	}
	if got, want := reflect.TypeOf(e.Detail), reflect.TypeOf(row.detail); got != want {
		return fmt.Errorf("entry %q: detail is %v, want %v", e.Kind, got, want)
	}
	if e.Decision != row.decision {
		return fmt.Errorf("entry %q: decision %q, want %q", e.Kind, e.Decision, row.decision)
	}
	if err := e.complete(); err != nil {
		return err
	}
	if y := e.At.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("entry %q: year %d", e.Kind, y)
	}
	if len(e.Refs) > maxRefs {
		return fmt.Errorf("entry %q: %d refs, more than %d", e.Kind, len(e.Refs), maxRefs)
	}
	for name, d := range e.Refs {
		if !isRefName(name) {
			return fmt.Errorf("entry %q: ref %q: want 1 to 64 of a-z", e.Kind, name)
		}
		if _, err := api.ParseDigest(string(d)); err != nil {
			return fmt.Errorf("entry %q: ref %q: %w", e.Kind, name, err)
		}
	}
	return nil
}

func unknownKind(k Kind) error { return fmt.Errorf("unknown entry kind %q", k) }

// isKindName reports whether s could be a kind of entries, such as service.key_rotated.
func isKindName(s string) bool {
	noun, verb, _ := strings.Cut(s, ".")
	return isRefName(noun) && isRefName(strings.ReplaceAll(verb, "_", ""))
}

func isRefName(s string) bool {
	for i := range len(s) {
		if s[i] < 'a' || s[i] > 'z' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// DecodeEntry reads a leaf. It accepts exactly what Encode can return, and what it
// returned for kinds that have another word now.
func DecodeEntry(leaf []byte) (Entry, error) {
	if len(leaf) > MaxEntry {
		return Entry{}, fmt.Errorf("entry of %d bytes: more than %d", len(leaf), MaxEntry)
	}
	canonical, err := canon.Canonicalize(leaf)
	if err != nil {
		return Entry{}, fmt.Errorf("entry: %w", err)
	}
	// The first such member is the entry's, or exact refuses the leaf.
	_, rest, _ := bytes.Cut(leaf, []byte(`,"kind":"`))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	kind := Kind(name)
	detailed := kind.current().Detail()
	if detailed == nil {
		if err := unknownKind(kind); isKindName(string(name)) && bytes.Equal(canonical, leaf) {
			return Entry{}, fmt.Errorf("%w: %w", err, canon.ErrNewer)
		}
		return Entry{}, unknownKind(kind)
	}
	detail := reflect.New(reflect.TypeOf(detailed))
	w := wire{Detail: detail.Interface()}
	err = json.Unmarshal(leaf, &w) // reads the other members, too, if one is of the wrong type
	switch same := bytes.Equal(canonical, leaf); {
	case same && w.V > 1:
		return Entry{}, fmt.Errorf("entry %q of version %d, want 1: %w", kind, w.V, canon.ErrNewer)
	case err != nil:
		return Entry{}, fmt.Errorf("entry %q: %w", kind, err)
	case !same:
		return Entry{}, fmt.Errorf("entry %q: not in canonical form", kind)
	}
	return w.exact(leaf, kind, detail)
}

// exact returns the entry of w, which leaf was decoded into, if Encode returns
// leaf for it, or did for the word of its kind.
func (w *wire) exact(leaf []byte, kind Kind, detail reflect.Value) (Entry, error) {
	if w.V != 1 || w.Detail == nil || w.Kind != kind {
		return Entry{}, fmt.Errorf("entry %q: not of version 1, or without detail", kind)
	}
	// One value has one encoding, also where JSON allows several: a time in
	// another zone, an empty member, a name in capitals.
	w.Detail, w.At = detail.Elem().Interface(), w.At.UTC()
	if w.Prev != nil && *w.Prev == (Prev{}) {
		w.Prev = nil
	}
	w.present()
	again, err := w.encode()
	if err != nil || !bytes.Equal(again, leaf) {
		return Entry{}, fmt.Errorf("entry %q: %w", kind, inexact(leaf, detail.Type()))
	}
	e := w.entry()
	return e, e.check()
}

// inexact says why Encode never returns a leaf with a detail of that type.
func inexact(leaf []byte, detail reflect.Type) error {
	var outer struct{ Detail json.RawMessage }
	if err := canon.Decode(leaf, &wire{Detail: reflect.New(detail.Elem()).Interface()}); err != nil {
		return err
	}
	if err := json.Unmarshal(leaf, &outer); err != nil {
		return err
	}
	if err := canon.Decode(outer.Detail, reflect.New(detail.Elem()).Interface()); err != nil {
		return fmt.Errorf("detail: %w", err)
	}
	return errors.New("not in canonical form")
}

func (w *wire) entry() Entry {
	e := Entry{
		Kind: w.Kind.current(), At: w.At, Principal: api.Principal(w.Principal), Action: w.Action, Resource: w.Resource, Decision: w.Decision,
		Run: w.Run, Task: w.Task, Dispatch: api.DispatchID(w.Dispatch), Attempt: int(w.Attempt),
		Role: api.Name(w.Role), Tool: w.Tool, Tier: w.Tier, Token: api.TokenID(w.Token),
	}
	e.Detail, _ = w.Detail.(Detail) // check refuses another
	if w.Prev != nil {
		e.Prev = *w.Prev
	}
	if len(w.Policies) > 0 {
		e.Policies = w.Policies
	}
	if len(w.Refs) > 0 {
		e.Refs = w.Refs
	}
	return e
}

// escapeASCII escapes everything beyond printable ASCII in the output of
// encoding/json as canon does. Only strings can contain such characters.
func escapeASCII(b []byte) []byte {
	i := 0
	for i < len(b) && b[i] < 0x7f {
		i++
	}
	if i == len(b) {
		return b
	}
	out := append(make([]byte, 0, 2*len(b)), b[:i]...)
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		out = appendASCII(out, r)
		i += n
	}
	return out
}

// Denied returns e as the record of a denial: of the kind that records it, with
// reasons in its detail. It fails for an entry that is no allowing decision.
func (e Entry) Denied(reasons []string) (Entry, error) {
	row, _ := e.Kind.row()
	request, decided := e.Detail.(request)
	if row.denial == "" || !decided {
		return Entry{}, fmt.Errorf("entry %q: no decision that could be denied", e.Kind)
	}
	e.Kind, e.Decision, e.Detail = row.denial, Deny, request.refused(reasons)
	return e, nil
}

// Detail is what only entries of one kind say. Every field is a text, a list
// of texts, a whole number or a boolean; fields are in the order of their JSON
// names (see wire).
type Detail interface {
	// describe returns the entry in plain words, without its time and number.
	describe(e *Entry) string
}

// request is the detail of what policy decides.
type request interface {
	Detail
	refused(reasons []string) Detail
}
