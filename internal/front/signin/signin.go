package signin

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// renewBefore is how long before its end a session is renewed.
const renewBefore = time.Minute

// Request is a login at a server.
type Request struct {
	URL   string
	CA    string // certificates in PEM, in addition to the system's
	Token string // empty: by the identity provider
	// Show tells the person where to log in, with which code.
	Show func(address, code string)
}

// Login logs in at a server and makes it the current one. It returns who it is there.
func (s Store) Login(ctx context.Context, r Request) (api.Who, error) {
	pool, err := roots(r.CA)
	if err != nil {
		return api.Who{}, api.Errorf(api.CodeInvalid, "certificates: %w", err)
	}
	conn := client.New(client.Config{Remote: &client.Remote{URL: r.URL, Roots: pool}})
	defer conn.Close()
	made := login{CA: r.CA, Token: r.Token}
	var handle string
	if r.Token != "" {
		opened, err := conn.Exchange(ctx, r.Token)
		if err != nil {
			return api.Who{}, err
		}
		handle = opened.Handle
	} else {
		if err := made.byDevice(ctx, conn, pool, r); err != nil {
			return api.Who{}, err
		}
		handle = made.Session.Handle
	}
	who, err := conn.As(handle).Runtime().Who(ctx)
	if err != nil {
		return who, err
	}
	return who, s.change(ctx, func(k *kept) error {
		k.Current = r.URL
		return s.put(k, r.URL, made)
	})
}

// Logout ends the session at a server and forgets its login. ended says whether the
// server knows: one that does not answer ends the session by itself.
func (s Store) Logout(ctx context.Context, url string) (ended bool, err error) {
	k, err := s.load()
	if err != nil {
		return false, err
	}
	l, ok, unread := s.of(k, url) // what cannot be read is forgotten all the same
	if !ok {
		return false, api.Errorf(api.CodeNotFound, "no login at %q", url).WithHint("see: bailiwick session list, bailiwick whoami")
	}
	ended = l.Session == nil && unread == nil
	if pool, err := roots(l.CA); err == nil && l.Session != nil {
		conn := client.New(client.Config{Remote: &client.Remote{URL: url, Roots: pool}})
		defer conn.Close()
		err = conn.As(l.Session.Handle).Sessions().End(ctx, l.Session.ID)
		ended = err == nil || api.CodeOf(err) == api.CodeUnauthenticated || api.CodeOf(err) == api.CodeNotFound
	}
	return ended, s.change(ctx, func(k *kept) error {
		if l.Keyring && s.Keyring != nil {
			if err := s.Keyring.Delete(url); err != nil {
				return fmt.Errorf("the login at %q stays in the keyring: %w", url, err)
			}
		}
		if delete(k.Servers, url); k.Current == url {
			k.Current = ""
		}
		return nil
	})
}

// Remote returns how to call a server as who is logged in there.
func (s Store) Remote(url string) (*client.Remote, error) {
	k, err := s.load()
	if err != nil {
		return nil, err
	}
	l, ok := k.Servers[url]
	if !ok {
		return nil, api.Errorf(api.CodeUnauthenticated, "no login at %q", url).WithHint("run: bailiwick login %s", url)
	}
	pool, err := roots(l.CA)
	if err != nil {
		return nil, err
	}
	return &client.Remote{URL: url, Roots: pool, Session: func(ctx context.Context, c *client.Conn, refused string) (string, error) {
		return s.handle(ctx, c, url, pool, refused)
	}}, nil
}

// handle returns a handle for a server that was not refused, and renews the login if need
// be. Several commands at the same time renew it once.
func (s Store) handle(ctx context.Context, c *client.Conn, url string, pool *x509.CertPool, refused string) (handle string, err error) {
	usable := func(l login) bool {
		return l.Session != nil && l.Session.Handle != refused && s.Now().Before(l.Session.ExpiresAt.Add(-renewBefore))
	}
	k, err := s.load()
	if err != nil {
		return "", err
	}
	l, _, err := s.of(k, url)
	if err != nil {
		return "", err
	}
	if l.Token != "" {
		opened, err := c.Exchange(ctx, l.Token)
		return opened.Handle, err
	} else if usable(l) {
		return l.Session.Handle, nil
	}
	err = s.change(ctx, func(k *kept) error {
		l, _, err := s.of(*k, url)
		if err == nil && !usable(l) {
			if err = l.renew(ctx, c, pool, url); err == nil {
				err = s.put(k, url, l)
			}
		}
		if err == nil {
			handle = l.Session.Handle
		}
		return err
	})
	return handle, err
}

// provider returns the provider's endpoints, and the context of requests to it.
func provider(ctx context.Context, pool *x509.CertPool, p *api.OIDCProvider) (context.Context, *oauth2.Config, error) {
	ctx = oidc.ClientContext(ctx, providerClient(pool))
	found, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return ctx, nil, away(p.Issuer, err)
	}
	scopes := slices.Clone(p.Scopes)
	return ctx, &oauth2.Config{ClientID: p.Client, Endpoint: found.Endpoint(), Scopes: scopes}, nil
}

func providerClient(pool *x509.CertPool) *http.Client {
	return egress.Client(egress.ClientConfig{Dial: egress.Chosen().DialContext, Roots: pool, Timeout: 30 * time.Second})
}

func away(issuer string, err error) error {
	return api.Errorf(api.CodeUnavailable, "the identity provider %s does not answer: %.300s", issuer, err.Error()).
		WithHint("a session that is open stays valid until its end; log in again once the provider answers, or with a token: bailiwick login URL --token FILE")
}

// byDevice logs in by the device flow (RFC 8628).
func (l *login) byDevice(ctx context.Context, conn *client.Conn, pool *x509.CertPool, r Request) error {
	methods, err := conn.Login().Methods(ctx)
	if err != nil {
		return err
	}
	if methods.OIDC == nil {
		return api.Errorf(api.CodeNotConfigured, "server %s has no identity provider", r.URL).WithHint("log in with a token: bailiwick login %s --token FILE", r.URL)
	}
	ctx, cfg, err := provider(ctx, pool, methods.OIDC)
	if err != nil {
		return err
	}
	if cfg.Endpoint.DeviceAuthURL == "" {
		return api.Errorf(api.CodeNotConfigured, "the identity provider %s has no device flow", methods.OIDC.Issuer).
			WithHint("allow it for the client %q, or log in with a token: bailiwick login %s --token FILE", methods.OIDC.Client, r.URL)
	}
	asked, err := cfg.DeviceAuth(ctx)
	if err != nil {
		return refusedBy(methods.OIDC.Issuer, err)
	}
	address := asked.VerificationURIComplete
	if address == "" {
		address = asked.VerificationURI
	}
	r.Show(address, asked.UserCode)
	token, err := cfg.DeviceAccessToken(ctx, asked)
	if err != nil {
		return refusedBy(methods.OIDC.Issuer, err)
	}
	l.OIDC = &grant{Issuer: methods.OIDC.Issuer, Client: methods.OIDC.Client}
	return l.open(ctx, conn, token)
}

// open opens a session with the provider's answer.
func (l *login) open(ctx context.Context, c *client.Conn, token *oauth2.Token) error {
	id, _ := token.Extra("id_token").(string)
	if id == "" {
		return api.Errorf(api.CodeUnauthenticated, "the identity provider %s gave no ID token", l.OIDC.Issuer).WithHint("allow the scope openid for the client %q", l.OIDC.Client)
	}
	if token.RefreshToken != "" {
		l.OIDC.Refresh = token.RefreshToken
	}
	opened, err := c.Login().OIDC(ctx, api.OIDCLogin{IDToken: id})
	if err != nil {
		return err
	}
	l.Session = &session{opened.Session, opened.ID, opened.Principal, opened.ExpiresAt}
	return nil
}

// renew opens another session with the refresh token.
func (l *login) renew(ctx context.Context, c *client.Conn, pool *x509.CertPool, url string) error {
	if l.OIDC == nil || l.OIDC.Refresh == "" {
		return api.Errorf(api.CodeUnauthenticated, "the session at %s has ended", url).WithHint("run: bailiwick login %s", url)
	}
	ctx, cfg, err := provider(ctx, pool, &api.OIDCProvider{Issuer: l.OIDC.Issuer, Client: l.OIDC.Client})
	if err != nil {
		return err
	}
	token, err := cfg.TokenSource(ctx, &oauth2.Token{RefreshToken: l.OIDC.Refresh}).Token()
	if err != nil {
		if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok && failed.Response.StatusCode < http.StatusInternalServerError {
			return api.Errorf(api.CodeUnauthenticated, "the session at %s has ended, and the identity provider does not renew it: %.100s %.200s", url, failed.ErrorCode, failed.ErrorDescription).WithHint("run: bailiwick login %s", url)
		}
		return away(l.OIDC.Issuer, err)
	}
	return l.open(ctx, c, token)
}

// refusedBy is the error of a login that the provider refused. Its own message has no
// secret, and is cut.
func refusedBy(issuer string, err error) error {
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok && failed.ErrorCode != "" {
		return api.Errorf(api.CodeUnauthenticated, "the identity provider %s refused the login: %.100s %.200s", issuer, failed.ErrorCode, failed.ErrorDescription).WithHint("run the command again, and confirm the code in time")
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return away(issuer, err)
}
