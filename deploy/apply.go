package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

// Approval says who applies a plan, why, and with which keys.
type Approval struct {
	Author  string
	Reason  string
	Signers []Signer
	// ReplaceProposal drops an existing proposal.
	ReplaceProposal bool
}

// Applied is the result of Apply or Sign.
type Applied struct {
	Unchanged bool         `json:"unchanged,omitempty"` // the plan was empty
	Number    uint64       `json:"number"`
	Digest    api.Digest   `json:"digest"`
	Proposal  bool         `json:"proposal,omitempty"` // needs more signatures
	Signers   []seal.KeyID `json:"signers"`
	Needed    int          `json:"needed"` // signatures required
}

const maxNote = 4 << 10

// Apply publishes a plan as the next revision, or as a proposal if it has fewer
// signers than the trust root requires. Everything is on disk before one rename of
// the index makes it visible: a crash leaves either the old revision or the new
// one.
func (c *Catalog) Apply(ctx context.Context, p *Plan, a Approval) (_ *Applied, err error) {
	if err := c.checkApproval(a); err != nil {
		return nil, err
	}
	lock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	head, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	var base Mark
	if head != nil {
		base = head.Mark()
	}
	if base != p.Base {
		return nil, c.moved(ctx, p.Base, head)
	}
	if p.Empty() {
		return &Applied{Unchanged: true, Number: base.Number, Digest: base.Digest, Signers: []seal.KeyID{}, Needed: c.cfg.TrustRoot.Threshold}, nil
	}
	if err := c.checkProposal(ctx, p, a); err != nil {
		return nil, err
	}
	doc, err := canon.Marshal(api.Revision{
		V: 1, Number: base.Number + 1, Previous: base.Digest, CreatedAt: c.cfg.Now().UTC().Truncate(time.Second),
		Author: a.Author, Reason: a.Reason, Artifacts: p.Artifacts,
	})
	if err != nil {
		return nil, fmt.Errorf("revision: %w", err)
	}
	if len(doc) > catalog.MaxRevision {
		return nil, api.Errorf(api.CodeTooLarge, "the revision document would have %d bytes, want at most %d", len(doc), catalog.MaxRevision)
	}
	envelope, err := seal.Sign(ctx, seal.Revision, doc, a.Signers...)
	if err != nil {
		return nil, err
	}
	manifest, err := c.writeRevision(ctx, p, doc)
	if err != nil {
		return nil, err
	}
	return c.publish(ctx, release{number: base.Number + 1, doc: doc, manifest: manifest, fresh: envelope})
}

// checkApproval refuses what readers would refuse, before anything is written.
func (c *Catalog) checkApproval(a Approval) error {
	if len(a.Signers) == 0 {
		return api.Errorf(api.CodeInvalid, "no deploy key to sign with")
	}
	for _, s := range a.Signers {
		if !slices.ContainsFunc(c.cfg.TrustRoot.Keys, func(k seal.Key) bool { return k.ID == s.KeyID() }) {
			return api.Errorf(api.CodeDenied, "key %s is not in the trust root, so its signature would not count", s.KeyID()).
				WithHint("sign with a key that the trust root lists")
		}
	}
	for what, s := range map[string]string{"author": a.Author, "reason": a.Reason} {
		if err := strictyaml.CheckText(s); err != nil || len(s) > maxNote {
			return api.Errorf(api.CodeInvalid, "%s: want at most %d bytes of plain text", what, maxNote)
		}
	}
	return nil
}

// checkProposal refuses to replace a proposal unless the approval says so.
func (c *Catalog) checkProposal(ctx context.Context, p *Plan, a Approval) error {
	existing, err := c.read.Proposal(ctx)
	if a.ReplaceProposal {
		return nil // replaces an unreadable one, too
	}
	if err != nil || existing == nil {
		return err
	}
	e := api.Errorf(api.CodeConflict, "a proposal already exists: %s by %s", markText(existing.Mark()), existing.Author())
	if maps.Equal(existing.Document().Artifacts, p.Artifacts) {
		return e.WithHint("it is identical; sign it with: bailiwick catalog sign")
	}
	return e.WithHint("sign it with: bailiwick catalog sign; or replace it with: bailiwick catalog apply --replace-proposal")
}

// writeRevision stores everything that a revision names and returns its OCI
// manifest. The revision is not visible yet.
func (c *Catalog) writeRevision(ctx context.Context, p *Plan, doc []byte) ([]byte, error) {
	for _, ref := range p.set.Refs() {
		if _, err := c.store.Put(ctx, p.set.Document(ref)); err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
	}
	if err := c.writeFiles(ctx, p); err != nil {
		return nil, err
	}
	manifest, err := catalog.Manifest(doc, p.set)
	if err != nil {
		return nil, fmt.Errorf("revision: %w", err)
	}
	for _, b := range [][]byte{doc, manifest, []byte("{}")} {
		if _, err := c.store.Put(ctx, b); err != nil {
			return nil, fmt.Errorf("revision: %w", err)
		}
	}
	return manifest, nil
}

// writeFiles copies the files of capabilities that the catalog's head does not
// have.
func (c *Catalog) writeFiles(ctx context.Context, p *Plan) (err error) {
	if p.Manifest == "" {
		return nil // every file is in the catalog
	}
	have := map[api.Digest]bool{}
	for _, f := range p.before.Files() {
		have[f.Digest] = true
	}
	root, err := os.OpenRoot(filepath.Dir(p.Manifest))
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, f := range p.set.Files() {
		if have[f.Digest] {
			continue
		}
		have[f.Digest] = true
		from, ok := p.files[f.Digest]
		if !ok {
			return fmt.Errorf("file %s: neither in the catalog nor in the manifest", f.Path)
		}
		if err := c.copyFile(ctx, root, from); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) copyFile(ctx context.Context, root *os.Root, s staged) error {
	name := s.from + "/" + s.file.Path
	f, err := s.openIn(root)
	if err != nil {
		return errFileMoved(name, err)
	}
	d, _, err := c.store.PutStream(ctx, f.File)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("file %s: %w", name, err)
	}
	if d != s.file.Digest {
		return errFileMoved(name, errors.New("its content differs"))
	}
	return nil
}

// showStaged adds the content of changed files to the changes of a plan: of the manifest's
// directory, and of the catalog.
func (c *Catalog) showStaged(ctx context.Context, p *Plan) (err error) {
	if p.Manifest == "" {
		return nil // no file changes
	}
	root, err := os.OpenRoot(filepath.Dir(p.Manifest))
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	stored := c.stored(ctx)
	catalogdiff.ShowContents(p.CatalogDiff, p.before, p.set, stored, func(f api.File) ([]byte, error) {
		from, ok := p.files[f.Digest]
		if !ok {
			return stored(f)
		}
		opened, err := from.openIn(root)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(io.LimitReader(opened.File, catalogdiff.MaxContent+1))
		return b, errors.Join(err, opened.Close())
	})
	return nil
}

// openIn opens the file below the manifest's directory, without following links.
func (s staged) openIn(root *os.Root) (*regular, error) {
	name := s.from + "/" + s.file.Path
	dir, err := openDir(root, path.Dir(filepath.ToSlash(name)))
	if err != nil {
		return nil, err
	}
	f, err := openRegular(dir, path.Base(name))
	return f, errors.Join(err, dir.Close())
}

// open is openIn for the path of that directory.
func (s staged) open(dir string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := s.openIn(root)
	if err = errors.Join(err, root.Close()); err != nil {
		return nil, err
	}
	return f, nil
}

func errFileMoved(name string, err error) error {
	return api.Errorf(api.CodeConflict, "file %s: changed since the plan was made: %w", name, err).WithHint(planAgain)
}

// lockWait is how long a writer waits for another one, which needs it for moments:
// it signs with the lock, but asks for passphrases without it.
const lockWait = 10 * time.Second

// lock excludes other writers until the result is closed.
func (c *Catalog) lock(ctx context.Context) (io.Closer, error) {
	f, err := durable.OpenLock(c.cfg.Dir + ".lock")
	if err != nil {
		return nil, fmt.Errorf("catalog lock: %w", err)
	}
	wait, stop := context.WithTimeout(ctx, cmp.Or(c.cfg.lockWait, lockWait))
	defer stop()
	err = durable.PollLock(wait, func() error { return durable.TryLock(f) })
	if err == nil {
		return f, nil
	}
	if errors.Is(err, durable.ErrLocked) {
		err = api.Errorf(api.CodeConflict, "another process is writing this catalog").WithHint("nothing was applied; wait until it is done, then plan again")
	}
	return nil, errors.Join(err, f.Close())
}
