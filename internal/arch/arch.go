// Package arch is the import policy: which package may import which, and what
// a program may never link. Its test proves the policy on the real import
// graph, also through files that build tags and other systems leave out, and
// proves on planted violations that it would notice.
//
// Imports prove the absence of code, not of power: separate accounts and
// read-only mounts stay needed.
//
// Carries R-B4 and the import half of R-O1.
package arch
