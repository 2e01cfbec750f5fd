package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// parser turns arguments into types and keeps the first error.
type parser struct{ err error }

func (p *parser) fail(err error) {
	if p.err == nil && err != nil {
		p.err = api.Errorf(api.CodeInvalid, "%w", err)
	}
}

func (p *parser) principal(s string) api.Principal {
	v, err := api.ParsePrincipal(s)
	p.fail(err)
	return v
}

// name reads the name of an artifact; empty means none was given.
func (p *parser) name(kind, s string) api.Name {
	if s == "" {
		return ""
	}
	v, err := api.ParseName(s)
	if err != nil {
		p.fail(api.Errorf(api.CodeInvalid, "%s %w", kind, err))
	}
	return v
}

func (p *parser) names(kind string, list []string) []api.Name {
	var out []api.Name
	for _, s := range list {
		out = append(out, p.name(kind, s))
	}
	return out
}

func (p *parser) dispatch(s string) api.DispatchID {
	v, err := api.ParseDispatchID(s)
	p.fail(err)
	return v
}

// source reads NAME or NAME@COMMIT.
func (p *parser) source(s string) *api.SourceRequest {
	if s == "" {
		return nil
	}
	name, commit, named := strings.Cut(s, "@")
	if name == "" || named && commit == "" {
		// An empty variable must not mean the newest commit.
		p.fail(api.Errorf(api.CodeInvalid, "--source %s: want NAME or NAME@COMMIT", s))
	}
	return &api.SourceRequest{Name: p.name("source", name), Commit: commit}
}

// maxInput is what the service takes as a whole request.
const maxInput = 1 << 20

// input reads an input object: JSON text, @FILE, or - for standard input, with
// the members of set (KEY=TEXT) put on top.
func (p *parser) input(text string, set []string, stdin io.Reader) json.RawMessage {
	raw, err := readInput(text, stdin)
	p.fail(err)
	members := map[string]json.RawMessage{}
	if len(raw) > 0 {
		if _, err := canon.Canonicalize(raw); err != nil {
			p.fail(api.Errorf(api.CodeInvalid, "input: %w", err))
		} else if err := json.Unmarshal(raw, &members); err != nil || members == nil {
			p.fail(api.Errorf(api.CodeInvalid, "input: want a JSON object"))
		}
	}
	for _, kv := range set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			p.fail(api.Errorf(api.CodeInvalid, "--set %s: want KEY=TEXT", kv))
			continue
		}
		members[key], err = json.Marshal(value)
		p.fail(err)
	}
	if p.err != nil {
		return nil
	}
	out, err := json.Marshal(members)
	p.fail(err)
	return out
}

func readInput(text string, stdin io.Reader) ([]byte, error) {
	from := io.Reader(strings.NewReader(text))
	if text == "-" {
		from = stdin
	} else if path, ok := strings.CutPrefix(text, "@"); ok {
		f, err := os.Open(path) //nolint:gosec // G304: the user names the file
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		from = f
	}
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(from, maxInput+1))
	if err == nil && n > maxInput {
		err = api.Errorf(api.CodeTooLarge, "input: larger than 1 MiB")
	}
	return b.Bytes(), err
}
