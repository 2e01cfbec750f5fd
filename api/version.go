package api

// release is the version of this tree, as in the changelog.
const release = "0.1.0"

// commit is the commit that was built, if the build sets it.
var commit string //nolint:gochecknoglobals // set by the linker, see the Makefile

// Version returns the version of this build.
func Version() string {
	if commit == "" {
		return release
	}
	return release + "+" + commit
}
