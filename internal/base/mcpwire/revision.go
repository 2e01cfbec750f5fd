package mcpwire

// FirstStateless is the first protocol revision without initialize: each request says in
// _meta what initialize said, and headers repeat parts of the body.
const FirstStateless = "2026-07-28"

// Members of _meta in that revision.
const (
	MetaVersion            = "io.modelcontextprotocol/protocolVersion"    // of a request
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities" // of a request, required
	MetaServer             = "io.modelcontextprotocol/serverInfo"         // of a result
)

// Codes of errors of that revision.
const (
	CodeHeaderMismatch     = -32020
	CodeUnsupportedVersion = -32022
)
