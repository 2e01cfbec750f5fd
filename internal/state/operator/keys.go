package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// digestOf returns the digest of operators.json; empty without one.
func digestOf(first *seal.Operators) api.Digest {
	if first == nil {
		return ""
	}
	return first.Digest()
}

// start makes operators.json the set in force.
func (s *state) start(first *seal.Operators) {
	s.operators, s.sets, s.keys = first, []setFrom{{1, first.Clone()}}, nil
	for _, k := range first.Root().Keys {
		s.keys = append(s.keys, api.OperatorKey{ID: string(k.ID), Name: k.Name, Principal: k.Principal})
	}
}

// follow puts the set of operator keys of a record in force.
func (s *state) follow(v verified) error {
	was, assigned := s.operators.Root(), s.operators.Assigned()
	if err := s.operators.Follow(v.record.Set); err != nil {
		return api.Errorf(api.CodeConflict, "%w", err).WithHint("see: bailiwick operators list")
	}
	s.sets = append(slices.Clip(s.sets), setFrom{v.record.Number + 1, s.operators.Clone()})
	now := s.operators.Root()
	change := &api.OperatorKeyChange{Set: v.record.Set.Number, Decision: v.record.Number, At: v.record.At}
	for i, k := range s.keys {
		if id := seal.KeyID(k.ID); was.Has(id) && !now.Has(id) {
			s.keys[i].Retired = change
		}
	}
	for _, k := range now.Keys {
		i := slices.IndexFunc(s.keys, func(known api.OperatorKey) bool { return known.ID == string(k.ID) })
		if i < 0 {
			s.keys = append(s.keys, api.OperatorKey{ID: string(k.ID), Name: k.Name, Principal: k.Principal, Added: change})
		} else {
			s.keys[i].Name, s.keys[i].Principal = k.Name, k.Principal
		}
	}
	if !assigned && s.operators.Assigned() {
		s.votes.Withdraw(func(api.Principal) bool { return true }) // nobody knows whose keys they are signed with
	}
	return nil
}

// Passkeys returns the passkeys among the operator keys in force.
func (r *Registry) Passkeys() (list []seal.Key) {
	operators := r.current.Load().operators
	if operators == nil {
		return nil
	}
	for _, k := range operators.Root().Keys {
		if k.Passkey != nil {
			list = append(list, k)
		}
	}
	return list
}

// CheckCount refuses a counter of a passkey below the ones in its decisions.
func (r *Registry) CheckCount(id seal.KeyID, count uint32) error {
	return r.current.Load().counter.Check(map[seal.KeyID]uint32{id: count})
}

// HasKey reports whether an operator key in force belongs to p, by its exact name.
func (r *Registry) HasKey(p api.Principal) bool {
	operators := r.current.Load().operators
	return operators != nil && slices.ContainsFunc(operators.Root().Keys, func(k seal.Key) bool { return k.Principal != "" && k.Principal.SameName(p) })
}

// Keys returns the operator keys, and those that were retired.
func (r *Registry) Keys(ctx context.Context) (api.OperatorKeys, error) {
	r.adding.Lock()
	defer r.adding.Unlock()
	if err := r.reread(ctx); err != nil {
		return api.OperatorKeys{}, err
	}
	s := r.current.Load()
	root := s.operators.Root()
	text, err := canon.Marshal(root)
	if err != nil {
		return api.OperatorKeys{}, fmt.Errorf("operator keys: %w", err)
	}
	return api.OperatorKeys{Set: s.operators.Number(), Digest: s.operators.Digest(), Threshold: root.Threshold, Root: text, Keys: slices.Clone(s.keys)}, nil
}
