package daemoncli

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
	"github.com/bailiwick-dev/bailiwick/internal/front/server"
)

// serverSettings is where the API is served over TLS. The zero value: nowhere.
type serverSettings struct {
	Listen           string
	Certificate, Key string // paths of PEM files
}

func (r *settingsReader) server(n *yaml.Node) {
	to := &r.s.Server
	before := r.Len()
	r.Fields(n, "server", map[string]func(*yaml.Node){
		"listen":      func(n *yaml.Node) { to.Listen = r.Line(n, "server.listen") },
		"certificate": func(n *yaml.Node) { to.Certificate = r.path(n, "server.certificate") },
		"key":         func(n *yaml.Node) { to.Key = r.path(n, "server.key") },
	})
	if r.Len() > before {
		return
	}
	if to.Listen == "" || to.Certificate == "" || to.Key == "" {
		r.At(n, "server: write all of listen, certificate and key")
	} else if _, err := httpguard.ParseAddress("server.listen", to.Listen); err != nil {
		r.At(n, "%v", err)
	}
}

func (s serverSettings) meaning(all map[string]string) {
	all["server.listen"], all["server.certificate"], all["server.key"] = s.Listen, s.Certificate, s.Key
}

// remote is the listener of remote callers and its certificate. It stays while the service
// opens its state again.
type remote struct {
	listener *net.TCPListener
	secure   *tls.Config
}

// listenRemote makes the service listen for remote callers; nil: it is not configured to. A
// certificate that cannot be used refuses the start.
func (s *service) listenRemote(ctx context.Context) (*remote, error) {
	set := s.set.Server
	if set.Listen == "" {
		return nil, nil //nolint:nilnil // it is not configured
	}
	logger := s.logger
	files := httpguard.CertificateFiles{Certificate: set.Certificate, Key: set.Key, CertificateName: "server.certificate", KeyName: "server.key"}
	pair, err := httpguard.LoadCertificate(files, s.t.Now, func(err error) {
		logger.LogAttrs(ctx, slog.LevelError, "TLS certificate of the server", slog.Any("err", err))
	})
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err).WithHint("renew the certificate, or remove the section server from %s", s.set.File)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", set.Listen)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "server.listen %s: %w", set.Listen, err).WithHint("free the port, or change server.listen in %s", s.set.File)
	}
	return &remote{l.(*net.TCPListener), pair.Config()}, nil //nolint:forcetypeassert // of TCP
}

// serve answers remote callers until srv shuts down.
func (r *remote) serve(srv *server.Server) error {
	file, err := r.listener.File()
	if err != nil {
		return err
	}
	l, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return srv.ServeRemote(server.Remote{Listener: l, TLS: r.secure})
}
