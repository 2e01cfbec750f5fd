package api

// HTTPReady reports whether the service lets the MCP server listen on HTTP, in no
// more detail than needed (R-T2).
type HTTPReady struct {
	Token bool `json:"token"` // at least one client token is active
	Audit bool `json:"audit"` // the log is writable: this request is logged
}
