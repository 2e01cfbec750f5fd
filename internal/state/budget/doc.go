// Package budget keeps what grants and plans allow to be spent: of cost, tokens, wall
// time and dispatches, per run and per day. An attempt reserves what its limits allow
// at most, in the commit that admits it, and settles what was counted, in the commit
// that ends it. Nothing begins that could exceed a budget, and without a count nothing
// begins at all.
//
// Carries R-O11.
package budget
