package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// keyVerbs are the verbs about the operator keys of a service.
type keyVerbs struct{ *operatorVerbs }

// keySet is a set of operator keys that a person changes. This program does not interpret
// keys: bailiwick-deploy shows them before it signs, and the service validates them.
type keySet struct {
	Keys      []json.RawMessage `json:"keys"`
	Threshold int               `json:"threshold"`
	V         int               `json:"v"`
}

// owned reports whether the keys of s have principals: all have one, or none has.
func (s *keySet) owned() bool {
	return slices.ContainsFunc(s.Keys, func(raw json.RawMessage) bool {
		var k keyName
		return json.Unmarshal(raw, &k) == nil && k.Principal != ""
	})
}

// keyName is what this program reads of a key.
type keyName struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Public []byte `json:"public"`
	// Principal owns the key.
	Principal api.Principal `json:"principal"`
}

// text names a key for people.
func (k keyName) text() string {
	if k.Name == "" {
		return k.ID
	}
	return fmt.Sprintf("%s of %s", k.ID, console.Cell(k.Name))
}

func nameOf(raw json.RawMessage) (k keyName, err error) {
	if err := json.Unmarshal(raw, &k); err != nil {
		return k, fmt.Errorf("operator keys: %w", err)
	}
	return k, nil
}

// owned returns a key as one of p, or of nobody if p is empty, with its other members as
// they are.
func owned(raw json.RawMessage, p api.Principal) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("operator keys: %w", err)
	}
	delete(members, "principal")
	if p != "" {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		members["principal"] = text
	}
	return canon.Marshal(members)
}

// named returns where the key with an id, or else with a name, is.
func (s *keySet) named(key string) (int, error) {
	if i, err := s.index(key); err == nil {
		return i, nil
	}
	found := -1
	for i, raw := range s.Keys {
		k, err := nameOf(raw)
		if err != nil {
			return 0, err
		}
		if k.Name != key || key == "" {
			continue
		}
		if found >= 0 {
			return 0, api.Errorf(api.CodeInvalid, "two operator keys are named %.80q: name each by its id", key).WithHint("see: bailiwick operators list")
		}
		found = i
	}
	if found < 0 {
		return 0, api.Errorf(api.CodeNotFound, "no operator key %.80q is in force", key).WithHint("see: bailiwick operators list")
	}
	return found, nil
}

// unassigned returns the keys that have no principal, by their ids.
func (s *keySet) unassigned() (list []string, err error) {
	for _, raw := range s.Keys {
		k, err := nameOf(raw)
		if err != nil {
			return nil, err
		}
		if k.Principal == "" {
			list = append(list, k.ID)
		}
	}
	return list, nil
}

// index returns where the key with an id is.
func (s *keySet) index(id string) (int, error) {
	for i, raw := range s.Keys {
		k, err := nameOf(raw)
		if err != nil {
			return 0, err
		}
		if k.ID == id {
			return i, nil
		}
	}
	return 0, api.Errorf(api.CodeNotFound, "no operator key %.80q is in force", id).WithHint("see: bailiwick operators list")
}

// maxKeyText bounds a file with a public key, in bytes.
const maxKeyText = 64 << 10

// readKey reads the public half of a key, which operator keygen writes to FILE.pub.
func readKey(path string) (json.RawMessage, keyName, error) {
	f, err := os.Open(path) //nolint:gosec // G304: the user names it
	if err != nil {
		return nil, keyName{}, api.Errorf(api.CodeInvalid, "operator key: %w", err).WithHint("create one: bailiwick operator keygen --key FILE; its public half is FILE.pub")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyText))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, keyName{}, fmt.Errorf("operator key: %w", err)
	}
	raw, err := canon.Canonicalize(b)
	var k keyName
	if err == nil {
		k, err = nameOf(raw)
	}
	if err != nil || k.ID == "" || len(k.Public) == 0 {
		return nil, k, api.Errorf(api.CodeInvalid, "%s: not the public half of an operator key", path).WithHint("operator keygen --key FILE writes it to FILE.pub")
	}
	return raw, k, nil
}

// changeKeys has a changed set of the operator keys signed and recorded. change returns
// what it means.
func (t *keyVerbs) changeKeys(ctx context.Context, f decideFlags, change func(*keySet) (string, error)) error {
	var now api.OperatorKeys
	if err := t.withOperator(func(o client.Operator) (err error) {
		now, err = o.Keys(ctx)
		return err
	}); err != nil {
		return err
	}
	var s keySet
	if err := json.Unmarshal(now.Root, &s); err != nil {
		return fmt.Errorf("operator keys: %w", err)
	}
	text, err := change(&s)
	if err != nil {
		return err
	}
	if s.Threshold < 1 || s.Threshold > len(s.Keys) {
		return api.Errorf(api.CodeInvalid, "threshold %d: want 1 to %d, the number of keys", s.Threshold, len(s.Keys)).WithHint("name another with --threshold")
	}
	root, err := canon.Marshal(s)
	if err != nil {
		return err
	}
	set := &api.OperatorSet{Number: now.Set + 1, Previous: now.Digest, Root: root}
	return t.decided(ctx, f, api.OperatorRecord{Verb: api.VerbOperatorSet, Set: set}, fmt.Sprintf("%s Set %d is in force: %s must sign.", text, set.Number, record.Signers(int64(s.Threshold), int64(len(s.Keys)), "key", s.owned())))
}

// keysFlags are the flags of the verbs that change the number of keys.
type keysFlags struct {
	decideFlags
	threshold int
}

func (f *keysFlags) add(v *console.Verb) {
	f.decideFlags.add(v)
	v.Flag(&f.threshold, "threshold")
}

// apply sets the threshold that the user named.
func (f *keysFlags) apply(s *keySet) {
	if f.threshold != 0 {
		s.Threshold = f.threshold
	}
}

func (t *keyVerbs) addCommand(v *console.Verb) {
	var f keysFlags
	var of string
	v.Do(func(ctx context.Context, args []string) error {
		owner, err := api.ParsePrincipal(of)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "--principal: %w", err).WithHint("name who holds the key, such as human:bob")
		}
		raw, k, err := readKey(args[0])
		if err == nil {
			raw, err = owned(raw, owner)
		}
		if err != nil {
			return err
		}
		return t.changeKeys(ctx, f.decideFlags, func(s *keySet) (string, error) {
			if _, err := s.index(k.ID); err == nil {
				return "", api.Errorf(api.CodeConflict, "operator key %s is already in force", k.ID).WithHint("see: bailiwick operators list")
			}
			if list, err := s.unassigned(); err != nil || len(list) > 0 {
				return "", errors.Join(err, notAssigned(list))
			}
			s.Keys = append(s.Keys, raw)
			f.apply(s)
			return fmt.Sprintf("Operator key %s was added for %s.", k.text(), owner), nil
		})
	})
	f.add(v)
	v.Flag(&of, "principal")
	_ = v.MarkFlagRequired("principal")
}

// notAssigned says that keys have no principal.
func notAssigned(ids []string) error {
	return api.Errorf(api.CodeConflict, "operator key %s has no principal", strings.Join(ids, ", ")).WithHint("say once whose each key is: bailiwick operators assign %s=PRINCIPAL", strings.Join(ids, "=PRINCIPAL "))
}

func (t *keyVerbs) assignCommand(v *console.Verb) {
	var f decideFlags
	v.Do(func(ctx context.Context, args []string) error {
		return t.changeKeys(ctx, f, func(s *keySet) (string, error) {
			for _, arg := range args {
				if err := s.assign(arg); err != nil {
					return "", err
				}
			}
			if list, err := s.unassigned(); err != nil || len(list) > 0 {
				return "", errors.Join(err, notAssigned(list))
			}
			return fmt.Sprintf("%d operator keys have their principals.", len(s.Keys)), nil
		})
	})
	f.add(v)
}

// assign gives a key the principal of KEY=PRINCIPAL.
func (s *keySet) assign(arg string) error {
	key, of, ok := strings.Cut(arg, "=")
	owner, err := api.ParsePrincipal(of)
	if !ok || err != nil {
		return api.Errorf(api.CodeInvalid, "%.80q: want KEY=PRINCIPAL, such as ann=human:ann", arg).WithHint("see: bailiwick operators list")
	}
	i, err := s.named(key)
	if err != nil {
		return err
	}
	k, err := nameOf(s.Keys[i])
	if err == nil && k.Principal != "" && k.Principal != owner {
		err = api.Errorf(api.CodeConflict, "operator key %s belongs to %s, and never to another principal", k.text(), k.Principal).WithHint("replace it: bailiwick operators add FILE.pub --principal %s; then: bailiwick operators retire %s", owner, k.ID)
	}
	if err == nil {
		s.Keys[i], err = owned(s.Keys[i], owner)
	}
	return err
}

func (t *keyVerbs) rotateCommand(v *console.Verb) {
	var f decideFlags
	v.Do(func(ctx context.Context, args []string) error {
		raw, k, err := readKey(args[1])
		if err != nil {
			return err
		}
		return t.changeKeys(ctx, f, func(s *keySet) (string, error) {
			i, err := s.index(args[0])
			if err != nil {
				return "", err
			}
			if _, err := s.index(k.ID); err == nil {
				return "", api.Errorf(api.CodeConflict, "operator key %s is already in force", k.ID).WithHint("see: bailiwick operators list")
			}
			was, err := nameOf(s.Keys[i])
			if err == nil {
				s.Keys[i], err = owned(raw, was.Principal)
			}
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("Operator key %s is retired: %s replaces it.", args[0], k.text()), nil
		})
	})
	f.add(v)
}

func (t *keyVerbs) retireCommand(v *console.Verb) {
	var f keysFlags
	v.Do(func(ctx context.Context, args []string) error {
		return t.changeKeys(ctx, f.decideFlags, func(s *keySet) (string, error) {
			i, err := s.index(args[0])
			if err != nil {
				return "", err
			}
			if len(s.Keys) == 1 {
				return "", api.Errorf(api.CodeInvalid, "operator key %s is the only one: without it no decision could be signed", args[0]).WithHint("replace it: bailiwick operators rotate ID FILE")
			}
			s.Keys = slices.Delete(s.Keys, i, i+1)
			f.apply(s)
			return fmt.Sprintf("Operator key %s is retired.", args[0]), nil
		})
	})
	f.add(v)
}

func (t *keyVerbs) thresholdCommand(v *console.Verb) {
	var f decideFlags
	v.Do(func(ctx context.Context, args []string) error {
		var n int
		if _, err := fmt.Sscanf(args[0], "%d", &n); err != nil || fmt.Sprint(n) != args[0] {
			return api.Errorf(api.CodeInvalid, "threshold %.40q: want a number", args[0])
		}
		return t.changeKeys(ctx, f, func(s *keySet) (string, error) {
			if n == s.Threshold {
				return "", api.Errorf(api.CodeConflict, "the threshold is %d already", n).WithHint("see: bailiwick operators list")
			}
			s.Threshold = n
			return "The threshold was changed.", nil
		})
	})
	f.add(v)
}

func (t *keyVerbs) listCommand(v *console.Verb) {
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, _ []string) error {
		keys, err := o.Keys(ctx)
		if err != nil {
			return err
		}
		var inForce []string
		owned := true
		for _, k := range keys.Keys {
			if k.Retired == nil {
				inForce = append(inForce, k.ID)
				owned = owned && k.Principal != ""
			}
		}
		if t.Format != "text" {
			return t.Emit(keys, strings.Join(inForce, "\n"), nil)
		}
		if err := console.List(&t.Output, keys.Keys, func(k api.OperatorKey) string { return k.ID }, "KEY\tPRINCIPAL\tNAME\tSTATE\tSINCE", t.operatorKeyRow); err != nil {
			return err
		}
		fmt.Fprintf(t.Stdout, "Set %d is in force: %s must sign each decision.\n", keys.Set, record.Signers(int64(keys.Threshold), int64(len(inForce)), "key", owned))
		if !owned {
			fmt.Fprintln(t.Stderr, "Nobody can vote about approvals: these keys have no principals. Say once whose each key is: bailiwick operators assign KEY=PRINCIPAL ...")
		}
		return nil
	})
}

func (t *keyVerbs) operatorKeyRow(k api.OperatorKey) string {
	state, since := "in force", "set 1 (operators.json)"
	change := k.Added
	if k.Retired != nil {
		state, change = "retired", k.Retired
	}
	if change != nil {
		since = fmt.Sprintf("set %d (decision %d, %s)", change.Set, change.Decision, t.Ago(change.At))
	}
	owner := string(k.Principal)
	if owner == "" {
		owner = "-"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", k.ID, owner, console.Cell(k.Name), state, since)
}
