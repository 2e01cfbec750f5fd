package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *auditVerbs) showCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, args []string) error {
		return t.withEntry(ctx, args[0], func(o client.Operator, l api.LogLine) error {
			return t.Page(func() error { return t.showEntry(ctx, o, l) })
		})
	})
}

func (t *auditVerbs) proveCommand(v *console.Verb) {
	var file, entry string
	v.Do(func(ctx context.Context, args []string) error {
		return t.withEntry(ctx, args[0], func(o client.Operator, l api.LogLine) error {
			p, err := proveEntry(ctx, o, l)
			if err == nil && entry != "" {
				err = console.WriteFile(entry, func(w io.Writer) error { return write(w, l.Leaf) })
			}
			if err != nil {
				return err
			}
			return t.writeTo(file, func(w io.Writer) error { return write(w, p.Encode()) })
		})
	})
	v.Flag(&file, "out")
	v.Flag(&entry, "entry")
}

func write(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// writeTo writes an answer to a new file, or to standard output if file is empty.
func (t *tree) writeTo(file string, fill func(io.Writer) error) error {
	if file == "" {
		return fill(t.Stdout)
	}
	return console.WriteFile(file, fill)
}

// withEntry calls do with the log entry that an argument names by its number,
// with or without a #.
func (t *auditVerbs) withEntry(ctx context.Context, arg string, do func(client.Operator, api.LogLine) error) error {
	arg = strings.TrimPrefix(arg, "#")
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != arg {
		return api.Errorf(api.CodeInvalid, "entry %.40q: want its number, as shown by audit list after the #", arg)
	}
	q := api.LogQuery{First: 1}
	if n > 0 {
		before := n - 1
		q.After = &before
	}
	return t.withOperator(func(o client.Operator) error {
		var found *api.LogLine
		err := o.Log(ctx, q, false, func(l api.LogLine) error {
			if l.Seq == n {
				found = &l
			}
			return nil
		})
		if err == nil && found == nil {
			err = api.Errorf(api.CodeNotFound, "the log has no entry #%d", n)
		}
		if err != nil {
			return err
		}
		return do(o, *found)
	})
}

// proven is a verified inclusion proof of an entry.
type proven struct {
	logproof.Proof
	logproof.Checkpoint
	keys []string // ids of the service's keys that signed the checkpoint
}

// proveEntry requests the inclusion proof of an entry, and verifies it with the
// bytes of the entry.
func proveEntry(ctx context.Context, o client.Operator, l api.LogLine) (p proven, err error) {
	trust, err := logTrust(ctx, o)
	if err != nil {
		return p, err
	}
	var b bytes.Buffer
	if err := o.Proof(ctx, l.Seq, &b); err != nil {
		return p, err
	}
	if p.Proof, err = logproof.ParseProof(b.Bytes()); err != nil {
		return p, err
	}
	if p.Index != l.Seq {
		return p, fmt.Errorf("the service returned the proof of entry #%d for #%d", p.Index, l.Seq)
	}
	if p.Checkpoint, p.keys, err = openCheckpoint(p.Signed, trust); err != nil {
		return p, err
	}
	return p, logproof.VerifyInclusion(p.Checkpoint, p.Index, logproof.LeafHash(l.Leaf), p.Hashes)
}

// trustFile has the keys of the log, as named by the service. An auditor uses a
// trust file from another source; this one only checks that the service is
// consistent.
type trustFile struct {
	Log struct {
		Origin string       `json:"origin"`
		Keys   []trustedKey `json:"keys"`
	} `json:"log"`
}

type trustedKey struct {
	ID     string  `json:"id"`
	Public []byte  `json:"public"`
	UpTo   *uint64 `json:"upTo"` // the largest checkpoint that it may sign; nil: no limit
}

func logTrust(ctx context.Context, o client.Operator) (t trustFile, err error) {
	var b bytes.Buffer
	if err := o.Trust(ctx, &b); err != nil {
		return t, err
	}
	if err := json.Unmarshal(b.Bytes(), &t); err != nil {
		return t, fmt.Errorf("trust file of the service: %w", err)
	}
	return t, nil
}

// openCheckpoint verifies a signed checkpoint and returns the ids of the keys that
// signed it.
func openCheckpoint(signed []byte, trust trustFile) (logproof.Checkpoint, []string, error) {
	keys := make([]ed25519.PublicKey, len(trust.Log.Keys))
	for i, k := range trust.Log.Keys {
		keys[i] = k.Public
	}
	c, by, err := logproof.Open(signed, trust.Log.Origin, keys...)
	if err != nil {
		return c, nil, err
	}
	var ids []string
	for _, k := range trust.Log.Keys {
		if (k.UpTo == nil || c.Size <= *k.UpTo) && slices.ContainsFunc(by, func(key ed25519.PublicKey) bool { return bytes.Equal(key, k.Public) }) {
			ids = append(ids, k.ID)
		}
	}
	if len(ids) == 0 {
		return c, nil, fmt.Errorf("the checkpoint of %s is signed by a key that is not valid for it", record.Plural(c.Size, "entry"))
	}
	return c, ids, nil
}

// shownTree is the place of an entry in the tree.
type shownTree struct {
	Index      uint64   `json:"index"`
	Checkpoint uint64   `json:"checkpoint"` // the number of entries that it covers
	Origin     string   `json:"origin"`
	Root       string   `json:"root"` // hexadecimal
	Keys       []string `json:"keys"` // ids of the keys that signed it
	Proof      []string `json:"proof"`
}

// shownEntry is the JSON answer of audit show.
type shownEntry struct {
	Seq   uint64          `json:"seq"`
	Text  string          `json:"text"`
	Hash  string          `json:"hash"` // RFC 6962 leaf hash of the entry, hexadecimal
	Entry json.RawMessage `json:"entry"`
	Tree  *shownTree      `json:"tree,omitempty"` // absent if no checkpoint covers it yet
	// Related are the entries that belong to one about a tool call or an approval.
	Related []relatedEntry `json:"related,omitempty"`
}

func (t *auditVerbs) showEntry(ctx context.Context, o client.Operator, l api.LogLine) error {
	e, err := record.DecodeEntry(l.Leaf)
	if err != nil {
		return fmt.Errorf("entry #%d: %w", l.Seq, err)
	}
	p, err := proveEntry(ctx, o, l)
	covered := api.CodeOf(err) != api.CodeNotFinished
	if err != nil && covered {
		return errors.Join(fmt.Errorf("entry #%d: %s", l.Seq, t.EntryLine(e.Line(l.Seq))), err)
	}
	out := shownEntry{Seq: l.Seq, Text: e.Line(l.Seq), Hash: fmt.Sprintf("%x", logproof.LeafHash(l.Leaf)), Entry: l.Leaf}
	if covered {
		out.Tree = &shownTree{Index: p.Index, Checkpoint: p.Size, Origin: p.Origin, Root: fmt.Sprintf("%x", p.Root), Keys: p.keys, Proof: []string{}}
		for _, h := range p.Hashes {
			out.Tree.Proof = append(out.Tree.Proof, base64.StdEncoding.EncodeToString(h[:]))
		}
	}
	if out.Related, err = related(ctx, o, l, &e); err != nil {
		return err
	}
	return t.Emit(out, fmt.Sprint(l.Seq), func() {
		t.printEntry(l, &e)
		for _, r := range out.Related {
			t.Row(r.What, "%s", t.EntryLine(r.Text))
		}
		t.Row("hash", "%s", out.Hash)
		if !covered {
			t.Row("tree", "no checkpoint covers it yet")
			return
		}
		t.Row("tree", "entry %d of the %d that the newest checkpoint covers: inclusion proved by %d hashes", p.Index, p.Size, len(p.Hashes))
		t.Row("checkpoint", "of %s\nroot %x\nsigned by %s", p.Origin, p.Root, strings.Join(p.keys, ", "))
	})
}

// printEntry prints all fields of an entry. A text of more than one word is quoted.
func (t *auditVerbs) printEntry(l api.LogLine, e *record.Entry) {
	t.Row("entry", "%d", l.Seq)
	t.Row("", "%s", t.EntryLine(e.Line(l.Seq)))
	t.Row("time", "%s", e.At.UTC().Format(time.RFC3339Nano))
	t.Row("kind", "%s", e.Kind)
	t.Row("decision", "%s", map[record.Decided]string{record.Allow: "allowed", record.Deny: "denied", record.NoDecided: "none: it records a fact"}[e.Decision])
	for _, p := range e.Policies {
		t.Row("", "by policy %s", record.Quote(p))
	}
	for _, f := range []struct{ label, text string }{
		{"principal", string(e.Principal)},
		{"token", string(e.Token)},
		{"action", e.Action},
		{"resource", e.Resource},
		{"run", e.Run},
		{"task", e.Task},
		{"dispatch", string(e.Dispatch)},
		{"role", string(e.Role)},
		{"tool", e.Tool},
	} {
		if f.text != "" {
			t.Row(f.label, "%s", record.Word(f.text))
		}
	}
	if e.Attempt != 0 {
		t.Row("attempt", "%d", e.Attempt)
	}
	if e.Tier != nil {
		t.Row("tier", "%s", *e.Tier)
	}
	details, refs := detailLines(e), slices.Sorted(maps.Keys(e.Refs))
	t.Rows("details", len(details), func(i int) string { return details[i] })
	t.Rows("refs", len(refs), func(i int) string { return fmt.Sprintf("%s %s", refs[i], e.Refs[refs[i]]) })
	label := "previous"
	for _, f := range []struct {
		what string
		next uint64
	}{{"of this dispatch", e.Prev.Dispatch}, {"of this run", e.Prev.Run}, {"rule change", e.Prev.Rule}} {
		if f.next > 0 {
			t.Row(label, "%s: #%d", f.what, f.next-1)
			label = ""
		}
	}
}

// detailLines returns the members that only entries of this kind have, one per line.
func detailLines(e *record.Entry) []string {
	b, err := json.Marshal(e.Detail)
	var members map[string]any
	if err == nil {
		err = json.Unmarshal(b, &members)
	}
	if err != nil {
		return []string{record.Quote(err.Error())}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch v := members[name].(type) {
		case string:
			if v != "" {
				out = append(out, name+" "+record.Word(v))
			}
		case []any:
			for _, item := range v {
				out = append(out, fmt.Sprintf("%s %s", name, record.Word(fmt.Sprint(item))))
			}
		case float64:
			out = append(out, fmt.Sprintf("%s %.0f", name, v))
		default:
			out = append(out, fmt.Sprintf("%s %v", name, v))
		}
	}
	return out
}
