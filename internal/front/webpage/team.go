package webpage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
	"github.com/bailiwick-dev/bailiwick/internal/front/websetting"
)

// maxConnections bounds the connections of browsers at once.
const maxConnections = 2048

// TeamConfig says where to serve the page for several people.
type TeamConfig struct {
	Conn    *client.Conn // to the service; without a person only logins and enrolments are called
	Now     func() time.Time
	Logger  *slog.Logger
	Setting websetting.Page
	// Listening is called with the origin once browsers can connect; may be nil.
	Listening func(origin string)

	without guard // as in Config
}

// team is what the page for several people has of its own.
type team struct {
	websetting.Page

	service  *client.Conn
	provider *provider
	limit    *addressLimit
}

// ServeTeam serves the page at its address, over TLS, until ctx is done. Each person has a
// session of the service; the page has no authority of its own.
func ServeTeam(ctx context.Context, cfg TeamConfig) error {
	set := cfg.Setting
	address, err := httpguard.ParseAddress("web.listen", set.Listen)
	if err != nil {
		return err
	}
	files := httpguard.CertificateFiles{Certificate: set.Certificate, Key: set.Key, CertificateName: "web.certificate", KeyName: "web.key", Host: set.Host()}
	certificate, err := httpguard.LoadCertificate(files, cfg.Now, func(err error) { cfg.Logger.ErrorContext(ctx, "TLS certificate of the page", slog.Any("err", err)) })
	if err != nil {
		return err
	}
	s, err := newTeamSite(cfg)
	if err != nil {
		return err
	}
	listeners, err := address.Listen(ctx)
	if err != nil {
		return fmt.Errorf("web.listen %s: %w", set.Listen, err)
	}
	server := s.server(ctx, s)
	failed := make(chan error, len(listeners))
	places := make(chan struct{}, maxConnections)
	for _, l := range listeners {
		go func() {
			failed <- server.Serve(&tlsListener{Listener: l, secure: certificate.Config(), places: places})
		}()
	}
	if cfg.Listening != nil {
		cfg.Listening(set.Origin)
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, shutdown(server)) //nolint:contextcheck // ctx is done by now
}

func newTeamSite(cfg TeamConfig) (*site, error) {
	s, err := emptySite(Config{Conn: cfg.Conn, Now: cfg.Now, Logger: cfg.Logger, Steer: true, without: cfg.without})
	if err != nil {
		return nil, err
	}
	if s.hosts, err = httpguard.NewHostList([]string{strings.TrimPrefix(cfg.Setting.Origin, "https://")}); err != nil {
		return nil, err
	}
	found, err := newProvider(cfg.Setting, cfg.Now)
	if err != nil {
		return nil, err
	}
	s.team = &team{Page: cfg.Setting, service: cfg.Conn, provider: found, limit: newAddressLimit(cfg.Now)}
	from := s.source()
	all := append(s.pages(), steering{from}.routes()...)
	all = append(all, signPages{from, "/sign/", cfg.Setting.Host()}.routes()...)
	s.handle(append(all, s.personRoutes()...))
	return s, nil
}

// personRoutes are the paths about people and their sessions.
func (s *site) personRoutes() []route {
	return []route{
		{pattern: "GET /static/{file}", raw: s.static},
		{pattern: "GET /login", raw: s.getLogin},
		{pattern: "GET /login/oidc", raw: s.beginOIDC},
		{pattern: "GET /login/callback", raw: s.finishOIDC},
		{pattern: "POST /login/passkey/begin", raw: s.beginPasskey},
		{pattern: "POST /login/passkey/finish", raw: s.finishPasskey},
		{pattern: "GET /enrol", page: func(*http.Request) (*view, error) {
			return &view{"join", "Enrol a passkey", struct{ RPID, Origin string }{s.team.Host(), s.team.Origin}}, nil
		}},
		{pattern: "POST /enrol", raw: s.postEnrol},
		{pattern: "GET /sessions", page: s.sessions},
		{pattern: "POST /sessions/{id}/end", post: s.endSession},
		{pattern: "POST /logout", raw: s.endOwnSession},
	}
}

// tlsListener accepts TLS connections whose framing is checked, at most as many as there
// are places; further ones are closed.
type tlsListener struct {
	net.Listener

	secure *tls.Config
	places chan struct{} // one for each connection
}

// Accept waits for a connection that has a place.
func (l *tlsListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &placedConn{Conn: httpguard.NewConn(tls.Server(raw, l.secure)), places: l.places}, nil
		default:
			_ = raw.Close() // all places are taken
		}
	}
}

// placedConn is a connection with its place, which it gives back once.
type placedConn struct {
	*httpguard.Conn

	places chan struct{}
	once   sync.Once
}

// Close closes the connection.
func (c *placedConn) Close() error {
	c.once.Do(func() { <-c.places })
	return c.Conn.Close()
}
