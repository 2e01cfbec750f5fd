package toolcall

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// order is everything that a server is made of in one revision.
type order struct {
	server     api.ToolServer
	revision   api.Digest // that has it
	digest     api.Digest // of its document, capability and secrets together
	capability api.Capability
	refs       map[api.Name]string // of its secrets
}

// order reads a server from the revision of a call.
func (p *Pool) order(c Call) (*order, error) {
	revision := c.Owner.Revision
	server, digest, err := revision.ToolServer(c.Owner.Server)
	if err != nil {
		return nil, err
	}
	o := &order{server: server, revision: revision.Digest(), refs: map[api.Name]string{}}
	parts := []api.Digest{digest}
	if host := server.Host(); host != nil && host.Capability != "" {
		if o.capability, digest, err = revision.Capability(host.Capability); err != nil {
			return nil, err
		}
		parts = append(parts, digest)
	}
	for _, name := range server.SecretNames() {
		secret, digest, err := revision.Secret(name)
		if err != nil {
			return nil, err
		}
		o.refs[name] = secret.Ref
		parts = append(parts, digest)
	}
	if len(parts) == 1 {
		o.digest = parts[0]
		return o, nil
	}
	doc, err := canon.Marshal(parts)
	o.digest = api.DigestOf(doc)
	return o, err
}

// resolve returns the server with what its tool host needs in addition to its document.
func (p *Pool) resolve(o *order) toolclient.Server {
	s := toolclient.Server{ToolServer: o.server, Revision: o.revision, Refs: slices.Collect(maps.Values(o.refs)), Secrets: func(ctx context.Context) (record.Secrets, error) {
		values := record.Secrets{}
		for name, ref := range o.refs {
			if p.cfg.Secrets == nil {
				return nil, fmt.Errorf("secret %q: this service has no secret store", name)
			}
			value, err := p.cfg.Secrets.Resolve(ctx, ref)
			if err != nil {
				return nil, fmt.Errorf("secret %q: %w", name, err)
			}
			values[name] = value
		}
		return values, nil
	}}
	for _, f := range o.capability.Files {
		s.Files = append(s.Files, toolclient.File{File: f, Open: func() (io.ReadCloser, error) {
			content, err := p.cfg.Catalog.Get(p.ctx, f.Digest, f.Size)
			return io.NopCloser(bytes.NewReader(content)), err
		}})
	}
	return s
}
