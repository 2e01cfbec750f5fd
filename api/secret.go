package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Secret names a value that is kept outside the catalog.
type Secret struct {
	Name        Name   `json:"name"`
	Description string `json:"description,omitempty"`
	// Ref says where the service finds the value: file:NAME, env:NAME, credential:NAME,
	// exec:NAME or vault://PATH#KEY.
	Ref string `json:"ref"`
}

// SecretSource is where the value of a secret is. The set is closed.
type SecretSource string

// The sources.
const (
	SecretFile       SecretSource = "file"       // NAME of a file in the service's secret directory
	SecretEnv        SecretSource = "env"        // NAME of a variable of the service
	SecretCredential SecretSource = "credential" // NAME in systemd's credentials directory
	SecretExec       SecretSource = "exec"       // NAME of a helper in service.yaml
	SecretVault      SecretSource = "vault"      // PATH#KEY in HashiCorp Vault or OpenBao
)

// SecretPlace is a parsed Secret.Ref.
type SecretPlace struct {
	Source SecretSource
	Name   string // of a file, variable, credential or helper; the path in a vault
	Key    string // in a vault
}

// segmentText has the characters of a segment of a vault's path.
const segmentText = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."

// ParseSecretRef parses a reference to a secret. Its errors do not quote ref, which
// may be the value itself.
func ParseSecretRef(ref string) (p SecretPlace, err error) {
	if rest, ok := strings.CutPrefix(ref, "vault://"); ok {
		path, key, _ := strings.Cut(rest, "#")
		for s := range strings.SplitSeq(path, "/") {
			if !isSegment(s) {
				return p, errors.New("vault://PATH#KEY: PATH has an empty segment or a character other than letters, digits, dots, _ and -")
			}
		}
		if !isSegment(key) {
			return p, errors.New("vault://PATH#KEY: want a KEY of letters, digits, dots, _ and -")
		}
		return SecretPlace{SecretVault, path, key}, nil
	}
	source, name, ok := strings.Cut(ref, ":")
	p = SecretPlace{Source: SecretSource(source), Name: name}
	switch p.Source {
	case SecretFile, SecretExec:
		if _, err := ParseName(name); err != nil {
			return SecretPlace{}, fmt.Errorf("%s:NAME: want 1 to 64 of a-z 0-9 . _ -, beginning and ending with a letter or digit", source)
		}
	case SecretEnv:
		if !IsVariable(name) {
			return SecretPlace{}, errors.New("env:NAME: want the name of an environment variable")
		}
	case SecretCredential:
		if !isSegment(name) {
			return SecretPlace{}, errors.New("credential:NAME: want letters, digits, dots, _ and -")
		}
	default:
		ok = false
	}
	if !ok {
		return SecretPlace{}, errors.New("want file:NAME, env:NAME, credential:NAME, exec:NAME or vault://PATH#KEY; the value itself never belongs into a manifest: store it with bailiwick secret set NAME, and write file:NAME")
	}
	return p, nil
}

func isSegment(s string) bool {
	return s != "" && len(s) <= 255 && s != "." && s != ".." && strings.Trim(s, segmentText) == ""
}

// IsVariable reports whether s can be the name of an environment variable.
func IsVariable(s string) bool {
	if s == "" || len(s) > 128 || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for _, c := range []byte(s) {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// SecretUse is how an env gives a secret to an agent: Exposed as the value of a
// variable, or Brokered. Exactly one is set.
type SecretUse struct {
	Secret   Name      `json:"secret"`
	Exposed  bool      `json:"exposed,omitempty"`
	Brokered *Brokered `json:"brokered,omitempty"`
}

// Brokered says where the broker puts a secret. The agent's variable has a
// placeholder, random for each attempt. Exactly one of Header, Query and Field is set.
type Brokered struct {
	Hosts  []string `json:"hosts"`            // HOST:PORT, to which the secret may go; part of the egress list
	Header string   `json:"header,omitempty"` // name of a header
	Prefix string   `json:"prefix,omitempty"` // before the value in the header, such as "Bearer "
	Query  string   `json:"query,omitempty"`  // name of a query parameter
	Field  string   `json:"field,omitempty"`  // name of a top-level member of a JSON body or of a form
}

// SecretRef is a secret that a dispatch uses, in its manifest.
type SecretRef struct {
	Name Name       `json:"name"` // of the Secret artifact
	Use  SecretKind `json:"use"`
	Env  Name       `json:"env,omitempty"` // of an env's secret
	Var  string     `json:"var,omitempty"` // variable of that env
	// Ref is the artifact's. Callers of the service do not see it.
	Ref string `json:"ref,omitempty"`
}

// MinExposed is the length in bytes below which a value cannot be redacted: shorter
// ones occur by chance. A secret that is exposed to agents must be at least so long.
const MinExposed = 8

// CheckSecretUse refuses a value that a use cannot take: one that cannot be redacted
// in a variable, and control characters in a request. The error has nothing of it.
func CheckSecretUse(use SecretKind, value string) error {
	if use == SecretExposed {
		if len(value) < MinExposed {
			return fmt.Errorf("exposed to agents and shorter than %d bytes, so it cannot be redacted: use a longer value, or brokered", MinExposed)
		}
		return nil
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("the value has a line break or another control character, which a request cannot take")
	}
	return nil
}

// CheckSecretUses is CheckSecretUse for several uses.
func CheckSecretUses(uses []SecretKind, value string) error {
	for _, use := range uses {
		if err := CheckSecretUse(use, value); err != nil {
			return err
		}
	}
	return nil
}

// SecretKind is how a dispatch uses a secret.
type SecretKind string

// The kinds.
const (
	SecretModel    SecretKind = "model"    // the broker adds it to requests to the model
	SecretBrokered SecretKind = "brokered" // the broker adds it to requests to named hosts
	SecretExposed  SecretKind = "exposed"  // the agent has it in a variable
)

// SecretList is the secrets of the catalog, and those that are set without being
// in it, sorted by name.
type SecretList struct {
	Recipient string       `json:"recipient"` // age public key that set values are encrypted to
	Secrets   []SecretInfo `json:"secrets"`
}

// SecretInfo describes a secret, never with its value.
type SecretInfo struct {
	Name   Name         `json:"name"`
	Ref    string       `json:"ref"`
	UsedBy []string     `json:"usedBy"`         // such as "model anthropic"; empty: nothing
	Uses   []SecretKind `json:"uses,omitempty"` // of dispatches
	// SetAt is when the value of a file: reference was set; nil if it is not set, or
	// the reference is of another kind.
	SetAt *time.Time `json:"setAt,omitempty"`
	// Checked says whether the value was read, and Problem why that failed.
	Checked bool   `json:"checked,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// EgressOf returns the hosts that a dispatch on t with envs may reach beside its
// model, sorted: HOST:PORT or *.HOST:PORT.
func EgressOf(t Target, envs []Env) []string {
	all := map[string]bool{}
	add := func(hosts []string) {
		for _, h := range hosts {
			all[h] = true
		}
	}
	add(t.Egress)
	for _, e := range envs {
		add(e.Egress)
		for _, use := range e.Secrets {
			if use.Brokered != nil {
				add(use.Brokered.Hosts)
			}
		}
	}
	if len(all) == 0 {
		return []string{} // not nil: the manifest says that there is no network
	}
	return slices.Sorted(maps.Keys(all))
}

// SecretsOf returns the secrets that a dispatch with model and envs uses, in a fixed
// order; secret looks one up. A nil model has none.
func SecretsOf(m *Model, envs []Env, secret func(Name) (Secret, error)) ([]SecretRef, error) {
	var refs []SecretRef
	add := func(r SecretRef) error {
		s, err := secret(r.Name)
		r.Ref = s.Ref
		refs = append(refs, r)
		return err
	}
	if m != nil && m.Credential != nil {
		if err := add(SecretRef{Name: m.Credential.Secret, Use: SecretModel}); err != nil {
			return nil, err
		}
	}
	for _, e := range envs {
		for _, v := range slices.Sorted(maps.Keys(e.Secrets)) {
			use := SecretBrokered
			if e.Secrets[v].Exposed {
				use = SecretExposed
			}
			if err := add(SecretRef{Name: e.Secrets[v].Secret, Use: use, Env: e.Name, Var: v}); err != nil {
				return nil, err
			}
		}
	}
	return refs, nil
}
