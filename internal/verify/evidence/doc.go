// Package evidence is the auditor's side: the trust file, and the verifier of
// bundles.
//
// It works on the bytes that it is given. It reads no database, opens no
// connection, and believes no verdict in a bundle: it recomputes everything, and
// reports what it could not check as not checked, never as passed. A bundle
// carries no trust: what its exporter says of itself proves nothing.
//
// The service verifies with it what it exports; package bundle is the format.
//
// Carries R-A7 and the auditor's side of R-A9.
package evidence
