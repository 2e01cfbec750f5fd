// Package sourcefetch gets commits of sources by URL into the service's state. It runs in a
// process of its own, bailiwick-fetch, which alone has the credential.
//
// Git speaks to the server from a jail. Its only way out is the jail's listener, which
// leads to the one host and port of the URL, through internal/base/egress. Over HTTPS that is
// a reverse proxy for the two requests of a fetch; it ends TLS and adds the credential,
// so git never has it. Over SSH it is a stream, and the key is in the jail: the server
// must have a key that the source names.
//
// Of the jail's files only packs are taken, as data: package capture verifies
// the name of each object that it reads. A commit is fetched without its history, once.
//
// Carries the part of R-S4 and R-T7 that concerns sources by URL.
package sourcefetch
