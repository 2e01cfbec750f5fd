// Package failpoint marks the points at which tests kill the programs, to prove
// that nothing is lost.
//
// Each point is one call of [Hit] with a name of the closed list in this package.
// In release builds Hit is empty and no program links anything of this package,
// which a test proves. Built with the tag failpoints, a process whose account has
// the directory $XDG_STATE_HOME/failpoint records every point that it passes, and
// kills or stops itself at a point that is armed there; [Clock] can be stepped there.
// It never decides anything, and no program may depend on it.
//
// Carries the kill tests of R-O6, R-D3 and R-D4.
package failpoint

// The files of the directory. A test that arms a point replaces the file by a
// rename, and only while no armed point is left.
const (
	// Folder is the name of the directory in $XDG_STATE_HOME.
	Folder = "failpoint"
	// Record has a line NAME PID SUBJECT for each point passed, and a line
	// "! NAME PID ACTION SUBJECT" before each action.
	Record = "record"
	// Armed has a line NAME COUNT ACTION for each armed point: the COUNTth process
	// to pass it from now on acts.
	Armed = "armed"
	// Ahead has the duration by which [Clock] is ahead.
	Ahead = "ahead"
)

// Action is what a process does at an armed point.
type Action string

// The actions.
const (
	Kill Action = "kill" // SIGKILL itself
	Stop Action = "stop" // SIGSTOP itself, so that others can be killed first
)
