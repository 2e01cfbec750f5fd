// Package telemetry says how the service is: metrics, health and traces.
//
// It never leaves the machine by itself: metrics are served on a unix socket
// of the service's account or on a loopback address, and spans go to a
// collector on this machine. It is never asked whether something may happen,
// and its failure fails nothing. No label of a metric comes from a caller, a
// catalog or an agent, so nobody can make their number grow.
package telemetry
