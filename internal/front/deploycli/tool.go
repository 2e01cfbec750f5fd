package deploycli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// define asks a server for the definitions of its tools, with the values of its secrets
// that the user gives, and without those that the user does not give.
func (p *catalogVerbs) define(ctx context.Context, s api.ToolServer, files []deploy.ToolFile) (deploy.Offer, error) {
	server := toolclient.Server{ToolServer: withSecrets(s, p.secrets)}
	server.Secrets = func(context.Context) (record.Secrets, error) {
		needed := record.Secrets{}
		for _, name := range server.SecretNames() {
			needed[name] = p.secrets[name]
		}
		return needed, nil
	}
	for _, f := range files {
		server.Files = append(server.Files, toolclient.File{File: f.File, Open: f.Open})
	}
	lacks := []string{}
	for _, name := range s.SecretNames() {
		if _, given := p.secrets[name]; !given {
			lacks = append(lacks, "--secret "+string(name))
		}
	}
	offer, err := toolclient.Definitions(ctx, toolclient.Config{Start: toolclient.Plain{Program: filepath.Join(p.Beside, "bailiwick-toolhost"), Env: p.Env}}, server)
	if err != nil && len(lacks) > 0 {
		err = fmt.Errorf("%w; it was asked without a credential: give it one with %s", err, strings.Join(lacks, " "))
	}
	return deploy.Offer{Tools: offer.Tools, Unused: offer.Unused}, err
}

// withSecrets returns a server that uses only given secrets.
func withSecrets(s api.ToolServer, given record.Secrets) api.ToolServer {
	has := func(name api.Name) bool { _, ok := given[name]; return ok }
	if s.Stdio != nil {
		stdio := *s.Stdio
		stdio.Secrets = maps.Clone(stdio.Secrets)
		maps.DeleteFunc(stdio.Secrets, func(_ string, name api.Name) bool { return !has(name) })
		s.Stdio = &stdio
	}
	if s.HTTP != nil {
		http := *s.HTTP
		if http.Header != nil && !has(http.Header.Secret) {
			http.Header = nil
		}
		if http.OAuth != nil && !has(http.OAuth.Secret) {
			http.OAuth = nil
		}
		s.HTTP = &http
	}
	return s
}

// readSecrets gets the values of secrets that a plan asks servers with: of NAME from the
// terminal, of NAME=@FILE from a file. They stay in memory.
func (p *catalogVerbs) readSecrets(ctx context.Context, flags []string) error {
	p.secrets = record.Secrets{}
	for _, flag := range flags {
		text, from, isFile := strings.Cut(flag, "=")
		name, err := api.ParseName(text)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "--secret: %w", err)
		}
		var value string
		switch path, ok := strings.CutPrefix(from, "@"); {
		case !isFile:
			value, err = console.Hidden(ctx, fmt.Sprintf("Value of the secret %s (not shown): ", name), "value", fmt.Sprintf("run this from a terminal, or give the value in a file: --secret %s=@FILE", name))
		case ok && path != "":
			value, err = readSecret(path)
		default: // not quoted: it may be the value
			err = api.Errorf(api.CodeInvalid, "--secret %s: want %[1]s, which asks on the terminal, or %[1]s=@FILE; other programs can read a command line, so a value does not belong there", name)
		}
		if err != nil {
			return err
		}
		if err := record.CheckSecret(value); err != nil {
			return api.Errorf(api.CodeInvalid, "secret %q: %w", name, err)
		}
		p.secrets[name] = value
	}
	return nil
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // G304: the user names its own file
	if err != nil {
		return "", fmt.Errorf("value of a secret: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, record.MaxSecret+3))
	return record.TrimLine(string(b)), errors.Join(err, f.Close())
}

// pinned shows the definitions that are not pinned, and with pin writes the pins into
// the manifest.
func (p *catalogVerbs) pinned(ctx context.Context, m *deploy.Manifest, e *deploy.UnpinnedError, pin bool) error {
	o := &out{colour: p.Colour}
	for _, u := range e.Servers {
		o.unpinned(u)
	}
	p.print("%s", strings.TrimSuffix(o.b.String(), "\n"))
	if !pin {
		return e
	}
	if err := m.Pin(ctx, e.Servers); err != nil {
		return err
	}
	for _, u := range e.Servers {
		p.print("Wrote the pin of %s to %s: %s", api.RefTo(api.KindTool, u.Server), visible(m.Path()), u.Pin)
	}
	return nil
}

// unpinned writes the definitions of a server for the person who pins them.
func (o *out) unpinned(u deploy.Unpinned) {
	o.linef("Server %s: what agents are told about the tools that its allow names:", u.Server)
	o.line("")
	for _, d := range u.Tools {
		name, err := catalog.ExposedName(u.Server, d.Name)
		if err != nil {
			name = catalog.ToolID(u.Server, d.Name) // the plan refuses it
		}
		o.line(o.paint("1", "  "+name))
		o.paragraph("title", d.Title)
		o.paragraph("description", d.Description)
		o.paragraph("input", catalogdiff.IndentJSON(d.InputSchema))
		o.paragraph("output", catalogdiff.IndentJSON(d.OutputSchema))
		o.paragraph("annotations", catalogdiff.IndentJSON(d.Annotations))
		if parts := u.Changed(d.Name); len(parts) > 0 {
			o.line(o.paint("1;35", "    ! changed since the pin in force: "+strings.Join(parts, ", ")))
		}
		o.line("")
	}
	if len(u.Others) > 0 {
		o.linef("  not allowed to any role: %s", deploy.ToolNames(u.Others))
		o.line("")
	}
	if len(u.Unused) > 0 {
		o.linef("  no agent gets: %s", strings.Join(u.Unused, ", "))
		o.line("")
	}
}

// paragraph writes text that a server chose, each line of it below its title.
func (o *out) paragraph(title, text string) {
	if text == "" {
		return
	}
	o.linef("    %s:", title)
	for l := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		o.line("      " + visible(strings.ReplaceAll(l, "\t", "    ")))
	}
}
