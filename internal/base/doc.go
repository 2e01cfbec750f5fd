// Package base is a group of packages. It has what any Go service could use: files, encodings, sockets, clocks, text.
//
// It never names a worker, a catalog, a run or any other noun of Bailiwick's domain.
package base
