// Package testkit is a group of packages. It has what only tests and the demo link: the import policy, a faulty disk, a machine
// with accounts, built programs, a scripted model and a software passkey.
//
// It never is part of a program that is shipped.
package testkit
