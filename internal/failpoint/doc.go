// Package failpoint marks the moments of a dispatch's life at which the
// programs can be killed to see that nothing is lost.
//
// Each moment is one call of [Hit] with a name of the closed list in this
// package. In the programs as they are shipped Hit is empty and nothing of
// this package is linked, which a test of package arch proves. Built with the
// tag failpoints, a process whose account has the folder
// $XDG_STATE_HOME/failpoint writes down every moment that it passes, and ends
// or stops itself at the one that is armed there. It never decides anything,
// and no program's outcome may depend on it.
//
// Carries the trial of R-O6, R-D3 and R-D4.
package failpoint

// The files of the folder. Whoever arms a point replaces the file with a
// rename, and only while no armed point is left.
const (
	// Folder is below $XDG_STATE_HOME.
	Folder = "failpoint"
	// Record has one line for each moment: NAME PID SUBJECT. What was armed
	// adds a line "! NAME PID ACTION SUBJECT" before it acts.
	Record = "record"
	// Armed has a line NAME COUNT ACTION for each armed point: at the
	// COUNTth time that any process passes it from now on, that one acts.
	Armed = "armed"
)

// Action is what the process does that passes an armed point.
type Action string

// The actions.
const (
	Kill Action = "kill" // ends itself as kill -9 does
	Stop Action = "stop" // stops itself, so that others can be killed first
)
