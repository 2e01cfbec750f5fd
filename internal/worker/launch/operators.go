package launch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// operators is the decisions of the operators that the launcher was given, from root's
// operators.json on: a file of their envelopes, one a line, which only grows. What it has
// cannot be taken back by a service that gives less.
type operators struct {
	root string // operators.json
	dir  string // of the file, and of what was approved and began

	mu      sync.Mutex
	reader  seal.TrustRootReader
	first   string // the operators.json of chain; guarded by mu
	chain   *ballot.Chain
	secrets map[api.Name]api.Digest // of the encrypted values in force; guarded by mu
}

func (o *operators) file() string { return filepath.Join(o.dir, "operator-records") }

// load reads the file, if operators.json is not the one that it was read by. The caller holds
// mu.
func (o *operators) load(service seal.KeyID) error {
	root, raw, err := o.reader.Load(o.root)
	if err != nil {
		return fmt.Errorf("operators: %w", err)
	}
	if o.chain != nil && o.first == string(raw) {
		return nil
	}
	if o.chain, err = ballot.New(service, root); err != nil {
		return err
	}
	o.first, o.secrets = "", map[api.Name]api.Digest{}
	f, err := os.OpenFile(o.file(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // synced where written
	in, whole := bufio.NewReader(f), int64(0)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what follows was not written whole, and nothing relied on it
			err = f.Truncate(whole)
			o.first = string(raw)
			return err
		}
		if err == nil {
			err = o.add(bytes.TrimSuffix(line, []byte("\n")))
		}
		if err != nil {
			o.chain = nil
			return fmt.Errorf("%s: %w", o.file(), err)
		}
		whole += int64(len(line))
	}
}

func (o *operators) add(envelope []byte) error {
	r, err := o.chain.Add(envelope)
	switch {
	case err != nil:
		return err
	case r.Verb == api.VerbSecretSet:
		o.secrets[r.Secret] = r.Content
	case r.Verb == api.VerbSecretRemove:
		delete(o.secrets, r.Secret)
	}
	return nil
}

// follow adds records, and returns how many there are. Those before one that is refused stay.
func (o *operators) follow(service seal.KeyID, envelopes [][]byte) (n uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.load(service); err != nil {
		return 0, err
	}
	var lines []byte
	for _, e := range envelopes {
		if bytes.ContainsRune(e, '\n') {
			err = errors.New("operator record: its envelope is not canonical")
		} else {
			err = o.add(e)
		}
		if err != nil {
			break
		}
		lines = append(append(lines, e...), '\n')
	}
	if len(lines) > 0 {
		if wrong := o.write(lines); wrong != nil {
			o.chain = nil // read it again
			return 0, errors.Join(err, wrong)
		}
	}
	return o.chain.Number(), err
}

func (o *operators) write(lines []byte) error {
	f, err := os.OpenFile(o.file(), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Sync(), f.Close(), durable.Sync(o.dir))
}

// sealed returns the digest of the encrypted value in force of a secret.
func (o *operators) sealed(service seal.KeyID, name api.Name) (api.Digest, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.load(service); err != nil {
		return "", err
	}
	d, ok := o.secrets[name]
	if !ok {
		return "", fmt.Errorf("no operator has set it: bailiwick secret set %s", name)
	}
	return d, nil
}

// approved verifies that people approved what m starts.
func (o *operators) approved(service seal.KeyID, m *record.Manifest, rule *api.WriteRule, doc []byte, now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.load(service); err != nil {
		return err
	}
	return o.chain.CheckWrite(m, rule, doc, now)
}

// use durably records that an approved attempt begins. Each attempt of a dispatch begins once,
// after the one before, for as long as this launcher's state is kept; again tells that the set
// of started attempts has this one, whose worker did not begin.
func (o *operators) use(m *record.Manifest, again bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Join(o.dir, "approved", string(m.ID))
	b, err := os.ReadFile(path) //nolint:gosec // G304: the id is parsed
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	last, _ := strconv.Atoi(strings.TrimSpace(string(b))) // none: 0
	switch {
	case m.Attempt == last && again:
		return nil
	case m.Attempt != last+1:
		return api.Errorf(api.CodeIntegrity, "dispatch %s attempt %d: an approval counts once, and attempt %d began", m.ID, m.Attempt, last)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, []byte(strconv.Itoa(m.Attempt)+"\n"), 0o600)
}
