package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"

	"github.com/bailiwick-dev/bailiwick/api"
)

// StandIn answers while the state is not open. It gives its own account, and accounts
// that operates accepts, the status, and refuses their other calls with the reason. Others
// learn that it is unavailable. It has no state, so it decides and changes nothing.
func StandIn(status func() api.ServiceStatus, why func() *api.Error, operates func(uid uint32) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		who, ok := r.Context().Value(peerKey{}).(peer)
		known := ok && who.err == nil && !who.remote && (int(who.uid) == os.Geteuid() || operates(who.uid))
		if known && r.Method+" "+r.URL.Path == string(api.CallStatus) {
			_ = json.NewEncoder(w).Encode(status()) // the caller may be gone
			return
		}
		e := api.Errorf(api.CodeAuditUnavailable, "nothing is allowed: the service is unavailable").WithHint("ask an operator, whose bailiwick status says why")
		if known {
			e = why()
		}
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
