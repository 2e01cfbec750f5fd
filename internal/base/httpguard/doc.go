// Package httpguard has what the HTTP servers of Bailiwick check before they look at
// a request: the address that they listen on, the framing of each connection, the
// names in Host, and the account at the other end of a local connection.
//
// It decides nothing else and holds no state. It carries the parts of R-T2, R-T3 and
// R-S2 that the service, the MCP server and the page share.
package httpguard
