// Package worker is a group of packages. It has what runs for one attempt of a dispatch: the jail, its network, the agent
// program, the workspace and the capture of the result.
//
// It never opens the database or the log; what it knows comes in a signed manifest.
package worker
