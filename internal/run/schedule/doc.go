// Package schedule submits the plans of the catalog's schedules when they are due. A
// slot is durable before its run is submitted, and the id of the run follows from the
// schedule and the slot, so that no slot is lost and none has two runs.
//
// Carries R-O10.
package schedule
