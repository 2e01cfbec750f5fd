package api

// release is the version of this tree. It changes with the changelog.
const release = "0.1.0"

// commit is what the tree was built from, where the build says it.
var commit string //nolint:gochecknoglobals // set by the linker, see the Makefile

// Version returns the version of this build.
func Version() string {
	if commit == "" {
		return release
	}
	return release + "+" + commit
}
