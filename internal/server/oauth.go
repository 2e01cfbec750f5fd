package server

import (
	"context"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// authenticate returns the session that a token is good for. What has the form
// of ours is ours or nothing; anything else is the configured issuer's, if there
// is one. With an error it returns what is known of the token.
func (s *Server) authenticate(ctx context.Context, text string) (session, error) {
	if s.cfg.OAuth == nil || strings.HasPrefix(text, api.TokenPrefix) {
		principal, id, err := s.cfg.Registry.Authenticate(text)
		return session{principal: principal, token: id, active: func() bool { return s.cfg.Registry.Active(id) }}, err
	}
	t, err := s.cfg.OAuth.Verify(ctx, text)
	if err != nil {
		return session{}, err
	}
	principal, ok := s.cfg.Registry.Subject(t.OAuthSubject)
	if !ok {
		return session{}, api.Errorf(api.CodeUnauthenticated, "token of another issuer: no operator named its subject %.80q", t.Subject).
			WithHint("ask the operator: bailiwick principal add PRINCIPAL --oauth-issuer %s --oauth-subject SUBJECT", t.Issuer)
	}
	return session{
		principal: principal,
		token:     api.TokenID("of an issuer, for " + string(principal)), // it has no name of ours; handles are bounded by whose they are
		expires:   t.ExpiresAt,
		active: func() bool {
			now, ok := s.cfg.Registry.Subject(t.OAuthSubject)
			return ok && now == principal && s.cfg.Now().Before(t.ExpiresAt)
		},
	}, nil
}
