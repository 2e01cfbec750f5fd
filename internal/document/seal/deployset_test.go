package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// deployChain is a chain of sets of deploy keys.
type deployChain struct {
	t     testing.TB
	first TrustRoot
	lines []byte
}

func deployRoot(threshold int, keys ...Signer) TrustRoot {
	root := TrustRoot{V: 1, Threshold: threshold}
	for _, k := range keys {
		root.Keys = append(root.Keys, KeyOf(k, ""))
	}
	return root
}

func (c *deployChain) now() TrustRoot {
	c.t.Helper()
	root, err := FollowDeploySets(c.first, c.lines)
	if err != nil {
		c.t.Fatal(err)
	}
	return root
}

// line is the record that puts next in force, by signers.
func (c *deployChain) line(next TrustRoot, signers ...Signer) []byte {
	c.t.Helper()
	payload, err := c.now().NextDeploySet(next, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	var envelope []byte
	for _, s := range signers { // one after the other, as people do
		if envelope, err = CoSign(c.t.Context(), DeploySet, payload, envelope, s); err != nil {
			c.t.Fatal(err)
		}
	}
	return append(envelope, '\n')
}

// Only what the threshold of the set in force signed replaces it, in its order. Each refusal
// has its control: the whole chain counts.
//
// proves R-B5
func TestASetOfDeployKeysIsSignedByTheOneBefore(t *testing.T) {
	ann, bob, carol, eve := newSigner(t), newSigner(t), newSigner(t), newSigner(t)
	c := &deployChain{t: t, first: deployRoot(2, ann, bob)}
	second := c.line(deployRoot(2, ann, bob, carol), ann, bob)
	one := c.line(deployRoot(2, ann, bob, carol), ann)
	foreign := c.line(deployRoot(1, eve), eve, carol)
	c.lines = second
	third := c.line(deployRoot(2, ann, carol), bob, carol)
	byOld := c.line(deployRoot(1, eve), ann) // below the threshold
	lower := c.line(deployRoot(1, ann), ann, carol)
	c.lines = bytes.Join([][]byte{second, third}, nil)
	back := c.line(deployRoot(2, ann, bob, carol), ann, carol)
	byRetired := c.line(deployRoot(1, bob), bob, ann)
	for name, r := range map[string]struct {
		lines [][]byte
		want  string
		is    error
	}{
		"one of two":              {[][]byte{one}, "1 of 2", ErrThreshold},
		"keys that are no one's":  {[][]byte{foreign}, "not in the trust root", ErrUnknownKey},
		"one of two, later":       {[][]byte{second, byOld}, "1 of 2", ErrThreshold},
		"a retired key":           {[][]byte{second, third, byRetired}, "1 of 2", ErrThreshold},
		"a retired key comes":     {[][]byte{second, third, back}, "which set 3 retired", nil},
		"without the second":      {[][]byte{third}, "set 2", nil},
		"the second twice":        {[][]byte{second, second}, "does not follow", nil},
		"a set of another parent": {[][]byte{lower}, "set 2", nil},
		"cut off":                 {[][]byte{second[:len(second)-1]}, "cut off", nil},
		"another document":        {[][]byte{[]byte("{}\n")}, "envelope", nil},
	} {
		_, err := FollowDeploySets(c.first, bytes.Join(r.lines, nil))
		if err == nil || !strings.Contains(err.Error(), r.want) || r.is != nil && !errors.Is(err, r.is) {
			t.Errorf("%s: %v, want %q", name, err, r.want)
		}
	}
	if _, err := FollowDeploySets(deployRoot(1, eve), c.lines); err == nil {
		t.Error("a chain counts after another trust.json")
	}
	now := c.now()
	if now.Threshold != 2 || !now.Has(carol.KeyID()) || now.Has(bob.KeyID()) || now.DeploySetNumber() != 3 {
		t.Errorf("in force: %+v", now)
	}
}

// Who saw a set takes no older one and no fork. A trust.json that root replaced is set 1 again.
//
// proves R-B5
func TestAMarkRefusesOlderDeployKeys(t *testing.T) {
	ann, bob, carol := newSigner(t), newSigner(t), newSigner(t)
	c := &deployChain{t: t, first: deployRoot(1, ann)}
	second, fork := c.line(deployRoot(1, bob), ann), c.line(deployRoot(1, carol), ann)
	var mark TrustMark
	follow := func(first TrustRoot, lines []byte) error {
		root, err := FollowDeploySets(first, lines)
		if err != nil {
			t.Fatal(err)
		}
		return mark.Follow(root)
	}
	for _, lines := range [][]byte{nil, nil, second, second} {
		if err := follow(c.first, lines); err != nil {
			t.Fatal(err)
		}
	}
	seen := mark
	for name, lines := range map[string][]byte{"older": nil, "a fork": fork} {
		if err := follow(c.first, lines); !errors.Is(err, ErrReplacedKeys) || mark != seen {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := follow(deployRoot(1, carol), nil); err != nil {
		t.Errorf("root's own set: %v", err)
	}
}

// The chain is read as a file that anybody may have put there.
func TestTheChainOfDeployKeysIsReadWithCare(t *testing.T) {
	dir := t.TempDir()
	d := api.Dirs{Data: dir}
	ann, bob := newSigner(t), newSigner(t)
	c := &deployChain{t: t, first: deployRoot(1, ann)}
	if err := CreateTrustRoot(d.TrustRoot(), c.first); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(d.TrustChain()), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2} {
		if root, err := LoadDeployKeys(d); err != nil || root.DeploySetNumber() != n {
			t.Errorf("set %d: %+v, %v", n, root, err)
		}
		if n == 2 {
			break
		}
		if _, err := AppendDeploySet(d, bytes.TrimSpace(c.line(deployRoot(1, bob), bob))); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("by a key that is to come: %v", err)
		}
		if _, err := AppendDeploySet(d, bytes.TrimSpace(c.line(deployRoot(1, bob), ann))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(d.TrustChain(), maxDeployChain+1); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDeployKeys(d); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(d.TrustChain()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.TrustChain(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDeployKeys(d); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v", err)
	}
}

func FuzzFollowDeploySets(f *testing.F) {
	ann := newSigner(f)
	c := &deployChain{t: f, first: deployRoot(1, ann)}
	f.Add(c.line(deployRoot(1, newSigner(f)), ann))
	f.Add([]byte("{}\n"))
	good := append([]byte(nil), c.line(deployRoot(1, newSigner(f)), ann)...)
	f.Fuzz(func(t *testing.T, lines []byte) {
		if root, err := FollowDeploySets(c.first, lines); err == nil && len(lines) > 0 && root.DeploySetNumber() < 2 {
			t.Errorf("%q changed nothing", lines)
		}
		if _, err := FollowDeploySets(c.first, append(bytes.Clone(good), lines...)); err == nil && len(lines) > 0 {
			t.Errorf("%q follows a set whose key is unknown here", lines)
		}
	})
}
