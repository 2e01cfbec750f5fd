package api

// HTTPReady says whether the MCP server may be reached over HTTP, as far as
// that depends on the service, and in no more detail than that (R-T2).
type HTTPReady struct {
	Token bool `json:"token"` // a client token is good
	Audit bool `json:"audit"` // the log can be written: this question is in it
}
