package daemoncli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// openTree opens the log's tree. It needs the open ledger and keys, and fails if
// the entries differ from what was signed.
func (s *service) openTree(ctx context.Context) error {
	origin, err := audit.Origin(ctx, s.store, s.keys.history.First(), s.t.Now())
	if err != nil {
		return api.Errorf(api.CodeIntegrity, "%w", err)
	}
	var known []ed25519.PublicKey
	for _, p := range s.keys.history.Keys {
		known = append(known, p.Key.Public)
	}
	tree, err := audit.OpenTree(ctx, audit.TreeConfig{
		Dir: s.t.Dirs.Log(), Ledger: s.ledger, Signer: s.keys.service, Keys: known, Origin: origin, Now: s.t.Now, Logger: s.logger,
	})
	switch {
	case errors.Is(err, audit.ErrTruncated), errors.Is(err, audit.ErrChanged), errors.Is(err, audit.ErrForeign), errors.Is(err, audit.ErrImpossible):
		return api.Errorf(api.CodeIntegrity, "%w", err)
	case err != nil:
		return api.Errorf(api.CodeUnavailable, "%w", err).WithHint("make %s a directory that this account can write; its content may be removed while no service runs and is rebuilt", s.t.Dirs.Log())
	}
	s.log.Store(tree)
	return nil
}

// admit returns why nothing new may be admitted. Before the tree is open there are
// no requests.
func (s *service) admit() error {
	if err := s.reserve.Err(); err != nil {
		return err
	}
	if err := s.anchors.refusal(); err != nil {
		return err
	}
	if tree := s.log.Load(); tree != nil {
		if err := tree.Admit(); err != nil {
			return err
		}
	}
	return s.agree.Load().difference()
}

// treeStatus returns the status of the tree; nil before it is open.
func treeStatus(ctx context.Context, tree *audit.Tree) *api.LogTree {
	if tree == nil {
		return nil
	}
	is, err := tree.Status(ctx)
	to := &api.LogTree{Origin: is.Origin, Size: is.TreeSize, Checkpoint: is.CheckpointSize, LagSeconds: is.Lag.Seconds()}
	if !is.CheckpointAt.IsZero() {
		at := is.CheckpointAt.UTC()
		to.CheckpointAt = &at
	}
	if !is.Repaired.At.IsZero() {
		at := is.Repaired.At.UTC()
		to.RepairedAt, to.Damage = &at, is.Repaired.Reason
	}
	if is.Err != nil {
		err = is.Err
	}
	if err != nil {
		to.Error = err.Error()
	}
	return to
}

// treeError returns why the tree is not up to date.
func treeError(tree *audit.Tree) error {
	if tree == nil {
		return nil
	}
	err := tree.Err()
	if err == nil {
		return nil
	}
	if refused := tree.Admit(); refused != nil {
		return fmt.Errorf("%w; nothing new is admitted", err)
	}
	return err
}

func closeTree(tree *audit.Tree) error {
	if tree == nil {
		return nil
	}
	return tree.Close()
}
