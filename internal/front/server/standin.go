package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"

	"github.com/bailiwick-dev/bailiwick/api"
)

// StandIn answers while the state is not open. It gives its own account the status,
// and refuses everything else with why. It has no state, so it decides and changes
// nothing.
func StandIn(status func() api.ServiceStatus, why func() *api.Error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		who, ok := r.Context().Value(peerKey{}).(peer)
		if r.Method+" "+r.URL.Path == string(api.CallStatus) && ok && who.err == nil && !who.remote && int(who.uid) == os.Geteuid() {
			_ = json.NewEncoder(w).Encode(status()) // the caller may be gone
			return
		}
		e := why()
		w.WriteHeader(api.Table()[e.Code].HTTP)
		_ = json.NewEncoder(w).Encode(e) // likewise
	})
}

// NewHTTP returns the HTTP server of h on the service's socket.
func NewHTTP(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ConnContext: connContext, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
