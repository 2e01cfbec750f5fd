// Package evidence is what an auditor holds and checks: the trust file, and
// the bundle that says what ran.
//
// It works on bytes that it is given. It reads no database, opens no
// connection, and believes no verdict that a bundle carries.
//
// Carries R-A7 and the auditor's side of R-A9.
package evidence
