// Package report is what a verification found: the checks with their outcome, the claim,
// what ran and who decided it; and a period of a log. It shows them as text, JSON and HTML.
//
// It verifies nothing. Package evidence fills it, and content that came from a caller or an
// agent never moves a cursor or begins a line.
//
// Carries R-A7.
package report
