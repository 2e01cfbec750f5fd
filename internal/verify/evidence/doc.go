// Package evidence is the auditor's side: the trust file, and the verifier of
// bundles.
//
// It works on the bytes that it is given. It reads no database, opens no
// connection, and believes no verdict in a bundle: it recomputes everything, and
// reports what it could not check as not checked, never as passed. A bundle
// carries no trust: what its exporter says of itself proves nothing.
//
// verification.run is the whole of it, from top to bottom:
//
//   - logCheck: the entries are those of one log, which the auditor's keys signed.
//   - world: the entries by run and dispatch. A history follows a dispatch, a replay
//     a run: each taskStep is compared with the plan and with what is past.
//   - timeline: what was in force when: catalog revisions, operators, ceilings, stops.
//   - dispatchCheck and closure: each dispatch did what its signed documents say, with
//     what others made.
//   - decider: every decision is repeated by the rules then in force.
//   - scene: every field of every entry is compared with a second place, by a table.
//
// What it finds goes into package report. A library has the documents, each for one
// reader, and a meter counts what all of it costs.
//
// The service verifies with it what it exports; package bundle is the format.
//
// Carries R-A7 and the auditor's side of R-A9.
package evidence
