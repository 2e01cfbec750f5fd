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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

func (t *tree) auditShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NUMBER", Short: "Print one entry whole, and prove that it is in the log", Args: cobra.ExactArgs(1),
		Long: `Print one entry whole: what it says in plain words, all of its fields, its hash,
and its place in the tree. The proof that the entry is in the log is checked
here, by the hash of what is shown. Whose signature the checkpoint bears is held
against the keys that the service itself names; an auditor holds it against
those of a trust file that came another way.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withEntry(cmd.Context(), args[0], func(o client.Operator, l api.LogLine) error {
				return t.showEntry(cmd.Context(), o, l)
			})
		},
	}
}

func (t *tree) auditProveCommand() *cobra.Command {
	var file, entry string
	cmd := &cobra.Command{
		Use: "prove NUMBER", Short: "Write the proof that an entry is in the log, for other tools to verify", Args: cobra.ExactArgs(1),
		Long: `Write the proof that an entry is in the log: a C2SP tlog-proof file, which has the
signed checkpoint in it. It is verified before it is written. What it is about is
the exact bytes of the entry, which --entry writes.`,
		Example: `  bailiwick audit prove 48211 --out 48211.tlog-proof --entry 48211.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withEntry(cmd.Context(), args[0], func(o client.Operator, l api.LogLine) error {
				p, err := proveEntry(cmd.Context(), o, l)
				if err != nil {
					return err
				}
				if entry != "" {
					if err := writeFile(entry, func(w io.Writer) error { _, err := w.Write(l.Leaf); return err }); err != nil {
						return err
					}
				}
				give := func(w io.Writer) error { _, err := w.Write(p.Encode()); return err }
				if file == "" {
					return give(t.Stdout)
				}
				return writeFile(file, give)
			})
		},
	}
	cmd.Flags().StringVar(&file, "out", "", "write the proof to this new file")
	cmd.Flags().StringVar(&entry, "entry", "", "write the exact bytes of the entry to this new file")
	return cmd
}

// withEntry fetches the entry that an argument names, with or without the # of
// a line.
func (t *tree) withEntry(ctx context.Context, arg string, do func(client.Operator, api.LogLine) error) error {
	arg = strings.TrimPrefix(arg, "#")
	var n uint64
	if _, err := fmt.Sscanf(arg+"\n", "%d\n", &n); err != nil || fmt.Sprint(n) != arg {
		return api.Errorf(api.CodeInvalid, "entry %.40q: want its number, as audit list shows it behind the #", arg)
	}
	c := t.conn()
	defer c.Close()
	q := api.LogQuery{First: 1}
	if n > 0 {
		before := n - 1
		q.After = &before
	}
	var found *api.LogLine
	err := c.Operator().Log(ctx, q, false, func(l api.LogLine) error {
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
	return do(c.Operator(), *found)
}

// proven is the place of an entry in the log, verified.
type proven struct {
	note.Proof
	note.Checkpoint
	keys []string // that signed, of those that the service names
}

// proveEntry asks for the proof that an entry is in the log, and verifies it by
// the entry's own bytes.
func proveEntry(ctx context.Context, o client.Operator, l api.LogLine) (p proven, err error) {
	trust, err := logTrust(ctx, o)
	if err != nil {
		return p, err
	}
	var b bytes.Buffer
	if err := o.Proof(ctx, l.Seq, &b); err != nil {
		return p, err
	}
	if p.Proof, err = note.ParseProof(b.Bytes()); err != nil {
		return p, err
	}
	if p.Index != l.Seq {
		return p, fmt.Errorf("the service gave the proof of entry #%d for #%d", p.Index, l.Seq)
	}
	if p.Checkpoint, p.keys, err = openCheckpoint(p.Signed, trust); err != nil {
		return p, err
	}
	return p, note.VerifyInclusion(p.Checkpoint, p.Index, note.LeafHash(l.Leaf), p.Hashes)
}

// trusted is who signs the log, as the service says. An auditor goes by a trust
// file that came another way; this holds the service to its own word.
type trusted struct {
	Log struct {
		Origin string       `json:"origin"`
		Keys   []trustedKey `json:"keys"`
	} `json:"log"`
}

type trustedKey struct {
	ID     string  `json:"id"`
	Public []byte  `json:"public"`
	UpTo   *uint64 `json:"upTo"` // the largest checkpoint that it may sign; nil: it is in force
}

func logTrust(ctx context.Context, o client.Operator) (t trusted, err error) {
	var b bytes.Buffer
	if err := o.Trust(ctx, &b); err != nil {
		return t, err
	}
	if err := json.Unmarshal(b.Bytes(), &t); err != nil {
		return t, fmt.Errorf("trust file of the service: %w", err)
	}
	return t, nil
}

// openCheckpoint verifies a signed checkpoint and says which keys signed it.
func openCheckpoint(signed []byte, trust trusted) (note.Checkpoint, []string, error) {
	keys := make([]ed25519.PublicKey, len(trust.Log.Keys))
	for i, k := range trust.Log.Keys {
		keys[i] = k.Public
	}
	c, by, err := note.Open(signed, trust.Log.Origin, keys...)
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
		return c, nil, fmt.Errorf("the checkpoint of %d entries is signed by a key that was not in force for it", c.Size)
	}
	return c, ids, nil
}

// shownTree is the place of an entry in the tree as audit show -o json has it.
type shownTree struct {
	Index      uint64   `json:"index"`
	Checkpoint uint64   `json:"checkpoint"` // entries that it covers
	Origin     string   `json:"origin"`
	Root       string   `json:"root"` // hexadecimal
	Keys       []string `json:"keys"` // ids of those that signed it
	Proof      []string `json:"proof"`
}

// shownEntry is what audit show -o json prints.
type shownEntry struct {
	Seq   uint64          `json:"seq"`
	Text  string          `json:"text"`
	Hash  string          `json:"hash"` // RFC 6962 leaf hash of the entry, hexadecimal
	Entry json.RawMessage `json:"entry"`
	Tree  *shownTree      `json:"tree,omitempty"` // absent: no checkpoint covers it yet
}

func (t *tree) showEntry(ctx context.Context, o client.Operator, l api.LogLine) error {
	e, err := record.DecodeEntry(l.Leaf)
	if err != nil {
		return fmt.Errorf("entry #%d: %w", l.Seq, err)
	}
	p, err := proveEntry(ctx, o, l)
	early := api.CodeOf(err) == api.CodeNotFinished
	if err != nil && !early {
		return errors.Join(fmt.Errorf("entry #%d: %s", l.Seq, plainLine(e.Line(l.Seq))), err)
	}
	hash := note.LeafHash(l.Leaf)
	switch t.output {
	case "name":
		_, err := fmt.Fprintln(t.Stdout, l.Seq)
		return err
	case "text":
		t.printEntry(l, &e)
		t.row("hash", "%x", hash)
		if early {
			t.row("tree", "no checkpoint covers it yet")
			return nil
		}
		t.row("tree", "entry %d of the %d that the newest checkpoint covers: inclusion proved by %d hashes", p.Index, p.Size, len(p.Hashes))
		t.row("checkpoint", "of %s\nroot %x\nsigned by %s", p.Origin, p.Root, strings.Join(p.keys, ", "))
		return nil
	}
	out := shownEntry{Seq: l.Seq, Text: e.Line(l.Seq), Hash: fmt.Sprintf("%x", hash), Entry: l.Leaf}
	if !early {
		out.Tree = &shownTree{Index: p.Index, Checkpoint: p.Size, Origin: p.Origin, Root: fmt.Sprintf("%x", p.Root), Keys: p.keys, Proof: []string{}}
		for _, h := range p.Hashes {
			out.Tree.Proof = append(out.Tree.Proof, base64.StdEncoding.EncodeToString(h[:]))
		}
	}
	return t.printJSON(out)
}

// printEntry prints every field that an entry has. A text that is more than a
// word stands between quotation marks.
func (t *tree) printEntry(l api.LogLine, e *record.Entry) {
	t.row("entry", "%d", l.Seq)
	t.row("", "%s", plainLine(e.Line(l.Seq)))
	t.row("time", "%s", e.At.UTC().Format(time.RFC3339Nano))
	t.row("kind", "%s", e.Kind)
	t.row("decision", "%s", map[record.Decided]string{record.Allow: "allowed", record.Deny: "denied", record.NoDecided: "none: it states a fact"}[e.Decision])
	for _, p := range e.Policies {
		t.row("", "by policy %s", record.Quote(p))
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
			t.row(f.label, "%s", record.Word(f.text))
		}
	}
	if e.Attempt != 0 {
		t.row("attempt", "%d", e.Attempt)
	}
	if e.Tier != nil {
		t.row("tier", "%s", *e.Tier)
	}
	label := "says"
	for _, line := range detailLines(e) {
		t.row(label, "%s", line)
		label = ""
	}
	label = "names"
	for _, name := range slices.Sorted(maps.Keys(e.Refs)) {
		t.row(label, "%s %s", name, e.Refs[name])
		label = ""
	}
	label = "follows"
	for _, f := range []struct {
		what string
		next uint64
	}{{"of the same dispatch", e.Prev.Dispatch}, {"of the same run", e.Prev.Run}, {"of those that change what is allowed", e.Prev.Rule}} {
		if f.next > 0 {
			t.row(label, "#%d, the last before it %s", f.next-1, f.what)
			label = ""
		}
	}
}

// detailLines returns what only entries of this kind say, a member a line.
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
