// Package run is a group of packages. It has the service's decisions over time: dispatches, runs of plans, schedules, and the
// removal of what need not be kept.
//
// It never parses requests of clients or prints; front does.
package run
